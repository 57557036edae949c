"""Verdict of a night: how its cells ended, and which of its failures are not marked as known.

It is read from the night's record and its runs, by the night at its end, and by the summary of all its parts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.checkers.judging.verdict import Verdict
from assay.harness.nightly.night_record import (
    AttemptOutcome,
    AttemptResult,
    CellKind,
    DamagedLine,
    MatrixCell,
    Night,
    NightError,
    NightFolder,
    find_unreadable,
    group_by_cell,
    is_failed,
    is_troubled,
    read_nights,
)
from assay.harness.nightly.store_index import make_attempt_name, read_store
from assay.reports.index.entry import Entry, StoreContents, sanitize_text
from assay.reports.index.failures import Failure, group_failures
from assay.reports.index.known import KnownFailures, Mark


@dataclass(frozen=True)
class CellResult:
    """A cell and how its attempts ended, in their order; ``marks``: of those that failed in known ways, by number."""

    cell: MatrixCell
    results: tuple[AttemptResult, ...]
    marks: dict[int, Mark]
    entries: dict[int, tuple[Entry, ...]]
    """By number of the attempt its runs, or what is said of it where there are none."""
    logs: dict[int, Path]

    @property
    def outcomes(self) -> list[AttemptOutcome]:
        """Without the failures that are marked."""
        return [one.outcome for one in self.results if one.attempt not in self.marks]

    @property
    def failed(self) -> bool:
        """Whether it failed in a way that is not marked as known. A canary passes if any attempt detects its defect."""
        return is_failed(self.outcomes)

    @property
    def troubled(self) -> bool:
        return bool(self.outcomes) and is_troubled(self.outcomes)

    @property
    def green(self) -> bool:
        """It has said something, and nothing that counts."""
        said = (AttemptOutcome.PASS, AttemptOutcome.DETECTED)
        return bool(self.marks) or any(one in said for one in self.outcomes)


@dataclass(frozen=True)
class NightAccount:
    """A night, or one part of it. ``failures``: those it has seen, as the page shows them; ``idle``: not begun."""

    name: str
    nights: tuple[Night, ...]
    missing: tuple[int, ...]
    """The parts that have left no record."""
    cells: tuple[CellResult, ...]
    idle: tuple[MatrixCell, ...]
    failures: tuple[Failure, ...]
    problems: tuple[str, ...]
    lost: tuple[DamagedLine, ...] = ()
    """Lines of attempts whose outcome is not known."""

    @property
    def parts(self) -> int:
        return max(one.parts for one in self.nights)

    @property
    def seconds(self) -> float:
        return sum(result.seconds for cell in self.cells for result in cell.results)

    @property
    def broken(self) -> bool:
        """A cell has a wrong option, or a module that cannot be imported."""
        return any(AttemptOutcome.BROKEN in cell.outcomes for cell in self.cells)

    @property
    def verdict(self) -> Verdict:
        """Nothing that passed, a part that is missing, and an outcome that is lost, are no pass."""
        if any(cell.failed for cell in self.cells):
            return Verdict.FAIL
        if (
            self.missing
            or self.lost
            or any(cell.troubled for cell in self.cells)
            or not any(cell.green for cell in self.cells)
        ):
            return Verdict.UNKNOWN
        return Verdict.PASS


def read_account(store: Path, name: str | None, known: KnownFailures, part: int | None = None) -> NightAccount:
    """Reads the night of this name, or the newest; ``part``: one part of it. Raises :class:`NightError`."""
    every = read_nights(store)
    if not every:
        raise NightError(f"there is no night in {store}: `assay nightly --store={store}` makes one")
    if name is None and (damaged := find_unreadable(store)):
        # It may be the newest, and have failed: an older one must not speak for it.
        raise NightError(f"{damaged[0]}; which night is the newest is not known: remove its folder, or give --night=ID")
    name = name or every[-1][1].name
    parts = [(folder, night) for folder, night in every if night.name == name and part in (None, night.part)]
    if not parts:
        names = ", ".join(dict.fromkeys(night.name for _, night in every[-10:]))
        raise NightError(f"there is no night {name} in {store}. There are: {names}")
    stored = _cut_after(read_store(store, {}), sanitize_text(name))
    found = group_failures(stored, known)
    cells = [ended for folder, night in parts for ended in _read_cell_ends(folder, night, stored, found)]
    lost = [line for folder, night in parts for line in folder.lost(night)]
    begun = {one.cell.name for one in cells}.union(line.cell for line in lost)
    count = max(night.parts for _, night in parts)
    there = {night.part for _, night in parts}
    return NightAccount(
        name=name,
        nights=tuple(night for _, night in parts),
        missing=() if part else tuple(one for one in range(1, count + 1) if one not in there),
        cells=tuple(cells),
        idle=tuple(cell for _, night in parts for cell in night.cells if cell.name not in begun),
        failures=tuple(
            _select_seen(found, {entry for one in cells for some in one.entries.values() for entry in some})
        ),
        problems=stored.problems,
        lost=tuple(lost),
    )


def _cut_after(stored: StoreContents, name: str) -> StoreContents:
    """As if the night were the newest."""
    last = next(night for night in stored.nights if night.name == name)
    later = {night.name for night in stored.nights if night.started > last.started}
    return replace(
        stored,
        entries=tuple(one for one in stored.entries if one.night not in later),
        nights=tuple(night for night in stored.nights if night.name not in later),
    )


def _read_cell_ends(
    folder: NightFolder, night: Night, stored: StoreContents, found: Sequence[Failure]
) -> Iterable[CellResult]:
    mine = {one.name: one for one in stored.entries if one.night == sanitize_text(night.name)}
    of_entry = {entry: failure for failure in found for entry in failure.entries}
    ended = group_by_cell(folder.results())
    for cell in night.cells:
        results = ended.get(cell.name)
        if not results:
            continue
        marks: dict[int, Mark] = {}
        entries: dict[int, tuple[Entry, ...]] = {}
        for one in results:
            names = (*map(sanitize_text, one.runs), make_attempt_name(one))
            entries[one.attempt] = tuple(mine[each] for each in names if each in mine)
            failed = [of_entry[entry] for entry in entries[one.attempt] if entry in of_entry]
            marked = [failure.mark for failure in failed if failure.mark is not None and not failure.counts]
            if (
                cell.kind is not CellKind.CANARY
                and one.outcome is AttemptOutcome.FAIL
                and failed
                and len(marked) == len(failed)
            ):
                marks[one.attempt] = marked[0]
        logs = {one.attempt: folder.path / one.log for one in results if one.log}
        yield CellResult(cell, tuple(results), marks, entries, logs)


def _select_seen(found: Sequence[Failure], entries: set[Entry]) -> Iterable[Failure]:
    return (one for one in found if entries.intersection(one.entries))
