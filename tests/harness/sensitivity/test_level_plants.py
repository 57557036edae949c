"""Tests plants for a contract with an isolation level: each violation is illegal at the level, and is caught."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from assay.checkers.engine import Engines
from assay.checkers.isolation.level_check import check_level
from assay.checkers.isolation.levels import LEVELS
from assay.checkers.isolation.transactions import make_history
from assay.checkers.judging.contract import forbid
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Verdict
from assay.checkers.transactions.cycles import CYCLE_ANOMALIES
from assay.checkers.transactions.family import LEVEL_ANOMALIES, TRANSACTION_ANOMALIES
from assay.harness.run.judging import judge_run
from assay.harness.run.registry import Registry
from assay.harness.sensitivity import measure as measuring
from assay.harness.sensitivity.measure import measure
from assay.harness.sensitivity.transaction_plants import TRANSACTION_PLANTS, gather_transactions

from helpers.log_histories import Row, write
from helpers.txn_histories import SERIALIZABLE, SimulatedStore

pytestmark = pytest.mark.slow

HISTORIES: Final = 8
STRONG: Final = ("snapshot-isolation", "serializable", "strict-serializable")


def to_level_rows(rows: list[Row]) -> list[tuple[Any, ...]]:
    names = ("op", "sub", "process", "key", "kind", "list_index", "value", "call", "ret", "outcome")
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.parametrize("name", LEVELS)
def test_a_planted_cycle_is_illegal_at_the_level(name: str) -> None:
    level, contract = LEVELS[name], forbid(*TRANSACTION_ANOMALIES).isolate(name)
    planted: Counter[str] = Counter()
    for number in range(HISTORIES):
        txns = SimulatedStore(SERIALIZABLE, random.Random(number), registers=number % 3 == 0).run(12, clients=3)
        rows = [row for txn in txns for row in txn.rows()]
        for plant in TRANSACTION_PLANTS:
            if plant.anomaly in CYCLE_ANOMALIES and plant.requires(contract):
                for whole in gather_transactions({"all": rows}).values():
                    for claim in (one for one in plant.find_claims(whole, -1) if one.exposed):
                        edited = [dict(row) for row in plant.edit(plant.select(whole, claim), claim)]
                        found = check_level(make_history(to_level_rows(edited)), level)
                        assert found.verdict is Verdict.FAIL, (plant.anomaly, claim, txns)
                        planted[plant.anomaly] += 1
    assert planted or name not in STRONG


@pytest.mark.parametrize("name", ["read-committed", "snapshot-isolation", "strict-serializable"])
def test_the_plants_of_a_level_are_caught(tmp_path: Path, name: str) -> None:
    store = SimulatedStore(SERIALIZABLE, random.Random("a")).run(60, clients=4)
    opened, engines = open_history(write(tmp_path, [row for txn in store for row in txn.rows()])), Engines()
    contract = forbid(*LEVEL_ANOMALIES, *TRANSACTION_ANOMALIES).isolate(name)
    judgement = judge_run(opened, contract, engines, Registry.standard())
    assert judgement.verdict is Verdict.PASS, judgement.unknown
    found = measure(opened, contract, judgement, engines, plants=3)
    assert found.escaped == ()
    assert sum(share.caught_exposed for share in found.shares if share.anomaly in CYCLE_ANOMALIES) > 1
    reasons = {one.anomaly: one.reason for one in found.not_planted}
    assert ("G2-item" in reasons) is (name != "strict-serializable")
    assert reasons.get("G2-item") in (None, measuring.LEVEL)
