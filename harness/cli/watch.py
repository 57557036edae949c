"""``assay watch PATH``: judges a running run, and prints findings at once."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import EXITS, ExitCode, add_plugin_options, convert_errors, note

if TYPE_CHECKING:
    from assay.harness.stored.live_check import WatchJudgement

DESCRIPTION: Final = """\
Judges a running run. Each time that a part of its history has been written (every 5 s), all of the history so far is
judged by the run's own contract, and a forbidden anomaly is printed as soon as it is found. Checks that read what
servers report, and those of deadlines, wait for the end of the run. Then everything is judged, like by `assay check`.
"""

EPILOG: Final = """\
examples:
  assay watch                       the newest running run in store/
  assay watch store/TEST/TIME       this one; a run that has ended is judged once
  assay watch --fail-fast && ...    ends with the first forbidden anomaly
  pytest ... --watch, --fail-fast   the same from within; with --fail-fast the run itself ends at the first one
exit codes: as of assay check; with --fail-fast 1 at the first forbidden anomaly; 130 Ctrl-C
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("watch", help="judge a running run", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "path", type=Path, nargs="?", default=Path("store"), metavar="PATH", help="a run, or a store (store)"
    )
    parser.add_argument("--fail-fast", action="store_true", help="end with the first forbidden anomaly")
    add_plugin_options(parser)
    parser.add_argument("--json", action="store_true", help="print each judgement as one JSON object in a line")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.checkers.engine import Engines
    from assay.harness.cli.command import hide_pandas
    from assay.harness.run.live_judging import LiveJudgement, encode_judgement
    from assay.harness.run.registry import Registry
    from assay.harness.stored.live_check import MEMORY, find_running_run, watch_run

    if not arguments.plugin and not arguments.trust_run:
        hide_pandas()
    registry = convert_errors(lambda: Registry.with_modules(arguments.plugin, trusts_runs=arguments.trust_run))
    path = convert_errors(lambda: find_running_run(arguments.path, lambda error: note(f"skipped: the run of {error}")))
    if not arguments.json:
        note(f"watching {path}")
    known: set[str] = set()
    first = True
    with Engines(threads=1, memory=MEMORY, spark=False) as engines:
        looks = watch_run(path, engines, registry)
        while True:
            look = convert_errors(lambda: next(looks))
            found = look.judgement.violations
            if arguments.json:
                seen = LiveJudgement(look.until, look.taken, look.judgement.operations, found, look.text, look.ended)
                print(encode_judgement(seen), flush=True)
            else:
                _print_look(look, first=first, new=not found.keys() <= known)
            first = False
            known |= found.keys()
            if look.ended:
                return EXITS[look.judgement.verdict]
            if known and arguments.fail_fast:
                return ExitCode.FAIL


def _print_look(look: "WatchJudgement", *, first: bool, new: bool) -> None:
    from assay.checkers.judging.early_checks import LATE

    judgement = look.judgement
    late = [one.check for one in judgement.examined if one.note == LATE]
    if first and late and not look.ended:
        note(f"only once the run is over can be judged: {', '.join(late)}")
    found = ", ".join(f"{name} {many}" for name, many in sorted(judgement.violations.items()))
    note(
        f"{look.until:.1f} s: {judgement.operations} operations judged in {look.taken:.1f} s: "
        f"{found or 'nothing forbidden'}"
    )
    if new or look.ended:
        print(look.text, flush=True)
