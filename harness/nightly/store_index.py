"""Reads a store for the page of ``assay index``: the small files of every run, and the records of its nights.

Bad content of a store never raises an error. A damaged, foreign or half-written run becomes an entry with the reason.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.times import NANOSECONDS
from assay.cluster import owner
from assay.harness.core.files import read_json
from assay.harness.core.history import HistoryError
from assay.harness.nightly import night_record as record
from assay.harness.nightly.dataset_schema import DAMAGED, NONE, UNKNOWN, DefectAnomalies
from assay.harness.nightly.night_record import (
    AttemptOutcome,
    AttemptResult,
    NightFolder,
    find_missing_parts,
    find_strays,
    to_utc,
)
from assay.harness.nightly.outcome import find_unrecorded
from assay.harness.nightly.run_row import UNJUDGED, find_setting, read_figures, read_outline, read_trusted_judgement
from assay.harness.run import store
from assay.reports.coverage import list_count_properties
from assay.reports.index.entry import (
    FILES,
    CellKey,
    Entry,
    EntryFigures,
    NightEntry,
    RunVerdict,
    StoreContents,
    sanitize_command,
    sanitize_text,
)

SHRUNK_SCHEDULES: Final = "found"
"""The folder of the store with schedules that shrinking or a search made."""
"""The folder of a store for shrunk schedules."""
VERDICTS: Final = {
    AttemptOutcome.PASS: RunVerdict.PASS, AttemptOutcome.FAIL: RunVerdict.FAIL,
    AttemptOutcome.UNKNOWN: RunVerdict.UNKNOWN,
    AttemptOutcome.DETECTED: RunVerdict.FAIL, AttemptOutcome.MISSED: RunVerdict.PASS,
}  # fmt: skip
"""The verdict of an attempt, by its outcome; other outcomes have none."""
GONE: Final = "its run is no longer in the store"
READ_ERRORS: Final = (OSError, ValueError, OverflowError, RecursionError, HistoryError)

T = TypeVar("T")


class _Step(msgspec.Struct):
    """A step of a schedule, as far as it is needed here."""

    fault: str


class _Plan(msgspec.Struct):
    """A schedule, or the record of a run's schedule, which has it in ``schedule``."""

    steps: tuple[_Step, ...] = ()
    schedule: "_Plan | None" = None


def read_store(root: Path, defects: DefectAnomalies) -> StoreContents:
    """Reads a store. For a defect that is not in ``defects``, any forbidden anomaly counts as caught."""
    parts: dict[str, list[_NightPart]] = {}
    problems: list[str] = []
    expected = dict(defects)
    attempts: dict[str, _AttemptOfRun] = {}
    """The attempt of each run."""
    shrunk: dict[str, record.ShrunkFailure] = {}
    """The shrunk failure of each run."""
    readable, unreadable = record.scan_nights(root)
    for folder, night in readable:
        results = _read_lines(folder.read_results, folder, problems)
        begun = _read_begun_attempt(root, folder, night)
        if begun is not None and begun.outcome is AttemptOutcome.INTERRUPTED:
            attempts |= {run: _AttemptOfRun(night, begun.cell) for run in begun.runs}
        elif begun is not None:
            results.append(begun)
        failures = _read_lines(folder.read_shrunk, folder, problems)
        lost = [
            *_read_lines(partial(folder.find_lost_lines, night), folder, []),
            *_read_lines(folder.find_damaged_shrunk, folder, []),
            *_read_lines(folder.find_damaged_measurements, folder, problems),
        ]
        problems += map(str, lost)
        shrunk |= {one.run: one for one in failures if one.schedule and (root / one.schedule).is_file()}
        cells = {cell.name: cell for cell in night.cells}
        parts.setdefault(night.name, []).append(_NightPart(folder, night, cells, results))
        expected |= {cell.defect: cell.expected for cell in night.cells if cell.defect and cell.expected}
        attempts |= {run: _AttemptOfRun(night, result.cell, result) for result in results for run in result.runs}
    problems += unreadable.values()
    damaged = list(problems)
    nights = [_make_night_entry(some, problems) for some in parts.values()]
    problems += record.find_misdated(part.night for some in parts.values() for part in some)
    entries = []
    runs = store.list_runs(root)
    overlooked = [f"{run.relative_to(root)}: {reason}" for run, reason in store.find_overlooked(root, runs)]
    problems += overlooked
    for path in runs:
        name = f"{path.parent.name}/{path.name}"
        entries.append(_make_run_entry(path, attempts.get(name), shrunk.get(name), expected))
    by_name = {entry.name: entry for entry in entries}
    entries += [
        _make_attempt_entry(part, result, gone=bool(result.runs) and by_name.keys().isdisjoint(result.runs))
        for some in parts.values()
        for part in some
        for result in part.results
        if not any(_shows_outcome(by_name.get(name), result) for name in result.runs)
    ]
    damaged += [f"{one.name}: {one.reason}" for one in entries if one.status == DAMAGED]
    entries.sort(key=lambda one: (one.started, one.name))
    nights += _make_days(entries, {night.name for night in nights})
    nights.sort(key=lambda night: night.started)
    return StoreContents(name=sanitize_text(root.name or str(root)), entries=tuple(entries), nights=tuple(nights),
                  problems=tuple(map(sanitize_text, problems)), damaged=tuple(map(sanitize_text, damaged)),
                  overlooked=tuple(map(sanitize_text, overlooked)))  # fmt: skip


class _AttemptOfRun(NamedTuple):
    """The attempt that made a run."""

    night: record.Night
    cell: str
    result: AttemptResult | None = None
    """None while the attempt is running, or if it was killed and its runs do not show how it ended."""


class _NightPart(NamedTuple):
    """A part of a night, with its ended attempts."""

    folder: NightFolder
    night: record.Night
    cells: dict[str, record.MatrixCell]
    results: list[AttemptResult]

    @property
    def running_cell(self) -> str:
        """Returns the cell that is running, or an empty text."""
        running = self.folder.read_running()
        if running is None or self.night.ended is not msgspec.UNSET or not _is_alive(running.owner):
            return ""
        return sanitize_text(running.result.cell) + (", whose failure is being shrunk" if running.shrinks else "")


def _read_lines(read: Callable[[], list[T]], folder: NightFolder, problems: list[str]) -> list[T]:
    try:
        return read()
    except OSError as error:
        problems.append(f"{folder.path.name}: {error}")
        return []


def _read_begun_attempt(root: Path, folder: NightFolder, night: record.Night) -> AttemptResult | None:
    """Returns the attempt of a night that has not ended, if no line records it yet."""
    if night.ended is msgspec.UNSET:
        with suppress(OSError):  # the unreadable file is a problem already
            return find_unrecorded(root, folder, night)
    return None


def _make_night_entry(parts: list[_NightPart], problems: list[str]) -> NightEntry:
    """Merges the parts of one night. A part without a record becomes a problem, and so does a part of another night."""
    every = [part.night for part in parts]
    strays = find_strays(every)
    problems += strays.values()
    nights = [night for night in every if night.folder_name not in strays]
    name = sanitize_text(nights[0].name)
    problems += [f"{name}: part {one} of {nights[0].parts} has left no record" for one in find_missing_parts(nights)]
    ends = [to_utc(str(night.ended)) for night in nights if night.ended is not msgspec.UNSET]
    return NightEntry(
        name=name,
        started=min(to_utc(night.started) for night in nights),
        ended=max(ends) if len(ends) == len(nights) else None,
        budget=max(night.budget_seconds for night in nights),
        planned=sum(len(night.cells) for night in nights),
        done=sum(len({one.cell for one in part.results} & part.cells.keys()) for part in parts),
        version=sanitize_text(nights[0].version or ""),
        previous_version=sanitize_text(nights[0].after),
        commits=tuple(map(sanitize_text, nights[0].commits)),
        running_cell=", ".join(filter(None, (part.running_cell for part in parts))),
    )


def _make_days(entries: list[Entry], recorded: set[str]) -> Iterator[NightEntry]:
    """Yields an entry for each day with runs that belong to no recorded night."""
    remaining = (one for one in entries if one.night not in recorded)
    for day, runs in groupby(remaining, key=lambda one: one.night):
        yield NightEntry(name=day, started=next(runs).started)


def _make_run_entry(
    folder: Path,
    attempt: _AttemptOfRun | None,
    shrunk: record.ShrunkFailure | None,
    defects: DefectAnomalies,
) -> Entry:
    night, cell, result = attempt or (None, "", None)
    try:
        run, info, settings = read_outline(folder)
        judgement, reason = None, run.problem or ""
        if info is not None and run.status in (store.FINISHED, store.INTERRUPTED):
            judgement = read_trusted_judgement(folder, info)
            reason = reason or ("" if judgement else UNJUDGED)
    except READ_ERRORS as error:
        return _make_damaged_entry(folder, night, error)
    system, defect, base = run.system or UNKNOWN, run.defect, ""
    ordinary = (AttemptOutcome.PASS, AttemptOutcome.FAIL, AttemptOutcome.UNKNOWN)
    if defect != NONE and result is not None and result.outcome in ordinary:
        # The cell is no canary, so the defect is a part of the tested system.
        system, defect, base = f"{system} with {defect}", NONE, system
    parts = (system, run.workload, run.nemesis, run.cluster or UNKNOWN, defect)
    verdict = RunVerdict.NONE if judgement is None else RunVerdict(judgement.verdict)
    status = run.status
    if judgement is not None:
        reason = judgement.unknown[0] if judgement.unknown else ""
    elif result is not None and result.outcome not in VERDICTS:
        status, reason = str(result.outcome), result.detail or reason
    shape, more = _read_shape(folder, settings, judgement)
    command = "" if info is None else info.command
    if shape and shrunk is not None:
        command = shrunk.command
        if shrunk.report and (folder.parents[1] / shrunk.report).is_file():
            more = (*more, ("small run", quote(shrunk.report)))
    hits = _find_hits(judgement, defects.get(defect))
    return Entry(
        **_describe_folder(folder),
        extra_links=more,
        cell=_make_cell_key(*parts),
        base_system=sanitize_text(base),
        night_cell=sanitize_text(cell),
        night=to_utc(run.started)[:10] if night is None else sanitize_text(night.name),
        started=to_utc(run.started),
        verdict=verdict,
        status=sanitize_text(status),
        anomalies=tuple(sorted(sanitize_text(name) for name in _find_hits(judgement, None))),
        shape=shape,
        reason=_shorten(reason),
        unjudged=judgement is None and defect == NONE and _may_have_failed(info, result),
        command=sanitize_command(command),
        seed=run.seed,
        version=sanitize_text((None if night is None else night.version) or run.version or ""),
        counts=() if judgement is None else _make_counts(judgement),
        figures=_make_figures(folder, judgement, hits),
        caught=None if judgement is None or defect == NONE else bool(hits),
    )


def _make_counts(judgement: Judgement) -> tuple[tuple[str, str], ...]:
    return tuple((sanitize_text(name), sanitize_text(value)) for name, value in list_count_properties(judgement))


def _make_damaged_entry(folder: Path, night: record.Night | None, error: Exception) -> Entry:
    started = datetime.fromtimestamp(folder.lstat().st_mtime, UTC).isoformat() if folder.exists() else ""
    return Entry(
        **_describe_folder(folder),
        cell=_make_cell_key(UNKNOWN, folder.parent.name, UNKNOWN, UNKNOWN, NONE),
        night=to_utc(started)[:10] if night is None else sanitize_text(night.name),
        started=to_utc(started),
        verdict=RunVerdict.NONE,
        status=DAMAGED,
        reason=_shorten(str(error)),
    )


def _make_attempt_entry(part: _NightPart, result: AttemptResult, *, gone: bool) -> Entry:
    """Makes the entry of an attempt whose outcome no run shows. ``gone``: whether its runs were deleted.

    Only a run can identify a failure. So a failed attempt whose runs were deleted has no verdict.
    """
    parts, folder = (UNKNOWN, result.cell, UNKNOWN, UNKNOWN, NONE), part.folder.path
    if (cell := part.cells.get(result.cell)) is not None:
        parts = (cell.system, cell.workload, cell.nemesis, cell.cluster, cell.defect or NONE)
    verdict, reason = VERDICTS.get(result.outcome, RunVerdict.NONE), result.detail
    if gone and result.outcome is AttemptOutcome.FAIL:
        verdict, reason = RunVerdict.NONE, GONE
    address = f"{store.NIGHTS}/{quote(folder.name)}"
    answered = result.outcome in (AttemptOutcome.DETECTED, AttemptOutcome.MISSED)
    return Entry(
        name=make_attempt_name(result),
        address=address,
        extra_links=(("log", f"{address}/{quote(result.log)}"),)
        if result.log and (folder / result.log).is_file()
        else (),
        cell=_make_cell_key(*parts),
        night_cell=sanitize_text(result.cell),
        night=sanitize_text(part.night.name),
        started=to_utc(result.started),
        verdict=verdict,
        status=str(result.outcome),
        anomalies=("failed, and left no run that did",) if verdict is RunVerdict.FAIL else (),
        reason=_shorten(reason),
        command=sanitize_command(result.command),
        seed=result.seed,
        version=sanitize_text(part.night.version or ""),
        caught=result.outcome is AttemptOutcome.DETECTED if answered else None,
        gone=gone,
    )


def make_attempt_name(result: AttemptResult) -> str:
    """Returns the name of the entry of an attempt whose outcome no run shows."""
    return sanitize_text(f"{result.cell}, attempt {result.attempt}")


def _make_cell_key(system: str, workload: str, nemesis: str, cluster: str, defect: str) -> CellKey:
    return CellKey(
        sanitize_text(system),
        sanitize_text(workload),
        sanitize_text(nemesis),
        sanitize_text(cluster),
        "" if defect == NONE else sanitize_text(defect),
    )


def _shows_outcome(entry: Entry | None, result: AttemptResult) -> bool:
    """Returns whether this run shows the outcome of the attempt. Runs with a defect always do."""
    if entry is None:
        return False
    return bool(entry.cell.defect) or entry.verdict is VERDICTS.get(result.outcome, RunVerdict.NONE)


def _may_have_failed(info: store.RunInfo | None, result: AttemptResult | None) -> bool:
    """Returns whether a run without a verdict may hide a failure: it made operations, and will not be judged any more.

    Runs of attempts that crashed or hung are left out, because such an attempt counts in its night.
    """
    if info is None or (result is not None and result.outcome not in VERDICTS):
        return False
    began = info.status != store.ERROR or info.origin is not None  # origin: time 0 of its history
    return began and (info.is_elsewhere() or not info.awaits_verdict())


def _describe_folder(folder: Path) -> dict[str, Any]:
    parts = folder.parent.name, folder.name
    names = {one.name for one in os.scandir(folder)} if os.access(folder, os.R_OK | os.X_OK) else set()
    return {
        "name": sanitize_text("/".join(parts)),
        "address": "/".join(quote(os.fsencode(part)) for part in parts),
        "files": tuple(file for file in FILES if file in names),
    }


def _read_shape(
    folder: Path, settings: dict[str, Any], judgement: Judgement | None
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Returns the faults of the shrunk schedule that belongs to a failed run, and a link to the schedule.

    The schedule was shrunk from this run, or this run has replayed it.
    """
    if judgement is None or judgement.verdict is not Verdict.FAIL:
        return (), ()
    found = folder.parent.parent / SHRUNK_SCHEDULES
    replayed = Path(find_setting(settings, "settings", "replay") or "")
    own = store.schedule_name(folder.name, _find_hits(judgement, None))
    name = replayed.name if replayed.parent.name == SHRUNK_SCHEDULES else own
    # If the run replayed a schedule that is no longer in ``found``, its own ``schedule.json`` has the same steps.
    source = found / name if (found / name).is_file() else folder / "schedule.json" if name != own else None
    if source is None:
        return (), ()
    try:
        plan = read_json(source, _Plan)
    except READ_ERRORS:
        return (), ()
    link = (("shrunk schedule", f"{SHRUNK_SCHEDULES}/{quote(os.fsencode(name))}"),) if source.parent == found else ()
    return tuple(sanitize_text(step.fault) for step in (plan.schedule or plan).steps), link


def _find_hits(judgement: Judgement | None, expected: tuple[str, ...] | None) -> set[str]:
    """Returns the forbidden anomalies that were found. If some are expected, returns only these."""
    if judgement is None or judgement.verdict is not Verdict.FAIL:
        return set()
    return set(judgement.violations).intersection(expected or judgement.violations)


def _make_figures(folder: Path, judgement: Judgement | None, hits: set[str]) -> EntryFigures:
    figures = read_figures(folder)
    findings = () if judgement is None else judgement.findings
    times = [one.time for one in findings if one.anomaly in hits and one.time is not None]
    return EntryFigures(
        operations=None if judgement is None else judgement.operations,
        median=figures.median_ms,
        p99=figures.p99_ms,
        recovery=figures.recovery_seconds,
        detection=min(times) / NANOSECONDS if times else None,
    )


def _shorten(text: str) -> str:
    """Returns the first line of a text, or the last line of a traceback, which is the error."""
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    return sanitize_text(lines[-1] if lines[0].startswith("Traceback") else lines[0])


def _is_alive(text: str) -> bool:
    try:
        return owner.parse_owner(text).alive()
    except ValueError:
        return False
