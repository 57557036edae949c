"""Histories of any size are decided part by part, with the answer of brute force."""

from __future__ import annotations

import random
import zlib
from collections import Counter

import pytest

from assay.checkers.isolation import decomposition, level_check
from assay.checkers.isolation.certificate import find_flaw
from assay.checkers.isolation.level_check import LARGEST, check_level
from assay.checkers.isolation.levels import LEVELS, Level, Order
from assay.checkers.isolation.refutation import Split
from assay.checkers.isolation.solver import has_solver
from assay.checkers.isolation.transactions import make_history
from assay.checkers.judging.verdict import Verdict

from helpers.isolation_oracle import draw_history, draw_large_history, draw_split, satisfies, to_rows
from helpers.txn_histories import Txn

HARD = [level for level in LEVELS.values() if level.rule.needs_search]


@pytest.fixture(params=[30, pytest.param(2000, marks=pytest.mark.long)])
def count(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def without_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """No order is found by the scheduler, as in a history that is far from the order of times."""
    monkeypatch.setattr(level_check, "schedule", lambda *_: None)
    monkeypatch.setattr(level_check, "schedule_derived", lambda *_: None)


@pytest.mark.slow
@pytest.mark.usefixtures("without_schedules")
@pytest.mark.parametrize("solver", [False, True], ids=["search", "solver"])
@pytest.mark.parametrize("level", HARD, ids=lambda level: level.name)
def test_parts_get_the_answer_of_brute_force(
    count: int, level: Level, solver: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(level_check, "LARGEST", 0)
    monkeypatch.setattr(level_check, "has_solver", lambda: solver and has_solver())
    rng = random.Random(zlib.crc32(f"parts/{level.name}/{solver}".encode()))
    total: Counter[Verdict] = Counter()
    for number in range(count):
        txns = draw_history(rng, 4, lists=number % 3 == 0)
        history = make_history(to_rows(txns))
        result = check_level(history, level)
        assert (result.verdict is Verdict.PASS) is satisfies(txns, level), (result, txns)
        assert result.order is None or find_flaw(history, level, result.order) is None
        total[result.verdict] += 1
    assert min(total[Verdict.PASS], total[Verdict.FAIL]) > count // 10, total


@pytest.mark.usefixtures("without_schedules")
@pytest.mark.parametrize("level", HARD, ids=lambda level: level.name)
def test_parts_get_the_answer_of_the_whole(count: int, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(zlib.crc32(f"whole/{level.name}".encode()))
    for number in range(max(2, count // 20)):
        txns = draw_large_history(
            rng, rng.randint(30, 90), has_cases=number % 2 == 0, keeps_times=level.order is not Order.NONE
        )
        history = make_history(to_rows(txns))
        monkeypatch.setattr(level_check, "LARGEST", 8000)
        whole = check_level(history, level)
        monkeypatch.setattr(level_check, "LARGEST", 0)
        assert check_level(history, level).verdict is whole.verdict


def overlapping(*texts: str) -> list[Txn]:
    """Returns transactions, given as ``call return micros``: ``0 9 wx1``, then ``20 29 rx1``."""
    txns = []
    for op, (call, ret, *micros) in enumerate(text.split() for text in texts):
        txns.append(Txn(op, [(one[0], one[1], int(one[2:])) for one in micros], int(call), int(ret), "ok", op))
    return txns


@pytest.mark.usefixtures("without_schedules")
@pytest.mark.parametrize(
    ("texts", "legal"),
    [
        (("0 9 wx1", "10 19 wx2", "20 29 rx1"), False),
        (("0 9 wx1", "1 8 wx2", "20 29 rx1"), True),
        (("0 9 wx1", "1 8 wx2", "20 29 rx1", "30 39 rx2"), False),
        (("0 9 wx1 wy1", "1 8 wx2 wy2", "20 29 rx1", "30 39 ry2"), False),
        (("0 9 wx1 wy1", "1 8 wx2 wy2", "20 29 rx2", "30 39 ry2"), True),
    ],
)
@pytest.mark.parametrize("name", ["strict-serializable", "strong-snapshot-isolation"])
def test_transactions_of_other_parts_decide_a_part_by_real_time(
    name: str, texts: tuple[str, ...], legal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(level_check, "LARGEST", 0)
    result = check_level(make_history(to_rows(overlapping(*texts))), LEVELS[name])
    assert (result.verdict is Verdict.PASS) is legal
    assert (result.refutation is None) is legal


def draw_many(name: str, copies: int, *, refuted: bool) -> list[Txn]:
    """Draws copies of a history that only a split into cases refutes. In all of them, or in all but one, a transaction
    is left out, so that they are legal. The copies share no object."""
    rng = random.Random(zlib.crc32(name.encode()))
    txns: list[Txn] = []
    for copy in range(copies):
        drawn = draw_split(rng, 12 * copy, begin=1 + copy * 3 * 10**6)
        if not refuted or copy != copies // 2:
            drawn.remove(next(txn for txn in drawn if txn.micros[0] == ("r", "split-s", 1)))
        for txn in drawn:
            txn.micros = [(f, f"{key}-{copy}", value) for f, key, value in txn.micros]
        txns += drawn
    return txns


@pytest.mark.slow
@pytest.mark.usefixtures("without_schedules")
@pytest.mark.parametrize("refuted", [False, True], ids=["pass", "fail"])
@pytest.mark.parametrize(
    "name",
    [
        "serializable",
        pytest.param("strict-serializable", marks=pytest.mark.long),
        pytest.param("snapshot-isolation", marks=pytest.mark.long),
    ],
)
def test_more_transactions_than_are_searched_together_are_decided(
    name: str, refuted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(level_check, "_saturate_windows", lambda *_: [])
    history = make_history(to_rows(draw_many(name, 740, refuted=refuted)))
    assert len(history) > LARGEST
    result = check_level(history, LEVELS[name], 60)
    assert result.verdict is (Verdict.FAIL if refuted else Verdict.PASS), result.reasons
    if refuted:
        assert isinstance(result.refutation, Split)


@pytest.mark.usefixtures("without_schedules")
def test_a_part_with_too_large_a_closure_leaves_the_level_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_check, "LARGEST", 0)
    monkeypatch.setattr(decomposition, "MOST_BYTES", 10)
    result = check_level(make_history(to_rows(draw_many("large", 1, refuted=True))), LEVELS["serializable"])
    assert result.verdict is Verdict.UNKNOWN
    assert "the choices of 12 transactions depend on each other, which needs too much memory" in result.reasons[0]
