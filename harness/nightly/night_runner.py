"""Runs the cells of a night one after the other. Each attempt is a process, and each end is a line of the record.

The attempts of a night are known before it begins. The seeds of a cell follow from the names of the night and the cell.
Earlier nights determine the order of the cells. First each cell runs once, then the cells that repeat run again. No
attempt is repeated because of its outcome. A cell is skipped if it took longer last time than the time that is left.
After each round, new failures are shrunk if the night asks for it. Sensitivities are measured in a share of the budget.

If this process dies, the next process finds ``running.json``, which names the attempt and the attempt's process. It
kills the attempt's process only if that process writes a log of this night, because a record may come from elsewhere
and name any process. Then it records the attempt as interrupted, unless one of its runs has failed. Some bytes are kept
in reserve, so that a full disk still has room for the record.

The next process also compares the record with the number of attempts that were recorded before. It writes the number of
lost outcomes before anything else, because the attempts that it repeats would hide the loss.

The record names the version under test and the commits since the last night, by git in the folder of the matrix.
"""

import fcntl
import math
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import msgspec

from assay.checkers.judging.sensitivity import FILE as SENSITIVITY
from assay.checkers.judging.sensitivity import Sensitivity
from assay.cluster import owner
from assay.harness.core.files import SpecialFileError, open_lock, read_json_if_valid
from assay.harness.nightly.failure_shrinking import PROGRAM, Shrinker, delete_runs, find_new_failures
from assay.harness.nightly.matrix import MOST_REPEATS, AttemptQueue, read_last_results, sort_by_urgency
from assay.harness.nightly.night_record import (
    LOGS,
    MOST_ATTEMPTS,
    MOST_PARTS,
    NAME,
    AttemptOutcome,
    AttemptResult,
    CellKind,
    MatrixCell,
    Measurement,
    Night,
    NightError,
    NightFolder,
    RunningAttempt,
    ShrunkFailure,
    find_misdated,
    find_newest,
    find_unreadable,
    make_part_name,
    night_folder,
    read_if_possible,
    read_nights,
)
from assay.harness.nightly.outcome import (
    MachineState,
    classify,
    classify_killed,
    is_made_by,
    read_printed,
    read_seen_run,
)
from assay.harness.nightly.subprocess_runner import BUDGET_OVER, GRACE, AttemptLimits, run_attempt
from assay.harness.run import store as runs_of
from assay.harness.run.command_line import make_reset
from assay.harness.run.full_disk import DiskReserve, is_full
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.process_group import has_open_file, signal_group
from assay.harness.run.settings import derive_seed

DIRTY: Final = "-dirty"
"""Suffix of a version with uncommitted changes."""
MOST_COMMITS: Final = 500
"""Maximum number of commits that a night records."""


def read_version(place: Path) -> str | None:
    """Returns the commit, with ``-dirty`` for uncommitted changes; None without git or a repository."""
    return _run_git(place, "describe", "--always", f"--dirty={DIRTY}") or None


def list_commits(place: Path, green: str, red: str) -> tuple[str, ...]:
    """Returns ``git log --oneline green..red``, the newest first; empty unless both commits exist.

    For a version with uncommitted changes its commit is used.
    """
    ends = [_run_git(place, "rev-parse", "--verify", "--quiet", "--end-of-options",
                 f"{version.removesuffix(DIRTY)}^{{commit}}") for version in (green, red)]  # fmt: skip
    if not all(ends):
        return ()
    printed = _run_git(
        place, "log", "--oneline", "--no-decorate", f"--max-count={MOST_COMMITS}", "..".join(map(str, ends))
    )
    return tuple((printed or "").splitlines())


GIT_SECONDS: Final = 30.0
"""Time limit of a git command. A repository on a broken network file system answers nothing."""


def _run_git(place: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(place), "-c", "color.ui=false", *arguments]
    try:
        completed = subprocess.run(command, capture_output=True, check=True, timeout=GIT_SECONDS)
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    return completed.stdout.decode(errors="replace").strip()


PYTEST: Final = (sys.executable, "-m", "pytest")
MEASURER: Final = (sys.executable, "-m", "assay.harness.cli.main", "sensitivity")
ATTEMPT_OPTIONS: Final = (
    make_reset(("--nemesis", "--workload-mix")), "--reports=failed", "-rfEs", "--color=no", "-p", "no:cacheprovider",
)  # fmt: skip
"""Options of every attempt, but not of the command that repeats it. A cell's own options come later, so they win."""
RESERVE: Final = 256 * 1024
"""Bytes that are reserved for the record."""
RESERVE_STEP: Final = 8 * 1024
"""Bytes of the reserve that are released for one line of the record. The next attempt would use up any more."""
PROBE: Final = 1024 * 1024
"""A disk with fewer free bytes counts as full."""
MEASURING_SHARE: Final = 0.2
"""Share of the budget in which sensitivities are measured. The rest belongs to the cells."""
MEASURING_GRACE: Final = 5.0
"""Seconds for a measurement to end after SIGINT. It has nothing to heal or to report."""
SHARE_USED: Final = f"the share of the budget for measuring, {MEASURING_SHARE:.0%}, was used up"
CELL_OVER: Final = "the time limit of the cell was over"
HISTORY_REMOVED: Final = "the history was removed (--keep-history=failures)"
"""These three are reasons why a sensitivity was not measured to the end."""
LONGEST: Final = 1e9
"""Maximum seconds of a time in a record."""


@dataclass
class NightRunner:
    """Runs a night once. These functions are called during the night:

    - ``note``: with each result, and with the numbers of attempts and seconds that are left
    - ``begins``: with each attempt that begins
    - ``stopping``: with the reason, when an attempt is interrupted
    - ``shrinks``: with the name of the cell whose failure is shrunk
    - ``shrank``: with the result of shrinking
    - ``measures``: with the name of the cell whose sensitivity is measured
    """

    store: Path
    record: NightFolder
    night: Night
    budget: float
    """Seconds that the night may take from now on."""
    note: Callable[[AttemptResult, int, float], None] = lambda result, attempts, seconds: None
    begins: Callable[[MatrixCell, int], None] = lambda cell, attempt: None
    stopping: Callable[[str], None] = lambda why: None
    shrinks: Callable[[str], None] = lambda cell: None
    shrank: Callable[[ShrunkFailure], None] = lambda shrunk: None
    measures: Callable[[str], None] = lambda cell: None
    program: Sequence[str] = PYTEST
    """The command that makes an attempt. The two after it shrink a failure, and measure a sensitivity."""
    shrinker: Sequence[str] = PROGRAM
    measurer: Sequence[str] = MEASURER
    grace: float = GRACE
    """Seconds that an interrupted process has to end."""
    interrupt: Interrupt = field(default_factory=Interrupt)
    trusts_record: bool = False
    """Whether failures that an earlier process recorded are shrunk, too. A record may come from elsewhere, and name any
    run of the store.
    """
    _made: set[str] = field(default_factory=set)
    """The runs that attempts of this process have made."""
    _unwritten: list[AttemptResult] = field(default_factory=list)
    """The results that a full disk has rejected so far."""
    _measuring_seconds: float = 0.0
    """Seconds spent on measuring so far."""

    def run(self) -> list[AttemptResult]:
        """Runs the night. Returns all its results in the order of their ends, including those of earlier processes.

        Raises :class:`NightError` if another process runs this night, and at the end for results that a full disk
        rejected.
        """
        with self._lock(), self.interrupt.recording_requests():
            self._reopen()
            self._recover()
            results = self.record.read_results()
            earlier = read_last_results(
                read_if_possible(one.read_results)
                for one, night in read_nights(self.store)
                if night.folder_name != self.night.folder_name
            )
            self._reserve.allocate(RESERVE)
            end = time.monotonic() + self.budget
            done = {(one.cell, one.attempt) for one in results if one.outcome is not AttemptOutcome.INTERRUPTED}
            todo = AttemptQueue(sort_by_urgency(self.night.cells, earlier), done)
            seconds = {name: one.seconds for name, one in earlier.items()}
            current_round = 1.0
            number = max(self.record.find_last_number(self.night), self.night.attempts + self.night.lost)
            while not self.interrupt.requested and (left := end - time.monotonic()) > 0:
                chosen = todo.find_first(seconds, left)
                next_round = math.inf if chosen is None else chosen[1]  # a round has all attempts of one number
                if next_round > current_round:
                    current_round = next_round
                    self._shrink(end)
                    continue
                if chosen is None:
                    break
                todo.remove_first()
                number += 1  # the log of a lost attempt keeps its number
                result = self._attempt(*chosen, left, number)
                self._made.update(result.runs)
                results.append(result)
                self._record_result(result)
                seconds[result.cell] = result.seconds
                self.note(result, len(todo), max(0.0, end - time.monotonic()))
                if self.night.sensitivity and result.attempt == 1:
                    self._measure_sensitivity(chosen[0], result, end - time.monotonic())
            self._end()
        return results

    def _attempt(self, cell: MatrixCell, attempt: int, left: float, number: int) -> AttemptResult:
        seed = derive_seed(self.night.seed, cell.name, attempt) % 2**32
        arguments = (*cell.arguments, f"--seed={seed}")
        result = AttemptResult(
            cell=cell.name, attempt=attempt, seed=seed, command=shlex.join(["pytest", *arguments]),
            started=datetime.now(UTC).isoformat(), seconds=0.0, outcome=AttemptOutcome.INTERRUPTED,
            detail="the night itself was killed", log=f"{LOGS}/{number:04}-{runs_of.to_safe_name(cell.name)}.log",
        )  # fmt: skip
        log, before, began = self.record.path / result.log, set(runs_of.list_runs(self.store)), time.monotonic()
        made_by = ""
        self.begins(cell, attempt)

        def started(pid: int) -> None:
            nonlocal made_by
            made_by = runs_of.read_owner(pid)
            with suppress(OSError):  # on a full disk, an attempt that is killed together with the night leaves no trace
                self.record.write_running(RunningAttempt(result=result, owner=made_by))

        try:
            log.parent.mkdir(exist_ok=True)
            ended = run_attempt(
                [*self.program, f"--store={self.store}", *ATTEMPT_OPTIONS, *arguments],
                Path(self.night.folder), log, AttemptLimits(cell.timeout, left, self.grace), self.interrupt, started,
                self.stopping,
            )  # fmt: skip
        except OSError as error:
            outcome = AttemptOutcome.NO_DISK if is_full(error) else AttemptOutcome.BROKEN
            return msgspec.structs.replace(result, outcome=outcome, detail=f"it cannot be started: {error}")
        new = [run for run in runs_of.list_runs(self.store) if run not in before and is_made_by(run, made_by)]
        machine = MachineState(lambda: _is_disk_full(self.record.path), _does_docker_answer)
        outcome, detail = classify(cell, ended, read_printed(log), list(map(read_seen_run, new)), machine)
        return msgspec.structs.replace(
            result, outcome=outcome, detail=detail, seconds=round(time.monotonic() - began, 3),
            runs=tuple(str(run.relative_to(self.store)) for run in new),
        )  # fmt: skip

    def _measure_sensitivity(self, cell: MatrixCell, result: AttemptResult, left: float) -> None:
        """Measures the sensitivity of the first run of an attempt that passed. The result is written into its folder.

        The time is limited by what is left of the cell's time limit, of the share for measuring, and of the night. The
        measurement changes no outcome. Its output goes to a log of its own. If there is no result, the record says why.
        """
        if not _is_measurable(cell, result):
            return
        began, log = time.monotonic(), str(Path(result.log).with_suffix(".sensitivity.log"))
        measurement = _make_measurement(result, log)
        limits = {
            BUDGET_OVER: left,
            SHARE_USED: MEASURING_SHARE * self.budget - self._measuring_seconds,
            CELL_OVER: cell.timeout - result.seconds,
        }
        reason = min(limits, key=limits.__getitem__)
        if self.interrupt.requested:
            detail = "not begun, because the night was interrupted"
        elif runs_of.has_removed_history(self.store / result.runs[0]):
            detail = f"not begun, because {HISTORY_REMOVED}"
        elif limits[reason] <= 0:
            detail = f"not begun, because {reason}"
        else:
            detail = self._run_measurer(cell, result, log, limits[reason], reason)
            self._measuring_seconds += time.monotonic() - began
        with suppress(OSError):  # a measurement is no reason to end a night whose disk is full
            self.record.append_measurement(
                msgspec.structs.replace(measurement, seconds=round(time.monotonic() - began, 3), detail=detail)
            )

    def _run_measurer(self, cell: MatrixCell, result: AttemptResult, log: str, seconds: float, why: str) -> str:
        """Measures for at most these seconds. Returns why there is no result; empty if there is one."""
        self.measures(cell.name)
        run = self.store / result.runs[0]

        def started(pid: int) -> None:
            with suppress(OSError):
                self.record.write_running(RunningAttempt(result=result, owner=runs_of.read_owner(pid)))

        try:
            ended = run_attempt(
                [*self.measurer, str(run)], Path(self.night.folder), self.record.path / log,
                AttemptLimits(math.inf, seconds, min(self.grace, MEASURING_GRACE), why), self.interrupt, started,
                self.stopping,
            )  # fmt: skip
        except OSError as error:  # no room for its log
            return f"it cannot be started: {error}"
        finally:
            with suppress(OSError):
                self.record.write_running(None)
        if ended.outcome_if_stopped is not None:
            return f"stopped, because {ended.why}"
        if read_json_if_valid(run / SENSITIVITY, Sensitivity) is None:
            return f"it ended with exit code {ended.status} and without a result"
        return ""

    def _shrink(self, end: float) -> None:
        """Shrinks the new failures while there is time and space on the disk."""
        if not self.night.shrink_seconds:
            return
        shrinker = Shrinker(
            self.store, self.record, self.night, self.grace, self.interrupt, self.record.write_running, self.stopping,
            self.shrinker,
        )  # fmt: skip
        own = list_recorded_runs(self.record) if self.trusts_record else self._made
        for failure, entry in find_new_failures(self.store, self.night, own):
            left = end - time.monotonic()
            if left <= 0 or self.interrupt.requested:
                return
            self.shrinks(entry.night_cell)
            try:
                shrunk = shrinker.shrink(failure, entry, left)
                self.record.append_shrunk(shrunk)
            except OSError as error:
                if not is_full(error):
                    raise
                return
            finally:
                self.record.write_running(None)
            self.shrank(shrunk)

    def _record_result(self, result: AttemptResult) -> None:
        """Records a result. If a full disk rejects it, the next call and the end of the night try again."""
        self._unwritten.append(result)
        self._write_results()

    def _write_results(self) -> None:
        while self._unwritten:
            try:
                self.record.append_result(self._unwritten[0])
            except OSError as error:
                if not is_full(error):
                    raise
                if not self._reserve.release(RESERVE_STEP):
                    return
            else:
                del self._unwritten[0]
        self.record.write_running(None)

    def _reopen(self) -> None:
        """Records that the night has no end yet, and how many outcomes are lost.

        The record is read again, because another process may have continued the night since. Raises
        :class:`NightError` if the record cannot be read or written.
        """
        stored, recorded = self.record.read(), self.record.count_attempts()
        lost = min(MOST_ATTEMPTS, stored.lost + max(0, stored.attempts - recorded))
        self.night = msgspec.structs.replace(self.night, ended=msgspec.UNSET, attempts=recorded, lost=lost)
        if stored.ended is msgspec.UNSET and lost == stored.lost:
            return
        try:
            self.record.write(self.night)
        except OSError as error:
            if not is_full(error):
                raise
            raise NightError(f"the disk of {self.record.path} is full; make room and --resume") from error

    def _recover(self) -> None:
        """Records the attempt that was running when an earlier process of this night was killed."""
        running = self.record.read_running()
        if running is None:
            return
        with suppress(ValueError):
            orphan = owner.parse_owner(running.owner)
            if owner.find_owner(orphan.pid) == orphan and self._writes_log(orphan.pid):
                signal_group(orphan.pid, signal.SIGKILL)
        delete_runs(self.record)
        is_recorded = any(one.started == running.result.started for one in self.record.read_results())
        if running.shrinks or is_recorded:
            self._recover_measurement(running)
            self.record.write_running(None)
        else:
            self._record_result(classify_killed(self.store, self.record, self.night, running))

    def _writes_log(self, pid: int) -> bool:
        """Returns whether a process has a log of this night open, as each process that this night starts."""
        logs = self.record.path / LOGS
        return logs.is_dir() and has_open_file(pid, logs)

    def _recover_measurement(self, running: RunningAttempt) -> None:
        """Records that an earlier process of this night was killed before or while it measured a run."""
        result = running.result
        cells = {cell.name: cell for cell in self.night.cells}
        is_first = self.night.sensitivity and result.attempt == 1 and not running.shrinks
        if not is_first or result.cell not in cells:
            return
        for one in self.record.read_results():
            if one.started == result.started and _is_measurable(cells[result.cell], one):
                with suppress(OSError):
                    log = str(Path(one.log).with_suffix(".sensitivity.log"))
                    killed = _make_measurement(one, log, "the night itself was killed")
                    self.record.append_measurement(killed)

    def _end(self) -> None:
        """Records the end of the night. Raises :class:`NightError` if results are not recorded."""
        self._write_results()
        if self._unwritten:
            ends = ", ".join(f"{one.cell} {one.outcome}" for one in self._unwritten)
            raise NightError(
                f"the disk of {self.record.path} is full, so these are not recorded: {ends}; make room and --resume"
            )
        self._reserve.release()
        with suppress(OSError):  # if it fails, the night counts as one that did not end; its results are recorded
            attempts, missing = self.record.count_attempts(), self.record.count_missing(self.night)
            self.night = msgspec.structs.replace(
                self.night, ended=datetime.now(UTC).isoformat(), attempts=attempts, lost=max(self.night.lost, missing)
            )
            self.record.write(self.night)

    @property
    def _reserve(self) -> DiskReserve:
        return DiskReserve(self.record.path / "reserve")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Locks the night. The kernel releases the lock when the process ends, even if it is killed."""
        self.record.reject_links()
        try:
            lock = open_lock(self.record.path / "lock")
        except SpecialFileError as error:
            raise NightError(str(error)) from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise NightError(f"the night {self.night.folder_name} goes on in another process") from None
            yield
        finally:
            os.close(lock)


def list_recorded_runs(record: NightFolder) -> set[str]:
    """Returns the runs that the record of a night names."""
    return {run for result in record.read_results() for run in result.runs}


def _is_measurable(cell: MatrixCell, result: AttemptResult) -> bool:
    return cell.kind is CellKind.RUN and result.outcome is AttemptOutcome.PASS and bool(result.runs)


def _make_measurement(result: AttemptResult, log: str, detail: str = "") -> Measurement:
    return Measurement(
        cell=result.cell, run=result.runs[0], started=datetime.now(UTC).isoformat(), seconds=0.0, detail=detail, log=log
    )


def begin_night(
    store: Path,
    name: str | None,
    cells: Sequence[MatrixCell],
    budget: float,
    place: Path,
    version: str | None,
    share: tuple[int, int] = (1, 1),
    shrink: float = 0.0,
    *,
    sensitivity: bool = False,
) -> Night:
    """Writes the record of a night without results.

    - ``name``: None means the UTC day; further nights of a day get a number.
    - ``share``: part k of n parts, from 1. A part has every nth of ``cells``, with the seeds of the undivided night.

    Raises :class:`NightError` for a name that is taken or cannot be the name of a folder, and for a part without cells.
    """
    now = datetime.now(UTC)
    part, parts = share
    if len(cells) < parts:
        raise NightError(f"--split={part}/{parts}: the matrix has {len(cells)} cells, too few for {parts} parts")
    if parts > MOST_PARTS:
        raise NightError(f"--split={part}/{parts}: a night has at most {MOST_PARTS} parts")
    taken = {path.name for path in (store / runs_of.NIGHTS).glob("*")}
    if name is None:
        day = now.date().isoformat()
        names = (day, *(f"{day}-{n}" for n in range(2, len(taken) + 3)))
        name = next(one for one in names if make_part_name(one, part, parts) not in taken)
    _require_name(name)
    part_name = make_part_name(name, part, parts)
    exists = NightError(f"there is a night {part_name} in {store}: continue it by --resume, or give another name")
    if part_name in taken:
        raise exists
    earlier = [one.version for _, one in read_nights(store) if one.version and one.name != name]
    after = earlier[-1] if version and earlier else ""
    night = Night(
        after=after, commits=list_commits(place, after, version or ""), folder_name=part_name,
        started=now.isoformat(), budget_seconds=budget, seed=derive_seed(0, "night", name) % 2**32,
        version=version, host=socket.gethostname(), cells=tuple(cells)[part - 1 :: parts], folder=str(place.resolve()),
        whole=name if parts > 1 else "", part=part, parts=parts, shrink_seconds=shrink, sensitivity=sensitivity,
    )  # fmt: skip
    path = night_folder(store, part_name)
    path.reject_linked_folder()
    path.path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.path.mkdir()
    except FileExistsError:  # another process has begun it since, and its record must stay
        raise exists from None
    path.write(night)
    return night


def find_resumable_night(store: Path, name: str | None, share: tuple[int, int] = (1, 1)) -> Night:
    """Returns the night of this name, or else the newest one with this ``share``, as ``assay summary`` would.

    Raises :class:`NightError`.
    """
    part, parts = share
    if name is not None:
        _require_name(name)
        night = night_folder(store, make_part_name(name, part, parts)).read()
    else:
        nights = [one for _, one in read_nights(store) if parts == 1 or (one.part, one.parts) == share]
        if not nights:
            reasons = "".join(f"; {reason}" for reason in find_unreadable(store)[:1])
            raise NightError(f"there is no night in {store} to continue{reasons}")
        if misdated := find_misdated(nights):
            raise NightError(f"{misdated[0]}; which night is the newest is not known: give --night=ID")
        night = find_newest(nights)
    _require_valid(night)
    return night


def _require_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise NightError(f"--night={name} is no name for a folder: use letters, digits, dots, - and _")


def _require_valid(night: Night) -> None:
    """Raises :class:`NightError` for a record with values that no matrix can have."""
    where = f"the record of night {night.folder_name}"
    if not night.cells:
        raise NightError(f"{where} has no cells, so there is nothing to continue")
    if len({cell.name for cell in night.cells}) < len(night.cells):
        raise NightError(f"{where} has two cells of one name")
    for cell in night.cells:
        if not 1 <= cell.repeat <= MOST_REPEATS or not 0 < cell.timeout <= LONGEST:
            raise NightError(f"{where}: cell {cell.name} has repeat {cell.repeat} and timeout {cell.timeout:g}")
    if not 0 <= night.budget_seconds <= LONGEST or not 0 <= night.shrink_seconds <= LONGEST:
        raise NightError(
            f"{where} has a budget of {night.budget_seconds:g} s, and {night.shrink_seconds:g} s to shrink"
        )


def _is_disk_full(place: Path) -> bool:
    try:
        with TemporaryFile(dir=place) as probe:
            probe.write(bytes(PROBE))
    except OSError as error:
        return is_full(error)
    return False


def _does_docker_answer() -> bool:
    from assay.cluster.docker.engine import is_answering  # the SDK takes a while to import

    return is_answering()
