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
from helpers.txn_histories import SERIALIZABLE, SimulatedStore, Store, Txn

pytestmark = pytest.mark.slow

HISTORIES: Final = 8
STRONG: Final = ("snapshot-isolation", "serializable", "strict-serializable")
EXACT: Final = {
    "axiomatic-read-committed": "G-single", "read-atomic": "G-single", "strong-session-read-atomic": "G-single-process",
    "strong-read-atomic": "G-single-real-time", "causal": "G-single-process", "strong-causal": "G-single",
}  # fmt: skip
"""Levels with a class that some, but not all copies of the class violate. The plants violate the level."""


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
    assert name not in EXACT or planted[EXACT[name]]


CAUSAL_CHAIN = (("ax1",), ("rx1", "ay1"), ("rx1", "ry1"))


@pytest.mark.parametrize(("name", "is_exposed"), [("read-atomic", False), ("causal", True)])
def test_a_lost_cause_is_planted_for_causal_only(name: str, is_exposed: bool) -> None:
    store = Store()
    for micros in CAUSAL_CHAIN:
        store.add(*micros)
    contract = forbid(*TRANSACTION_ANOMALIES).isolate(name)
    (plant,) = (one for one in TRANSACTION_PLANTS if one.anomaly == "G-single" and one.requires(contract))
    (whole,) = gather_transactions({"all": store.rows}).values()
    exposed = [claim for claim in plant.find_claims(whole, -1) if claim.exposed]
    assert [claim.row and claim.row["op"] for claim in exposed] == ([2] if is_exposed else [])
    for claim in exposed:
        edited = [dict(row) for row in plant.edit(plant.select(whole, claim), claim)]
        found = {
            level: check_level(make_history(to_level_rows(edited)), LEVELS[level]).verdict
            for level in ("read-atomic", "causal")
        }
        assert found == {"read-atomic": Verdict.PASS, "causal": Verdict.FAIL}


@pytest.mark.parametrize("name", ["read-atomic", "strict-serializable"])
def test_reads_of_failed_and_unknown_transactions_are_edited_if_the_level_judges_them(name: str) -> None:
    level, contract = LEVELS[name], forbid(*TRANSACTION_ANOMALIES).isolate(name, all_reads=True)
    planted: Counter[str] = Counter()
    for number in range(HISTORIES):
        txns = SimulatedStore(SERIALIZABLE, random.Random(number), registers=number % 3 == 0).run(20, clients=3)
        rows = [row for txn in txns for row in _hide_outcome(txn)]
        assert check_level(make_history(to_level_rows(rows), all_reads=True), level).verdict is Verdict.PASS
        (whole,) = gather_transactions({"all": rows}).values()
        for plant in (one for one in TRANSACTION_PLANTS if one.requires(contract)):
            for claim in plant.find_claims(whole, -1):
                if claim.exposed and claim.row is not None and claim.row["outcome"] != "ok":
                    edited = [dict(row) for row in plant.edit(plant.select(whole, claim), claim)]
                    history = make_history(to_level_rows(edited), all_reads=True)
                    assert check_level(history, level).verdict is Verdict.FAIL, (plant.anomaly, claim, txns)
                    assert not any(row["kind"] == "txn-read" and row["value"] is None and row["outcome"] != "ok"
                                   for row in edited)  # fmt: skip
                    planted[plant.anomaly] += 1
    assert {"garbage-read", "G-single"} <= planted.keys()


def _hide_outcome(txn: Txn) -> list[Row]:
    """Returns the rows of a transaction. If it only reads, it failed or its outcome is unknown, and it shows no nil."""
    if txn.outcome != "ok" or any(micro[0] != "r" for micro in txn.micros):
        return txn.rows()
    changes = {"outcome": "fail"} if txn.op % 2 else {"outcome": "info", "ret": None}
    return [{**row, **changes} for row in txn.rows() if row["value"] is not None]


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
