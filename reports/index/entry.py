"""Data of the page about runs, attempts, nights and a store. All text is already sanitized and short."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from assay.harness.core.printable import to_printable
from assay.harness.core.timestamps import FIRST_TIME

T = TypeVar("T")

LONGEST_TEXT: Final = 300
"""Maximum number of characters of a text from a run."""
LONGEST_COMMAND: Final = 100_000
"""Maximum number of characters of a command. A longer one is not shown, because a part of it would do something else.
"""


FILES: Final = {"report.html": "report", "schedule.json": "schedule", "history": "history", "logs": "logs"}
"""Optional contents of a run's folder, with the labels of their links."""


class RunVerdict(StrEnum):
    """Verdict of a run. ``none``: the run has no verdict."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    NONE = "none"
    PASS = "pass"


class CellKey(NamedTuple):
    """Cell of a nightly matrix. ``defect``: empty for a system without a planted defect."""

    system: str
    workload: str
    nemesis: str
    cluster: str
    defect: str


class EntryFigures(NamedTuple):
    """Measurements of a run; None if unknown. The order is that of ``trends.Row``.

    - ``median``, ``p99``: latencies of successful operations in ms
    - ``recovery``: seconds from a heal until all targets served
    - ``detection``: seconds until a finding
    """

    operations: int | None = None
    median: float | None = None
    p99: float | None = None
    recovery: float | None = None
    detection: float | None = None


UNMEASURED: Final = EntryFigures()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A run, or an attempt of a night's cell that left no run or ended worse than its runs."""

    name: str
    """``test/time`` for a run, and the name of its cell for an attempt."""
    address: str
    """The folder of the run, relative to the store, as in a link."""
    files: tuple[str, ...] = ()
    """The members of ``FILES`` that exist."""
    extra_links: tuple[tuple[str, str], ...] = ()
    """Further links: label and address."""
    cell: CellKey
    base_system: str = ""
    """The system without the defect, if the night counts the defect as an ordinary variant."""
    night_cell: str = ""
    """The name of the run's cell in the night's matrix, which is equal on every night."""
    night: str
    started: str
    verdict: RunVerdict
    status: str
    anomalies: tuple[str, ...] = ()
    """The forbidden anomalies that were found, sorted."""
    shape: tuple[str, ...] = ()
    """The kinds of faults of the run's shrunk schedule, in order."""
    reason: str = ""
    """Why the run is unknown or has no verdict, in one line."""
    command: str = ""
    seed: int | None = None
    version: str = ""
    counts: tuple[tuple[str, str], ...] = ()
    """Names and values of JUnit properties: operations by outcome, in total and per kind."""
    figures: EntryFigures = UNMEASURED
    caught: bool | None = None
    """For a run with a defect: whether an expected anomaly was reported; None: no verdict."""

    gone: bool = False
    """Whether the run is no longer in the store, so that only its night's record mentions it."""
    unjudged: bool = False
    """Whether the run has operations and seems to be over, but has no verdict."""

    @property
    def pass_cell(self) -> CellKey:
        """The cell whose passes count for the run's last pass: the cell of the system without the defect."""
        return self.cell._replace(system=self.base_system or self.cell.system)

    @property
    def links(self) -> list[tuple[str, str]]:
        """Label and address of each link, relative to the store."""
        return [(FILES[file], f"{self.address}/{file}") for file in self.files] + list(self.extra_links)


@dataclass(frozen=True, slots=True, kw_only=True)
class NightEntry:
    """A night. ``planned``: number of cells of its matrix, 0 without one. ``done``: cells with a completed attempt."""

    name: str
    started: str
    ended: str | None = None
    budget: float = 0.0
    planned: int = 0
    done: int = 0
    version: str = ""
    previous_version: str = ""
    """The version of the previous night."""
    commits: tuple[str, ...] = ()
    """Commits between the two versions, the newest first: ``git log --oneline``."""
    running_cell: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContents:
    """A store. ``entries``, ``nights``: the oldest first. ``problems``: unreadable files, in sentences."""

    name: str
    entries: tuple[Entry, ...]
    nights: tuple[NightEntry, ...]
    problems: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    """Runs and records of nights that cannot be read, in sentences. Each may be a failure."""
    overlooked: tuple[str, ...] = ()
    """Runs in a wrong place of the store, which no entry shows, in sentences. Each may be a failure."""

    @property
    def unjudged(self) -> list[str]:
        """The runs that ended without a verdict, in sentences. Each may be a failure."""
        return [f"{one.name}: {one.reason}" for one in self.entries if one.unjudged]

    @property
    def tonight(self) -> NightEntry | None:
        """The newest night that has a record (:func:`find_newest`), otherwise the newest day."""
        nights = [night for night in self.nights if night.planned] or self.nights
        return find_newest(nights, lambda night: (night.started, night.ended)) if nights else None


def find_newest(nights: Sequence[T], get_times: Callable[[T], tuple[str, str | None]]) -> T:
    """Returns the night that ended last, or the newest that has not ended if it began after that one.

    The start alone does not decide: if the clock was behind at the start of a night, an older night seems to have begun
    later. A night whose end is no valid time counts by its start. ``nights``: at least one. ``get_times`` returns start
    and end in ISO 8601, UTC.
    """
    ended: list[tuple[str, str, T]] = []
    unended: list[tuple[str, T]] = []
    for one in nights:
        start, end = get_times(one)
        if end is None:
            unended.append((start, one))
        else:
            ended.append((end if end > FIRST_TIME.isoformat() else start, start, one))
    latest = max(reversed(unended), key=lambda some: some[0], default=None)
    last = max(ended, key=lambda some: some[0], default=None)
    if latest is not None and (last is None or latest[0] >= last[1]):
        return latest[1]
    assert last is not None, "there is at least one night"
    return last[2]


def sanitize_text(text: str, limit: int = LONGEST_TEXT) -> str:
    """Returns ``text`` as one short line, without invisible or bidirectional control characters."""
    flat = to_printable(" ".join(text[: 4 * limit].split()))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def sanitize_command(command: str) -> str:
    """Returns the whole command without invisible or bidirectional control characters, for pasting into a shell."""
    if len(command) > LONGEST_COMMAND:
        return f"# a command of {len(command)} characters is not shown here: run.json has it"
    return to_printable(command)
