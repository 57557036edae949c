"""Aggregates of many runs: a night's matrix, reasons for unknown runs, detection of defects, histories of cells.

A cell is a combination of system, workload, nemesis, cluster and planted defect (``CellKey``).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from assay.reports.index.entry import CellKey, Entry, RunVerdict, StoreContents
from assay.reports.index.trends import Row, Trends

MOST_NIGHTS: Final = 60
"""Maximum number of nights in the plots of a cell."""
NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
WORST: Final = (RunVerdict.FAIL, RunVerdict.UNKNOWN, RunVerdict.NONE, RunVerdict.PASS)
"""The verdicts, the worst first."""


@dataclass
class VerdictCounts:
    """Number of runs by verdict."""

    counts: dict[RunVerdict, int] = field(default_factory=lambda: dict.fromkeys(WORST, 0))

    def add(self, entry: Entry) -> None:
        self.counts[entry.verdict] += 1

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def worst(self) -> RunVerdict:
        return next(one for one in WORST if self.counts[one])

    def __str__(self) -> str:
        words = {RunVerdict.NONE: "without verdict"}
        return ", ".join(f"{count:,} {words.get(one, one)}" for one, count in self.counts.items() if count)


@dataclass(frozen=True)
class Matrix:
    """Matrix of workloads (rows) and nemeses (columns). ``left_out``: number of rows and columns that are not shown."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[str, str], VerdictCounts]
    left_out: int


@dataclass(frozen=True)
class UnknownReason:
    """Unknown runs, or runs without a verdict, with one reason (numbers may differ). The newest run comes first."""

    verdict: RunVerdict
    status: str
    reason: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class DetectionCount:
    """How often a workload has caught a defect. ``runs``: runs with a verdict. ``unjudged``: runs without one."""

    runs: int
    caught: int
    unjudged: int


def count_verdicts(entries: Iterable[Entry]) -> VerdictCounts:
    found = VerdictCounts()
    for entry in entries:
        found.add(entry)
    return found


def find_newest_runs(store: StoreContents) -> list[Entry]:
    """Returns the runs of the newest night, without runs of a system with a defect."""
    night = store.tonight
    return [] if night is None else [one for one in store.entries if one.night == night.name and not one.cell.defect]


def build_matrix(entries: Iterable[Entry], most: int) -> Matrix:
    """Returns the matrix. It has at most ``most`` rows and columns, those with the worst verdicts, sorted by name."""
    cells: dict[tuple[str, str], VerdictCounts] = defaultdict(VerdictCounts)
    for one in entries:
        cells[one.cell.workload, one.cell.nemesis].add(one)
    rows, columns = (_choose_names(cells, axis, most) for axis in (0, 1))
    every = {row for row, _ in cells}, {column for _, column in cells}
    return Matrix(rows, columns, dict(cells), len(every[0]) - len(rows) + len(every[1]) - len(columns))


def _choose_names(cells: dict[tuple[str, str], VerdictCounts], axis: int, most: int) -> tuple[str, ...]:
    """Returns the names of the rows (axis 0) or of the columns (axis 1) that are shown."""
    worst: dict[str, int] = {}
    for key, found in cells.items():
        worst[key[axis]] = min(worst.get(key[axis], len(WORST)), WORST.index(found.worst))
    kept = sorted(worst, key=lambda name: (worst[name], name))[:most]
    return tuple(sorted(kept, key=lambda name: (name != "none", name.startswith("("), name)))


def group_unknowns(entries: Sequence[Entry]) -> list[UnknownReason]:
    """Returns the reasons, the most frequent first."""
    groups: dict[tuple[RunVerdict, str, str], list[Entry]] = defaultdict(list)
    for one in reversed(entries):
        if one.verdict in (RunVerdict.UNKNOWN, RunVerdict.NONE):
            groups[one.verdict, one.status, NUMBER.sub("#", one.reason)].append(one)
    found = [UnknownReason(key[0], key[1], group[0].reason, tuple(group)) for key, group in groups.items()]
    return sorted(found, key=lambda one: (-len(one.entries), one.reason))


def count_detections(store: StoreContents) -> dict[str, dict[str, DetectionCount]]:
    """Returns detection counts by defect and workload, both sorted by name, over all nights."""
    groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for one in store.entries:
        if one.cell.defect:
            groups[one.cell.defect, one.cell.workload].append(one)
    found: dict[str, dict[str, DetectionCount]] = defaultdict(dict)
    for (defect, workload), runs in sorted(groups.items()):
        judged = [one.caught for one in runs if one.caught is not None]
        found[defect][workload] = DetectionCount(len(judged), sum(judged), len(runs) - len(judged))
    return dict(found)


def list_nights(store: StoreContents, trends: Trends | None) -> list[str]:
    """Returns the names of nights, the oldest first: earlier ones from the trends, then the store's."""
    first = min((night.started[:10] for night in store.nights), default="")
    earlier = [] if trends is None else [night for night in trends.nights if night < first]
    return [*earlier, *(night.name for night in store.nights)]


def build_histories(store: StoreContents, trends: Trends | None = None) -> dict[CellKey, list[Row]]:
    """Returns the nights of each cell, the oldest first. Cells that failed latest come first.

    Only the last ``MOST_NIGHTS`` nights of ``list_nights`` count. They are numbered from 0. Nights that are older than
    the store come from the trends.
    """
    known = list_nights(store, trends)[-MOST_NIGHTS:]
    nights = {night: place for place, night in enumerate(known)}
    groups: dict[CellKey, dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for one in store.entries:
        if one.night in nights:
            groups[one.cell][nights[one.night]].append(one)
    found = {cell: [_build_row(night, runs) for night, runs in sorted(by.items())] for cell, by in groups.items()}
    if trends is not None:
        own = {night.name for night in store.nights}
        places = [nights.get(night) if night not in own else None for night in trends.nights]
        for trend in trends.cells:
            if trend.cell in found:
                earlier = [(places[int(row[0] or 0)], row) for row in trend.rows]
                found[trend.cell][:0] = [[place, *row[1:]] for place, row in earlier if place is not None]
    return dict(sorted(found.items(), key=lambda item: (_rank_cell(item[0], item[1]), item[0])))


def _build_row(night: int, runs: Sequence[Entry]) -> Row:
    """Returns the values of a cell in one night, in the order of ``trends.Row``."""
    counts = count_verdicts(runs).counts
    row: Row = [night, *(counts[one] for one in WORST)]
    for values in zip(*(one.figures for one in runs), strict=True):
        known = [value for value in values if value is not None]
        row.append(round(median(known), 3) if known else None)
    return row


def _rank_cell(cell: CellKey, rows: Sequence[Row]) -> tuple[int, ...]:
    """Returns a sort key: cells without a defect first, then the latest failure, then the latest unknown run."""
    latest = [max((int(row[0] or 0) for row in rows if row[1 + place]), default=-1) for place in (0, 1)]
    return (int(bool(cell.defect)), -latest[0], -latest[1])
