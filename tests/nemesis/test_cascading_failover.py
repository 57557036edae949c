"""A relay: one leader after another, with a majority up nearly all the time."""

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from assay.checkers.judging.disturbance import MAX_GAP, FaultTimes, find_disturbances
from assay.nemesis.engine.reporter import is_optional
from assay.nemesis.faults.cascading_failover import OVERLAP, PAUSE, STRIKES, draw_cascading_failover
from assay.nemesis.faults.fault import Census
from assay.nemesis.schedule.mix import CALM_SECONDS, list_mixable
from assay.nemesis.schedule.schedule import FaultSchedule
from assay.nemesis.schedule.target import TargetKind

from helpers.nemesis_fakes import FAULTS

CENSUS = Census(3, 1, ("orders-0", "orders-1"), 2)


EVENTS = ("became-leader", "isr-change")


@given(st.integers(0, 2**32), st.floats(4.0, 30.0))
def test_strikes_follow_each_other_on_one_leader_of_a_key_after_the_other(seed: int, end: float) -> None:
    steps = draw_cascading_failover(random.Random(seed), sorted(FAULTS), FAULTS, CENSUS, 2.0, end, EVENTS)
    FAULTS.check(FaultSchedule(0, tuple(sorted(steps, key=lambda step: step.at))))
    assert all(step.until <= end for step in steps)
    legs = [step for step in steps if step.trigger is None]
    assert len({step.target.key for step in legs}) <= 1
    assert [step.target.kind for step in legs[1:]] == [TargetKind.LEADER] * len(legs[1:])
    for one, two in itertools.pairwise(legs):
        assert -OVERLAP - 0.002 <= two.at - one.until <= PAUSE + 0.002  # times are whole milliseconds


@given(st.integers(0, 2**32))
def test_its_strikes_are_judged_as_one_disturbance_and_what_follows_it_as_another(seed: int) -> None:
    """Between a heal that is meant and one that is done may lie some tenths of a second."""
    assert 2 * PAUSE < MAX_GAP / 1e9 < CALM_SECONDS
    legs = draw_cascading_failover(random.Random(seed), sorted(FAULTS), FAULTS, CENSUS, 2.0, 30.0, EVENTS)
    times = [(step.at, step.until) for step in legs] + [(max(step.until for step in legs) + CALM_SECONDS, 40.0)]
    known = [
        FaultTimes(number, "kill", round(begin * 1e9), round(end * 1e9), failed=False, took_effect=True)
        for number, (begin, end) in enumerate(times)
    ]
    assert [len(one.faults) for one in find_disturbances(known, ())] == [len(legs), 1]


@given(st.integers(0, 2**32))
def test_one_strike_may_wait_for_what_comes_of_the_last(seed: int) -> None:
    *legs, last = draw_cascading_failover(random.Random(seed), sorted(FAULTS), FAULTS, CENSUS, 2.0, 30.0, EVENTS)
    assert all(step.trigger is None for step in legs)
    if last.trigger is not None:
        assert legs[-1].at < last.at < legs[-1].until
        assert is_optional(last)
    assert all(
        step.trigger is None
        for step in draw_cascading_failover(random.Random(seed), sorted(FAULTS), FAULTS, CENSUS, 2.0, 30.0)
    )


def test_kinds_and_lengths_vary() -> None:
    drawn = [
        draw_cascading_failover(random.Random(seed), sorted(FAULTS), FAULTS, CENSUS, 2.0, 30.0, EVENTS)
        for seed in range(200)
    ]
    assert {len(steps) for steps in drawn} == {2, 3, 4, 5}
    kinds = [{step.fault for step in steps} for steps in drawn]
    assert 20 < sum(len(names) > 1 for names in kinds) < 180
    assert set().union(*kinds) == {"kill", "stop", "freeze"} == set(STRIKES)
    assert set(STRIKES) <= set(list_mixable(FAULTS)), "else no mix ever has it"
    assert 60 < sum(steps[-1].trigger is not None for steps in drawn) < 180
    assert {steps[0].target.kind for steps in drawn} == {TargetKind.LEADER, TargetKind.FOLLOWER}
    assert {steps[-1].target.kind for steps in drawn if steps[-1].trigger} == {TargetKind.LEADER, TargetKind.ORIGIN}


def test_there_is_none_where_no_key_has_a_leader_or_two_servers_would_be_struck_in_turn() -> None:
    for census in (Census(3, 1, ()), Census(2, 1, ("orders-0",))):
        assert draw_cascading_failover(random.Random(1), sorted(FAULTS), FAULTS, census, 2.0, 20.0) == []
    assert draw_cascading_failover(random.Random(1), ["clock"], FAULTS, CENSUS, 2.0, 20.0) == []
