"""``assay defects``: the defects that a system has built in, for ``--defect``; and whether they are caught."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import Exit, InputError, note, positive, reading, system_option
from assay.harness.run.settings import CLUSTERS, SIM
from assay.harness.run.systems import described_defects

if TYPE_CHECKING:
    from assay.cluster.system import Defect
    from assay.harness.cli.verifying import Verified

DESCRIPTION: Final = """\
Lists what --defect switches on, the fault that shows it, the anomalies of which one must be reported, and the run that
catches it. With --verify it does these runs: each with its defect, and once more without, where nothing may be found.

  assay defects                                          what there is
  assay defects --verify isr-of-one --seeds=3            one of them, three seeds, in the simulation
  assay defects --verify --seeds=11..20 --json           all, for a program; needs hours of CPU
  assay defects --verify --cluster=docker --jobs=1       on real nodes; runs that are of the simulation stay there
  assay defects --verify --system=mine:System            your own, with described_defects (docs/extending.md)
"""

EPILOG: Final = """\
With --verify a run counts as a catch when it fails with one of the anomalies that the defect names; a failure with
others does not. A run that ends without a verdict is broken, and is neither a catch nor a pass. In the simulation a run
that names no --rate has 100 operations a second. Each run is a process of its own, begun in the current folder: be
where the tests are. Ctrl-C prints what there is.
exit codes of --verify: 0 each was caught at least once and every run without passed; 1 one was not caught, or a run
without failed or broke; 2 none of these, but runs without were unknown
"""

WIDTH: Final = 500
"""Characters of a line where there is no terminal: a table that is cut says nothing."""
LIMIT: Final = 1800


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "defects", help="the defects built into the broker, for --defect=NAME; are they caught?",
        description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help="these alone (default: all)")
    parser.add_argument("--verify", action="store_true", help="do the run of each, with it and without")
    parser.add_argument("--seeds", type=seeds, default=range(1, 11), metavar="N",
        help="so many runs of each, with the seeds 1 to N, or FIRST..LAST (10)")  # fmt: skip
    parser.add_argument("--cluster", choices=CLUSTERS, default=SIM,
        help="for runs that do not name their own (sim)")  # fmt: skip
    parser.add_argument("--jobs", type=positive, default=2, metavar="N", help="runs at a time (2)")
    parser.add_argument("--limit", type=positive, default=LIMIT, metavar="S",
        help=f"seconds of the wall's clock after which a run is killed, and broken ({LIMIT})")  # fmt: skip
    parser.add_argument("--store", type=Path, metavar="DIR",
        help="keep all runs there (default: those that broke, or failed without a defect, in a temporary folder)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="as JSON: a list, of --verify an object with every run")
    system_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    there = {defect.name: defect for defect in reading(lambda: described_defects(arguments.system))}
    wrong = [name for name in arguments.names if name not in there]
    if wrong:
        raise InputError(f"there is no defect {', '.join(wrong)}; there are {', '.join(there)}")
    defects = [there[name] for name in dict.fromkeys(arguments.names or there)]
    if arguments.verify:
        return _verify(defects, arguments)
    if arguments.json:
        import msgspec

        print(msgspec.json.encode(defects).decode())
        return Exit.PASS
    for defect in defects:
        print(f"{defect.name}\n  what goes wrong   {defect.summary}\n  shown by          {defect.fault}")
        print(f"  must be reported  {', '.join(defect.anomalies)}\n  reference         {defect.reference}")
        print(f"  caught by         pytest {defect.run} --defect={defect.name}\n")
    return Exit.PASS


def _verify(defects: Sequence[Defect], arguments: argparse.Namespace) -> Exit:
    from assay.harness.cli.verifying import verify

    for defect in defects:
        test = shlex.split(defect.run)[0].partition("::")[0]
        if not Path(test).exists():
            raise InputError(f"{defect.name} is caught by {test}, which is not in {Path.cwd()}: go where it is")
    keep = arguments.store is not None
    if keep:
        arguments.store.mkdir(parents=True, exist_ok=True)
    # below a folder that is given, too: the runs of two commands must not meet
    root = Path(tempfile.mkdtemp(prefix="assay-defects-", dir=arguments.store)).absolute()
    results, complete = verify(
        defects, arguments.seeds, arguments.cluster, root,
        keep=keep, jobs=arguments.jobs, limit=arguments.limit, note=note,
    )  # fmt: skip
    if not any(root.iterdir()):
        root.rmdir()
    _show(results, complete, as_json=arguments.json)
    if not complete:
        return Exit.INTERRUPTED
    if any(not result.hits or result.alarms for result in results):
        return Exit.FAIL
    return Exit.UNKNOWN if any(run.came == "unknown" for result in results for run in result.without) else Exit.PASS


def _show(results: Sequence[Verified], complete: bool, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        columns = [
            msgspec.to_builtins(result) | {"caught": len(result.hits), "detection": result.detection}
            for result in results
        ]
        print(msgspec.json.encode({"complete": complete, "defects": columns}).decode())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("defect", "cluster", "one must be reported", "reported, in how many runs", "caught", "not caught",
        "failed without", "not failed", "CPU s to detection", "s")  # fmt: skip
    for result in results:
        reported = ", ".join(f"{name} {runs}" for name, runs in result.reported.most_common())
        missed = [run.came for run in result.runs if run not in result.hits]
        green = [run.came for run in result.without if run.came != "fail"]
        failed = len(result.without) - len(green)
        seconds = ("-", "-") if result.detection is None else [f"{one:.0f}" for one in result.detection]
        table.add_row(
            result.name, result.cluster, ", ".join(result.expected), reported or "-",
            f"{len(result.hits)} of {len(result.runs)}", counted(missed),
            f"{failed} of {len(result.without)}", counted(green), *seconds,
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
    for result in results:
        if result.runs and not result.hits:
            print(f"{result.name} was not caught")
        for run in result.alarms:
            found = ", ".join(run.reported) or run.problem
            print(f"without {result.name}, seed {run.seed}: {run.came}, {found}\n  {run.command}\n  {run.kept}")
    if not complete:
        print("interrupted: this is what there was")


def counted(came: Sequence[str]) -> str:
    """``3 pass, 1 broken``."""
    return ", ".join(f"{came.count(one)} {one}" for one in dict.fromkeys(came)) or "-"


def seeds(text: str) -> range:
    """Of ``N`` or ``FIRST..LAST``."""
    first, dots, last = text.partition("..")
    found = range(int(first), int(last) + 1) if dots else range(1, int(first) + 1)
    if not found or found[0] < 0:
        raise argparse.ArgumentTypeError(f"{text} has no seeds: give a number such as 10, or 11..20")
    return found
