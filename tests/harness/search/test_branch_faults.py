"""The faults of a branch strike at its fork point, on what has just changed there, and can be played."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from assay.harness.run.settings import Settings
from assay.harness.search.branch_faults import draw_branch_steps
from assay.harness.search.example import Example
from assay.harness.search.exploration import make_search_space
from assay.harness.search.fork_server import ForkPoint
from assay.harness.search.strategies import MARGIN, SERVER_OUTAGES, SearchSpace
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, decode_schedule, encode_schedule
from assay.nemesis.schedule.target import TargetKind, named_target, parse_target
from assay.nemesis.schedule.trigger import OnEvent
from assay.system_under_test.deployment import Broker

BASE = Settings(seed=1, time_limit=8.0, rate=50.0)
EVENTS = ("became-leader", "isr-change", "high-watermark")
TERRAIN = replace(make_search_space(Broker(), BASE, FaultCatalogue.standard()), events=EVENTS)
EXAMPLE = Example.of(BASE, FaultSchedule(0, (FaultStep(1.0, "slow-disk", parse_target("one"), 2.0),)))
DRAWN = 400


def drawn(fork_point: ForkPoint, space: SearchSpace = TERRAIN) -> list[FaultStep]:
    return [step for seed in range(DRAWN) for step in draw_branch_steps(Random(seed), fork_point, space)]


@pytest.mark.parametrize("at", [0.0, 3.41234, 6.4, 7.39])
def test_they_fit_into_what_is_left(at: float) -> None:
    steps = drawn(ForkPoint(EXAMPLE, at, (), "n2"))
    assert steps
    for step in steps:
        assert at <= step.at
        assert step.duration > 0
        assert step.until <= BASE.time_limit - MARGIN + 1e-9
    ordered = tuple(sorted(steps, key=lambda step: step.at))
    assert decode_schedule(encode_schedule(FaultSchedule(0, ordered))).steps == ordered


def test_none_fits_at_the_end() -> None:
    assert not drawn(ForkPoint(EXAMPLE, 7.45, (), "n2"))


def test_most_take_away_the_server_of_the_event_or_a_leader_at_once() -> None:
    mainstays = [step for step in drawn(ForkPoint(EXAMPLE, 3.0, (), "n2")) if step.fault in SERVER_OUTAGES]
    at_once = [step for step in mainstays if step.trigger is None]
    whom = Counter(str(step.target) for step in at_once)
    assert len(mainstays) > DRAWN / 4
    assert len(mainstays) / 3 < len(at_once) < 2 * len(mainstays) / 3
    assert whom[str(named_target("n2"))] > len(at_once) / 6
    assert whom["leader of any key"] > len(at_once) / 6
    assert all(step.at <= 3.2 for step in at_once)


def test_others_wait_mostly_for_turning_points_and_strike_where_they_come() -> None:
    waiting = [step.trigger for step in drawn(ForkPoint(EXAMPLE, 3.0, (), "n2")) if isinstance(step.trigger, OnEvent)]
    events = Counter(trigger.event for trigger in waiting)
    assert all(trigger.optional for trigger in waiting)
    assert events["became-leader"] + events["isr-change"] > 2 * events["high-watermark"] > 0


def test_the_faults_that_the_run_has_come_again() -> None:
    faults = Counter(step.fault for step in drawn(ForkPoint(EXAMPLE, 3.0, (), "n2")))
    assert faults["slow-disk"] > sum(faults.values()) / 8


def test_a_leader_that_is_struck_at_once_leads_what_the_event_was_about() -> None:
    steps = drawn(ForkPoint(EXAMPLE, 3.0, (), "n2", "truncated", "orders-1"))
    leaders = Counter(str(step.target) for step in steps if step.fault in SERVER_OUTAGES and step.trigger is None)
    assert leaders["leader of orders-1"] > 0
    assert leaders["leader of any key"] == 0
    other = drawn(ForkPoint(EXAMPLE, 3.0, (), "n2", "truncated", "__consumer_offsets-3"))
    assert "leader of __consumer_offsets-3" not in {str(step.target) for step in other}


@pytest.mark.parametrize("node", [None, "zk1", "n7", "client1"])
def test_without_a_server_at_the_fork_point_none_is_named(node: str | None) -> None:
    steps = drawn(ForkPoint(EXAMPLE, 3.0, (), node))
    assert all(node not in step.target.names for step in steps)
    assert all(int(name.removeprefix("n")) <= 3 for step in steps for name in step.target.names if name[0] == "n")


def test_a_system_without_keys_has_no_leader_to_strike() -> None:
    keyless = replace(TERRAIN, keys=(), faults=tuple(sorted(SERVER_OUTAGES)))
    kinds = {step.target.kind for step in drawn(ForkPoint(EXAMPLE, 3.0, (), "n2"), keyless)}
    assert kinds
    assert not kinds & {TargetKind.LEADER, TargetKind.FOLLOWER}
