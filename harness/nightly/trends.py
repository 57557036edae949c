"""Computes the cells of a data set over its nights, and finds those that got worse.

A cell is a system, a workload, a nemesis, a cluster and a defect. Its value for a night is the median of its runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.checkers.engine import Engine
from assay.harness.nightly import dataset
from assay.harness.nightly.dataset_schema import NONE, UNKNOWN, DefectAnomalies
from assay.harness.nightly.regression import (
    FALSE_DISCOVERY_RATE,
    MAX_BASELINE,
    WINDOWS,
    EventCount,
    FigureRegression,
    FigureSeries,
    Value,
    find_regressions,
)
from assay.harness.nightly.tables import load_runs, open_engine
from assay.reports.index.entry import CellKey
from assay.reports.index.trends import Regression, Trend, Trends

COMPARED_NIGHTS: Final = MAX_BASELINE + max(WINDOWS)
"""Number of newest nights that are compared."""
RECENT_NIGHTS: Final = max(WINDOWS)
"""A cell without a run in this number of newest nights is not compared."""
SHOWN_NIGHTS: Final = 60
"""Number of newest nights of each cell that a page shows."""

CELL_NIGHTS: Final = f"""
    select coalesce(system, '{UNKNOWN}') as system, workload, nemesis, coalesce(cluster, '{UNKNOWN}') as cluster,
        case when defect = '{NONE}' then '' else defect end as defect, night,
        min_by(coalesce(version, ''), started) as version, count(*) filter (where verdict = 'fail') as failed,
        count(*) filter (where verdict = 'unknown') as "unknown", count(*) filter (where verdict is null) as without,
        count(*) filter (where verdict = 'pass') as passed, count(hit) as caught, median(operations) as operations,
        median(rate) as rate, median(median_ms) as median_ms, median(p99_ms) as p99_ms,
        median(recovery_seconds) as recovery, median(seconds) as detection
    from results where age <= {COMPARED_NIGHTS}
    group by 1, 2, 3, 4, 5, 6 order by 1, 2, 3, 4, 5, 6
    """
"""SQL with a row for each night of each cell: counts of its runs, and medians of their figures.

``without``: the runs without a verdict. ``results`` is a view of ``tables.VIEWS``, and ``hit`` marks a run that caught
its defect.
"""
SHOWN_FIGURES: Final = ("operations", "median_ms", "p99_ms", "recovery", "detection")
"""Columns of ``CELL_NIGHTS`` that a page shows."""


class TrendFigure(NamedTuple):
    """A figure that is compared. ``sign`` is -1 if less is worse."""

    words: str
    """Its name in sentences."""
    unit: str
    sign: int = 1


MEASURED: Final[Mapping[str, TrendFigure]] = {
    "rate": TrendFigure("operations that succeed", "/s", -1),
    "median_ms": TrendFigure("median latency", "ms"),
    "p99_ms": TrendFigure("99 % latency", "ms"),
    "recovery": TrendFigure("recovery", "s"),
    "detection": TrendFigure("time to detection", "s"),
}
FAILED, UNANSWERED, MISSED = "failed", "unanswered", "missed"
COUNTED: Final[Mapping[str, TrendFigure]] = {
    FAILED: TrendFigure("runs that fail", "%"),
    UNANSWERED: TrendFigure("runs without an answer", "%"),
    MISSED: TrendFigure("runs that miss the defect", "%"),
}
"""Figures that are shares of a night's runs. Figures in ``MEASURED`` are medians."""
PERCENT: Final = 100.0

NightRow = Mapping[str, Any]
"""A row of ``CELL_NIGHTS``."""


def compute_trends(place: Path, defects: DefectAnomalies, master: str | None = None) -> Trends:
    """Computes the trends. Raises the errors of ``assay.harness.nightly.tables.compute_tables``."""
    dataset.list_parts(place)  # errors are found before Spark is started
    with open_engine(master) as engine:
        return compute_trends_on(engine, place, defects)


def compute_trends_on(engine: Engine, place: Path, defects: DefectAnomalies) -> Trends:
    """Computes the trends on this engine, and leaves it open."""
    load_runs(engine, place, defects)
    return make_trends(engine.arrow(CELL_NIGHTS).to_pylist())


def make_trends(rows: Sequence[NightRow]) -> Trends:
    """Computes the trends of rows that are sorted by cell, then night."""
    nights = sorted({row["night"] for row in rows})
    places = {night: place for place, night in enumerate(nights)}
    cells = {cell: list(some) for cell, some in groupby(rows, key=_make_cell_key)}
    series = {
        _series_name(cell, figure): (cell, figure, one)
        for cell, some in cells.items()
        if places[some[-1]["night"]] >= len(nights) - RECENT_NIGHTS
        for figure, one in _make_series(cell, some, places)
    }
    changes, asked = find_regressions([one for *_, one in series.values()])
    first = max(0, len(nights) - SHOWN_NIGHTS)
    return Trends(
        nights=tuple(nights[first:]),
        cells=tuple(
            Trend(cell=cell, rows=tuple(shown))
            for cell, some in cells.items()
            if (
                shown := [_make_row(row, places[row["night"]] - first) for row in some if places[row["night"]] >= first]
            )
        ),
        worse=tuple(
            _make_worse(cell, figure, change, cells[cell], nights)
            for change in changes
            for cell, figure, _ in [series[change.series.name]]
        ),
        asked=asked,
        level=FALSE_DISCOVERY_RATE,
    )


def _make_cell_key(row: NightRow) -> CellKey:
    return CellKey(row["system"], row["workload"], row["nemesis"], row["cluster"], row["defect"])


def _series_name(cell: CellKey, figure: str) -> str:
    return "\n".join((*cell, figure))


def _make_series(
    cell: CellKey, rows: Sequence[NightRow], places: Mapping[str, int]
) -> Iterator[tuple[str, FigureSeries]]:
    """Yields the series of each figure that has a value on at least one night."""
    for figure in (*MEASURED, *((MISSED,) if cell.defect else (FAILED,)), UNANSWERED):
        points = [(places[row["night"]], value) for row in rows if (value := _find_value(row, figure)) is not None]
        if points:
            numbers, values = zip(*points, strict=True)
            sign = MEASURED[figure].sign if figure in MEASURED else 1
            yield figure, FigureSeries(_series_name(cell, figure), numbers, values, sign)


def _find_value(row: NightRow, figure: str) -> Value | None:
    """Returns the value of a figure. A count has the number of runs that could have had the event."""
    judged = row["failed"] + row["passed"]
    match figure:
        case "failed":
            return EventCount(row["failed"], judged)
        case "missed":
            return EventCount(judged - row["caught"], judged)
        case "unanswered":
            unanswered = row["unknown"] + row["without"]
            return EventCount(unanswered, judged + unanswered)
    return None if row[figure] is None else float(row[figure])


def _make_row(row: NightRow, place: int) -> list[int | float | None]:
    """Returns a row of ``Trend.rows``. ``place``: the number of the night among the shown nights."""
    shown = [None if row[name] is None else round(row[name], 3) for name in SHOWN_FIGURES]
    return [place, row["failed"], row["unknown"], row["without"], row["passed"], *shown]


def _make_worse(
    cell: CellKey, figure: str, change: FigureRegression, some: Sequence[NightRow], nights: Sequence[str]
) -> Regression:
    described = MEASURED.get(figure) or COUNTED[figure]
    scale = PERCENT if figure in COUNTED else 1.0
    since = nights[change.since]
    earlier = [row["version"] for row in some if row["night"] < since and row["version"]]
    first = next(row["version"] for row in some if row["night"] == since)
    return Regression(
        cell=cell,
        figure=described.words,
        unit=described.unit,
        before=change.before * scale,
        now=change.now * scale,
        since=since,
        nights=change.nights,
        nights_before=change.nights_before,
        probability=change.probability,
        last_version=earlier[-1] if earlier else "",
        first_version=first or "",
    )
