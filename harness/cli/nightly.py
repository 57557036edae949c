"""``assay nightly``: a matrix of runs, searches, canaries and schedules, for as long as there is time."""

import argparse
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import Exit, InputError, note, reading

if TYPE_CHECKING:
    from assay.harness.nights.night import Cell, Night, NightFolder, Result

DESCRIPTION: Final = """\
Runs the cells of nightly.toml, each as a process of its own, until the budget is used: what failed lately first, then
what ran longest ago. A crash, a hang, a dead Docker engine and a full disk are recorded by these names, and the rest
goes on. Nothing is tried again until it is green.

  assay nightly --budget=30min                 a night, named after the day
  assay nightly --budget=30min --resume        goes on with the last one, after Ctrl-C or a crash
  assay nightly --budget=8h --matrix=mine.toml --store=/data/store --night=release-1.4

The record is STORE/nights/ID: night.json, cells.jsonl with a line for each end, logs/. docs/nightly.md has the keys of
the file and the outcomes.
"""
EPILOG: Final = """\
exit codes: 0 nothing failed, and something passed; 1 a run failed, or a canary's defect was missed; 2 nothing failed,
but something crashed, hung, had no engine or disk, or has no verdict; 64 a cell or the file is wrong; 130 interrupted
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("nightly", help="run a matrix of cells for as long as there is time",
        description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--budget", metavar="TIME", help="30min, 8h; needed, but with --resume: what is left")
    parser.add_argument("--matrix", type=Path, default=Path("nightly.toml"), metavar="FILE", help="(nightly.toml)")
    parser.add_argument("--night", metavar="ID", help="its name; all seeds follow from it (default: the UTC day)")
    parser.add_argument("--store", type=Path, default=Path("store"), metavar="DIR", help="where runs are kept (store)")
    parser.add_argument("--version", metavar="TEXT", help="of what is tested (default: git describe, at the matrix)")
    parser.add_argument("--resume", action="store_true",
        help="go on with --night, or the newest: the cells that it began with, but those that have ended")  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    from assay.harness.nights.night import folder
    from assay.harness.nights.nightly import Nightly

    night, budget = reading(lambda: _night(arguments))
    store = arguments.store.resolve()
    path = folder(store, night.night)
    one = Nightly(store, path, night, budget, note=_printer(night), begins=_begins, stopping=_stopping)
    signal.signal(signal.SIGTERM, lambda number, frame: one.interrupt.request())
    note(f"night {night.night}, seed {night.seed}: {len(night.cells)} cells in {budget:.0f} s, recorded in {path.path}")
    results = reading(one.run)
    return _summary(night, results, path, interrupted=one.interrupt.requested)


def _night(arguments: argparse.Namespace) -> tuple["Night", float]:
    """New or resumed, and the seconds that it has from now."""
    from assay.harness.nights.matrix import read, seconds
    from assay.harness.nights.night import folder
    from assay.harness.nights.nightly import begin, resumed, version_of

    store = arguments.store.resolve()
    if arguments.resume:
        night = resumed(store, arguments.night)
        spent = sum(result.seconds for result in folder(store, night.night).results())
        left = night.budget_seconds - spent
        return night, left if arguments.budget is None else seconds("--budget", arguments.budget)
    if arguments.budget is None:
        raise InputError("--budget is missing: --budget=30min")
    budget, place = seconds("--budget", arguments.budget), arguments.matrix.parent
    version = arguments.version or version_of(place)
    return begin(store, arguments.night, read(arguments.matrix), budget, place, version), budget


def _begins(cell: "Cell", attempt: int) -> None:
    _under_way(f"{cell.name}{f', attempt {attempt} of {cell.repeat}' * (cell.repeat > 1)} ...")


def _stopping(why: str) -> None:
    _under_way("")
    note(f"interrupted, {why}: the cell heals, checks and reports (a second Ctrl-C kills it)")


def _under_way(text: str) -> None:
    """A line for a terminal, which the next takes the place of."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _printer(night: "Night") -> Callable[["Result", int, float], None]:
    width = max(len(cell.name) for cell in night.cells)

    def show(result: "Result", attempts: int, left: float) -> None:
        name, runs = result.cell.ljust(width), f"{len(result.runs)} run{'s' * (len(result.runs) != 1)}"
        _under_way("")
        head = f"{result.outcome:<11} {name}  {runs:>7} {result.seconds:6.0f} s"
        print(f"{head}  {attempts} to do, {left / 60:.1f} min left  {result.detail}".rstrip(), flush=True)

    return show


def _summary(night: "Night", results: Sequence["Result"], folder: "NightFolder", *, interrupted: bool) -> Exit:
    from assay.harness.nights.night import Outcome, failed, settled, troubled

    cells = settled(results)
    counts = Counter(result.outcome for ended in cells.values() for result in ended)
    print("\n" + (", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()) or "nothing was run"))
    if idle := [cell.name for cell in night.cells if cell.name not in cells]:
        print(
            f"{len(idle)} of {len(night.cells)} cells were not begun: {', '.join(idle[:5])}{' ...' * (len(idle) > 5)}"
        )
    outcomes = {name: [result.outcome for result in ended] for name, ended in cells.items()}
    for name, ended in cells.items():
        for result in (one for one in ended if troubled(outcomes[name]) and troubled([one.outcome])):
            rate = f"{outcomes[name].count(result.outcome)} of {len(ended)}"
            print(
                f"\n{result.outcome} {name}, {rate}: {result.detail}\n  {result.command}\n  {folder.path / result.log}"
            )
    if night.folder != str(Path.cwd()):
        print(f"\nthe commands are for {night.folder}")
    if interrupted:
        again = ["assay", "nightly", "--resume", f"--night={night.night}", f"--store={folder.path.parents[1]}"]
        note(f"interrupted: `{shlex.join(again)}` goes on")
        return Exit.INTERRUPTED
    if any(failed(one) for one in outcomes.values()):
        return Exit.FAIL
    if Outcome.BROKEN in counts:
        return Exit.USAGE
    green = Outcome.PASS in counts or Outcome.DETECTED in counts
    return Exit.UNKNOWN if not green or any(troubled(one) for one in outcomes.values()) else Exit.PASS
