"""The mix: the same from the same seed, whole episodes within the time, a majority's disks left alone."""

import collections
import itertools
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.nemesis.faults.fault import Census, Scope
from assay.nemesis.schedule.catalogue import FaultNameError
from assay.nemesis.schedule.draw import draw_schedule
from assay.nemesis.schedule.mix import (
    ABSENCE_SECONDS,
    CONTROLLER,
    LEADER_AND_FOLLOWER,
    MEMBERSHIP,
    MEMBERSHIP_SECONDS,
    MOVE,
    OUTLAST_SECONDS,
    WEIGHTS,
    draw_mix,
    list_mixable,
)
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, ScheduleError
from assay.nemesis.schedule.target import TargetKind

from helpers.nemesis_fakes import FAULTS

pytestmark = pytest.mark.slow

CENSUS = Census(3, 1, ("orders-0", "orders-1"), 2, ("members",), spares=1)
SEEDS = st.integers(0, 2**32)


def mix(seed: int, time_limit: float = 60.0, census: Census = CENSUS, interval: float = 10.0) -> FaultSchedule:
    return draw_mix(
        seed, list_mixable(FAULTS), catalogue=FAULTS, census=census, interval=interval, time_limit=time_limit
    )


@given(SEEDS, st.sampled_from([9.0, 20.0, 60.0]), st.integers(1, 5), st.sampled_from([0, 1, 3]))
def test_every_fault_is_known_and_healed_before_the_time_limit(
    seed: int, limit: float, servers: int, zookeepers: int
) -> None:
    drawn = mix(seed, limit, Census(servers, zookeepers, ("orders-0",)))
    assert drawn == mix(seed, limit, Census(servers, zookeepers, ("orders-0",)))
    FAULTS.check(drawn)
    assert drawn.steps
    assert all(step.at >= 2 and step.until < limit and step.seed is not None for step in drawn.steps)


@given(SEEDS)
def test_what_loses_data_hits_one_and_the_same_server(seed: int) -> None:
    lossy = [step.target for step in mix(seed, 200.0).steps if FAULTS[step.fault].impact.loses_data]
    assert len(set(lossy)) <= 1
    assert all(target.kind is TargetKind.NAMED and len(target.names) == 1 for target in lossy)


@given(SEEDS)
def test_a_change_of_members_has_time_for_itself(seed: int) -> None:
    steps = mix(seed, 200.0).steps
    for change in (step for step in steps if step.fault == MEMBERSHIP):
        others = [step for step in steps if step is not change]
        assert not any(step.at < change.until + MEMBERSHIP_SECONDS and change.at < step.until for step in others)


@given(SEEDS)
def test_moves_alone_yield_to_others_and_not_where_they_were_asked_for(seed: int) -> None:
    assert all(step.yields is (step.fault == MOVE) for step in mix(seed, 200.0).steps)
    asked = draw_schedule(seed, [MOVE, "kill"], catalogue=FAULTS, census=CENSUS, interval=10.0, time_limit=60.0)
    assert not any(step.yields for step in asked.steps)


@given(SEEDS)
def test_a_controllers_connection_is_never_alone(seed: int) -> None:
    steps = mix(seed, 200.0).steps
    for step in (step for step in steps if step.fault == CONTROLLER):
        assert any(other.fault == "kill" and step.at < other.at and other.until < step.until for other in steps)


DEAD = {
    "kill", "kill-in-fsync", "power-loss", "power-loss-in-fsync", "truncate-tail", "corrupt", "garbage-tail", "stop",
    "restart", "memory", "controlled-shutdown", "wipe", "rollback", "disk-full",
}  # fmt: skip
CUT = {"partition", "partition-one-way", "partition-fast-fail", "partition-follower-from-leader", "partition-links"}


@cache
def mixes() -> tuple[FaultSchedule, ...]:
    """Returns the mixes of the first seeds. They are drawn once, because several tests look at all of them."""
    return tuple(mix(seed) for seed in range(900))


@cache
def overlapping() -> list[tuple[FaultStep, FaultStep]]:
    pairs = (pair for drawn in mixes() for pair in itertools.combinations(drawn.steps, 2))
    return [(first, later) for first, later in pairs if later.at < first.until]


def test_a_server_that_is_away_and_another_deaf_to_zookeeper_do_not_fill_each_others_time() -> None:
    deaf = [pair for pair in overlapping() if "zookeeper" in [step.parameters.get("connection") for step in pair]]
    beside = [pair for pair in deaf if {step.fault for step in pair} & (DEAD | CUT)]
    assert len(beside) > 50
    assert all(later.until >= first.until + OUTLAST_SECONDS - 0.002 for first, later in beside)


def test_links_of_a_server_that_is_dead_are_cut_until_it_is_back() -> None:
    cut = [(first, later) for first, later in overlapping() if first.fault in DEAD and later.fault in CUT]
    assert len(cut) > 50
    assert all(later.until >= first.until + OUTLAST_SECONDS - 0.002 for first, later in cut)


def test_two_servers_that_are_cut_from_all_others_and_zookeeper_are_enough() -> None:
    assert any(step.fault == LEADER_AND_FOLLOWER for drawn in mixes()[:400] for step in drawn.steps)
    assert not any(LEADER_AND_FOLLOWER in (first.fault, later.fault) for first, later in overlapping())


def test_a_process_and_a_disk_are_not_taken_from_two_servers_at_once() -> None:
    """No server can have both, so the later one would fall on another, and no majority would be left in peace."""
    disks = {"disk-error", "disk-full", "slow-disk"}
    processes = {
        name for name in list_mixable(FAULTS) if FAULTS[name].scope is Scope.PROCESS and not FAULTS[name].roles
    }
    pairs = [{first.fault, later.fault} for first, later in overlapping()]
    assert not [pair for pair in pairs if pair & disks and pair & processes]
    # Slow fsyncs take no server away, and ZooKeeper's nodes have a disk of their own.
    assert any("slow-fsync" in pair and pair & processes for pair in pairs)
    assert any(pair & disks and "zookeeper-kill" in pair for pair in pairs)


def test_other_faults_may_begin_and_end_during_another() -> None:
    others = [(first, later) for first, later in overlapping() if first.fault in CUT and later.fault in DEAD]
    assert any(later.until < first.until for first, later in others)


def test_each_fault_is_drawn_and_most_faults_overlap_one_of_another_kind() -> None:
    schedules = mixes()[:800]
    drawn = collections.Counter(step.fault for schedule in schedules for step in schedule.steps)
    assert set(drawn) == set(WEIGHTS)
    pairs = {
        frozenset((one.fault, two.fault))
        for schedule in schedules
        for one, two in itertools.combinations(schedule.steps, 2)
        if two.at < one.until and one.fault != two.fault
    }
    assert len(pairs) > 150
    assert drawn["kill"] > 2 * drawn["zookeeper-kill"]


def test_now_and_then_a_server_is_gone_for_long_and_nothing_else_happens_meanwhile() -> None:
    schedules = [drawn.steps for drawn in mixes()[:300]]
    absences = [(step, steps) for steps in schedules for step in steps if step.duration >= ABSENCE_SECONDS[0]]
    assert len(absences) > 20
    for absence, steps in absences:
        assert absence.fault == "kill"
        others = [step for step in steps if step is not absence]
        assert not any(step.at < absence.until and absence.at < step.until for step in others)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ScheduleError, match="raise --time-limit"):
        mix(1, 5.0)
    with pytest.raises(ScheduleError, match="no fault"):
        draw_mix(1, (), catalogue=FAULTS, census=CENSUS, interval=10, time_limit=30)
    with pytest.raises(FaultNameError, match="mix cannot be combined"):
        FAULTS.parse("mix,kill")
    assert FAULTS.parse("mix").id == "mix"


@given(SEEDS)
def test_where_the_contract_expects_it_all_lose_their_power_at_once_and_nothing_else_meets_that(seed: int) -> None:
    drawn = draw_mix(
        seed,
        list_mixable(FAULTS),
        catalogue=FAULTS,
        census=CENSUS,
        interval=10,
        time_limit=200,
        allowed_on_all=("power-loss", "kill", "corrupt"),
    )
    of_all = [
        step for step in drawn.steps if step.target.kind is TargetKind.ALL and FAULTS[step.fault].impact.ends_process
    ]
    assert {step.fault for step in of_all} <= {"power-loss"}
    for step in of_all:
        assert not any(step.at < other.until and other.at < step.until for other in drawn.steps if other is not step)


def test_it_does_so_now_and_then() -> None:
    def struck(seed: int) -> bool:
        drawn = draw_mix(
            seed,
            list_mixable(FAULTS),
            catalogue=FAULTS,
            census=CENSUS,
            interval=10,
            time_limit=60,
            allowed_on_all=("power-loss",),
        )
        return any(step.target.kind is TargetKind.ALL and step.fault == "power-loss" for step in drawn.steps)

    assert 20 < sum(struck(seed) for seed in range(100)) < 95
