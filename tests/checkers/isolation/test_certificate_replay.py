"""The replay of a certificate agrees with the checker's own verifier, on right and on wrong orders of each level."""

from __future__ import annotations

import random
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
