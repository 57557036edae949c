from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.nemesis.faults.fault import Census
from assay.nemesis.faults.partition import DRAWN
from assay.nemesis.schedule.draw import list_injection_times
from assay.nemesis.schedule.schedule import FIRST_INJECTION_AT, FaultSchedule, FaultStep, ScheduleError
from assay.nemesis.schedule.target import Target, TargetKind, parse_target
from assay.nemesis.schedule.trigger import AfterOperations

from helpers.nemesis_fakes import FAULTS, draw

CENSUS = Census(3, 1, ("orders-0", "orders-1"), 2, ("members",), spares=1)
FITTING = sorted(set(FAULTS) - {"partition-majorities-ring"})
"""Faults that three servers can suffer."""
NAMES = st.lists(st.sampled_from(FITTING), min_size=1, max_size=5, unique=True)
INTERVALS = st.floats(0.5, 20)
LIMITS = st.floats(13, 120)


@given(st.integers(), NAMES, INTERVALS, LIMITS)
def test_the_rule_of_the_interval(seed: int, names: list[str], interval: float, limit: float) -> None:
    schedule = draw(seed, names, census=CENSUS, interval=interval, time_limit=limit)
    times = list_injection_times(interval, limit)
    starts = [step.at for step in schedule.steps]
    assert starts[0] == FIRST_INJECTION_AT
    assert starts == sorted(starts)
    assert set(times) <= set(starts)
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == pytest.approx(
        [interval] * (len(times) - 1)
    )
    for step in schedule.steps:
        assert step.duration == interval / 2
        assert step.until < limit
        following = [at for at in times if at > step.at]
        assert not following or step.until <= following[0] + 1e-9, "healed before the next injection of the grid"
    assert times[-1] + interval + interval / 2 >= limit, "the whole time is used"


@given(st.integers(), NAMES, INTERVALS, LIMITS)
def test_every_fault_occurs_or_is_named_as_omitted(seed: int, names: list[str], interval: float, limit: float) -> None:
    schedule = draw(seed, names, census=CENSUS, interval=interval, time_limit=limit)
    taken = {step.fault for step in schedule.steps}
    assert taken | set(schedule.omitted) == set(names)
    assert not taken & set(schedule.omitted)
    if len(list_injection_times(interval, limit)) >= len(names):
        assert not schedule.omitted


@given(st.integers(), NAMES)
def test_same_seed_same_schedule(seed: int, names: list[str]) -> None:
    assert draw(seed, names, census=CENSUS) == draw(seed, list(reversed(names)), census=CENSUS)


def test_seeds_differ() -> None:
    assert len({str(draw(seed, ["kill", "partition"], census=CENSUS)) for seed in range(50)}) > 45


def test_combined_faults_overlap_sometimes_and_never_by_more_than_two() -> None:
    deepest = []
    for seed in range(60):
        steps = draw(seed, ["kill", "partition", "stop"], census=CENSUS).steps
        deepest.append(max(sum(one.at <= step.at < one.until for one in steps) for step in steps))
    assert {1, 2} == set(deepest)


def test_two_faults_in_time_for_one_are_both_drawn_when_they_may_overlap() -> None:
    schedule = draw(1, ["kill", "partition"], census=CENSUS, time_limit=12)
    assert sorted(step.fault for step in schedule.steps) == ["kill", "partition"]
    assert max(step.until for step in schedule.steps) < 12


def test_two_faults_that_would_leave_no_majority_do_not_overlap() -> None:
    for seed in range(60):
        three = draw(seed, ["kill", "stop"], census=CENSUS, time_limit=60).steps
        assert all(one.until <= two.at for one, two in itertools.pairwise(three)), "both hold the process of one server"
    five = [draw(seed, ["kill", "stop"], census=Census(5, 1)).steps for seed in range(60)]
    companions = [step for steps in five for step in steps if step.keep_majority]
    assert companions, "of five servers two may suffer"
    asked = draw(1, ["kill", "partition"], census=CENSUS, time_limit=12, target=Target(TargetKind.ONE)).steps
    assert not any(step.keep_majority for step in asked)


def test_the_partition_mix_draws_every_shape_that_spares_a_majority() -> None:
    steps = [step for seed in range(60) for step in draw(seed, ["partition"], census=CENSUS).steps]
    shapes = {str(shape) for shape in DRAWN}
    assert {step.parameters["shape"] for step in steps} == shapes - {"majorities-ring"}, "three servers make no ring"
    five = [step for seed in range(60) for step in draw(seed, ["partition"], census=Census(5, 1)).steps]
    assert {step.parameters["shape"] for step in five} == shapes
    ones = [step for step in steps if step.parameters["shape"] == "one"]
    assert {step.parameters["zookeeper"] for step in ones} == {True, False}
    assert {step.target.key for step in steps if step.parameters["shape"] == "isolate-leader"} == set(CENSUS.keys or ())


def test_kill_by_default_leaves_a_majority() -> None:
    kinds = {step.target.kind for seed in range(60) for step in draw(seed, ["kill"], census=CENSUS).steps}
    assert kinds == {TargetKind.ONE, TargetKind.MINORITY, TargetKind.LEADER, TargetKind.FOLLOWER, TargetKind.CONTROLLER}


@given(st.integers())
def test_a_target_that_is_asked_for_is_kept(seed: int) -> None:
    for step in draw(seed, ["kill", "partition", "stop"], census=CENSUS, target=parse_target("n2")).steps:
        assert step.target == parse_target("n2")
        assert step.parameters.get("shape") in (None, "one", "from-zookeeper")


def test_an_open_key_is_drawn_with_the_schedule() -> None:
    schedules = [draw(seed, ["stop"], census=CENSUS, target=parse_target("leader")) for seed in range(20)]
    assert {step.target.key for schedule in schedules for step in schedule.steps} == {"orders-0", "orders-1"}


def test_none_is_an_empty_schedule() -> None:
    assert draw(3, [], census=CENSUS).steps == draw(3, ["none"], census=CENSUS).steps == ()


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["kill"], {"time_limit": 7.0}, "not healed before 7 s"),
        (["kill"], {"interval": 0.0}, "above 0"),
        (["kil"], {}, "there is no fault kil; the faults are clock, connection, "),
        (["partition-halves"], {"target": Target(TargetKind.LEADER)}, "target cannot be leader"),
        (["partition"], {"target": Target(TargetKind.ALL), "census": Census(3, 0, ())}, "its target cannot be all"),
        (["partition-from-zookeeper"], {"census": Census(3, 0)}, "needs a ZooKeeper node"),
        (["partition-isolate-leader"], {"census": Census(3, 1, ())}, "needs a system with keys"),
        (["partition-one"], {"census": Census(1, 0)}, "needs two servers"),
        (["partition-one-way"], {"census": Census(1, 0)}, "needs two servers"),
        (["partition-bridge"], {"census": Census(2, 1)}, "needs three servers"),
        (["partition-majorities-ring"], {}, "needs four servers"),
        (["zookeeper-pause"], {"target": parse_target("n1+n2"), "census": Census(3, 0)}, "needs a ZooKeeper node"),
        (["zookeeper-kill"], {"target": parse_target("leader")}, "its target cannot be leader"),
        (["corrupt"], {"target": parse_target("majority")}, "leaves a majority undamaged"),
        (["corrupt"], {"census": Census(2, 1)}, "needs three servers"),
        (["kill"], {"target": parse_target("leader:nope")}, "no such key"),
        (["kill"], {"target": parse_target("zookeeper"), "census": Census(3, 0)}, "no ZooKeeper node"),
        (["kill"], {"target": parse_target("consumer"), "census": Census(3, 1)}, "no client runs on a node of its own"),
        (["kill"], {"target": parse_target("coordinator"), "census": Census(3, 1)}, "has no groups"),
        (["kill"], {"target": parse_target("coordinator:nope")}, "no such group; it has members"),
        (["stop-consumer"], {"census": Census(3, 1)}, "no client runs on a node of its own"),
        (["stop"], {"target": parse_target("consumers")}, "use the fault stop-consumer"),
        (["stop-consumer"], {"target": parse_target("leader")}, "its target cannot be leader"),
        # a contract goes by a fault's name
        (["stop-consumer"], {"target": parse_target("n1+client1")}, "its target cannot be n1"),
        (["zookeeper-pause"], {"target": parse_target("n1")}, "its target cannot be n1"),
        (["stop"], {"target": parse_target("n1+client1")}, "use the fault stop-consumer"),
        (["consumer-from-coordinator"], {"census": Census(3, 1, (), 2)}, "has no groups"),
        (["zookeeper-expire"], {"target": parse_target("zookeeper")}, "target cannot be zookeeper"),
        (["partition-halves"], {"target": parse_target("consumer")}, "target cannot be consumer"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_the_reason(names: list[str], options: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ScheduleError, match=message):
        draw(1, names, **{"census": CENSUS, **options})


def test_what_a_majority_of_the_servers_suffers_is_no_matter_to_consumers() -> None:
    """Only one of three servers may suffer, and besides it both consumers, or one consumer twice."""
    steps = [step for seed in range(60) for step in draw(seed, ["kill", "stop-consumer"], census=CENSUS).steps]
    assert any(step.keep_majority for step in steps), "they have companions of each other"
    alone = Census(3, 1, (), 1)
    for seed in range(60):
        one_node = draw(seed, ["kill-consumer", "stop-consumer"], census=alone, time_limit=60).steps
        assert all(one.until <= two.at for one, two in itertools.pairwise(one_node))


def test_nothing_accompanies_a_frozen_machine_or_a_session_that_is_to_expire() -> None:
    for seed in range(60):
        names = ["freeze", "kill", "partition", "stop-consumer", "zookeeper-expire"]
        steps = draw(seed, names, census=Census(5, 1, ("a-0",), 2), time_limit=60).steps
        for one, two in itertools.pairwise(steps):
            alone = {"freeze", "zookeeper-expire"} & {one.fault, two.fault}
            assert not alone or one.until <= two.at


@given(st.integers(), NAMES, LIMITS)
def test_with_a_trigger_each_fault_is_drawn_once_and_the_last_can_be_healed_in_time(
    seed: int, names: list[str], limit: float
) -> None:
    schedule = draw(seed, names, census=CENSUS, time_limit=limit, trigger=AfterOperations(500))
    assert sorted(step.fault for step in schedule.steps) == sorted(names)
    waits = [step.trigger for step in schedule.steps]
    assert [wait.operations for wait in waits if isinstance(wait, AfterOperations)] == [
        500 * number for number in range(1, len(names) + 1)
    ]
    assert all(step.until < limit for step in schedule.steps)


@pytest.mark.parametrize(("keys", "kind"), [(("orders-0",), TargetKind.FOLLOWER), ((), TargetKind.ONE)])
def test_a_bridge_has_the_leader_on_one_side(keys: tuple[str, ...], kind: TargetKind) -> None:
    """With the leader as the bridge its followers, on either side, might have nothing to say to each other."""
    schedule = draw(5, ["partition-bridge"], census=Census(3, 1, keys), time_limit=60)
    assert {step.target.kind for step in schedule.steps} == {kind}


def test_one_process_is_for_faults_of_processes_alone() -> None:
    census = Census(3, keys=("orders-0",))
    (step, *_) = draw(1, ["kill"], census=census, target=parse_target("leader@agent")).steps
    assert step.target == parse_target("leader:orders-0@agent")
    assert all(step.target.process is None for step in draw(1, ["kill", "stop"], census=census).steps), "all of them"
    for fault in ("freeze", "partition-one", "kill-consumer", "memory"):
        with pytest.raises(
            ScheduleError, match=rf"{fault} hits whole nodes: leave out @agent. Only kill, stop, restart can hit"
        ):
            draw(1, ["kill", fault], census=census, target=parse_target("one@agent"))
        with pytest.raises(ScheduleError, match=rf"{fault} hits whole nodes: leave out @agent"):
            FAULTS.check(FaultSchedule(1, (FaultStep(2.0, fault, parse_target("one@agent"), 5.0),)))
