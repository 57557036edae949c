"""The SAT solver and the built-in search give the same answer on larger histories, and explain each failure."""

from __future__ import annotations

import importlib.util
import random
import time
import zlib
from collections import Counter
from collections.abc import Callable

import pytest

from assay.checkers.isolation import level_check
from assay.checkers.isolation.certificate import find_flaw
from assay.checkers.isolation.level_check import check_level
from assay.checkers.isolation.levels import LEVELS, Level, Order
from assay.checkers.isolation.refutation import Refutation, Split, StepCycle, iterate_step_cycles
from assay.checkers.isolation.saturation import Conflict, Saturation, SearchLimitReached, make_problem
from assay.checkers.isolation.search import Shortcut, search
from assay.checkers.isolation.solver import has_solver, solve
from assay.checkers.isolation.transactions import TransactionHistory, make_history
from assay.checkers.judging.verdict import Verdict

from helpers.isolation_oracle import draw_large_history, draw_split, to_rows

pytestmark = pytest.mark.skipif(not has_solver(), reason="python-sat is not installed (the extra solver)")

HARD = [level for level in LEVELS.values() if level.rule.needs_search]
FAR = 600.0

Decider = Callable[[Saturation, float, Shortcut], list[int] | Refutation | None]


@pytest.fixture(params=[2, pytest.param(60, marks=pytest.mark.long)])
def count(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def saturated(history: TransactionHistory, level: Level) -> Saturation | None:
    """Returns None if the history is refuted without any choice."""
    saturation = Saturation(make_problem(history, level), time.monotonic() + FAR)
    try:
        saturation.saturate()
    except Conflict:
        return None
    return saturation


def decide(history: TransactionHistory, level: Level, decider: Decider) -> list[int] | Refutation | None:
    saturation = saturated(history, level)
    if saturation is None:
        return None
    return decider(saturation, time.monotonic() + FAR, lambda state: None)


@pytest.mark.slow
@pytest.mark.parametrize("level", HARD, ids=lambda level: level.name)
def test_solver_and_search_agree_on_larger_histories(count: int, level: Level) -> None:
    rng = random.Random(zlib.crc32(level.name.encode()))
    total: Counter[str] = Counter()
    for number in range(count):
        size = rng.randint(30, 300 if count > 2 else 120)
        history = make_history(
            to_rows(draw_large_history(rng, size, has_cases=number % 2 == 0, keeps_times=level.order is not Order.NONE))
        )
        solved, searched = decide(history, level, solve), decide(history, level, search)
        assert isinstance(solved, list) is isinstance(searched, list)
        if isinstance(solved, list):
            assert find_flaw(history, level, solved) is None
        total[type(solved).__name__] += 1
        result = check_level(history, level)
        assert result.verdict is (Verdict.PASS if isinstance(solved, list) else Verdict.FAIL)
        assert (result.order is None) is (result.verdict is Verdict.FAIL)
    assert total["NoneType"] < count, "at least one history has open choices"


@pytest.mark.parametrize("name", ["serializable", "snapshot-isolation"])
def test_the_solver_refutes_by_the_choices_that_contradict_each_other(name: str) -> None:
    rng = random.Random(1)
    history = make_history(to_rows(draw_split(rng, 0)))
    found = decide(history, LEVELS[name], solve)
    assert isinstance(found, Split)
    assert len(list(iterate_step_cycles(found))) == 2
    searched = decide(history, LEVELS[name], search)
    assert isinstance(searched, Split)


def test_the_solver_keeps_the_time_limit() -> None:
    history = make_history(to_rows(draw_split(random.Random(1), 0)))
    saturation = saturated(history, LEVELS["serializable"])
    assert saturation is not None
    with pytest.raises(SearchLimitReached):
        solve(saturation, 0.0, lambda state: None)


def test_the_built_in_search_decides_without_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    history = make_history(to_rows(draw_split(random.Random(2), 0)))
    with_solver = check_level(history, LEVELS["serializable"])
    monkeypatch.setattr(level_check, "has_solver", lambda: False)
    without = check_level(history, LEVELS["serializable"])
    assert with_solver.verdict is without.verdict is Verdict.FAIL
    assert importlib.util.find_spec("pysat") is not None
    assert not isinstance(without.refutation, StepCycle)
