"""Tests what got worse.

The probability against every order of few nights, the level on nights without change, and power.
"""

from __future__ import annotations

from itertools import combinations
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from assay.harness.nightly import regression
from assay.harness.nightly.regression import (
    FALSE_DISCOVERY_RATE,
    MARGIN,
    MAX_BASELINE,
    MIN_BASELINE,
    WINDOWS,
    EventCount,
    FigureSeries,
    Value,
    find_regressions,
)

from helpers.examples import some_of
from helpers.nightly import by_night

NIGHTS = MAX_BASELINE + max(WINDOWS)
VALUES = st.floats(0.001, 1e6, allow_subnormal=False)


def series(*values: Value, name: str = "log", sign: int = 1) -> FigureSeries:
    return FigureSeries(name, tuple(range(len(values))), values, sign)


def pairs(before: list[float], now: list[float]) -> int:
    """In how many pairs the newer is the worse."""
    return sum(new > old for new in now for old in before)


def of_all_orders(before: list[float], now: list[float]) -> float:
    """How many choices of the newest nights, of all, would look as bad or worse; values are all different."""
    every = before + now
    found = [
        pairs([every[place] for place in range(len(every)) if place not in chosen], [every[place] for place in chosen])
        for chosen in combinations(range(len(every)), len(now))
    ]
    return sum(number >= pairs(before, now) for number in found) / len(found)


@settings(max_examples=some_of(100))
@given(st.lists(VALUES, min_size=13, max_size=13, unique=True))
def test_the_probability_is_the_share_of_all_orders_of_the_nights(values: list[float]) -> None:
    before, now = values[:10], values[10:]
    found = regression._mann_whitney(np.array(before), np.array(now))
    assert found == pytest.approx(of_all_orders(before, now) if median(now) > median(before) else 1.0)


@settings(max_examples=some_of(60))
@given(st.lists(st.sampled_from((1.0, 2.0, 3.0)), min_size=12, max_size=12), st.randoms(use_true_random=False))
def test_equal_values_never_speak_for_an_alarm(values: list[float], chance: object) -> None:
    """Whatever way the equal ones are told apart, it is no surer than with that."""
    apart = [value + chance.random() / 10 for value in values]  # type: ignore[attr-defined]
    if median(values[9:]) > median(values[:9]) and median(apart[9:]) > median(apart[:9]):
        equal = regression._mann_whitney(np.array(values[:9]), np.array(values[9:]))
        assert equal >= of_all_orders(apart[:9], apart[9:]) - 1e-12


@settings(max_examples=some_of(100))
@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9), st.integers(0, 9))
def test_shares_go_through_fishers_exact_test(had: int, not_had: int, now: int, not_now: int) -> None:
    found = regression._fisher_exact(EventCount(had, had + not_had), EventCount(now, now + not_now))
    assert found == pytest.approx(fisher_exact([[now, not_now], [had, not_had]], alternative="greater").pvalue)


def quiet(chance: np.random.Generator, cells: int) -> list[FigureSeries]:
    """Cells in which nothing changes: scattered, spiky, nearly always equal; and how often something rare happens."""
    found = []
    for cell in range(cells):
        scattered = chance.lognormal(sigma=1.0, size=NIGHTS)
        spiky = np.where(chance.random(NIGHTS) < 0.1, 50.0, 1.0) * chance.uniform(0.99, 1.01, NIGHTS)
        steps = chance.integers(1, 4, NIGHTS).astype(float)
        rare = [EventCount(int(had), 2) for had in chance.binomial(2, 0.03, NIGHTS)]
        for place, values in enumerate((scattered, spiky, steps, rare)):
            found.append(series(*values, name=f"{cell} {place}", sign=1 - 2 * (cell % 2)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nights", "allowed"), [(10, 1), pytest.param(3_000, 47, marks=pytest.mark.long)], ids=["few", "many"]
)
def test_nights_without_change_raise_an_alarm_at_most_at_the_stated_rate(nights: int, allowed: int) -> None:
    """``allowed``: three deviations above one night in a hundred."""
    chance = np.random.default_rng(20261124)
    assert FALSE_DISCOVERY_RATE == 0.01
    assert sum(bool(find_regressions(quiet(chance, 5))[0]) for _ in range(nights)) <= allowed


@pytest.mark.slow
@pytest.mark.parametrize("tried", [150, by_night(400)])
def test_the_rate_is_no_empty_promise(tried: int) -> None:
    """At a level of 0.2, noise in a single figure is taken for a change, but never more often than that."""
    chance = np.random.default_rng(7)
    probabilities = [
        found.probability
        for _ in range(tried)
        if (found := regression._find_smallest_p_value(series(*chance.lognormal(size=NIGHTS)))) is not None
    ]
    share = sum(probability <= 0.2 for probability in probabilities) / len(probabilities)
    assert 0.04 <= share <= 0.2


@pytest.mark.slow
@pytest.mark.parametrize("cells", [150, by_night(400)])
def test_one_cell_of_hundreds_that_got_slower_is_the_one_that_is_listed(cells: int) -> None:
    chance = np.random.default_rng(3)
    others = [series(*chance.lognormal(sigma=0.1, size=NIGHTS), name=f"{cell}") for cell in range(cells)]
    slower = chance.lognormal(sigma=0.1, size=NIGHTS) * np.where(np.arange(NIGHTS) < NIGHTS - 7, 1.0, 1.6)
    (change,), asked = find_regressions([*others, series(*slower, name="slower")])
    assert (change.series.name, asked) == ("slower", cells + 1)
    assert (change.since, change.nights, change.nights_before) == (NIGHTS - 7, 7, MAX_BASELINE)
    assert change.before == pytest.approx(1.0, abs=0.1)
    assert change.now == pytest.approx(1.6, abs=0.2)
    assert change.probability <= FALSE_DISCOVERY_RATE


@pytest.mark.parametrize(("sign", "factor"), [(1, 2.0), (-1, 0.5)])
def test_what_got_better_is_not_listed(sign: int, factor: float) -> None:
    values = [1.0 + number / 1_000 for number in range(60)] + [factor * (1.0 + number / 1_000) for number in range(7)]
    assert len(find_regressions([series(*values, sign=sign)])[0]) == 1
    assert find_regressions([series(*values, sign=-sign)]) == ([], 1)


def test_a_change_that_is_sure_and_small_is_not_listed() -> None:
    steady = [100.0 + number * 7 % 60 / 1_000 for number in range(60)]
    for factor, listed in ((1 + 0.9 * MARGIN, 0), (1 + 1.2 * MARGIN, 1)):
        changed = series(*steady, *(factor * value for value in steady[:7]))
        assert len(find_regressions([changed])[0]) == listed


def test_a_failure_that_comes_now_and_then_is_listed_once_it_comes_often() -> None:
    rare = [EventCount(int(number % 20 == 0), 1) for number in range(60)]
    assert find_regressions([series(*rare, *(EventCount(0, 1),) * 3, EventCount(1, 1), EventCount(0, 1))])[0] == []
    (change,), _ = find_regressions([series(*rare, *(EventCount(1, 1),) * 5)])
    assert (change.before, change.now, change.nights) == (0.05, 1.0, 5)


def test_with_few_nights_nothing_is_said() -> None:
    few = [1.0] * (MIN_BASELINE - 1) + [9.0] * min(WINDOWS)
    assert find_regressions([series(*few)]) == ([], 0)
    assert find_regressions([]) == ([], 0)
    assert find_regressions([series(1.0, *few)])[1] == 1
