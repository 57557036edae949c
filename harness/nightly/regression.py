"""Finds the cells that got worse, by exact statistical tests with one error level for all cells of a night.

A figure is a number that describes a cell on each night: a latency, a rate, a time, or the frequency of an event.

1. The newest nights of a cell are compared with the nights before them.
2. Latencies, rates and times have one value per night, because the runs of a night share their machine and are not
   independent. They are compared by the one-sided Mann-Whitney test, which assumes no distribution: without a change,
   every order of the nights is equally likely. Ties count against an alarm.
3. Frequencies are compared by Fisher's exact test, run by run.
4. Each comparison is made with several numbers of newest nights, because a large change shows after few nights and a
   small one after many. A figure's p-value is the smallest of these, times the number of comparisons (Bonferroni).
5. The Benjamini-Hochberg procedure limits the false discovery rate over all figures of all cells to
   ``FALSE_DISCOVERY_RATE``. On average at most this share of the listed changes is noise. If nothing has changed, the
   list is non-empty with at most this probability.
6. A change of a median by less than ``MARGIN`` is not listed, even if it is significant.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from assay.harness.run.settings import SettingsError

FALSE_DISCOVERY_RATE: Final = 0.01
WINDOWS: Final = (3, 5, 7, 10, 14)
"""Numbers of newest nights that are compared with the nights before them."""
MAX_BASELINE: Final = 60
"""Maximum number of earlier nights in a comparison."""
MIN_BASELINE: Final = 10
"""Minimum number of earlier nights; with fewer there is no comparison."""
MARGIN: Final = 0.1
"""Minimum relative change of a median to be listed."""


class EventCount(NamedTuple):
    """The number of a night's runs with an event, and the number of all its runs."""

    events: int
    runs: int


Value = float | EventCount


@dataclass(frozen=True)
class FigureSeries:
    """The values of one figure of a cell, one per night, oldest first. ``sign``: -1 if a smaller value is worse."""

    name: str
    nights: tuple[int, ...]
    values: tuple[Value, ...]
    sign: int = 1


@dataclass(frozen=True)
class FigureRegression:
    """A figure that got worse, by the comparison with the smallest p-value.

    - ``since``: the first of the newest nights
    - ``nights``, ``nights_before``: the numbers of nights that were compared
    - ``now``, ``before``: the medians or frequencies in these nights
    """

    series: FigureSeries
    since: int
    nights: int
    nights_before: int
    before: float
    now: float
    probability: float
    """The p-value, adjusted for multiple comparisons; at most ``FALSE_DISCOVERY_RATE``."""


class _SmallestPValue(NamedTuple):
    """``newest``: in which comparison, by its number of newest nights."""

    probability: float
    newest: int


def find_regressions(series: Sequence[FigureSeries]) -> tuple[list[FigureRegression], int]:
    """Returns the figures that got worse, smallest p-value first, and the number of figures that were compared."""
    tested = [(one, smallest) for one in series if (smallest := _find_smallest_p_value(one)) is not None]
    if not tested:
        return [], 0
    adjusted = _import_stats().false_discovery_control([smallest.probability for _, smallest in tested])
    changes = [
        change
        for (one, smallest), probability in zip(tested, adjusted, strict=True)
        if probability <= FALSE_DISCOVERY_RATE
        and (change := _make_figure_regression(one, smallest.newest, float(probability))) is not None
    ]
    return sorted(changes, key=lambda change: (change.probability, change.series.name)), len(tested)


def _find_smallest_p_value(one: FigureSeries) -> _SmallestPValue | None:
    """Returns the smallest p-value with its number of newest nights, or None if there are too few nights."""
    windows = [newest for newest in WINDOWS if len(one.values) >= newest + MIN_BASELINE]
    if not windows:
        return None
    probability, newest = min((_compute_p_value(one, newest), newest) for newest in windows)
    return _SmallestPValue(min(1.0, len(windows) * probability), newest)


def _split(one: FigureSeries, newest: int) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Returns the values before the newest nights, and the values of the newest nights."""
    return one.values[-newest - MAX_BASELINE : -newest], one.values[-newest:]


def _compute_p_value(one: FigureSeries, newest: int) -> float:
    before, now = _split(one, newest)
    if isinstance(now[0], EventCount):
        return _fisher_exact(_sum_counts(before), _sum_counts(now))
    return _mann_whitney(one.sign * np.array(before), one.sign * np.array(now))


def _mann_whitney(before: np.ndarray, now: np.ndarray) -> float:
    """Returns the Mann-Whitney p-value of the hypothesis that ``now`` is larger. Ties count as smaller."""
    if np.median(now) <= np.median(before):
        return 1.0  # an upper bound, which saves the computation
    # In a tie, a value of `now` gets the lower rank.
    order = np.lexsort((np.repeat((1, 0), (len(before), len(now))), np.concatenate((before, now))))
    ranks = np.empty(len(order))
    ranks[order] = np.arange(len(order))
    mannwhitneyu = _import_stats().mannwhitneyu
    return float(mannwhitneyu(ranks[len(before) :], ranks[: len(before)], alternative="greater", method="exact").pvalue)


def _fisher_exact(before: EventCount, now: EventCount) -> float:
    if not now.events:
        return 1.0
    return float(
        _import_stats().hypergeom.sf(now.events - 1, before.runs + now.runs, before.events + now.events, now.runs)
    )


def _sum_counts(counts: Sequence[Value]) -> EventCount:
    event_counts = [one for one in counts if isinstance(one, EventCount)]
    return EventCount(sum(one.events for one in event_counts), sum(one.runs for one in event_counts))


def _make_figure_regression(one: FigureSeries, newest: int, probability: float) -> FigureRegression | None:
    """Returns the change, or None if it is too small to be listed."""
    before, now = (_compute_rate_or_median(part) for part in _split(one, newest))
    if not isinstance(one.values[0], EventCount) and abs(now - before) < MARGIN * abs(before):
        return None
    return FigureRegression(
        series=one,
        since=one.nights[-newest],
        nights=newest,
        nights_before=len(_split(one, newest)[0]),
        before=before,
        now=now,
        probability=probability,
    )


def _compute_rate_or_median(values: Sequence[Value]) -> float:
    if isinstance(values[0], EventCount):
        total = _sum_counts(values)
        return total.events / total.runs if total.runs else math.nan
    return float(np.median(np.array(values)))


def _import_stats() -> Any:
    """Imports ``scipy.stats``, which takes a while."""
    try:
        from scipy import stats
    except ImportError as error:
        raise SettingsError(
            "trends over nights need scipy, which is not installed: pip install 'assay[fast]'"
        ) from error
    return stats
