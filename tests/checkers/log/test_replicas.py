"""Replicas that differ where it counts, their nearest legal neighbours, and an oracle over pairs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Finding
from assay.checkers.log.replicas import REPLICA_DIVERGENCE

from helpers.judging import judge, opened
from helpers.log_histories import Row, write


def record(node: str, position: int, value: int | None, **given: Any) -> Row:
    crc = given.pop("crc", 7 if value is None else 1000 + value)
    return {
        "node": node,
        "key": "orders-0",
        "position": position,
        "value": value,
        "crc": crc,
        "epoch": 1,
        "below_hw": True,
        "in_isr": True,
        **given,
    }


def found(folder: Path, replicas: list[Row]) -> tuple[list[Finding], int]:
    """Returns what the check tells, and how many positions it compared."""
    with opened(write(folder / "history", [], replicas=replicas)) as engine:
        create_views(engine, REPLICA_DIVERGENCE.views)
        compared = engine.rows(REPLICA_DIVERGENCE.examined)[0]["examined"]
        return read_findings(engine, REPLICA_DIVERGENCE), compared


SAME = [record("n1", 0, 5), record("n2", 0, 5), record("n1", 1, 6), record("n2", 1, 6)]


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        (record("n3", 1, 9), record("n3", 1, 9, below_hw=False)),
        (record("n3", 1, 9), record("n3", 2, 9)),
        (record("n3", 1, 9), record("n3", 1, 9, key="orders-1")),
        (record("n3", 1, 6, crc=1), record("n3", 1, 6, epoch=2)),
        (record("n3", 1, None, crc=1006), record("n3", 1, 6)),
    ],
    ids=["value", "position", "key", "bytes", "no-number"],
)
def test_it_is_found_and_its_neighbour_is_not(tmp_path: Path, bad: Row, good: Row) -> None:
    (finding,), compared = found(tmp_path / "bad", [*SAME, bad])
    assert compared == 2
    assert (finding.anomaly, finding.key) == ("replica-divergence", "orders-0")
    assert "Offset 1 of orders-0 is value 6" in finding.claim
    assert "on n1" in finding.claim
    assert "on n3" in finding.claim
    assert found(tmp_path / "good", [*SAME, good]) == ([], 2)


def test_two_that_differ_are_named_also_when_the_outer_ones_agree(tmp_path: Path) -> None:
    rows = [record("n1", 0, 5), record("n2", 0, 6), record("n3", 0, 5)]
    (finding,), _ = found(tmp_path, rows)
    assert "value 5 (crc 1005, epoch 1) on n1 and value 6 (crc 1006, epoch 1) on n2" in finding.claim


def test_random_replicas_get_the_answers_of_a_loop_over_pairs(tmp_path: Path) -> None:
    rng = random.Random(8)
    rows = [
        record(
            f"n{node}",
            position,
            rng.choice([position, position, position, position, None, 99]),
            key=f"orders-{key}",
            crc=rng.choice([1, 1, 1, 1, 1, 2]),
            below_hw=rng.random() < 0.8,
        )
        for node in range(1, 4)
        for key in range(3)
        for position in range(60)
        if rng.random() < 0.9
    ]
    wrong = {
        (a["key"], a["position"])
        for a in rows
        for b in rows
        if a["below_hw"] and b["below_hw"] and (a["key"], a["position"]) == (b["key"], b["position"])
        if (a["value"], a["crc"]) != (b["value"], b["crc"])
    }
    with opened(write(tmp_path / "history", [], replicas=rows)) as engine:
        create_views(engine, REPLICA_DIVERGENCE.views)
        reported = {(row["key"], row["position"]) for row in engine.rows("select * from found_replica_divergence")}
        assert reported == wrong
        assert len(wrong) > 20
        for finding in read_findings(engine, REPLICA_DIVERGENCE):
            assert finding.claim


def test_a_history_without_replicas_owes_none_and_one_replica_alone_proves_nothing(tmp_path: Path) -> None:
    contract = Contract(forbidden=("replica-divergence",))
    none = judge(write(tmp_path / "a", [], replicas=[]), contract)
    one = judge(write(tmp_path / "b", [], replicas=[record("n1", 0, 5)]), contract)
    assert any("has no data for it" in reason for reason in none.unknown)
    assert any("had no data" in reason for reason in one.unknown)
