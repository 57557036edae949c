"""A run beside the last one of the same cell that passed: what clients did, and what was done to the system.

The cell is what the store's folder of the run is named for, a test with its faults, on the same kind of cluster. The
runs before it are looked at from the latest back, by their small files; only the one that passed is opened.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from assay.checkers.engine import EngineError
from assay.checkers.judging.verdict import Verdict
from assay.checkers.times import NANOSECONDS
from assay.harness.core.history import SCHEMAS, HistoryError, HistoryReader
from assay.reports.faults import FaultBand, fault_bands
from assay.reports.files import RunFiles, read_files
from assay.reports.history_db import Recording
from assay.reports.series import Verb, verbs

MOST_BEFORE: Final = 200
"""Runs that are looked at."""


@dataclass(frozen=True)
class Pace:
    """Operations of one kind in one run; ``rate``: how many succeeded per second of it."""

    verb: Verb
    rate: float


@dataclass(frozen=True)
class Struck:
    """What faults of one kind did in one run; ``recovery``: seconds from a heal until all targets served, at most."""

    count: int = 0
    effective: int = 0
    recovery: float | None = None


@dataclass(frozen=True)
class Summary:
    """What is compared of a run, by kind of operation and by fault."""

    paces: dict[str, Pace]
    struck: dict[str, Struck]


@dataclass(frozen=True)
class Comparison:
    """``name``: the folder of the run that passed, beside this run's; rows are of this run, then of that one."""

    name: str
    started: str | None
    defect: str | None
    paces: tuple[tuple[str, Pace | None, Pace | None], ...]
    struck: tuple[tuple[str, Struck, Struck], ...]


def compared(run_dir: Path, files: RunFiles, here: Summary) -> Comparison | None:
    """With the last run before this one that passed; None when there is none that can be read."""
    for path, other in _before(run_dir, files):
        try:
            with Recording(HistoryReader(path / "history", optional=tuple(SCHEMAS))) as recording:
                there = summary(recording.end(), verbs(recording), fault_bands(recording)[0])
        except (HistoryError, EngineError, pa.ArrowException, OSError):
            continue
        settings = other.settings.get("settings") or {}
        return Comparison(
            name=path.name,
            started=other.run.started,
            defect=settings.get("defect") if isinstance(settings, dict) else None,
            paces=tuple((f, here.paces.get(f), there.paces.get(f)) for f in {**here.paces, **there.paces}),
            struck=tuple(
                (fault, here.struck.get(fault, Struck()), there.struck.get(fault, Struck()))
                for fault in sorted({*here.struck, *there.struck})
            ),
        )
    return None


def summary(end: int, counted: Sequence[Verb], bands: Sequence[FaultBand]) -> Summary:
    """``end`` in nanoseconds."""
    seconds = max(end, 1) / NANOSECONDS
    struck: dict[str, Struck] = {}
    for band in bands:
        if band.injected is None:
            continue
        known = struck.get(band.fault, Struck())
        took = None if band.recovered is None or band.healed is None else (band.recovered - band.healed) / NANOSECONDS
        times = [time for time in (known.recovery, took) if time is not None]
        struck[band.fault] = Struck(
            known.count + 1, known.effective + (band.took_effect is True), max(times, default=None)
        )
    return Summary({verb.f: Pace(verb, verb.ok / seconds) for verb in counted}, struck)


def _before(run_dir: Path, files: RunFiles) -> Iterator[tuple[Path, RunFiles]]:
    """Runs of the cell that passed, the latest first. Folders are named for when a run began."""
    try:
        names = sorted((path.name for path in run_dir.parent.iterdir() if path.name < run_dir.name), reverse=True)
    except OSError:
        return
    for name in names[:MOST_BEFORE]:
        path = run_dir.parent / name
        if path.is_symlink() or not (path / "verdict.json").is_file():
            continue
        other = read_files(path)
        alike = (other.run.test, other.run.cluster, other.run.nemesis) == (
            files.run.test, files.run.cluster, files.run.nemesis,
        )  # fmt: skip
        if alike and other.judgement is not None and other.judgement.verdict is Verdict.PASS:
            yield path, other
