"""Tests each plant on small legal histories: its edit, what an oracle says of it, and what the checks find."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from assay.checkers.engine import Engines
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import count_kinds, register_data_sets
from assay.checkers.judging.validate import validate
from assay.harness.sensitivity.measure import PLANTS
from assay.harness.sensitivity.packing import pack
from assay.harness.sensitivity.plant import Plant
from assay.harness.sensitivity.transaction_plants import TRANSACTION_PLANTS

from helpers.plant_histories import KINDS, Kind, to_operations
from helpers.planted import HISTORIES, Planted, planted_in, unjudged_in

pytestmark = pytest.mark.slow

FEWEST: Final = 8
"""Exposed claims into which each plant must have been planted."""
PAIRS: Final = [
    pytest.param(plant, kind, id=f"{plant.anomaly}-{kind.name.replace(' ', '-')}")
    for plant in PLANTS
    for kind in KINDS
    if plant.anomaly in kind.anomalies and plant.requires(kind.contract)
]
each_plant = pytest.mark.parametrize(("plant", "kind"), PAIRS)
some_plants = pytest.mark.parametrize(
    ("plant", "kind"),
    [
        pytest.param(*pair.values, id=pair.id, marks=pytest.mark.long if number % 3 else ())
        for number, pair in enumerate(PAIRS)
    ],
)
"""Every third pair by day, and the others by night."""


def planted_by(plant: Plant, kind: Kind) -> list[Planted]:
    return [one for one in planted_in(kind) if one.plant is plant]


def exposed_by(plant: Plant, kind: Kind) -> list[Planted]:
    return [one for one in planted_by(plant, kind) if one.claim.exposed]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_histories_are_legal(kind: Kind) -> None:
    for history in kind.histories(HISTORIES):
        assert kind.legal(history)


def test_each_plant_is_tried_often_enough() -> None:
    """``test_level_plants`` tries the plants for single isolation levels."""
    contracts = [Contract(transaction_order=kind.contract.transaction_order) for kind in KINDS]
    by_level = {plant for plant in TRANSACTION_PLANTS if not any(map(plant.requires, contracts))}
    tried = Counter({plant: 0 for plant in PLANTS if plant not in by_level})
    for kind in KINDS:
        tried.update(one.plant for one in unjudged_in(kind) if one.claim.exposed)
    assert {plant.anomaly: times for plant, times in tried.items() if times < FEWEST} == {}
    assert {name for kind in KINDS for name in kind.anomalies} == {plant.anomaly for plant in PLANTS}


@some_plants
def test_an_edit_changes_neither_its_input_nor_the_operations(plant: Plant, kind: Kind) -> None:
    for one in planted_by(plant, kind):
        assert list(one.plain) == one.before
        for source, edited in ((one.selected, one.edited), (one.plain, one.edited_whole)):
            shared = ("process", "call", "ret", "phase")
            operations = {row["op"]: tuple(row[name] for name in shared) for row in source}
            assert {row["op"]: tuple(row[name] for name in shared) for row in edited} == operations
            assert all(tuple(row[name] for name in shared) == operations[row["op"]] for row in edited)
            places = [(row["op"], row["sub"]) for row in edited]
            assert places == sorted(set(places))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_copies_are_valid_histories(kind: Kind) -> None:
    """Each copy has its own time here, so no stamp occurs twice."""
    planted = planted_in(kind)
    ops = {row["index"]: row for one in planted for row in to_operations([*one.rest, *one.plain])}
    packed = pack([one.edited for one in planted], ops, [], separate_times=True)
    with Engines().open(packed.history) as engine:
        register_data_sets(engine, packed.history)
        count_kinds(engine, engine)
        validate(engine, packed.history)


@each_plant
def test_a_selection_without_the_violation_is_legal(plant: Plant, kind: Kind) -> None:
    """Otherwise the selection itself would be caught."""
    for one in planted_by(plant, kind):
        assert not one.found_plain, one.claim
        assert kind.judge_part(one.selected)


@each_plant
def test_a_violation_of_an_exposed_claim_is_illegal_and_caught(plant: Plant, kind: Kind) -> None:
    for one in exposed_by(plant, kind):
        assert one.changed, one.claim
        assert not kind.legal(sorted([*one.rest, *one.edited_whole], key=lambda row: (row["op"], row["sub"]))), (
            one.claim
        )
        assert not kind.judge_part(one.edited), one.claim
        assert one.found, one.claim


CAUGHT_AS: Final = {("end-too-low", "log with exact ends"): "real-time-order"}
"""If the contract declares ends to be linearizable, rule U judges them."""


@each_plant
def test_it_is_caught_by_the_check_that_it_is_named_after(plant: Plant, kind: Kind) -> None:
    """At least sometimes: another check of the family may explain it."""
    name = CAUGHT_AS.get((plant.anomaly, kind.name), plant.anomaly)
    assert any(name in one.found for one in exposed_by(plant, kind))


@each_plant
def test_an_edit_of_a_claim_that_is_not_exposed_changes_nothing(plant: Plant, kind: Kind) -> None:
    others = [one for one in planted_by(plant, kind) if not one.claim.exposed]
    assert not any(one.changed or one.found for one in others)
    assert plant.missed or not others, "the plant says why such claims are missed"
