"""Record of one night, in the folder ``nights/ID/`` of a store. ``assay nightly`` writes it, and pages read it.

- ``night.json``: the night with all its cells, written when it begins and again when it ends
- ``cells.jsonl``: a line for each ended attempt, appended and flushed to the disk at once
- ``running.json``: the running attempt, as it will be recorded if the night is killed
- ``shrunk.jsonl``: a line for each failure that was shrunk, or could not be
- ``measured.jsonl``: a line for each run whose sensitivity was measured, or could not be. The sensitivity of a run is
  the share of violations, planted into its history, that its checks find.

A process that dies can leave half a line behind; the next process begins a new line. A line that cannot be decoded is
reported. It may hide the outcome of an attempt, so the verdict of its night cannot be pass. A resumed night repeats an
attempt whose line is lost, but ``night.json`` keeps the number of lost outcomes, because the lost one may have been a
failure. Later versions of these files only add keys.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec

from assay.harness.core.files import (
    SpecialFileError,
    decode_json,
    open_for_append,
    read_file,
    read_json,
    read_json_if_valid,
    reject_links,
    write_atomically,
)
from assay.harness.core.printable import count_noun
from assay.harness.core.timestamps import MAX_AHEAD, is_possible_time
from assay.harness.run.store import NIGHTS, to_safe_name
from assay.reports.index import entry

FORMAT: Final = 1
CELLS: Final = "cells.jsonl"
SHRUNK: Final = "shrunk.jsonl"
MEASUREMENTS: Final = "measured.jsonl"
"""The file with a :class:`Measurement` for each run whose sensitivity was measured, or could not be measured."""
LOGS: Final = "logs"
"""The folder of a night that holds the output of its attempts."""
SHRINKING: Final = "shrinking"
"""The folder of a night that holds the stores of failures while they are shrunk."""
NAME: Final = re.compile(r"\w[\w.-]*")
STARTED: Final = re.compile(rb'"started":"([^"]+)"')
OUTCOME: Final = re.compile(rb'"outcome":"([^"]+)')
CELL: Final = re.compile(rb'^\{"cell":("(?:[^"\\]|\\.)*")')
NUMBER: Final = re.compile(r"(\d{4,9})-(.+)\.log")
"""The name of an attempt's log: the number of the attempt in its night, from 1, and the cell."""
DAY: Final = 86_400.0
"""Seconds of a day."""
MOST_PARTS: Final = 10_000
Part = Annotated[int, msgspec.Meta(ge=1, le=MOST_PARTS)]
MOST_ATTEMPTS: Final = 10**9
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_ATTEMPTS)]
Line = TypeVar("Line", bound=msgspec.Struct)


class NightError(Exception):
    """A night cannot be read or begun. The message names the night and the remedy."""


class CellKind(StrEnum):
    """The task of a cell."""

    RUN = "run"
    EXPLORE = "explore"
    CANARY = "canary"
    SCHEDULE = "schedule"


class AttemptOutcome(StrEnum):
    """How an attempt of a cell ended. Only ``fail`` and ``missed`` are failures of what is tested.

    A canary has ``detected`` its defect, or ``missed`` it. ``broken``: pytest could not even begin the test.
    ``no-engine``: no Docker engine answered.
    """

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"
    DETECTED = "detected"
    MISSED = "missed"
    CRASHED = "crashed"
    HUNG = "hung"
    NO_DOCKER = "no-engine"
    NO_DISK = "no-disk"
    INTERRUPTED = "interrupted"
    BROKEN = "broken"


GREEN: Final = frozenset((AttemptOutcome.PASS, AttemptOutcome.DETECTED, AttemptOutcome.SKIPPED))
FAILING: Final = frozenset((AttemptOutcome.FAIL, AttemptOutcome.MISSED))
NOT_CAUSED_BY_CELL: Final = frozenset((AttemptOutcome.INTERRUPTED, AttemptOutcome.NO_DOCKER, AttemptOutcome.NO_DISK))
"""Outcomes caused by the machine or the user, not by the cell."""


class MatrixCell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell of the matrix. ``name`` is unique in its night and the same every night."""

    name: str
    kind: CellKind
    workload: str
    system: str
    nemesis: str
    cluster: str
    defect: str | None = None
    arguments: tuple[str, ...] = ()
    """Arguments of pytest, without the seed."""
    repeat: int = 1
    timeout: float = 600.0
    """Seconds after which an attempt counts as hung."""
    expected: tuple[str, ...] = ()
    """A canary must report one of these anomalies. If this is empty, any anomaly that its contract forbids will do."""


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """``night.json``: a night, or one part of a divided night. Times are ISO 8601 in UTC.

    ``seed`` follows from ``name``.
    """

    folder_name: str = msgspec.field(name="night")
    started: str
    budget_seconds: float
    seed: int
    version: str | None
    host: str
    cells: tuple[MatrixCell, ...]
    after: str = ""
    """The version under test of the previous night in this store."""
    commits: tuple[str, ...] = ()
    """``git log --oneline`` since ``after``, if both versions are commits of the folder."""
    shrink_seconds: float = 0.0
    """Seconds for shrinking each new failure; 0: failures are not shrunk."""
    sensitivity: bool = False
    """Whether the sensitivity of one run that passed is measured for each cell."""
    folder: str = "."
    """The folder in which pytest was started: that of the matrix."""
    ended: str | msgspec.UnsetType = msgspec.UNSET
    attempts: Count = 0
    """Number of attempts in ``cells.jsonl`` when the night ended or was resumed. If it has fewer, outcomes are lost."""
    lost: Count = 0
    """Number of outcomes that were missing when the night was resumed or ended. Later attempts do not replace them."""
    whole: str = ""
    """If this is a part of a divided night: the name of the night."""
    part: Part = 1
    parts: Part = 1
    format: int = FORMAT

    def __post_init__(self) -> None:
        if self.part > self.parts:
            raise ValueError(f"part {self.part} of {self.parts}")

    @property
    def name(self) -> str:
        """The name of the night, which all its parts share."""
        return self.whole or self.folder_name


class AttemptResult(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ``cells.jsonl``: an attempt of a cell has ended. ``attempt``: its number, from 1."""

    cell: str
    attempt: int
    seed: int
    command: str
    """The command that repeats it."""
    started: str
    seconds: float
    outcome: AttemptOutcome
    detail: str = ""
    """The cause, in one line."""
    runs: tuple[str, ...] = ()
    """``test/time``: folders of the store."""
    log: str = ""
    """The file with its output, relative to the night's folder."""


class RunningAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """``running.json``: the running attempt, and its process (``assay.cluster.owner``).

    ``result``: the result that is recorded if the night is killed.
    """

    result: AttemptResult
    owner: str
    shrinks: bool = False
    """Whether the process is no attempt, but shrinks a failure of this cell."""


class ShrunkFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ``shrunk.jsonl``: an attempt to shrink one failure."""

    system: str
    workload: str
    anomalies: tuple[str, ...]
    run: str
    """``test/time``: the run that was repeated."""
    started: str
    seconds: float
    interrupted: bool = False
    """Whether the user or the end of the budget stopped it. A later night then tries again."""
    schedule: str = ""
    """The shrunk schedule, relative to the store; if empty, ``detail`` says why there is none."""
    report: str = ""
    """The page of the smallest run that still failed, relative to the store."""
    command: str = ""
    """The command that plays the schedule."""
    detail: str = ""
    log: str = ""
    """The file with its output, relative to the night's folder."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ``measured.jsonl``: an attempt to measure the sensitivity of a cell's run that passed."""

    cell: str
    run: str
    """``test/time``: the run."""
    started: str
    seconds: float
    detail: str = ""
    """Why the sensitivity is not known; empty if it was measured."""
    log: str = ""
    """The file with its output, relative to the night's folder."""


@dataclass(frozen=True)
class DamagedLine:
    """A line of a night's record that cannot be decoded, is missing, or repeats or contradicts another one."""

    path: Path
    number: int
    """The number of the line, from 1; 0 if the place of a missing line is not known."""
    what: str
    cell: str = ""
    """The cell of the attempt, if the beginning of the line still names it."""

    def __str__(self) -> str:
        place = f"{self.path.parent.name}/{self.path.name}{f', line {self.number}' * bool(self.number)}"
        return f"{place}{f', of cell {self.cell}' * bool(self.cell)}: {self.what}"


@dataclass(frozen=True)
class NightFolder:
    """A night on disk."""

    path: Path

    def read(self) -> Night:
        """Reads ``night.json``. Raises :class:`NightError`, also if the folder has another name than the night."""
        path = self.path / "night.json"
        if not NAME.fullmatch(self.path.name):
            raise NightError(f"{self.path.name!r} is no name for a night: use letters, digits, dots, - and _")
        try:
            night = read_json(path, Night)
        except (OSError, msgspec.MsgspecError) as error:
            raise NightError(f"{path} is not the record of a night: {error}") from error
        if night.format != FORMAT:
            raise NightError(f"{path} has format {night.format}, and this version reads {FORMAT}")
        if night.folder_name != self.path.name:
            raise NightError(
                f"{path} is the record of a night {night.folder_name!r}, and lies in the folder of another"
            )
        return night

    def reject_links(self) -> None:
        """Raises :class:`NightError` if the folder is a link, or contains a link, a FIFO or a device.

        The stores of failures that are being shrunk are not checked. They contain links, and are deleted.
        """
        self.reject_linked_folder()
        for place, folders, files in os.walk(self.path):
            for name in (*folders, *files):
                try:
                    reject_links(Path(place) / name)
                except SpecialFileError as error:
                    raise NightError(str(error)) from error
            if Path(place) == self.path and SHRINKING in folders:
                folders.remove(SHRINKING)

    def reject_linked_folder(self) -> None:
        """Raises :class:`NightError` if this folder or the folder of all nights is a link, which may lead anywhere."""
        for folder in (self.path.parent, self.path):
            if folder.is_symlink():
                raise NightError(f"{folder} is a symbolic link: a night is written in the store itself")

    def write(self, night: Night) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / "night.json", msgspec.json.format(msgspec.json.encode(night), indent=2) + b"\n")

    def read_results(self) -> list[AttemptResult]:
        """Returns the results of all ended attempts, in order. An interrupted attempt may occur again, repeated."""
        return [one for _, one in _read_lines(self.path / CELLS, AttemptResult)[0]]

    def find_lost_lines(self, night: Night) -> list[DamagedLine]:
        """Returns the lines that are damaged or missing, or that repeat or contradict another line.

        So outcomes are unknown. A repeated line may stand in the place of a lost line. Raises ``OSError``.
        """
        path = self.path / CELLS
        results, damaged = _read_lines(path, AttemptResult)
        names = {cell.name for cell in night.cells}
        recorded = _count_attempts(results, damaged)
        damaged += [
            DamagedLine(path, number, "the night has no such cell", one.cell)
            for number, one in results
            if one.cell not in names
        ]
        missing = night.attempts - recorded
        if missing < 0 and night.ended is not msgspec.UNSET:  # an earlier version went on with it, and was killed
            missing = self.count_missing(night) - night.lost
        if missing > 0:
            what = f"{recorded + missing} attempts had ended, and {recorded} are recorded"
            damaged.append(DamagedLine(path, recorded + 1, what))
        if night.lost:
            many = count_noun(night.lost, "outcome")
            what = f"{many} had been lost when the night went on, and a repetition does not replace them"
            damaged.append(DamagedLine(path, 0, f"{what}: begin another night"))
        first: dict[tuple[str, int], AttemptResult] = {}
        seen: dict[AttemptResult, int] = {}
        for number, one in results:
            if (repeated := seen.setdefault(one, number)) != number:
                damaged.append(DamagedLine(path, number, f"this line repeats line {repeated}", one.cell))
                continue
            earlier = first.get((one.cell, one.attempt))
            if earlier is None or earlier.outcome is AttemptOutcome.INTERRUPTED:
                first[one.cell, one.attempt] = one
            elif one != earlier:
                what = f"attempt {one.attempt} had ended as {earlier.outcome}, and ends as {one.outcome} here"
                damaged.append(DamagedLine(path, number, what, one.cell))
        return damaged

    def count_attempts(self) -> int:
        """Returns the number of attempts that lines record. A damaged line counts as one. Raises ``OSError``."""
        return _count_attempts(*_read_lines(self.path / CELLS, AttemptResult))

    def find_last_number(self, night: Night) -> int:
        """Returns the largest number of an attempt, by the lines and the logs; 0 without any. Raises ``OSError``."""
        return max(self._list_numbers() | self._list_log_numbers(night), default=0)

    def count_missing(self, night: Night) -> int:
        """Returns the number of attempts that have begun, but that no line records.

        Attempts are numbered without gaps, and each has a log. So a missing number is the number of a lost line. The
        night must have no attempt in progress. Raises ``OSError``.
        """
        results, damaged = _read_lines(self.path / CELLS, AttemptResult)
        numbers = [_parse_number(one) for _, one in results]
        recorded = len({*numbers} - {None}) + numbers.count(None) + len(damaged)
        return max(0, self.find_last_number(night) - recorded)

    def _list_numbers(self) -> set[int]:
        """Returns the numbers of the attempts that lines record."""
        return {number for one in self.read_results() if (number := _parse_number(one)) is not None}

    def _list_log_numbers(self, night: Night) -> set[int]:
        """Returns the numbers of the attempts that have a log."""
        names = {to_safe_name(cell.name) for cell in night.cells}
        logs = (NUMBER.fullmatch(path.name) for path in (self.path / LOGS).glob("*.log"))
        return {int(log[1]) for log in logs if log is not None and log[2] in names}

    def append_result(self, result: AttemptResult) -> None:
        """Appends a result, and flushes it to the disk. Raises ``OSError``."""
        _append(self.path / CELLS, result)

    def read_shrunk(self) -> list[ShrunkFailure]:
        """Returns the attempts at shrinking. Raises ``OSError``."""
        return [one for _, one in _read_lines(self.path / SHRUNK, ShrunkFailure)[0]]

    def find_damaged_shrunk(self) -> list[DamagedLine]:
        """Returns the damaged lines about shrinking. Raises ``OSError``."""
        return _read_lines(self.path / SHRUNK, ShrunkFailure)[1]

    def append_shrunk(self, small: ShrunkFailure) -> None:
        """Appends an attempt at shrinking. Raises ``OSError``."""
        _append(self.path / SHRUNK, small)

    def read_measurements(self) -> list[Measurement]:
        """Returns the attempts at measuring sensitivities. Raises ``OSError``."""
        return [one for _, one in _read_lines(self.path / MEASUREMENTS, Measurement)[0]]

    def find_damaged_measurements(self) -> list[DamagedLine]:
        """Returns the damaged lines about sensitivities. Raises ``OSError``."""
        return _read_lines(self.path / MEASUREMENTS, Measurement)[1]

    def append_measurement(self, measurement: Measurement) -> None:
        """Appends an attempt at measuring. Raises ``OSError``."""
        _append(self.path / MEASUREMENTS, measurement)

    def read_running(self) -> RunningAttempt | None:
        """Returns the attempt that is running, or that was running when the night died."""
        return read_json_if_valid(self.path / "running.json", RunningAttempt)

    def write_running(self, running: RunningAttempt | None) -> None:
        """Writes ``running.json``, or removes it. Raises ``OSError``."""
        if running is None:
            (self.path / "running.json").unlink(missing_ok=True)
        else:
            write_atomically(self.path / "running.json", msgspec.json.encode(running))


def group_by_cell(results: Iterable[AttemptResult]) -> dict[str, list[AttemptResult]]:
    """Returns the attempts of each cell, without those that were interrupted and then repeated.

    Other attempts are never repeated. If a merged or damaged record has two results of an attempt, a failure counts.
    """
    last: dict[tuple[str, int], AttemptResult] = {}
    for one in results:
        earlier = last.get((one.cell, one.attempt))
        if earlier is None or not is_failed([earlier.outcome]) or is_failed([one.outcome]):
            last[one.cell, one.attempt] = one
    by_cell: dict[str, list[AttemptResult]] = {}
    for one in last.values():
        by_cell.setdefault(one.cell, []).append(one)
    return by_cell


def is_failed(outcomes: Collection[AttemptOutcome]) -> bool:
    """Returns whether a cell failed: one of its attempts failed, or a canary detected nothing."""
    return AttemptOutcome.FAIL in outcomes or (
        AttemptOutcome.MISSED in outcomes and AttemptOutcome.DETECTED not in outcomes
    )


def needs_attention(outcomes: Collection[AttemptOutcome]) -> bool:
    """Returns whether a cell failed, or has no verdict although the user did not interrupt it."""
    if AttemptOutcome.DETECTED in outcomes:
        return False
    return is_failed(outcomes) or not GREEN.union((AttemptOutcome.INTERRUPTED,)).issuperset(outcomes)


def find_strays(parts: Sequence[Night]) -> dict[str, str]:
    """Returns the parts that are not of the same night as the newest part, with the reasons.

    ``parts``: all parts with one name of a night; the newest comes last. A part is of the same night as the newest part
    under these conditions:

    - Both have the same number of parts, and the same version if it is known.
    - Their starts are at most a day apart. If all parts together may take longer than a day, this time counts instead.
    """
    last = parts[-1]
    strays = {}
    for one in parts:
        apart = (_parse_time(last.started) - _parse_time(one.started)).total_seconds()
        same_version = one.version == last.version or None in (one.version, last.version)
        if one.parts != last.parts or not same_version or apart > max(DAY, last.parts * last.budget_seconds):
            began = [f"{night.folder_name} ({night.version}, {to_utc(night.started)[:16]})" for night in (one, last)]
            remedy = "remove one of them, and give each night a name of its own by --night"
            strays[one.folder_name] = f"{began[0]} belongs to another night than {began[1]}: {remedy}"
    return strays


def find_missing_parts(nights: Sequence[Night]) -> tuple[int, ...]:
    """Returns the numbers of the parts without a record among the parts of one night."""
    return tuple(sorted({*range(1, nights[-1].parts + 1)} - {night.part for night in nights}))


def make_part_name(whole: str, part: int, parts: int) -> str:
    """Returns the folder name of a part; a night in one part has its own name."""
    return whole if parts == 1 else f"{whole}.{part}of{parts}"


def night_folder(store: Path, night: str) -> NightFolder:
    return NightFolder(store / NIGHTS / night)


def scan_nights(store: Path) -> tuple[list[tuple[NightFolder, Night]], dict[Path, str]]:
    """Returns the nights that can be read, the oldest first, and the other folders with the reasons."""
    found, unreadable = [], {}
    for path in sorted((store / NIGHTS).glob("*/")):
        try:
            found.append((NightFolder(path), NightFolder(path).read()))
        except NightError as error:
            unreadable[path] = str(error)
    return sorted(found, key=lambda pair: (to_utc(pair[1].started), pair[1].folder_name)), unreadable


def read_nights(store: Path) -> list[tuple[NightFolder, Night]]:
    """Returns the nights that can be read, the oldest first."""
    return scan_nights(store)[0]


def find_unreadable(store: Path) -> list[str]:
    """Returns why nights cannot be read, for each such night. A folder with neither record nor results is no night."""
    reasons = scan_nights(store)[1]
    return [why for path, why in reasons.items() if (path / "night.json").exists() or (path / CELLS).exists()]


def find_misdated(nights: Iterable[Night]) -> list[str]:
    """Returns a sentence for each night that began or ended by a wrong clock, so that its order in time is unknown."""
    now = datetime.now(UTC)
    sentences = []
    for one in nights:
        if not is_possible_time(_parse_time(one.started), now):
            sentences.append(f"the night {one.folder_name} began at {one.started}, so its clock was wrong")
        elif one.ended is not msgspec.UNSET and _parse_time(one.ended) > now + MAX_AHEAD:
            sentences.append(f"the night {one.folder_name} ended at {one.ended}, so its clock was wrong")
    return sentences


def find_newest(nights: Sequence[Night]) -> Night:
    """Returns the newest night, by the rule of the page (``reports.index.entry``). ``nights``: at least one."""
    return entry.find_newest(
        nights,
        lambda one: (to_utc(one.started), None if one.ended is msgspec.UNSET else to_utc(one.ended)),
    )


def read_if_possible(read: Callable[[], list[Line]]) -> list[Line]:
    """Returns no lines if the record cannot be read (it is a FIFO, for example): an old night must not end this one."""
    try:
        return read()
    except OSError:
        return []


def _append(path: Path, line: msgspec.Struct) -> None:
    with open_for_append(path) as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        torn = file.read(1) not in (b"", b"\n")
        try:
            file.write(b"\n" * torn + msgspec.json.encode(line) + b"\n")
            file.flush()
        except OSError:
            os.ftruncate(file.fileno(), end)  # half a line would count as a lost outcome
            raise
        os.fsync(file.fileno())


def _parse_number(result: AttemptResult) -> int | None:
    """Returns the number of an attempt; None if its log has none, because the line was not written by a night."""
    log = NUMBER.fullmatch(Path(result.log).name)
    return None if log is None else int(log[1])


def _count_attempts(results: Iterable[tuple[int, AttemptResult]], damaged: Sequence[DamagedLine]) -> int:
    return len({(one.cell, one.attempt, one.started) for _, one in results}) + len(damaged)


def _read_lines(path: Path, kind: type[Line]) -> tuple[list[tuple[int, Line]], list[DamagedLine]]:
    """Returns the lines of a file with their numbers, and the damaged lines that no later line repeats."""
    try:
        content = read_file(path)
    except FileNotFoundError:
        return [], []
    decoded: list[tuple[int, Line]] = []
    damaged: list[tuple[DamagedLine, bytes]] = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            decoded.append((number, decode_json(line, kind)))
        except msgspec.MsgspecError as error:
            half = number == len(lines) and not isinstance(error, msgspec.ValidationError)
            what = "half a line, whose end is lost" if half else f"damaged: {error}"
            damaged.append((DamagedLine(path, number, what, _find_cell(line)), line))
    # If a night is killed while it writes a line, the resumed night records that attempt again. So nothing is
    # lost by a damaged line if an intact line has the same `started`. But a failure is lost unless that line has
    # a failing outcome, too.
    starts, failing_starts = set[bytes](), set[bytes]()
    for _, one in decoded:
        starts.add(start := str(getattr(one, "started", "")).encode())
        if getattr(one, "outcome", None) in FAILING:
            failing_starts.add(start)
    return decoded, [one for one, line in damaged if not _is_repeated(line, starts, failing_starts)]


def _is_repeated(line: bytes, starts: set[bytes], failing_starts: set[bytes]) -> bool:
    """Returns whether intact lines record the attempts of a damaged line, too.

    ``starts`` are the times of the intact lines, and ``failing_starts`` are those of the failures among them.
    """
    begun = STARTED.findall(line)
    fails = any(one.value.encode().startswith(outcome) for outcome in OUTCOME.findall(line) for one in FAILING)
    return bool(begun) and (failing_starts if fails else starts).issuperset(begun)


def _find_cell(line: bytes) -> str:
    name = CELL.match(line)
    try:
        return "" if name is None else decode_json(name[1], str)
    except msgspec.MsgspecError:
        return ""


def to_utc(text: str) -> str:
    """Returns ISO 8601 in milliseconds, so that texts sort by time; an invalid text becomes the earliest time."""
    return _parse_time(text).isoformat(timespec="milliseconds")


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.fromtimestamp(0, UTC)
