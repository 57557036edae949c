"""What the page knows of one run or attempt, of a night and of a store. All text is harmless and short by then."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from assay.harness.core.printable import printable

LONGEST: Final = 300
"""Characters of a text that comes from a run."""
LONGEST_COMMAND: Final = 100_000
"""Characters of a command. A longer one is not shown: part of a command would do something else."""


FILES: Final = {"report.html": "report", "schedule.json": "schedule", "history": "history", "logs": "logs"}
"""What a run's folder may have, and what a link to it is called."""


class Standing(StrEnum):
    """``none``: it has no verdict."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    NONE = "none"
    PASS = "pass"


class CellKey(NamedTuple):
    """What a nightly matrix has one job for. ``defect``: empty without one."""

    system: str
    workload: str
    nemesis: str
    cluster: str
    defect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured: latencies of successful operations in ms; seconds from a heal until all served, to a finding.

    None: not known.
    """

    operations: int | None = None
    median: float | None = None
    p99: float | None = None
    recovery: float | None = None
    detection: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run; or an attempt of a night's cell that left none, or ended worse than its runs."""

    name: str
    """``test/time``; of an attempt the name of its cell."""
    address: str
    """Its folder, relative to the store, as a link has it."""
    files: tuple[str, ...] = ()
    """Which of ``FILES`` are there."""
    more: tuple[tuple[str, str], ...] = ()
    """Further links: label and address."""
    cell: CellKey
    base: str = ""
    """Of a run with a defect that its night takes for one like others: the system without it."""
    planned: str = ""
    """The name of its night's cell, the same every night."""
    night: str
    started: str
    standing: Standing
    status: str
    anomalies: tuple[str, ...] = ()
    """The forbidden ones that were found, sorted."""
    shape: tuple[str, ...] = ()
    """The faults of its shrunk schedule, in order."""
    reason: str = ""
    """Why it is unknown or has no verdict; one line."""
    command: str = ""
    seed: int | None = None
    version: str = ""
    figures: Figures = Figures()
    caught: bool | None = None
    """Of a run with a defect: whether it was reported by an anomaly that it must be reported by; None: no verdict."""

    gone: bool = False
    """Its night's record alone speaks of it: the run is no longer in the store."""

    @property
    def before(self) -> CellKey:
        """The cell whose passes say when it was still green."""
        return self.cell._replace(system=self.base or self.cell.system)

    @property
    def links(self) -> list[tuple[str, str]]:
        """Label and address, relative to the store."""
        return [(FILES[file], f"{self.address}/{file}") for file in self.files] + list(self.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class NightEntry:
    """``planned``: cells of its matrix, 0 where it has none; ``done``: those with an attempt that has ended."""

    name: str
    started: str
    ended: str | None = None
    budget: float = 0.0
    planned: int = 0
    done: int = 0
    version: str = ""
    after: str = ""
    """The version of the night before."""
    commits: tuple[str, ...] = ()
    """Between the two, the newest first: ``git log --oneline``."""
    now: str = ""
    """The cell that is being run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A store; ``entries`` and ``nights`` oldest first. ``problems``: what could not be read, in sentences."""

    name: str
    entries: tuple[Entry, ...]
    nights: tuple[NightEntry, ...]
    problems: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    """Runs and records of nights that cannot be read, in sentences: each may have been a failure."""

    @property
    def tonight(self) -> NightEntry | None:
        """The newest night that has a record, else the newest day."""
        return max(self.nights, key=lambda night: (night.planned > 0, night.started), default=None)


def plain(text: str, limit: int = LONGEST) -> str:
    """``text`` in one short line, without characters that hide, turn or move others."""
    flat = printable(" ".join(text[: 4 * limit].split()))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def plain_command(command: str) -> str:
    """Returns the whole command, without characters that hide, turn or move others, to be pasted into a shell."""
    if len(command) > LONGEST_COMMAND:
        return f"# a command of {len(command)} characters is not shown here: run.json has it"
    return printable(command)
