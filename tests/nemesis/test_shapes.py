"""Who is cut from whom: laws of the shapes, for any number of servers and ZooKeeper nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.nemesis.engine.cut_ledger import Drop
from assay.nemesis.engine.reporter import FaultPhase
from assay.nemesis.faults.one_way import OneWay
from assay.nemesis.faults.partition import PartitionFault
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, PartitionShape
from assay.nemesis.schedule.target import Target, TargetKind, parse_target

from helpers.nemesis_fakes import Play, links

SERVERS = st.integers(4, 9)
ORDERS = st.integers(0, 2**16 - 1)


def reaches(name: str, others: list[str], drops: set[Drop]) -> set[str]:
    return {other for other in others if other == name or not {(name, other), (other, name)} & drops}


@given(SERVERS, ORDERS)
def test_in_a_ring_everybody_reaches_a_majority_and_no_two_the_same(count: int, order: int) -> None:
    names = [f"n{index + 1}" for index in range(count)]
    drops = links(PartitionFault(PartitionShape.MAJORITIES_RING), count, names, order=order)
    seen = [frozenset(reaches(name, names, drops)) for name in names]
    assert all(len(one) > count / 2 for one in seen)
    assert len(set(seen)) == count
    assert all(drop[::-1] in drops for drop in drops)


@given(st.integers(3, 9), ORDERS, st.data())
def test_only_the_bridge_reaches_both_sides(count: int, order: int, data: st.DataObject) -> None:
    names = [f"n{index + 1}" for index in range(count)]
    bridge = data.draw(st.sampled_from(names))
    drops = links(PartitionFault(PartitionShape.BRIDGE), count, [bridge], order=order)
    sides = {frozenset(reaches(name, names, drops)) - {bridge} for name in names if name != bridge}
    assert reaches(bridge, names, drops) == set(names)
    assert len(sides) == 2
    assert frozenset().union(*sides) == set(names) - {bridge}
    assert abs(len(min(sides, key=len)) - len(max(sides, key=len))) <= 1


@given(st.integers(2, 7), st.integers(1, 3), ORDERS)
def test_random_halves_leave_no_node_undecided_and_zookeeper_on_one_side(count: int, keepers: int, order: int) -> None:
    servers, zk = [f"n{index + 1}" for index in range(count)], [f"zk{index + 1}" for index in range(keepers)]
    drops = links(PartitionFault(PartitionShape.RANDOM_HALVES), count, servers[: count // 2], keepers, order=order)
    sides = {frozenset(reaches(name, servers + zk, drops)) for name in servers + zk}
    assert len(sides) == 2
    assert sum(map(len, sides)) == count + keepers


def test_a_lone_zookeeper_is_on_either_side_of_random_halves() -> None:
    near = {
        ("n1", "zk1") in links(PartitionFault(PartitionShape.RANDOM_HALVES), 3, ["n1"], order=order)
        for order in range(10)
    }
    assert near == {True, False}


@pytest.mark.parametrize("shape", [PartitionShape.ISOLATE_CONTROLLER, PartitionShape.MAJORITY_MINORITY])
def test_isolated_servers_still_reach_zookeeper(shape: PartitionShape) -> None:
    drops = links(PartitionFault(shape), 5, ["n3"])
    assert {other for pair in drops for other in pair} == {"n1", "n2", "n3", "n4", "n5"}
    assert all("n3" in drop for drop in drops)


def test_isolate_controller_finds_the_controller() -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, "partition-isolate-controller", Target(TargetKind.CONTROLLER), 5.0),)))
    play.play()
    assert play.row(1, FaultPhase.HEALED).targets == ("n3",)
    assert play.row(1, FaultPhase.HEALED).took_effect is True


@pytest.mark.parametrize("zookeeper", [False, True])
def test_one_way_drops_at_one_end_only(zookeeper: bool) -> None:
    others = {"n1", "n3", *(["zk1"] if zookeeper else [])}
    inbound = links(OneWay(), 3, ["n2"], direction="inbound", zookeeper=zookeeper)
    assert inbound == {("n2", other) for other in others}
    outbound = links(OneWay(), 3, ["n2"], direction="outbound", zookeeper=zookeeper)
    assert outbound == {(other, "n2") for other in others}


def test_one_way_is_labelled_with_its_direction() -> None:
    parameters: dict[str, Any] = {"direction": "outbound"}
    play = Play(FaultSchedule(1, (FaultStep(2.0, "partition-one-way", parse_target("n2"), 5.0, parameters),)))
    play.play()
    row = play.row(1, FaultPhase.HEALED)
    assert row.detail["evidence"]["cut"] == ["n1<-n2", "n3<-n2"]
    assert "drop_from" not in play.cluster.node("n2").calls


def test_fast_fail_rejects_at_both_ends_and_yields_to_a_drop_of_the_same_link() -> None:
    fast, slow = (
        FaultStep(2.0, "partition-fast-fail", parse_target("n2"), 9.0),
        FaultStep(4.0, "partition-one", parse_target("n1"), 4.0),
    )
    play = Play(FaultSchedule(1, (fast, slow)))
    play.play()
    assert play.row(1, FaultPhase.HEALED).took_effect is play.row(2, FaultPhase.HEALED).took_effect is True
    assert play.cluster.node("n3").calls.count("reject_from") == 2, "made again when the other's rules went"
    assert play.cluster.node("n2").calls.count("reject_from") == 3, "before, beside and after the drop"
    assert play.cluster.node("n2").calls.count("drop_from") == 1
    assert play.cluster.untouched
