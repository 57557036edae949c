"""The replay of a certificate agrees with the checker's own verifier, on right and on wrong orders of each level."""

from __future__ import annotations

import itertools
import random
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from assay.checkers.isolation.certificate import find_flaw, to_certificate
from assay.checkers.isolation.certificate_replay import Operation
from assay.checkers.isolation.certificate_replay import find_flaw as replay
from assay.checkers.isolation.level_check import check_level
from assay.checkers.isolation.levels import LEVELS, Level
from assay.checkers.isolation.transactions import make_history

from helpers.isolation_oracle import draw_history, to_rows
from helpers.txn_histories import Txn


@pytest.fixture(params=[15, pytest.param(1000, marks=pytest.mark.long)])
def count(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def to_operations(txns: Sequence[Txn]) -> dict[int, Operation]:
    def micros(txn: Txn) -> list[tuple[str, str, Any]]:
        return [micro for micro in txn.micros if micro[0] != "r" or txn.outcome == "ok"]

    return {txn.op: Operation(txn.process, txn.call, txn.ret, txn.outcome, micros(txn)) for txn in txns}


@pytest.mark.slow
@pytest.mark.parametrize("lists", [False, True], ids=["registers", "lists"])
@pytest.mark.parametrize("level", LEVELS.values(), ids=lambda level: level.name)
def test_the_replay_agrees_with_the_verifier(count: int, level: Level, lists: bool) -> None:
    rng = random.Random(zlib.crc32(f"replay/{level.name}/{lists}".encode()))
    total: Counter[bool] = Counter()
    for _ in range(count):
        txns = draw_history(rng, 5, lists=lists)
        history = make_history(to_rows(txns))
        if any(one.name in level.forbidden_values for one in history.anomalies) or history.doubts:
            continue
        result = check_level(history, level)
        events = list(result.order or range(len(history) * (2 if level.rule == "snapshot-isolation" else 1)))
        orders = [events, rng.sample(events, len(events)), sorted(events)]
        for order in orders:
            certificate = to_certificate(history, level, order)
            flaw = replay(certificate, to_operations(txns))
            assert (flaw is None) is (find_flaw(history, level, order) is None), (flaw, order, txns)
            total[flaw is None] += 1
    assert total[True] > 0
    assert total[False] > 0 or count < 100 or level.name == "read-uncommitted", total


def test_a_damaged_certificate_is_rejected() -> None:
    txns = [Txn(0, [("w", "x", 1)], 1, 2), Txn(1, [("r", "x", 1)], 3, 4)]
    history, level = make_history(to_rows(txns)), LEVELS["serializable"]
    good = to_certificate(history, level, [0, 1])
    assert replay(good, to_operations(txns)) is None
    for events, said in (
        ([0], "transaction 1 or its writes are left out"),
        ([0, 1, 1], "an event is missing, or is there twice"),
        ([0, 1, 2], "the history has no transaction 2"),
        ([1, 0], "transaction 1 read 1 of x, but finds None"),
    ):
        assert (replay({**good, "events": events}, to_operations(txns)) or "").startswith(said)
    assert "left out" in str(replay({**good, "without_writes": [0]}, to_operations(txns)))


def test_the_replay_takes_no_quadratic_time() -> None:
    """Two blocks of concurrent transactions, one after the other; and a long list of transactions without writes."""
    count = 12_000
    operations = {
        id: Operation(id, call, call + 10, "ok", [("w", f"k{id}", id)])
        for id in range(count)
        for call in (20 * (id >= count // 2),)
    }
    certificate = {"rule": "causal", "order": "real-time", "events": list(range(count))}
    for more in ({}, {"rule": "serializable", "without_writes": [-1] * 500_000}):
        began = time.process_time()
        assert replay({**certificate, **more}, operations) is None
        assert time.process_time() - began < 5


def list_certificates(level: Level, ids: Sequence[int]) -> list[dict[str, Any]]:
    """Returns a certificate for each serial order of the transactions."""
    orders: list[list[Any]] = [list(order) for order in itertools.permutations(ids)]
    if level.rule == "snapshot-isolation":
        orders = [[[kind, id] for id in order for kind in ("start", "commit")] for order in orders]
    return [{"rule": level.rule.value, "order": level.order.value, "events": order} for order in orders]


@pytest.mark.parametrize("shown", [[2, 1], [1, 1], [2], [1, 2, 9]], ids=str)
@pytest.mark.parametrize("level", LEVELS.values(), ids=lambda level: level.name)
def test_lists_that_have_no_order_of_versions_show_no_level(level: Level, shown: list[int]) -> None:
    micros = [("append", "x", 1)], [("append", "x", 2)], [("r", "x", [1, 2])], [("r", "x", shown)]
    operations = {id: Operation(id, 1, 9, "ok", own) for id, own in enumerate(micros)}
    assert all(replay(one, operations) for one in list_certificates(level, list(operations)))


@pytest.mark.parametrize("level", LEVELS.values(), ids=lambda level: level.name)
def test_a_value_that_no_one_wrote_shows_no_level(level: Level) -> None:
    operations = {0: Operation(0, 1, 2, "ok", [("w", "x", 1)]), 1: Operation(1, 3, 4, "ok", [("r", "x", 9)])}
    assert all(replay(one, operations) for one in list_certificates(level, [0, 1]))
    assert not all(replay(one, operations, lambda key: 9) for one in list_certificates(LEVELS["serializable"], [0, 1]))


def test_elements_stand_in_the_order_of_their_appends() -> None:
    appends, other = [("append", "x", 1), ("append", "x", 2)], Operation(1, 1, 9, "ok", [("append", "x", 3)])
    operations = {0: Operation(0, 1, 9, "ok", appends), 1: other, 2: Operation(2, 1, 9, "ok", [("r", "x", [2, 1, 3])])}
    shown = [
        name
        for name in ("read-committed", "read-atomic", "causal")
        if None in [replay(one, operations) for one in list_certificates(LEVELS[name], [0, 1, 2])]
    ]
    assert shown == ["read-committed"]


def test_the_replay_of_a_weak_level_is_fast() -> None:
    count = 4000
    operations = {
        id: Operation(id % 5, 2 * id, 2 * id + 1, "ok", [("r", f"k{id % 9}", last), ("w", f"k{id % 9}", id)])
        for id, last in zip(range(count), [*[None] * 9, *range(count)], strict=False)
    }
    begin = time.process_time()
    for order in ("session", "real-time"):
        assert replay({"rule": "causal", "order": order, "events": [*range(count)]}, operations) is None
    assert time.process_time() - begin < 2
