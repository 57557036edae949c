"""The transaction checks' answers equal those of a search over all orders, on thousands of small histories."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.checkers.isolation.level_check import check_level
from assay.checkers.isolation.levels import CYCLE_CLASSES
from assay.checkers.isolation.levels import LEVELS as LEVEL_TABLE
from assay.checkers.isolation.transactions import make_history
from assay.checkers.judging.verdict import Verdict

from helpers.isolation_oracle import to_rows
from helpers.txn_histories import (
    COMMITTED,
    LEVELS,
    NOTHING,
    OPS,
    SERIALIZABLE,
    SNAPSHOT,
    UNCOMMITTED,
    SimulatedStore,
    Txn,
    broken,
    by_sql,
    merge_values,
)
from helpers.txn_oracle import NONE, serializable, strongest

pytestmark = pytest.mark.slow


@pytest.fixture(params=[200, pytest.param(1000, marks=pytest.mark.long)])
def count(request: pytest.FixtureRequest) -> int:
    """The number of histories. Twice as many of them are made if they are of all levels."""
    number: int = request.param
    return number


def simulated(
    seed: int, index: int, level: str, *, registers: bool = False, transactions: int | None = None
) -> list[Txn]:
    rng = random.Random(f"{seed}/{index}/{level}")
    store = SimulatedStore(level, rng, first_op=index * OPS, name=f"{index}/", registers=registers)
    return store.run(transactions or rng.randint(2, 6))


def indexed(histories: Sequence[Sequence[Txn]]) -> list[tuple[int, Sequence[Txn]]]:
    return [(history[0].op // OPS, history) for history in histories if history]


def mixed(seed: int, count: int, *, registers: bool = False) -> list[list[Txn]]:
    """Returns histories of all levels, every second one broken."""
    breaker, histories = random.Random(seed), []
    for index in range(count):
        history = simulated(seed, index, LEVELS[index % len(LEVELS)], registers=registers)
        histories.append(broken(history, breaker) if index % 2 else history)
    return histories


@pytest.mark.parametrize("registers", [False, True])
def test_a_serializable_store_raises_no_alarm(tmp_path: Path, count: int, registers: bool) -> None:
    histories = [simulated(1, index, SERIALIZABLE, registers=registers) for index in range(count)]
    assert all(serializable(history, order="real-time") for history in histories[::10])
    assert by_sql(tmp_path / "history", histories, "real-time") == {}


ALLOWED = {
    SNAPSHOT: {"G2-item"},
    COMMITTED: {"G-single", "G-nonadjacent", "G2-item"},
    UNCOMMITTED: {"G1a", "G1b", "G1c", "G-single", "G-nonadjacent", "G2-item"},
}


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize("level", ALLOWED)
def test_each_level_shows_what_it_allows_and_nothing_else(
    tmp_path: Path, count: int, level: str, registers: bool
) -> None:
    histories = [simulated(2, index, level, registers=registers, transactions=8) for index in range(count)]
    total = Counter(name for names in by_sql(tmp_path / "history", histories).values() for name in names)
    assert set(total) - ALLOWED[level] == set()
    expected = ALLOWED[level] - {"G-nonadjacent", *(("G2-item",) if level == UNCOMMITTED and registers else ())}
    assert expected <= set(total), total


def test_strong_snapshot_isolation_has_no_more_in_real_time(tmp_path: Path, count: int) -> None:
    histories = [simulated(3, index, SNAPSHOT, transactions=8) for index in range(count)]
    total = Counter(name for names in by_sql(tmp_path / "history", histories, "real-time").values() for name in names)
    assert set(total) <= {"G2-item", "G2-item-real-time"}, total


def test_dirty_writes_are_found_in_a_store_without_locks(tmp_path: Path, count: int) -> None:
    histories = [simulated(4, index, NOTHING, transactions=8) for index in range(count // 3)]
    total = Counter(name for names in by_sql(tmp_path / "history", histories).values() for name in names)
    assert total["G0"] > count // 100, total


@pytest.mark.parametrize("registers", [False, True])
def test_values_of_several_writers_accuse_no_one_and_leave_other_findings(
    tmp_path: Path, count: int, registers: bool
) -> None:
    histories = [merge_values(one) for one in mixed(12, count, registers=registers)]
    found = by_sql(tmp_path / "history", histories, is_doubtful=True)
    total: Counter[str] = Counter()
    for index, history in indexed(histories):
        names = found.get(index, set())
        result = check_level(make_history(to_rows(history)), LEVEL_TABLE["serializable"])
        if serializable(history):
            assert not names, (index, names, history)
            assert result.verdict is not Verdict.FAIL, (index, result, history)
        elif result.reasons or result.verdict is Verdict.FAIL:
            total.update(names)
            total[result.verdict] += 1
        else:
            assert result.verdict is Verdict.FAIL, (index, result, history)
    assert {"G1a", "G-single", "garbage-read", "internal", Verdict.FAIL, Verdict.UNKNOWN} <= set(total), total


@pytest.mark.parametrize("order", ["none", "process", "real-time"])
def test_lists_get_the_answer_of_the_search(tmp_path: Path, count: int, order: str) -> None:
    histories = mixed(10, 2 * count)
    found = by_sql(tmp_path / "history", histories, order)
    total: Counter[str] = Counter()
    for index, history in indexed(histories):
        good = serializable(history, order=order)
        assert good is (index not in found), (index, found.get(index), history)
        total.update(found.get(index, {"serializable"}))
    wanted = {"G0", "G1a", "G1b", "G1c", "G-single", "G2-item", "garbage-read", "internal", "duplicate-elements",
              "incompatible-order", "serializable"}  # fmt: skip
    wanted |= {f"{name}-{order}" for name in ("G-single", "G2-item")} if order == "real-time" else set()
    assert wanted <= set(total), total


def test_lists_get_the_class_of_the_search(tmp_path: Path, count: int) -> None:
    histories = mixed(6, 2 * count)
    found = by_sql(tmp_path / "history", histories)
    total: Counter[int] = Counter()
    for index, history in indexed(histories):
        wanted = strongest(history)
        names = found.get(index, set())
        assert (wanted is None) is bool(names - set(CYCLE_CLASSES)), (index, wanted, names, history)
        if wanted is not None:
            mine = min((CYCLE_CLASSES.index(name) for name in names), default=NONE)
            assert mine == wanted, (index, wanted, names, history)
            total[wanted] += 1
    assert {0, 1, 2, 4, NONE} <= set(total), total


def test_registers_are_never_accused_of_more_than_the_search_proves(tmp_path: Path, count: int) -> None:
    histories = mixed(7, 2 * count, registers=True)
    found = by_sql(tmp_path / "history", histories)
    total: Counter[str] = Counter()
    for index, history in indexed(histories):
        names = found.get(index, set())
        if serializable(history):
            assert not names, (index, names, history)
        wanted = strongest(history)
        assert (wanted is None) is bool(names - set(CYCLE_CLASSES)), (index, wanted, names, history)
        mine = min((CYCLE_CLASSES.index(name) for name in names & set(CYCLE_CLASSES)), default=NONE)
        if wanted is not None:
            assert mine >= wanted, (index, wanted, names, history)
            total["exact" if mine == wanted else "weaker"] += 1
    assert total["exact"] > 10 * total["weaker"], total
