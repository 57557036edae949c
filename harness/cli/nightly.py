"""``assay nightly``: runs a matrix of runs, searches, canaries and schedules within a time budget.

A canary is a run with a built-in defect, which must be found.
"""

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import ExitCode, InputError, add_yes_option, confirm, note, show
from assay.harness.cli.summary import add_known_option, read_marks, to_exit_code
from assay.harness.core.printable import to_printable

if TYPE_CHECKING:
    from assay.harness.nightly.night_record import AttemptResult, MatrixCell, Night, NightFolder, ShrunkFailure
    from assay.harness.nightly.night_verdict import NightAccount
    from assay.reports.index.known import KnownFailures

NO: Final = "no"
"""Value of ``--shrink`` with which nothing is shrunk."""
DESCRIPTION: Final = """\
Runs the cells of nightly.toml, each in a process of its own, until the budget is used: recent failures first, then the
cells that ran longest ago. A crash, a hang, a dead Docker engine and a full disk are recorded by these names, and the
other cells go on. Nothing is retried until it is green.

  assay nightly --budget=30min                 a night, named after the day
  assay nightly --budget=30min --resume        continues the last one, after Ctrl-C or a crash
  assay nightly --budget=30min --split=2/5     the second of five parts, which may run in parallel
  assay nightly --budget=8h --matrix=mine.toml --store=/data/store --night=release-1.4

The record is STORE/nights/ID: night.json, cells.jsonl with a line for each ended attempt, logs/. docs/guide/nightly.md
has the keys of the file and the outcomes.
"""
EPILOG: Final = """\
exit codes: 0 only known failures, and something passed; 1 a run failed that no valid mark covers, or a canary missed
its defect; 2 no failure, but something crashed, hung, had no engine or disk, or has no verdict, or a resumed night was
not confirmed; 64 a cell or the file is wrong; 130 interrupted
"""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "nightly", help="run a matrix of cells for as long as there is time", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument(
        "--budget",
        metavar="TIME",
        help="time of the night, such as 30min or 8h; required, except with --resume, where the "
        "default is the unused time",
    )
    parser.add_argument(
        "--matrix",
        type=Path,
        default=Path("nightly.toml"),
        metavar="FILE",
        help="the file with the matrix (default: nightly.toml)",
    )
    parser.add_argument(
        "--night", metavar="ID", help="name of the night; all seeds follow from it (default: the UTC day)"
    )
    parser.add_argument(
        "--store", type=Path, default=Path("store"), metavar="DIR", help="folder of the runs (default: store)"
    )
    parser.add_argument("--version", metavar="TEXT", help="version under test (default: git describe, at the matrix)")
    parser.add_argument("--split", type=parse_share, default=(1, 1), metavar="K/N",
        help="part K of N: every Nth cell; `assay summary` combines all parts of a --night")  # fmt: skip
    parser.add_argument("--shrink", metavar="TIME",
        help=f"time for shrinking each new failure, or {NO} (default: as the matrix says)")  # fmt: skip
    parser.add_argument("--no-sensitivity", dest="sensitivity", action="store_false",
        help="do not measure, for a passed run of each cell, which violations it would have shown")  # fmt: skip
    add_known_option(parser)
    parser.add_argument("--resume", action="store_true",
        help="continue --night, or the newest: its cells, except those that have ended")  # fmt: skip
    add_yes_option(parser)
    parser.set_defaults(run=run)


def parse_share(text: str) -> tuple[int, int]:
    """Parses text such as ``2/5``."""
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a part; give one such as 2/5, the second of five")
    return int(part), int(parts)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.nightly.night_record import night_folder
    from assay.harness.nightly.night_runner import NightRunner

    known = read_marks(arguments.known)
    night, budget = _prepare_night(arguments)
    if arguments.resume and not _is_trusted(night, arguments):
        note("nothing was run")
        return ExitCode.UNKNOWN
    store = arguments.store.resolve()
    path = night_folder(store, night.folder_name)
    runner = NightRunner(
        store, path, night, budget,
        note=_ignore_failure(_make_printer(night)),
        begins=_ignore_failure(_show_beginning),
        stopping=_ignore_failure(_show_stopping),
        shrank=_ignore_failure(_show_shrunk),
        shrinks=_ignore_failure(lambda cell: _show_progress(f"{cell}: its failure is being shrunk ...")),
        measures=_ignore_failure(lambda cell: _show_progress(f"{cell}: its sensitivity is being measured ...")),
        trusts_record=arguments.resume and _is_record_trusted(night, path, arguments),
    )  # fmt: skip
    part = f", part {night.part} of {night.parts}" * (night.parts > 1)
    note(f"night {night.name}{part}, seed {night.seed}: {len(night.cells)} cells in {budget:.0f} s, in {path.path}")
    runner.run()
    return _summarise(night, path, known, interrupted=runner.interrupt.requested)


def _ignore_failure(show: Callable[..., None]) -> Callable[..., None]:
    """Returns a printer that ignores failures: a night goes on if the disk of its output is full."""

    def show_if_possible(*shown: Any) -> None:
        with suppress(OSError):
            show(*shown)

    return show_if_possible


def _prepare_night(arguments: argparse.Namespace) -> tuple["Night", float]:
    """Returns a new or resumed night, and the seconds that it may still take."""
    import msgspec

    from assay.harness.nightly.matrix import parse_seconds, read_plan
    from assay.harness.nightly.night_record import night_folder, read_if_possible
    from assay.harness.nightly.night_runner import begin_night, find_resumable_night, read_version

    store = arguments.store.resolve()
    text = arguments.shrink
    shrink = None if text is None else 0.0 if text == NO else parse_seconds("--shrink", text)
    if arguments.resume:
        night = find_resumable_night(store, arguments.night, arguments.split)
        if shrink is not None:
            night = msgspec.structs.replace(night, shrink_seconds=shrink)
        if not arguments.sensitivity:
            night = msgspec.structs.replace(night, sensitivity=False)
        folder = night_folder(store, night.folder_name)
        spent = sum(result.seconds for result in folder.read_results())
        spent += sum(measurement.seconds for measurement in read_if_possible(folder.read_measurements))
        remaining = night.budget_seconds - spent
        return night, remaining if arguments.budget is None else parse_seconds("--budget", arguments.budget)
    if arguments.budget is None:
        raise InputError("--budget is missing: give the time of the night, such as --budget=30min")
    budget, place = parse_seconds("--budget", arguments.budget), arguments.matrix.parent
    version = arguments.version or read_version(place)
    cells, matrix_shrink = read_plan(arguments.matrix)
    shrink = matrix_shrink if shrink is None else shrink
    night = begin_night(
        store,
        arguments.night,
        cells,
        budget,
        place,
        version,
        arguments.split,
        shrink,
        sensitivity=arguments.sensitivity,
    )
    return night, budget


def _is_trusted(night: "Night", arguments: argparse.Namespace) -> bool:
    """Returns whether the cells of a stored night may be run: they are in the matrix, or the user agrees."""
    from assay.harness.nightly.matrix import read_plan
    from assay.harness.nightly.night_record import NightError

    try:  # `folder` is the folder of the night's matrix; `folder_name` is that of its record
        same_folder = night.folder == str(arguments.matrix.parent.resolve())
        known = set(read_plan(arguments.matrix)[0] if same_folder else ())
    except NightError:
        known = set()
    foreign = [cell for cell in night.cells if cell not in known]
    if not foreign:
        return True
    for cell in foreign:
        note(f"not a cell of {arguments.matrix}: {shlex.join(['pytest', *cell.arguments])}")
    return confirm(f"run what the record of night {night.folder_name} names, in {night.folder}?", arguments)


def _is_record_trusted(night: "Night", path: "NightFolder", arguments: argparse.Namespace) -> bool:
    """Returns whether the failures that the record of a night names may be shrunk, which runs their tests again.

    The record and the runs may come from elsewhere. A run's own files choose its test and its options.
    """
    from assay.harness.nightly.failure_shrinking import find_new_failures
    from assay.harness.nightly.night_runner import list_recorded_runs

    if not night.shrink_seconds:
        return False
    store = path.path.parents[1]
    found = find_new_failures(store, night, list_recorded_runs(path))
    for _, entry in found:
        note(f"recorded earlier, and not shrunk yet: the failure of {entry.name}")
    if not found or confirm("shrink these failures, which runs what the files of these runs name?", arguments):
        return True
    note("these failures are not shrunk; `assay shrink RUN` shows what it would run")
    return False


def _show_beginning(cell: "MatrixCell", attempt: int) -> None:
    _show_progress(f"{cell.name}{f', attempt {attempt} of {cell.repeat}' * (cell.repeat > 1)} ...")


def _show_stopping(reason: str) -> None:
    _show_progress("")
    note(f"interrupted, {reason}: the cell heals, checks and reports (a second Ctrl-C kills it)")


def _show_shrunk(shrunk: "ShrunkFailure") -> None:
    _show_progress("")
    failure = f"{' + '.join(shrunk.anomalies)} in {shrunk.workload}"
    if shrunk.schedule:
        show(f"shrunk      {failure}  {shrunk.seconds:6.0f} s\n  {shrunk.command}")
    else:
        show(f"not shrunk  {failure}  {shrunk.seconds:6.0f} s  {shrunk.detail}")


def _show_progress(text: str) -> None:
    """Shows a line on a terminal that the next line replaces."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{to_printable(text)}", end="", file=sys.stderr, flush=True)


def _make_printer(night: "Night") -> Callable[["AttemptResult", int, float], None]:
    """Returns the function that prints the result of an attempt, with the attempts and the seconds that are left."""
    width = max(len(cell.name) for cell in night.cells)

    def show_result(result: "AttemptResult", attempts: int, left: float) -> None:
        name, runs = result.cell.ljust(width), f"{len(result.runs)} run{'s' * (len(result.runs) != 1)}"
        _show_progress("")
        head = f"{result.outcome:<11} {name}  {runs:>7} {result.seconds:6.0f} s"
        show(f"{head}  {attempts} to do, {left / 60:.1f} min left  {result.detail}".rstrip())

    return show_result


def _summarise(night: "Night", folder: "NightFolder", known: "KnownFailures", *, interrupted: bool) -> ExitCode:
    from assay.harness.nightly.night_verdict import read_account

    store = folder.path.parents[1]
    account = read_account(store, night.name, known, night.folder_name)
    _print_account(account)
    if night.folder != str(Path.cwd()):
        show(f"\nthe commands are for {night.folder}")
    if interrupted:
        part = [f"--split={night.part}/{night.parts}"] * (night.parts > 1)
        again = ["assay", "nightly", "--resume", f"--night={night.name}", *part, f"--store={store}"]
        note(f"interrupted: `{shlex.join(again)}` continues it")
        return ExitCode.INTERRUPTED
    return to_exit_code(account)


def _print_account(account: "NightAccount") -> None:
    """Prints the outcomes of a night, and each attempt that a user must look at."""
    from assay.harness.nightly.night_record import needs_attention

    counts = Counter(result.outcome for cell in account.cells for result in cell.results)
    show("\n" + (", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()) or "nothing was run"))
    planned = sum(len(night.cells) for night in account.nights)
    if idle := [cell.name for cell in account.idle]:
        show(f"{len(idle)} of {planned} cells were not begun: {', '.join(idle[:5])}{' ...' * (len(idle) > 5)}")
    for name in account.unended:
        show(f"the end of night {name} is not recorded, so it is no pass: `assay nightly --resume` continues it")
    for line in account.lost:
        show(f"an outcome is lost: {line}")
    for cell in account.cells:
        outcomes = [result.outcome for result in cell.results]
        for result in (one for one in cell.results if needs_attention(outcomes) and needs_attention([one.outcome])):
            mark = cell.marks.get(result.attempt)
            rate = f"{outcomes.count(result.outcome)} of {len(outcomes)}"
            show(
                f"\n{result.outcome} {cell.cell.name}, {rate}: {result.detail}\n  {result.command}\n  "
                f"{cell.logs.get(result.attempt, '')}"
            )
            if mark is not None:
                show(f"  known until {mark.expires}: {mark.reason}")
