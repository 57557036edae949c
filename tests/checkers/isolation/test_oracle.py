"""Every level against brute force over all orders of small random histories."""

from __future__ import annotations

import os
import random
import re
import zlib
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Final

import pytest

from assay.checkers.isolation import weak_levels
from assay.checkers.isolation.certificate import find_flaw
from assay.checkers.isolation.explain import describe, find_class
from assay.checkers.isolation.level_check import check_level
from assay.checkers.isolation.levels import CYCLE_CLASSES, LEVELS, Level, Order, Rule
from assay.checkers.isolation.refutation import StepCycle
from assay.checkers.isolation.transactions import Row, make_history
from assay.checkers.isolation.weak_levels import list_demanded_edges
from assay.checkers.judging.contract import forbid
from assay.checkers.judging.verdict import Verdict

from helpers.isolation_oracle import draw_history, keeps, satisfies, to_rows
from helpers.judging import judge
from helpers.log_histories import write
from helpers.txn_histories import Store, Txn

ANOMALIES: Final = Path(__file__).parents[3] / "docs/reference/anomalies.md"

HISTORIES = int(os.environ.get("ASSAY_LEVEL_HISTORIES", "0"))
"""Number of histories per level and kind; 0: the number that the fast tests have time for."""


@pytest.fixture(params=[60, pytest.param(2000, marks=pytest.mark.long)])
def count(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return HISTORIES or number


@pytest.mark.parametrize("lists", [False, True], ids=["registers", "lists"])
@pytest.mark.parametrize("level", LEVELS.values(), ids=lambda level: level.name)
def test_a_level_gets_the_answer_of_brute_force(count: int, level: Level, lists: bool) -> None:
    rng = random.Random(zlib.crc32(f"{level.name}/{lists}".encode()))
    most = 4 if level.rule is Rule.SNAPSHOT_ISOLATION else 5
    total: Counter[Verdict] = Counter()
    for _ in range(count):
        txns = draw_history(rng, most, lists=lists)
        history = make_history(to_rows(txns))
        result = check_level(history, level)
        assert (result.verdict is Verdict.PASS) is satisfies(txns, level), (result, txns)
        if result.verdict is Verdict.UNKNOWN:  # a read of a write shows no commit if dirty reads are allowed
            aborted = [replace(txn, outcome="fail") if txn.outcome == "info" else txn for txn in txns]
            assert level.rule is Rule.READ_UNCOMMITTED
            assert satisfies(aborted, level), (result, txns)
        if result.order is not None:
            assert find_flaw(history, level, result.order) is None
        total[result.verdict] += 1
    assert total[Verdict.PASS] > count // 50, total
    assert total[Verdict.FAIL] > count // 50 or level.rule is Rule.READ_UNCOMMITTED, total


def find_names(txns: list[Txn], level: Level) -> set[str]:
    """Returns the anomalies that refute the level."""
    history = make_history(to_rows(txns))
    result = check_level(history, level)
    names = {one.name for one in result.anomalies}
    return names if result.refutation is None else names | {find_class(history, result.refutation)}


def test_each_name_of_a_finding_is_declared_by_its_level_and_documented(count: int) -> None:
    rng, drawn = random.Random(63), list[list[Txn]]()
    while len(drawn) < 2 * count:
        drawn.append(draw_history(rng, 5, lists=len(drawn) % 2 == 1))
    page = ANOMALIES.read_text()
    documented = {*re.findall(r"`(G[\w-]+|[a-z]+-[a-z]+|internal)`", page)}
    suffixes = re.findall(r"`\.\.\.(-[a-z-]+)`", page)
    documented |= {name + suffix for name in CYCLE_CLASSES for suffix in suffixes}
    for level in LEVELS.values():
        found = {name for txns in drawn for name in find_names(txns, level)}
        assert found <= level.anomalies, level.name
        assert level.anomalies <= documented


def test_a_contradiction_of_sessions_fails_a_level_of_real_time(tmp_path: Path) -> None:
    """Causal contains the order of sessions, with real time as well."""
    store = Store()
    store.add("ay1", when=(1, 12), process=1)
    store.add("ay2", when=(2, 3), process=2)
    store.add("ay3", when=(4, 8), process=0)
    store.add("ry12", when=(9, 10), process=0)
    store.txns[3].micros = [("r", "y", [1, 2])]
    store.add("ry123", when=(11, 13), process=3)
    name, level = "G-single-process", LEVELS["strong-causal"]
    contract = forbid("garbage-read").isolate(level.name)
    assert find_names(store.txns, level) == {name}
    judgement = judge(write(tmp_path, store.rows), contract, requires_exposure=False)
    assert judgement.verdict is Verdict.FAIL
    assert [*judgement.anomalies] == [name]


@pytest.mark.parametrize("lists", [False, True], ids=["registers", "lists"])
@pytest.mark.parametrize("level", LEVELS.values(), ids=lambda level: level.name)
def test_an_order_with_two_events_swapped_is_refused_iff_it_breaks_the_formula(
    count: int, level: Level, lists: bool
) -> None:
    rng = random.Random(zlib.crc32(f"swapped/{level.name}/{lists}".encode()))
    total: Counter[bool] = Counter()
    for drawn in range(3 * count):
        if drawn >= count // 2 and total[False] > count // 10:
            break
        txns = draw_history(rng, 5, lists=lists)
        order = check_level(make_history(to_rows(txns)), level).order or ()
        for first, second in combinations(range(len(order)), 2):
            swapped = list(order)
            swapped[first], swapped[second] = order[second], order[first]
            is_kept = keeps(txns, level, swapped)
            assert (find_flaw(make_history(to_rows(txns)), level, swapped) is None) is is_kept, (swapped, txns)
            total[is_kept] += 1
    assert total[False] > count // 10 or (level.name == "read-uncommitted" and not lists), total


@pytest.mark.parametrize("name", ["read-atomic", "axiomatic-read-committed"])
def test_a_transaction_that_reads_a_key_often_demands_few_edges(name: str) -> None:
    many = 300
    writes = [(op, 0, 0, "x", "txn-write", None, op + 1, 2 * op, 2 * op + 1, "ok") for op in range(many)]
    reads = [(many, sub, 1, "x", "txn-read", None, sub + 1, 2 * many, 2 * many + 1, "ok") for sub in range(many)]
    edges = list_demanded_edges(make_history([*writes, *reads]), LEVELS[name])
    assert many < len(edges) < 5 * many


def test_auxiliary_nodes_for_ranges_of_writers_change_no_answer(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weak_levels, "_FEW", 0)
    level, rng, total = LEVELS["strong-read-atomic"], random.Random(63), Counter[Verdict]()
    for number in range(5 * count):
        txns = draw_history(rng, 5, lists=number % 2 == 1)
        result = check_level(make_history(to_rows(txns)), level)
        assert (result.verdict is Verdict.PASS) is satisfies(txns, level), (result, txns)
        total[result.verdict] += 1
    assert min(total[Verdict.PASS], total[Verdict.FAIL]) > count


WEAK_IN_REAL_TIME = [
    level for level in LEVELS.values() if level.order is Order.REAL_TIME and not level.rule.needs_search
]  # fmt: skip


def overlapping_writers(many: int) -> list[Row]:
    """Returns rows of writers that all overlap, and then of as many readers, which read x of the first writer."""
    writes = [(op, 0, op, "x", "txn-write", None, op + 1, op, 1000 + op, "ok") for op in range(many)]
    reads = [(many + op, 0, many + op, "x", "txn-read", None, 1, 5000 + op, 9000, "ok") for op in range(many)]
    return [*writes, *reads]


@pytest.mark.parametrize("level", WEAK_IN_REAL_TIME, ids=lambda level: level.name)
def test_real_time_demands_a_linear_number_of_edges(level: Level) -> None:
    many = 300
    history = make_history(overlapping_writers(many))
    assert len(list_demanded_edges(history, level)) < 12 * many
    result = check_level(history, level)
    assert result.verdict is Verdict.PASS  # the first writer may come last
    assert result.order is not None


@pytest.mark.parametrize("level", WEAK_IN_REAL_TIME, ids=lambda level: level.name)
def test_a_circle_through_overlapping_writers_names_transactions_only(level: Level) -> None:
    many = 20
    late = (2 * many, 0, 99, "x", "txn-read", None, 6, 9500, 9600, "ok")
    history = make_history([*overlapping_writers(many), late])
    result = check_level(history, level)
    if level.rule not in (Rule.READ_ATOMIC, Rule.CAUSAL):
        assert result.verdict is Verdict.PASS
        return
    assert result.verdict is Verdict.FAIL
    assert isinstance(result.refutation, StepCycle)
    assert all(0 <= number < len(history) for step in result.refutation.steps for number in (step.source, step.target))
    assert len(result.refutation.steps) == 2
    assert find_class(history, result.refutation) in level.anomalies
    assert "transaction" in describe(history, result.refutation)
