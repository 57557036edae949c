"""Verdict of a night: how its cells ended, and which of its failures are not marked as known.

It is computed from the night's record and its runs: by the night itself when it ends, and by ``assay summary`` for all
parts of a night.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from assay.checkers.judging.sensitivity import FILE as SENSITIVITY
from assay.checkers.judging.sensitivity import Sensitivity
from assay.checkers.judging.verdict import Verdict
from assay.harness.core.files import read_json_if_valid
from assay.harness.nightly.night_record import (
    AttemptOutcome,
    AttemptResult,
    CellKind,
    DamagedLine,
    MatrixCell,
    Night,
    NightError,
    NightFolder,
    find_misdated,
    find_missing_parts,
    find_newest,
    find_strays,
    find_unreadable,
    group_by_cell,
    is_failed,
    needs_attention,
    read_if_possible,
    read_nights,
)
from assay.harness.nightly.outcome import CUT_SHORT, SKIPPED, SeenRun, find_unrecorded, read_printed
from assay.harness.nightly.store_index import make_attempt_name, read_store
from assay.harness.run.store import INTERRUPTED
from assay.reports.index.entry import Entry, RunVerdict, StoreContents, sanitize_text
from assay.reports.index.entry import find_newest as find_newest_entry
from assay.reports.index.failures import Failure, group_failures
from assay.reports.index.known import KnownFailures, Mark


@dataclass(frozen=True)
class CellResult:
    """A cell, and the results of its attempts in their order. The dictionaries are by number of the attempt.

    - ``marks``: for attempts with known failures, the marks (entries of ``known-failures.toml``) that make them known
    - ``entries``: the index page's entries of the attempt's runs, or of the attempt itself if it has no runs
    """

    cell: MatrixCell
    results: tuple[AttemptResult, ...]
    marks: dict[int, Mark]
    entries: dict[int, tuple[Entry, ...]]
    logs: dict[int, Path]
    sensitivity: Sensitivity | None = None
    """The sensitivity of a run that passed, if it was measured."""
    unmeasured: str = ""
    """Why the sensitivity was not measured, although the night should have measured it."""

    @property
    def outcomes(self) -> list[AttemptOutcome]:
        """Returns the outcomes of the attempts, without known failures."""
        return [one.outcome for one in self.results if one.attempt not in self.marks]

    @property
    def failed(self) -> bool:
        """Returns whether a failure is not marked as known. A canary passes if any attempt detects its defect."""
        return is_failed(self.outcomes)

    @property
    def needs_attention(self) -> bool:
        return bool(self.outcomes) and needs_attention(self.outcomes)

    @property
    def green(self) -> bool:
        """Returns whether an attempt passed, detected its defect, or failed in a known way."""
        return bool(self.marks) or not {AttemptOutcome.PASS, AttemptOutcome.DETECTED}.isdisjoint(self.outcomes)


@dataclass(frozen=True)
class NightAccount:
    """A night, or one part of it. ``failures``: of its runs, as on the index page. ``idle``: cells not begun."""

    name: str
    nights: tuple[Night, ...]
    missing: tuple[int, ...]
    """The numbers of the parts that have left no record."""
    cells: tuple[CellResult, ...]
    idle: tuple[MatrixCell, ...]
    failures: tuple[Failure, ...]
    problems: tuple[str, ...]
    """Sentences on records of the store's nights that are missing, damaged or unreadable."""
    lost: tuple[DamagedLine, ...] = ()
    """Lines of attempts whose outcome is not known."""
    unended: tuple[str, ...] = ()
    """The folders of the parts that are still running, or were killed."""
    strays: tuple[str, ...] = ()
    """A sentence for each part of another night with this name. The failures of these parts count here, too."""

    @property
    def parts(self) -> int:
        return self.nights[-1].parts

    @property
    def seconds(self) -> float:
        return sum(result.seconds for cell in self.cells for result in cell.results)

    @property
    def broken(self) -> bool:
        """Returns whether a cell has a wrong option, or a module that cannot be imported."""
        return any(AttemptOutcome.BROKEN in cell.outcomes for cell in self.cells)

    @property
    def verdict(self) -> Verdict:
        """Returns the verdict.

        It is unknown if no cell has passed, or if the night has not ended or lacks a part. It is also unknown if an
        outcome was lost, or if another night has the same name.
        """
        if any(cell.failed for cell in self.cells):
            return Verdict.FAIL
        if (
            self.missing
            or self.unended
            or self.lost
            or self.strays
            or any(cell.needs_attention for cell in self.cells)
            or not any(cell.green for cell in self.cells)
        ):
            return Verdict.UNKNOWN
        return Verdict.PASS


def read_account(store: Path, name: str | None, known: KnownFailures, part: str | None = None) -> NightAccount:
    """Reads the night of this name, or the newest (:func:`find_newest`). Raises :class:`NightError`.

    ``part``: the folder of one part.
    """
    every = read_nights(store)
    if name is None and (damaged := find_unreadable(store) or find_misdated(night for _, night in every)):
        # The unreadable night may be the newest, and may have failed.
        raise NightError(f"{damaged[0]}; which night is the newest is not known: remove its folder, or give --night=ID")
    if not every:
        raise NightError(f"there is no night in {store}: `assay nightly --store={store}` makes one")
    name = name or find_newest([night for _, night in every]).name
    parts = [(folder, night) for folder, night in every if night.name == name and part in (None, night.folder_name)]
    if not parts:
        names = ", ".join(dict.fromkeys(night.name for _, night in every[-10:]))
        raise NightError(f"there is no night {name} in {store}. There are: {names}")
    unended = [(folder, night) for folder, night in parts if night.ended is msgspec.UNSET]
    found = [(folder.path, find_unrecorded(store, folder, night)) for folder, night in unended]
    unrecorded = {path: one for path, one in found if one and one.outcome is not AttemptOutcome.INTERRUPTED}
    stored = _drop_later_nights(read_store(store, {}), sanitize_text(name))
    failures = group_failures(stored, known)
    results = [
        (folder, night, [*folder.read_results(), *filter(None, [unrecorded.get(folder.path)])])
        for folder, night in parts
    ]
    cells = [cell for recorded in results for cell in _read_cell_results(*recorded, stored, failures)]
    entries = {entry for cell in cells for some in cell.entries.values() for entry in some}
    lost = [line for folder, night in parts for line in folder.find_lost_lines(night)]
    begun = {one.cell.name for one in cells}.union(line.cell for line in lost)
    strays = find_strays([night for _, night in parts])
    return NightAccount(
        name=name,
        nights=tuple(night for _, night in parts),
        missing=() if part else find_missing_parts([night for _, night in parts if night.folder_name not in strays]),
        cells=tuple(cells),
        idle=tuple(cell for _, night in parts for cell in night.cells if cell.name not in begun),
        failures=tuple(failure for failure in failures if entries.intersection(failure.entries)),
        problems=stored.problems,
        lost=tuple(lost),
        unended=tuple(night.folder_name for _, night in unended),
        strays=tuple(strays.values()),
    )


def _drop_later_nights(stored: StoreContents, name: str) -> StoreContents:
    """Returns the content of the store without the nights and days that are newer (``entry.find_newest``)."""
    rest, later = list(stored.nights), set()
    while (newest := find_newest_entry(rest, lambda night: (night.started, night.ended))).name != name:
        rest.remove(newest)
        later.add(newest.name)
    return replace(
        stored,
        entries=tuple(one for one in stored.entries if one.night not in later),
        nights=tuple(night for night in stored.nights if night.name not in later),
    )


def _read_cell_results(
    folder: NightFolder,
    night: Night,
    every: Sequence[AttemptResult],
    stored: StoreContents,
    failures: Sequence[Failure],
) -> Iterable[CellResult]:
    by_name = {one.name: one for one in stored.entries if one.night == sanitize_text(night.name)}
    failure_of = {entry: failure for failure in failures for entry in failure.entries}
    results_of = group_by_cell(every)
    unmeasured = {one.cell: one.detail for one in read_if_possible(folder.read_measurements)}
    for cell in night.cells:
        results = results_of.get(cell.name)
        if not results:
            continue
        marks: dict[int, Mark] = {}
        entries: dict[int, tuple[Entry, ...]] = {}
        for place, one in enumerate(results):
            names = (*map(sanitize_text, one.runs), make_attempt_name(one))
            entries[one.attempt] = tuple(by_name[name] for name in names if name in by_name)
            failed = [failure_of[entry] for entry in entries[one.attempt] if entry in failure_of]
            valid = [failure.mark for failure in failed if failure.mark is not None and not failure.fails_night]
            is_failure = cell.kind is not CellKind.CANARY and one.outcome is AttemptOutcome.FAIL
            if not (is_failure and failed and len(valid) == len(failed)):
                continue
            if doubt := _find_doubt(folder, one, by_name):
                detail = f"known failure; repeat the attempt, because in night {night.name} {doubt}; {one.detail}"
                results[place] = msgspec.structs.replace(one, outcome=AttemptOutcome.UNKNOWN, detail=detail)
            else:
                marks[one.attempt] = valid[0]
        logs = {one.attempt: folder.path / one.log for one in results if one.log}
        sensitivity = _read_sensitivity(folder.path.parents[1], results)
        why = "" if sensitivity is not None else unmeasured.get(cell.name, "")
        yield CellResult(cell, tuple(results), marks, entries, logs, sensitivity, why)


def _find_doubt(folder: NightFolder, result: AttemptResult, by_name: Mapping[str, Entry]) -> str:
    """Returns why an attempt may have failed in another way than by the known failure; empty if its runs rule that out.

    The reason is a run without a verdict, a missing run, or an attempt that was cut short. Two kinds of runs may lack a
    verdict: runs of skipped tests, and the last run if the user or the end of the budget interrupted it.
    """
    if found := CUT_SHORT.search(result.detail):
        return f"it was cut short ({found[1]})"
    skips: list[str] = []
    with suppress(OSError):  # without the log, no run counts as skipped
        skips = SKIPPED.findall(read_printed(folder.path / result.log))
    for run in result.runs:
        entry = by_name.get(sanitize_text(run))
        if entry is None:
            return f"run {run} is gone"
        interrupted = entry.status == INTERRUPTED and "; then " in result.detail
        excused = interrupted or SeenRun(None, problem=entry.reason).is_skipped(skips)
        if entry.verdict is RunVerdict.UNKNOWN or (entry.verdict is RunVerdict.NONE and not excused):
            return f"run {run} neither passed nor failed ({entry.reason or entry.status})"
    return ""


def _read_sensitivity(store: Path, results: Sequence[AttemptResult]) -> Sensitivity | None:
    """Returns the sensitivity of the first run that passed, if it was measured."""
    runs = [one.runs[0] for one in results if one.outcome is AttemptOutcome.PASS and one.runs]
    if not runs or ".." in Path(runs[0]).parts:
        return None
    return read_json_if_valid(store / runs[0] / SENSITIVITY, Sensitivity)
