"""``assay defects``: lists the built-in defects of a system, for ``--defect``, and verifies that they are caught."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import ExitCode, InputError, add_system_option, note, parse_positive
from assay.harness.run.limits import COUNT, check_number
from assay.harness.run.settings import CLUSTERS, SIM
from assay.harness.run.systems import list_defects

if TYPE_CHECKING:
    from assay.cluster.system import Defect
    from assay.harness.cli.defect_verification import DefectResult

DESCRIPTION: Final = """\
Lists the defects for --defect: the fault that reveals each, its anomalies (at least one must be reported), and the run
that catches it. With --verify it executes these runs: each with its defect, and once more without it. The run without
the defect must pass.

  assay defects                                          the list
  assay defects --verify isr-of-one --seeds=3            one of them, three seeds, in the simulation
  assay defects --verify --seeds=11..20 --json           all, for a program; needs hours of CPU
  assay defects --verify --cluster=docker --jobs=1       on real nodes, except runs that say --cluster=sim
  assay defects --verify --system=mine:System            your own, with described_defects (docs/cookbook/extending.md)
"""

EPILOG: Final = """\
With --verify a run counts as a catch if it fails with one of the anomalies that the defect names; a failure with
others does not. A run that ends without a verdict is broken, and is neither a catch nor a pass. In the simulation a run
that names no --rate has 100 operations per second. Each run is a process in the current folder, so call it from the
folder of the tests. Ctrl-C prints the results so far.
exit codes of --verify: 0 each defect was caught at least once, and every run without a defect passed; 1 a defect was
not caught, or a run without one failed or broke; 2 none of these, but runs without a defect were unknown
"""

SESSION_TIMEOUT: Final = 1800
"""Default of ``--limit`` in seconds."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "defects", help="list the defects built into the broker, for --defect=NAME, or verify that they are caught",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these defects (default: all)")
    parser.add_argument(
        "--verify", action="store_true", help="execute the run of each defect, with the defect and without"
    )
    parser.add_argument("--seeds", type=parse_seeds, default=range(1, 11), metavar="N",
        help="the number of runs of each, with the seeds 1 to N, or FIRST..LAST (default: 10)")  # fmt: skip
    parser.add_argument("--cluster", choices=CLUSTERS, default=SIM,
        help="the cluster of runs that do not name one (default: sim)")  # fmt: skip
    parser.add_argument(
        "--jobs", type=parse_positive, default=2, metavar="N", help="number of runs at a time (default: 2)"
    )
    parser.add_argument("--limit", type=parse_positive, default=SESSION_TIMEOUT, metavar="S",
        help="wall-clock seconds after which a run is killed and counts as broken (default: "
             f"{SESSION_TIMEOUT})")  # fmt: skip
    parser.add_argument("--store", type=Path, metavar="DIR",
        help="keep all runs in this store (default: only broken runs, and failures without a "
             "defect, in a temporary folder)",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="print JSON: a list; with --verify, an object with every run"
    )
    add_system_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    by_name = {defect.name: defect for defect in list_defects(arguments.system)}
    unknown = [name for name in arguments.names if name not in by_name]
    if unknown:
        raise InputError(f"there is no defect {', '.join(unknown)}; the defects are {', '.join(by_name)}")
    defects = [by_name[name] for name in dict.fromkeys(arguments.names or by_name)]
    if arguments.verify:
        return _verify(defects, arguments)
    if arguments.json:
        import msgspec

        print(msgspec.json.encode(defects).decode())
        return ExitCode.PASS
    for defect in defects:
        print(f"{defect.name}\n  what goes wrong   {defect.summary}\n  shown by          {defect.fault}")
        print(f"  must be reported  {', '.join(defect.anomalies)}\n  reference         {defect.reference}")
        print(f"  caught by         pytest {defect.run} --defect={defect.name}\n")
    return ExitCode.PASS


def _verify(defects: Sequence[Defect], arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.cli.defect_verification import verify

    for defect in defects:
        test = shlex.split(defect.run)[0].partition("::")[0]
        if not Path(test).exists():
            raise InputError(
                f"{defect.name} is caught by {test}, which is not in {Path.cwd()}: go to the folder that has it"
            )
    keep = arguments.store is not None
    try:
        if keep:
            arguments.store.mkdir(parents=True, exist_ok=True)
        # A new folder even in a given store, so that the runs of two commands do not mix.
        root = Path(tempfile.mkdtemp(prefix="assay-defects-", dir=arguments.store)).absolute()
    except OSError as error:
        raise InputError(f"the runs cannot be kept: {error}; give a folder with --store") from error
    results, complete = verify(
        defects, arguments.seeds, arguments.cluster, root,
        keep=keep, jobs=arguments.jobs, session_timeout=arguments.limit, note=note,
    )  # fmt: skip
    if not any(root.iterdir()):
        root.rmdir()
    show_results(results, complete, as_json=arguments.json)
    if not complete:
        return ExitCode.INTERRUPTED
    if any(not result.hits or result.false_alarms for result in results):
        return ExitCode.FAIL
    return (
        ExitCode.UNKNOWN
        if any(run.came == "unknown" for result in results for run in result.without)
        else ExitCode.PASS
    )


def show_results(results: Sequence[DefectResult], complete: bool, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        objects = [
            msgspec.to_builtins(result) | {"caught": len(result.hits), "detection": result.detection}
            for result in results
        ]
        print(msgspec.json.encode({"complete": complete, "defects": objects}).decode())
        return
    rows = [("defect", "cluster", "caught", "without", "CPU s", "s")]
    for result in results:
        seconds = ("-", "-") if result.detection is None else [f"{one:.0f}" for one in result.detection]
        rows.append((
            result.name, result.cluster, f"{len(result.hits)} of {len(result.runs)}",
            describe_verdicts([run.came for run in result.without]), *seconds,
        ))  # fmt: skip
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    print(lines[0])
    for result, line in zip(results, lines[1:], strict=True):
        print(f"{line}\n  reported: {_describe_reported(result)}")
    print()
    for result in results:
        for line in _explain_problems(result):
            print(line)
    caught = sum(bool(result.hits) for result in results)
    print(f"{caught} of {len(results)} defects were caught; CPU s and s are what the runs up to the first catch took")
    if not complete:
        print("interrupted: these are the results so far")


def _describe_reported(result: DefectResult) -> str:
    """Returns the runs per anomaly: ``lost-write 3; also vanished 2``. Anomalies after ``also`` count as no catch."""
    counts = result.reported.most_common()
    expected, others = (
        ", ".join(f"{name} {runs}" for name, runs in counts if (name in result.expected) is expected)
        for expected in (True, False)
    )
    return "; also ".join(part for part in (expected or ("none expected" if others else "-"), others) if part)


def _explain_problems(result: DefectResult) -> Iterator[str]:
    """Yields each problem with the command that repeats it; only the first of the unknown runs."""
    if result.runs and not result.hits:
        verdicts = describe_verdicts([run.came for run in result.runs])
        yield f"{result.name} was not caught ({verdicts}); one must be reported: {', '.join(result.expected)}"
        yield f"  {result.runs[0].command}"
    broken = [run for run in result.runs if run.came == "broken"]
    unknown = [run for run in result.without if run.came == "unknown"]
    for without, run in [(False, one) for one in broken] + [(True, one) for one in result.false_alarms + unknown[:1]]:
        reason = ", ".join(run.reported) or run.problem
        yield f"{'without ' if without else ''}{result.name}, seed {run.seed}: {run.came}, {reason}\n  {run.command}"
        if run.kept:
            yield f"  {run.kept}"


def describe_verdicts(verdicts: Sequence[str]) -> str:
    """Returns text such as ``3 pass, 1 broken``."""
    return ", ".join(f"{verdicts.count(one)} {one}" for one in sorted(set(verdicts), reverse=True)) or "-"


def parse_seeds(text: str) -> range:
    """Parses ``N`` or ``FIRST..LAST``."""
    first, dots, last = text.partition("..")
    begin, end = (int(first), int(last)) if dots else (1, int(first))
    if end >= begin and (reason := check_number("--seeds", text, end - begin + 1, COUNT)) is not None:
        raise argparse.ArgumentTypeError(reason)
    seeds = range(begin, end + 1)
    if not seeds or begin < 0:
        raise argparse.ArgumentTypeError(f"{text} has no seeds: give a number such as 10, or 11..20")
    return seeds
