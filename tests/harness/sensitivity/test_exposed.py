"""Tests that plants and checks count the same claims as exposed, and pins where their definitions differ."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from assay.checkers.check import Check, Family, create_views
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.log.family import LOG
from assay.checkers.log.loss import LOST_WRITE, VANISHED
from assay.checkers.objects.counters import COUNTER_ORDER, COUNTERS
from assay.checkers.objects.max_registers import MAX_ORDER, MAX_REGISTERS
from assay.checkers.objects.queues import QUEUE_LOST, QUEUES
from assay.checkers.objects.sets import SET_LOST, SET_STALE, SET_VANISHED, SETS
from assay.harness.sensitivity.measure import PLANTS
from assay.harness.sensitivity.plant import ObjectRows

from helpers.fault_rows import impact
from helpers.judging import opened
from helpers.log_histories import Row, write
from helpers.plant_histories import KINDS, spread

HISTORIES: Final = 80
Counts = dict[str, tuple[int, int]]
"""Claims and exposed claims by key."""


def fault(healed: int) -> list[Row]:
    shared = {"id": 1, "fault": "kill", "targets": "[]", "detail": "{}", **impact("kill")}
    injected = {**shared, "phase": "injected", "time": 1}
    return [injected, {**shared, "phase": "healed", "time": healed, "took_effect": True}]


def planted_counts(anomaly: str, histories: Sequence[Sequence[Row]], bound: int) -> Counts:
    (plant,) = (plant for plant in PLANTS if plant.anomaly == anomaly)
    claims = {rows[0]["key"]: plant.find_claims(ObjectRows(rows), bound) for rows in histories}
    return {key: (len(some), sum(claim.exposed for claim in some)) for key, some in claims.items() if some}


def checked_counts(
    folder: Path, family: Family, check: Check, histories: Sequence[Sequence[Row]], bound: int
) -> Counts:
    assert check.exposure is not None
    rows = [row for history in histories for row in history]
    with opened(write(folder, rows, faults=[] if bound < 0 else fault(bound))) as engine:
        register_contract(engine, Contract())
        create_views(engine, (*family.views, *check.views))
        if family.prepare is not None:
            family.prepare(engine)
        counted = engine.rows(check.exposure.rows)
    return {row["key"]: (int(row["claims"]), int(row["exposed"])) for row in counted if row["claims"]}


def histories_of(name: str, keep: Callable[[Row], bool] = lambda row: True) -> list[list[Row]]:
    (kind,) = (kind for kind in KINDS if kind.name == name)
    made = (kind.make(f"k{index}", random.Random(f"{name}/{index}"), 1_000 * index) for index in range(HISTORIES))
    return [rows for one in made if (rows := spread([row for row in one if keep(row)]))]


@pytest.mark.parametrize("bound", [-1, 12_345, 30_001])
@pytest.mark.parametrize(
    ("name", "family", "check"),
    [
        ("set", SETS, SET_LOST),
        ("set", SETS, SET_VANISHED),
        ("set", SETS, SET_STALE),
        ("counter", COUNTERS, COUNTER_ORDER),
        ("max register", MAX_REGISTERS, MAX_ORDER),
        ("dense log", LOG, LOST_WRITE),
    ],
    ids=lambda value: getattr(value, "anomaly", None) or getattr(value, "name", value),
)
def test_plants_and_checks_count_the_same_claims(
    tmp_path: Path, name: str, family: Family, check: Check, bound: int
) -> None:
    histories = histories_of(name)
    expected = checked_counts(tmp_path / "history", family, check, histories, bound)
    assert planted_counts(check.anomaly, histories, bound) == expected
    assert sum(exposed for _, exposed in expected.values()) > 0


@pytest.mark.parametrize("bound", [-1, 30_001])
def test_a_record_that_was_read_is_exposed_by_a_later_poll(tmp_path: Path, bound: int) -> None:
    """The check counts the poll that shows the record, too, although it cannot contradict itself."""
    histories = histories_of("dense log")
    expected = checked_counts(tmp_path / "history", LOG, VANISHED, histories, bound)
    counted = planted_counts("vanished", histories, bound)
    assert {key: claims for key, (claims, _) in counted.items()} == {
        key: claims for key, (claims, _) in expected.items()
    }
    assert all(exposed <= expected[key][1] for key, (_, exposed) in counted.items())
    assert any(0 < exposed < expected[key][1] for key, (_, exposed) in counted.items())


def test_a_lost_element_is_exposed_if_dequeues_of_unknown_outcome_do_not_excuse_it(tmp_path: Path) -> None:
    """With n of them, n + 1 elements must be lost together.

    The check counts each element that was dequeued, because an excuse does not concern it. It cannot be lost alone.
    """
    histories = histories_of("exact queue")
    expected = checked_counts(tmp_path / "history", QUEUES, QUEUE_LOST, histories, -1)
    counted = planted_counts("queue-lost", histories, -1)
    excused = {
        rows[0]["key"] for rows in histories for row in rows
        if row["kind"] == "queue-dequeue" and row["outcome"] == "info"
    }  # fmt: skip
    assert {key: claims for key, (claims, _) in counted.items()} == {
        key: claims for key, (claims, _) in expected.items()
    }
    sure = counted.keys() - excused
    assert sure
    assert {key: counted[key] for key in sure} == {key: expected[key] for key in sure}
    assert all(counted[key][1] <= expected[key][1] for key in excused & counted.keys())
    assert any(counted[key][1] < expected[key][1] for key in excused & counted.keys())
