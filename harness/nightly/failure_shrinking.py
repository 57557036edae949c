"""Shrinks new failures of a night: each once, in a process of its own, with a store of its own for the runs.

Two results are kept: the shrunk schedule, in the store's folder ``found``, and the page of the smallest run that still
failed. The runs are deleted, so they do not affect failure rates.
"""

import re
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from assay.cluster import owner
from assay.harness.core.files import reject_links, write_atomically
from assay.harness.nightly.night_record import (
    SHRINKING,
    AttemptOutcome,
    AttemptResult,
    CellKind,
    MatrixCell,
    Night,
    NightFolder,
    RunningAttempt,
    ShrunkFailure,
    read_if_possible,
    read_nights,
)
from assay.harness.nightly.store_index import SHRUNK_SCHEDULES, read_store
from assay.harness.nightly.subprocess_runner import AttemptEnd, AttemptLimits, run_attempt
from assay.harness.run import store as runs_of
from assay.harness.run.full_disk import is_full
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.settings import SIM
from assay.reports.index.entry import Entry, sanitize_text
from assay.reports.index.failures import Failure, group_failures
from assay.reports.index.known import KnownFailures

PROGRAM: Final = (sys.executable, "-m", "assay.harness.cli.main", "shrink", "--yes")
REPLAYS: Final = 4
"""Number of runs that estimate the failure rate, before and after the shrinking."""
KINDS: Final = (CellKind.RUN, CellKind.SCHEDULE)
"""Kinds of cells whose failures are shrunk. A search shrinks its own failures, and a canary must fail."""
PAGES: Final = "shrunk"
"""The folder of a night that has the pages of the smallest runs."""
REPLAY: Final = re.compile(r"^replay: (.+)$", re.MULTILINE)
REPORT: Final = re.compile(r"^report: (.+)$", re.MULTILINE)
NOTE: Final = re.compile(r"^assay: (.+)$", re.MULTILINE)
"""Lines that ``assay shrink`` prints."""

FailureKey = tuple[str, str, tuple[str, ...]]
"""System, workload and anomalies."""


@dataclass(frozen=True)
class Shrinker:
    """Shrinks failures of a night.

    - ``grace``: seconds that an interrupted process has to end
    - ``began``: called when a process has been started
    - ``stopping``: called with the reason if a process is interrupted
    """

    store: Path
    record: NightFolder
    night: Night
    grace: float
    interrupt: Interrupt
    began: Callable[[RunningAttempt], None]
    stopping: Callable[[str], None]
    program: Sequence[str] = PROGRAM

    def shrink(self, failure: Failure, entry: Entry, left: float) -> ShrunkFailure:
        """Shrinks a failure by its run ``entry``, within the ``left`` seconds of the night.

        Raises ``OSError`` for a full disk.
        """
        started, clock = datetime.now(UTC).isoformat(), time.monotonic()
        own_store = self.record.path / SHRINKING / entry.name.rpartition("/")[2]
        log = f"logs/shrinking-{runs_of.to_safe_name(entry.name)}.log"
        # The process checks its budget only between runs, and plays ``REPLAYS`` more runs at the end. So its time limit
        # is longer than its budget.
        budget = max(1.0, min(self.night.shrink_seconds, left / 3))
        result = AttemptResult(cell=entry.night_cell, attempt=0, seed=entry.seed or 0, command=entry.command,
        started=started,
                        seconds=0.0, outcome=AttemptOutcome.INTERRUPTED)  # fmt: skip
        command = [*self.program, str(self.store / entry.name), f"--store={own_store}", f"--budget={budget:.0f}",
                   f"--replays={REPLAYS}"]  # fmt: skip
        limits = AttemptLimits(2 * budget + self.grace, left, self.grace)
        ended, printed, kept, problem = AttemptEnd(0), "", dict[str, str](), ""
        try:
            ended = run_attempt(
                command, Path(self.night.folder), self.record.path / log, limits, self.interrupt,
                lambda pid: self.began(RunningAttempt(result=result, owner=str(owner.find_owner(pid) or ""),
                shrinks=True)),
                self.stopping,
            )  # fmt: skip
            printed = (self.record.path / log).read_text(errors="replace")
            kept = self._keep_result(own_store, printed, entry)
        except OSError as error:
            if is_full(error):
                raise
            problem = f"it could not be shrunk: {error}"  # other errors do not end the night
        finally:
            delete_runs(self.record)
        return ShrunkFailure(
            system=failure.system, workload=failure.workload, anomalies=failure.anomalies, run=entry.name,
            started=started, seconds=round(time.monotonic() - clock, 3),
            interrupted=ended.outcome_if_stopped is AttemptOutcome.INTERRUPTED and not kept, log=log,
            detail="" if kept else problem or _find_reason(ended, printed), **kept,
        )  # fmt: skip

    def _keep_result(self, own_store: Path, printed: str, entry: Entry) -> dict[str, str]:
        """Copies the schedule and the page. Returns their places and the command; empty if nothing was shrunk."""
        shrunk = next((own_store / SHRUNK_SCHEDULES).glob("*.json"), None)
        replay, page = REPLAY.search(printed), REPORT.search(printed)
        if shrunk is None or replay is None:
            return {}
        folder, content = self.store / SHRUNK_SCHEDULES, shrunk.read_bytes()
        for place in (folder, folder / shrunk.name):
            reject_links(place)
        folder.mkdir(exist_ok=True)
        schedule = runs_of.choose_schedule_path(folder, shrunk.name, content)
        write_atomically(schedule, content)
        kept = {
            "schedule": f"{SHRUNK_SCHEDULES}/{schedule.name}",
            "command": replay[1].replace(str(shrunk), str(schedule)),
        }
        if page is not None and Path(page[1]).is_file():
            target = self.record.path / PAGES / f"{runs_of.to_safe_name(entry.name)}.html"
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(page[1], target)
            kept["report"] = str(target.relative_to(self.store))
        return kept


def find_new_failures(store: Path, night: Night, own: Collection[str]) -> list[tuple[Failure, Entry]]:
    """Returns the failures that no night has shrunk, each with the run to shrink.

    ``own``: the trusted runs of this night, from which that run is chosen. Shrinking executes a run's test again, and
    any other run in the store may come from elsewhere.
    """
    tried = {
        get_failure_key(one)
        for folder, _ in read_nights(store)
        for one in read_if_possible(folder.read_shrunk)
        if not one.interrupted
    }
    cells = {sanitize_text(cell.name): cell for cell in night.cells}
    return select_new(group_failures(read_store(store, {}), KnownFailures()), own, cells, tried)


def select_new(
    failures: Sequence[Failure], own: Collection[str], cells: Mapping[str, MatrixCell], tried: Collection[FailureKey]
) -> list[tuple[Failure, Entry]]:
    """Returns the failures to shrink, each with its latest run in ``own``, preferably one in the simulation.

    A failure is left out if it was ``tried`` before, or has a ``shape``: the faults of a schedule that was shrunk.
    """
    chosen = []
    for failure in failures:
        runs = [
            one
            for one in failure.entries
            if one.name in own and "schedule.json" in one.files
            and one.night_cell in cells and cells[one.night_cell].kind in KINDS
        ]  # fmt: skip
        if runs and not failure.shape and get_failure_key(failure) not in tried:
            chosen.append((failure, max(runs, key=lambda one: (one.cell.cluster == SIM, one.started))))
    return chosen


def get_failure_key(one: Failure | ShrunkFailure) -> FailureKey:
    """Returns the identity of a failure; each identity is tried once."""
    return one.system, one.workload, one.anomalies


def delete_runs(record: NightFolder) -> None:
    """Deletes the runs of a shrinking, which may have been killed."""
    shutil.rmtree(record.path / SHRINKING, ignore_errors=True)


def _find_reason(ended: AttemptEnd, printed: str) -> str:
    notes = NOTE.findall(printed)
    return ended.why or (sanitize_text(notes[-1]) if notes else f"it ended with {ended.status}; its log says more")
