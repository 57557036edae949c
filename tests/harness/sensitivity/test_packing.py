"""Tests that copies are judged together as they would be one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pytest

from assay.checkers.engine import Engines
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import NO_RECOVERY
from assay.checkers.judging.judge import judge
from assay.harness.sensitivity.packing import find_violated, pack
from assay.harness.sensitivity.plant import Rows

from helpers.nightly import a_share_by_day, by_night
from helpers.plant_histories import KINDS, Kind, to_operations
from helpers.planted import CLIENT_FAMILIES, Planted, planted_in

pytestmark = pytest.mark.slow

FEW, MANY = 2, 6
"""Copies of each kind that are judged one by one: at least so many, and one of each plant."""


def sample(kind: Kind, least: int) -> list[Planted]:
    """Returns a few copies, of as many plants as possible."""
    by_plant: dict[str, list[Planted]] = {}
    for one in planted_in(kind):
        if one.changed:
            by_plant.setdefault(one.plant.anomaly, []).append(one)
    rounds = [copy for place in range(least) for some in by_plant.values() for copy in some[place : place + 1]]
    return list(islice(rounds, max(least, len(by_plant))))


def judge_alone(rows: Rows, kind: Kind) -> frozenset[str]:
    """Returns the anomalies that a judgement of these rows reports, apart from deadlines."""
    packed = pack([rows], {row["index"]: row for row in to_operations(rows)}, [], separate_times=False)
    deadlines = {check.anomaly for family in FAMILIES for check in family.checks if check.needs_end} | {NO_RECOVERY}
    with Engines().open(packed.history) as opened:
        return frozenset(judge(packed.history, kind.contract, opened).anomalies) - deadlines


@pytest.mark.parametrize("least", [FEW, by_night(MANY)])
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.name, marks=() if number % 2 else pytest.mark.long)
        for number, kind in enumerate(KINDS)
    ],
)
def test_copies_are_judged_together_as_one_by_one(kind: Kind, least: int) -> None:
    for one in sample(kind, least):
        assert judge_alone(one.edited, kind) == one.found, one.claim


def judge_together(copies: Sequence[Planted], kind: Kind, engines: Engines) -> dict[int, frozenset[str]]:
    ops = {row["index"]: row for one in copies for row in to_operations([*one.rest, *one.plain])}
    packed = pack(
        [one.edited for one in copies], ops, [], separate_times=any(one.plant.separate_times for one in copies)
    )
    return find_violated(packed, kind.contract, engines, CLIENT_FAMILIES)


@pytest.mark.parametrize("kind", a_share_by_day(3, KINDS), ids=lambda kind: kind.name)
def test_sqlite_and_duckdb_find_the_same(kind: Kind) -> None:
    copies = sample(kind, MANY)
    expected = {number: one.found for number, one in enumerate(copies) if one.found}
    for name in ("sqlite", "duckdb"):
        assert judge_together(copies, kind, Engines(name)) == expected
