"""``assay watch PATH``: judges a running run, and prints findings at once."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import EXITS, ExitCode, add_plugin_options, note
from assay.harness.core.printable import count_noun

if TYPE_CHECKING:
    from assay.harness.stored.live_check import WatchJudgement

DESCRIPTION: Final = """\
Judges a running run. Each time that a part of its history has been written (every 5 s), all of the history so far is
judged by the run's own contract, and a forbidden anomaly is printed as soon as it is found. Checks that read what
servers report, and checks of deadlines, wait for the end of the run. Then everything is judged, as by `assay check`.
"""

EPILOG: Final = """\
examples:
  assay watch                       the newest running run in store/
  assay watch store/TEST/TIME       this one; a run that has ended is judged once
  assay watch --fail-fast && ...    ends with the first forbidden anomaly
  pytest ... --watch, --fail-fast   the same from within; with --fail-fast the run itself ends at the first one
A run that writes nothing for 60 s is reported, each time. If it is of another machine, the watch then ends with 2,
because only that machine knows whether the run goes on.
exit codes: as of assay check; with --fail-fast 1 at the first forbidden anomaly; 130 Ctrl-C
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("watch", help="judge a running run", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "path", type=Path, nargs="?", default=Path("store"), metavar="PATH", help="a run, or a store (default: store)"
    )
    parser.add_argument("--fail-fast", action="store_true", help="end at the first forbidden anomaly")
    add_plugin_options(parser)
    parser.add_argument("--json", action="store_true", help="print each judgement as one JSON object in a line")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.checkers.engine import Engines
    from assay.harness.cli.command import hide_pandas
    from assay.harness.run.live_judging import LiveJudgement, encode_judgement
    from assay.harness.run.registry import Registry
    from assay.harness.stored.live_check import MEMORY, SilentRunError, find_running_run, watch_run

    if not arguments.plugin and not arguments.trust_run:
        hide_pandas()  # without a user's code nothing needs pandas, which pyarrow would import
    registry = Registry.with_modules(arguments.plugin, trusts_runs=arguments.trust_run)
    path = find_running_run(arguments.path, lambda error: note(f"skipped: the run of {error}"))
    if not arguments.json:
        note(f"watching {path}")
    printed: set[str] = set()
    first = True
    with Engines(threads=1, memory=MEMORY, spark=False) as engines:
        try:
            for part in watch_run(path, engines, registry, on_silence=note):
                found = part.judgement.violations
                if arguments.json:
                    live = LiveJudgement(
                        part.until, part.taken, part.judgement.operations, found, part.text, part.ended
                    )
                    print(encode_judgement(live), flush=True)
                else:
                    _print_judgement(part, first=first, new=not found.keys() <= printed)
                first = False
                printed |= found.keys()
                if part.ended:
                    return EXITS[part.judgement.verdict]
                if printed and arguments.fail_fast:
                    return ExitCode.FAIL
        except SilentRunError as error:
            note(str(error))
            return ExitCode.UNKNOWN
    raise AssertionError("the last judgement of a run has ended=True")


def _print_judgement(part: "WatchJudgement", *, first: bool, new: bool) -> None:
    """Prints a line about the history so far, and the findings if one is ``new``."""
    from assay.checkers.judging.early_checks import LATE_NOTE

    judgement = part.judgement
    late = [one.check for one in judgement.examined if one.note == LATE_NOTE]
    if first and late and not part.ended:
        note(f"can be judged only when the run is over: {', '.join(late)}")
    found = ", ".join(f"{name} {many}" for name, many in sorted(judgement.violations.items()))
    note(
        f"{part.until:.1f} s: {count_noun(judgement.operations, 'operation')} judged in {part.taken:.1f} s: "
        f"{found or 'nothing forbidden'}"
    )
    if new or part.ended:
        print(part.text, flush=True)
