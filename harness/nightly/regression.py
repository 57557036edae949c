"""Which cells got worse: exact tests, and one level of error for all cells of a night together.

The newest nights of a cell are held against the nights before them. Latencies, rates and times have one value per night
(a night's runs share their machine, so they are not independent of each other), and go through the one-sided
Mann-Whitney test, which supposes no distribution: if nothing changed, every order of the nights is equally likely.
Equal values count against an alarm. How often something happens goes through Fisher's exact test, run by run.

Each is asked with several numbers of newest nights, as a large change shows after few and a small one after many; the
smallest probability, times how often was asked, is that of the figure. Benjamini and Hochberg's procedure then holds
all figures of all cells to ``LEVEL``: of what is listed, on average at most this share is noise, and a night before
which nothing has changed lists anything at all with at most this probability. A change by less than ``MARGIN`` is not
listed, however sure it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from assay.harness.run.settings import SettingsError

LEVEL: Final = 0.01
WINDOWS: Final = (3, 5, 7, 10, 14)
"""Newest nights that are held against those before."""
BASELINE: Final = 60
"""Nights before them, at most."""
LEAST: Final = 10
"""Nights before them, at least; with fewer nothing is said."""
MARGIN: Final = 0.1
"""By which share a median must have changed."""


class Count(NamedTuple):
    """How many of a night's runs had it."""

    had: int
    of: int


Value = float | Count


@dataclass(frozen=True)
class Series:
    """One figure of one cell: nights, the oldest first, and a value for each. ``sign``: -1 where less is worse."""

    name: str
    nights: tuple[int, ...]
    values: tuple[Value, ...]
    sign: int = 1


@dataclass(frozen=True)
class Change:
    """``since``: the first of the newest nights that differ most clearly from the ``nights_before``."""

    series: Series
    since: int
    nights: int
    nights_before: int
    before: float
    now: float
    probability: float
    """Adjusted for everything that was asked; at most ``LEVEL``."""


class _Asked(NamedTuple):
    probability: float
    newest: int


def regressions(series: Sequence[Series]) -> tuple[list[Change], int]:
    """What got worse, the surest first; and of how many series that could be asked."""
    asked = [(one, found) for one in series if (found := _ask(one)) is not None]
    if not asked:
        return [], 0
    adjusted = _stats().false_discovery_control([found.probability for _, found in asked])
    changes = [
        change
        for (one, found), probability in zip(asked, adjusted, strict=True)
        if probability <= LEVEL and (change := _change(one, found.newest, float(probability))) is not None
    ]
    return sorted(changes, key=lambda change: (change.probability, change.series.name)), len(asked)


def _ask(one: Series) -> _Asked | None:
    """None: there are too few nights."""
    found = [
        _Asked(_probability(one, newest), newest) for newest in WINDOWS if len(one.values) >= newest + LEAST
    ]  # fmt: skip
    if not found:
        return None
    best = min(found)
    return _Asked(min(1.0, len(found) * best.probability), best.newest)


def _split(one: Series, newest: int) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Before and now."""
    return one.values[-newest - BASELINE : -newest], one.values[-newest:]


def _probability(one: Series, newest: int) -> float:
    before, now = _split(one, newest)
    if isinstance(now[0], Count):
        return _commoner(_sum(before), _sum(now))
    return _worse(one.sign * np.array(before), one.sign * np.array(now))


def _worse(before: np.ndarray, now: np.ndarray) -> float:
    """Of so many pairs, or more, in which ``now`` is the larger."""
    if np.median(now) <= np.median(before):
        return 1.0  # not less than it is, and found without the work
    order = np.lexsort((np.repeat((1, 0), (len(before), len(now))), np.concatenate((before, now))))
    ranks = np.empty(len(order))
    ranks[order] = np.arange(len(order))
    return float(
        _stats().mannwhitneyu(ranks[len(before) :], ranks[: len(before)], alternative="greater", method="exact").pvalue
    )


def _commoner(before: Count, now: Count) -> float:
    if not now.had:
        return 1.0
    return float(_stats().hypergeom.sf(now.had - 1, before.of + now.of, before.had + now.had, now.of))


def _sum(counts: Sequence[Value]) -> Count:
    found = [one for one in counts if isinstance(one, Count)]
    return Count(sum(one.had for one in found), sum(one.of for one in found))


def _change(one: Series, newest: int, probability: float) -> Change | None:
    """None: too small to be shown."""
    before, now = (_typical(part) for part in _split(one, newest))
    if not isinstance(one.values[0], Count) and abs(now - before) < MARGIN * abs(before):
        return None
    return Change(
        series=one,
        since=one.nights[-newest],
        nights=newest,
        nights_before=len(_split(one, newest)[0]),
        before=before,
        now=now,
        probability=probability,
    )


def _typical(values: Sequence[Value]) -> float:
    if isinstance(values[0], Count):
        total = _sum(values)
        return total.had / total.of if total.of else math.nan
    return float(np.median(np.array(values)))


def _stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        raise SettingsError(
            "trends over nights need scipy, which is not installed: pip install 'assay[fast]'"
        ) from error
    return stats
