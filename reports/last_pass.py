"""Compares a run with the last passing run of the same cell: operations by kind, and faults.

Runs of one cell have one parent folder in the store (a test with its faults) and one kind of cluster. Earlier runs are
scanned from the latest on, by their small files. Only the passing run's history is opened.
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
from assay.reports.faults import FaultBand, read_fault_bands
from assay.reports.files import RunFiles, read_files
from assay.reports.history_db import HistoryDatabase
from assay.reports.series import OperationCounts, count_operations

MAX_SCANNED_RUNS: Final = 200
"""Maximum number of earlier runs to scan."""


@dataclass(frozen=True)
class OperationRate:
    """Operations of one kind in one run. ``rate``: successful operations per second of the run."""

    counts: OperationCounts
    rate: float


@dataclass(frozen=True)
class FaultSummary:
    """Faults of one kind in one run. ``effective``: how many of them took effect. ``recovery``: maximum seconds from a
    heal until all targets served."""

    count: int = 0
    effective: int = 0
    recovery: float | None = None


@dataclass(frozen=True)
class RunTotals:
    """The compared values of a run, by kind of operation and by fault."""

    operation_rates: dict[str, OperationRate]
    fault_summaries: dict[str, FaultSummary]


@dataclass(frozen=True)
class Comparison:
    """Comparison of this run with the last passing run. ``name``: folder of the passing run.

    Rows have this run's values first, and then those of the passing run.
    """

    name: str
    started: str | None
    defect: str | None
    operation_rates: tuple[tuple[str, OperationRate | None, OperationRate | None], ...]
    fault_summaries: tuple[tuple[str, FaultSummary, FaultSummary], ...]


def compare_with_last_pass(run_dir: Path, files: RunFiles, this_run: RunTotals) -> Comparison | None:
    """Compares with the last passing run before this one. Returns None if no such run can be read."""
    for path, other in _iterate_earlier_passes(run_dir, files):
        try:
            with HistoryDatabase(HistoryReader(path / "history", optional=tuple(SCHEMAS))) as database:
                last_pass = summarize(database.end(), count_operations(database), read_fault_bands(database)[0])
        except (HistoryError, EngineError, pa.ArrowException, OSError):
            continue
        settings = other.settings.get("settings") or {}
        these_rates, its_rates = this_run.operation_rates, last_pass.operation_rates
        these_faults, its_faults = this_run.fault_summaries, last_pass.fault_summaries
        return Comparison(
            name=path.name,
            started=other.run.started,
            defect=settings.get("defect") if isinstance(settings, dict) else None,
            operation_rates=tuple((f, these_rates.get(f), its_rates.get(f)) for f in {**these_rates, **its_rates}),
            fault_summaries=tuple(
                (fault, these_faults.get(fault, FaultSummary()), its_faults.get(fault, FaultSummary()))
                for fault in sorted({*these_faults, *its_faults})
            ),
        )
    return None


def summarize(end: int, counted: Sequence[OperationCounts], bands: Sequence[FaultBand]) -> RunTotals:
    """Summarizes a run. ``end``: its length in nanoseconds."""
    seconds = max(end, 1) / NANOSECONDS
    fault_summaries: dict[str, FaultSummary] = {}
    for band in bands:
        if band.injected is None:
            continue
        known = fault_summaries.get(band.fault, FaultSummary())
        took = None if band.recovered is None or band.healed is None else (band.recovered - band.healed) / NANOSECONDS
        times = [time for time in (known.recovery, took) if time is not None]
        fault_summaries[band.fault] = FaultSummary(
            known.count + 1, known.effective + (band.took_effect is True), max(times, default=None)
        )
    return RunTotals({verb.f: OperationRate(verb, verb.ok / seconds) for verb in counted}, fault_summaries)


def _iterate_earlier_passes(run_dir: Path, files: RunFiles) -> Iterator[tuple[Path, RunFiles]]:
    """Yields earlier passing runs of the cell, the latest first. Folder names are start times."""
    try:
        every = [path.name for path in run_dir.parent.iterdir()]
    except OSError:
        return
    # Folders that begin with a dot are being deleted.
    earlier = (name for name in every if name < run_dir.name and not name.startswith("."))
    for name in sorted(earlier, reverse=True)[:MAX_SCANNED_RUNS]:
        path = run_dir.parent / name
        if path.is_symlink() or not (path / "verdict.json").is_file():
            continue
        other = read_files(path)
        same_cell = (other.run.test, other.run.cluster, other.run.nemesis) == (
            files.run.test, files.run.cluster, files.run.nemesis,
        )  # fmt: skip
        if same_cell and other.judgement is not None and other.judgement.verdict is Verdict.PASS:
            yield path, other
