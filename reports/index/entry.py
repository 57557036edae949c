"""Data of the page about a run or attempt, a night and a store. All text is already sanitized and short."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from assay.harness.core.printable import to_printable

LONGEST: Final = 300
"""Maximum characters of a text from a run."""
LONGEST_COMMAND: Final = 100_000
"""Maximum characters of a command. Longer ones are not shown, because part of a command would do something else."""


FILES: Final = {"report.html": "report", "schedule.json": "schedule", "history": "history", "logs": "logs"}
"""Optional contents of a run's folder, with the labels of their links."""


class RunVerdict(StrEnum):
    """Verdict of a run; ``none``: it has no verdict."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    NONE = "none"
    PASS = "pass"


class CellKey(NamedTuple):
    """Cell of a nightly matrix. ``defect``: empty without one."""

    system: str
    workload: str
    nemesis: str
    cluster: str
    defect: str


class EntryFigures(NamedTuple):
    """Measurements: latencies of successful operations in ms; seconds from a heal until all served, and to a finding.

    None: unknown. The order is that of a cell's row in the trends.
    """

    operations: int | None = None
    median: float | None = None
    p99: float | None = None
    recovery: float | None = None
    detection: float | None = None


UNMEASURED: Final = EntryFigures()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A run; or an attempt of a night's cell that left no run, or ended worse than its runs."""

    name: str
    """``test/time``; for an attempt the name of its cell."""
    address: str
    """Its folder, relative to the store, as in a link."""
    files: tuple[str, ...] = ()
    """The members of ``FILES`` that exist."""
    extra_links: tuple[tuple[str, str], ...] = ()
    """Further links: label and address."""
    cell: CellKey
    base_system: str = ""
    """The system without the defect, for a run whose night counts the defect as an ordinary variant."""
    night_cell: str = ""
    """The name of its cell in the night's matrix, equal on every night."""
    night: str
    started: str
    standing: RunVerdict
    status: str
    anomalies: tuple[str, ...] = ()
    """The forbidden anomalies that were found, sorted."""
    shape: tuple[str, ...] = ()
    """The faults of its shrunk schedule, in order."""
    reason: str = ""
    """Why it is unknown or has no verdict; one line."""
    command: str = ""
    seed: int | None = None
    version: str = ""
    counts: tuple[tuple[str, str], ...] = ()
    """Names and values of its operations by outcome, of all kinds and of each kind, for JUnit XML."""
    figures: EntryFigures = UNMEASURED
    caught: bool | None = None
    """For a run with a defect: whether an expected anomaly was reported; None: no verdict."""

    gone: bool = False
    """Whether the run itself is no longer in the store, and only its night's record mentions it."""
    unjudged: bool = False
    """Whether the run made operations and is over, as far as is known here, but has no verdict."""

    @property
    def pass_cell(self) -> CellKey:
        """The cell whose passes show when it last passed."""
        return self.cell._replace(system=self.base_system or self.cell.system)

    @property
    def links(self) -> list[tuple[str, str]]:
        """Label and address of each link, relative to the store."""
        return [(FILES[file], f"{self.address}/{file}") for file in self.files] + list(self.extra_links)


@dataclass(frozen=True, slots=True, kw_only=True)
class NightEntry:
    """``planned``: cells of its matrix, 0 without one; ``done``: those with a completed attempt."""

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
    """A store; ``entries`` and ``nights`` oldest first. ``problems``: unreadable files, in sentences."""

    name: str
    entries: tuple[Entry, ...]
    nights: tuple[NightEntry, ...]
    problems: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    """Runs and records of nights that cannot be read, in sentences: each may have been a failure."""

    @property
    def unjudged(self) -> list[str]:
        """The runs that were cut short before their verdict, in sentences: each may have been a failure."""
        return [f"{one.name}: {one.reason}" for one in self.entries if one.unjudged]

    @property
    def tonight(self) -> NightEntry | None:
        """The newest night that has a record, otherwise the newest day."""
        return max(self.nights, key=lambda night: (night.planned > 0, night.started), default=None)


def sanitize_text(text: str, limit: int = LONGEST) -> str:
    """Returns ``text`` as one short line, without invisible or bidirectional control characters."""
    flat = to_printable(" ".join(text[: 4 * limit].split()))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def sanitize_command(command: str) -> str:
    """Returns the whole command without invisible or bidirectional control characters, for pasting into a shell."""
    if len(command) > LONGEST_COMMAND:
        return f"# a command of {len(command)} characters is not shown here: run.json has it"
    return to_printable(command)
