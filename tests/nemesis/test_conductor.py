from __future__ import annotations

import asyncio
import random
from operator import itemgetter
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay.cluster.node import NodeError, ProcessState
from assay.nemesis.engine.conductor import Conductor
from assay.nemesis.engine.reporter import FailureStage, FaultPhase
from assay.nemesis.engine.waiting_steps import MIN_DURATION
from assay.nemesis.faults.fault import Census
from assay.nemesis.faults.kill import Kill
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.schedule import (
    Branch,
    FaultSchedule,
    FaultStep,
    ScheduleError,
    ScheduleRecord,
    decode_schedule,
    encode_schedule,
)
from assay.nemesis.schedule.target import parse_target
from assay.nemesis.schedule.trigger import OnEvent

from helpers.examples import some_of
from helpers.nemesis_fakes import FAULTS, FakeCluster, FakeNode, FakeSystem, Play, draw, run

CENSUS = Census(5, 1, ("orders-0", "orders-1"), 2, ("members",), spares=1)
FAKED = set(FAULTS) - {"zookeeper-expire"}
"""The others ask ZooKeeper nothing, and here is none."""
CALLS = [
    "start", "kill", "stop", "resume", "process", "drop_from", "accept_all", "dropped", "terminate", "freeze", "thaw",
    "frozen", "reject_from", "write_file", "write_range",
]  # fmt: skip


def steps(*described: tuple[float, str, str, float]) -> FaultSchedule:
    return FaultSchedule(
        1, tuple(FaultStep(at, fault, parse_target(target), duration) for at, fault, target, duration in described)
    )


def test_rows_come_in_order_with_rising_ids_and_stamps() -> None:
    play = Play(steps((2, "kill", "n1", 5), (12, "stop", "n2", 5), (22, "partition-one", "n3", 5)))
    rows = play.play()
    assert [row.time for row in rows] == sorted({row.time for row in rows})
    for number in (1, 2, 3):
        assert play.phases(number) == ["intended", "injected", "healed", "recovered"]
        at = 2.0 + 10 * (number - 1)
        assert play.at(number, FaultPhase.INTENDED) == 0
        assert play.at(number, FaultPhase.INJECTED) == pytest.approx(at)
        assert play.at(number, FaultPhase.HEALED) == pytest.approx(at + 5)
        assert play.at(number, FaultPhase.RECOVERED) == pytest.approx(at + 6, abs=0.3), "the fake serves after 1 s"
    assert all(msgspec.json.decode(msgspec.json.encode(row.detail)) == row.detail for row in rows)


def test_only_healed_rows_tell_whether_it_bit() -> None:
    play = Play(steps((2, "kill", "n1", 5)))
    play.play()
    assert {row.phase: row.took_effect for row in play.rows} == {
        "intended": None, "injected": None, "healed": True, "recovered": None,
    }  # fmt: skip


def test_what_was_never_reached_was_still_intended() -> None:
    play = Play(steps((2, "kill", "n1", 5), (12, "stop", "n2", 5)))

    async def main() -> None:
        conductor = play.conductor()
        running = asyncio.create_task(conductor.run())
        await asyncio.sleep(4)
        assert [injection.names for injection in conductor.active_faults] == [("n1",)]
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert conductor.active_faults == ()
        assert play.cluster.untouched, "cancelling heals"
        assert await conductor.close() == ()

    run(main())
    assert play.phases(1) == ["intended", "injected", "healed", "failed"]
    assert play.row(1, FaultPhase.FAILED).detail["reason"] == "not ready yet when the run was closed"
    assert play.phases(2) == ["intended"]


def test_heal_all_halts_a_run_that_goes_on() -> None:
    play = Play(steps((2, "stop", "n1", 5), (12, "kill", "n2", 5)))

    async def main() -> None:
        conductor = play.conductor()
        running = asyncio.create_task(conductor.run())
        await asyncio.sleep(3)
        assert await conductor.heal_all() == ()
        assert await conductor.heal_all() == ()
        await running
        assert asyncio.get_running_loop().time() == pytest.approx(3)
        await conductor.wait_for_recoveries()

    run(main())
    assert play.phases(1) == ["intended", "injected", "healed", "recovered"]
    assert "kill" not in play.cluster.node("n2").calls


def test_a_fault_whose_turn_comes_when_all_has_been_healed_is_not_injected() -> None:
    """It waits while a process that ended late is started again, for a second, in which the run ends."""
    play = Play(steps((2, "disk-full", "n1", 5), (8, "stop", "n2", 5)))
    node = play.cluster.node("n1")
    start = node.start

    async def slowly() -> None:
        await asyncio.sleep(1)
        await start()

    node.start = slowly  # type: ignore[method-assign]

    async def main() -> None:
        conductor = play.conductor()
        running = asyncio.create_task(conductor.run())
        asyncio.get_running_loop().call_at(7.3, node.kill_by_itself)
        await asyncio.sleep(8.2)
        assert await conductor.heal_all() == ()
        await running
        assert conductor.active_faults == ()
        await conductor.wait_for_recoveries()

    run(main())
    assert play.phases(1)[-1] == "recovered"
    assert play.phases(2) == ["intended"]


def test_cancelled_in_the_middle_of_an_injection_the_half_done_is_undone() -> None:
    play = Play(steps((2, "kill", "n1+n2", 5)))
    slow = play.cluster.node("n2")

    async def never(self: FakeNode = slow) -> None:
        await asyncio.sleep(3600)

    slow.kill = never  # type: ignore[method-assign]

    async def main() -> None:
        conductor = play.conductor()
        running = asyncio.create_task(conductor.run())
        await asyncio.sleep(3)
        assert play.cluster.node("n1").state is ProcessState.DEAD
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await conductor.close()

    run(main())
    assert play.cluster.untouched
    assert play.row(1, FaultPhase.HEALED).took_effect is False


def test_an_injection_that_hangs_fails_and_is_undone() -> None:
    play = Play(steps((2, "kill", "n1+n2", 5), (60, "stop", "n1", 5)))
    slow = play.cluster.node("n2")

    async def never(self: FakeNode = slow) -> None:
        await asyncio.sleep(3600)

    slow.kill = never  # type: ignore[method-assign]
    play.play()
    assert "it did not end within 30 s" in play.row(1, FaultPhase.FAILED).detail["reason"]
    assert play.cluster.untouched
    assert play.row(2, FaultPhase.HEALED).took_effect is True


@example(1, ["clock", "freeze", "partition-bridge"], {("n1", "accept_all"): 1, ("n3", "thaw"): 2})
@settings(max_examples=some_of(150), deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=3, unique=True),
    st.dictionaries(st.tuples(st.sampled_from(["n1", "n2", "n3", "zk1"]), st.sampled_from(CALLS)), st.integers(1, 3)),
)
def test_whatever_fails_the_run_ends_and_nothing_is_left_once_nodes_obey(
    seed: int, names: list[str], refusals: dict[tuple[str, str], int]
) -> None:
    play = Play(draw(seed, names, census=CENSUS, time_limit=40), FakeCluster(5))
    for (name, call), times in refusals.items():
        play.cluster.node(name).refuse[call] = times

    async def main() -> None:
        conductor = play.conductor()
        await conductor.run()
        for node in play.cluster.nodes:
            node.refuse.clear()
        assert await conductor.heal_all() == ()
        assert conductor.active_faults == ()
        await conductor.wait_for_recoveries()

    run(main())
    assert play.cluster.untouched
    for number in range(1, len(play.schedule.steps) + 1):
        phases = play.phases(number)
        assert phases[0] == "intended"
        assert phases.count("injected") <= 1
        # Every fault that was injected was healed, and every fault was either proved or reported as failed.
        if "injected" in phases:
            assert phases.count("healed") == 1
        proved = any(row.id == number and row.took_effect for row in play.rows)
        assert proved or "failed" in phases


@pytest.mark.parametrize(
    ("fault", "call", "stage"),
    [("kill", "kill", "inject"), ("stop", "stop", "inject"), ("partition-one", "drop_from", "inject")],
)
def test_a_node_that_refuses_is_a_failed_fault_and_the_next_is_played(fault: str, call: str, stage: str) -> None:
    play = Play(steps((2, fault, "n1", 5), (12, "stop", "n3", 5)))
    play.cluster.node("n1").refuse[call] = 1
    play.play()
    failed = play.row(1, FaultPhase.FAILED)
    assert failed.detail["stage"] == stage
    assert f"n1: {call} refused" in failed.detail["reason"]
    assert play.row(2, FaultPhase.HEALED).took_effect is True
    assert play.cluster.untouched


def test_a_heal_that_fails_is_tried_again_while_other_faults_go_on() -> None:
    play = Play(steps((2, "stop", "n1", 5), (8, "stop", "n2", 35)))
    play.cluster.node("n1").refuse["resume"] = 3
    play.play()
    assert play.row(1, FaultPhase.FAILED).detail["stage"] == FailureStage.HEAL
    assert play.phases(1) == ["intended", "injected", "failed", "healed", "recovered"]
    assert play.at(1, FaultPhase.HEALED) == pytest.approx(7 + 5 + 10 + 15), "each pause is longer"
    assert play.at(2, FaultPhase.HEALED) == pytest.approx(43)
    assert play.cluster.untouched


def test_a_heal_that_fails_is_tried_again_at_the_end_and_the_others_are_healed() -> None:
    play = Play(steps((2, "stop", "n1", 9), (8, "stop", "n2", 5)))
    play.cluster.node("n1").refuse["resume"] = 1
    play.play()
    assert play.phases(1) == ["intended", "injected", "failed", "healed", "recovered"]
    assert play.at(1, FaultPhase.HEALED) == pytest.approx(13)
    assert play.at(2, FaultPhase.HEALED) == pytest.approx(13)
    assert play.cluster.untouched


def test_what_cannot_be_healed_is_reported_and_stays_in_force() -> None:
    play = Play(steps((2, "stop", "n1", 5), (8, "kill", "n2", 5)))
    play.cluster.node("n1").refuse["resume"] = 99

    async def main() -> None:
        conductor = play.conductor()
        await conductor.run()
        errors = await conductor.close()
        assert len(errors) == 1
        assert "stop of n1 could not be healed: n1: resume refused" in errors[0]
        assert [injection.names for injection in conductor.active_faults] == [("n1",)]

    run(main())
    assert play.cluster.node("n2").untouched


def test_a_finder_with_a_bug_is_one_that_knows_no_one_and_is_reported() -> None:
    play = Play(steps((2, "kill", "leader:orders-0", 5), (12, "stop", "n3", 5)))
    play.system.find_error = KeyError("a bug in the user's finder")
    play.play()
    assert play.row(1, FaultPhase.INJECTED).detail["fell_back"] is True
    assert play.row(2, FaultPhase.HEALED).took_effect is True
    finds = play.finds
    assert finds.failed == finds.asked > 0
    assert finds.last is play.system.find_error


def test_a_finder_that_cannot_ask_is_one_that_knows_no_one() -> None:
    play = Play(steps((2, "kill", "leader:orders-0", 5)))
    play.system.find_error = NodeError("zk1 unreachable")
    play.play()
    assert play.row(1, FaultPhase.INJECTED).detail["fell_back"] is True
    assert play.row(1, FaultPhase.HEALED).took_effect is True


def test_a_caller_who_gives_up_on_recovery_may_come_back_to_it() -> None:
    play = Play(steps((2, "kill", "n1", 5)))

    async def main() -> None:
        conductor = play.conductor()
        await conductor.run()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await conductor.wait_for_recoveries()
        await conductor.wait_for_recoveries()
        await conductor.close()

    run(main())
    assert play.phases(1) == ["intended", "injected", "healed", "recovered"]


def test_the_deadline_of_a_recovery_counts_from_the_end_of_the_last_fault_that_holds_the_target() -> None:
    play = Play(steps((2, "kill", "n1", 5), (10, "stop", "n1", 30), (12, "stop", "n2", 60)), recovery_seconds=20)
    play.system.never_ready = {"n1"}
    play.play()
    failed = play.row(1, FaultPhase.FAILED)
    assert failed.detail["stage"] == FailureStage.RECOVER
    assert "n1 not ready after the heal: it did not end within 20 s" in failed.detail["reason"]
    assert play.at(1, FaultPhase.FAILED) == pytest.approx(60, abs=1)


def test_a_node_that_does_not_come_back_is_reported_after_the_deadline_and_delays_nothing() -> None:
    play = Play(steps((2, "kill", "n1", 5), (12, "stop", "n3", 5)), recovery_seconds=20)
    play.system.never_ready = {"n1"}
    play.play()
    assert play.at(2, FaultPhase.INJECTED) == pytest.approx(12)
    failed = play.row(1, FaultPhase.FAILED)
    assert failed.detail["stage"] == FailureStage.RECOVER
    assert "n1 not ready after the heal: it did not end within 20 s" in failed.detail["reason"]
    assert play.at(1, FaultPhase.FAILED) == pytest.approx(27)
    assert play.phases(2)[-1] == "recovered"


# Overlapping faults


def test_a_kill_and_a_partition_of_one_node_compose() -> None:
    play = Play(steps((2, "partition-one", "n1", 10), (4, "kill", "n1", 4)))
    seen: dict[float, tuple[str, bool]] = {}

    async def main() -> None:
        conductor = play.conductor()
        running = asyncio.create_task(conductor.run())
        node = play.cluster.node("n1")
        for at in (1, 3, 5, 9, 13):
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            seen[at] = (str(node.state), bool(node.rules))
        await running
        await conductor.wait_for_recoveries()

    run(main())
    assert seen == {
        1: ("running", False), 3: ("running", True), 5: ("dead", True), 9: ("running", True), 13: ("running", False),
    }  # fmt: skip
    assert play.row(1, FaultPhase.HEALED).took_effect is play.row(2, FaultPhase.HEALED).took_effect is True
    assert play.at(2, FaultPhase.RECOVERED) > 12, "behind a partition it does not serve"


def test_two_partitions_that_overlap_each_keep_their_cuts() -> None:
    play = Play(steps((2, "partition-one", "n1", 6), (4, "partition-from-zookeeper", "n2", 8)))
    seen: dict[float, set[tuple[str, str]]] = {}

    async def main() -> None:
        conductor = play.conductor()
        running = asyncio.create_task(conductor.run())
        for at in (3, 5, 9, 13):
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            seen[at] = {(node.name, peer) for node in play.cluster.nodes for peer in node.rules}
        await running
        await conductor.wait_for_recoveries()

    run(main())
    first = {("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1")}
    second = {("n2", "zk1"), ("zk1", "n2")}
    assert seen == {3: first, 5: first | second, 9: second, 13: set()}
    assert play.row(1, FaultPhase.HEALED).took_effect is play.row(2, FaultPhase.HEALED).took_effect is True


def test_a_process_is_held_by_one_fault_at_a_time() -> None:
    for seed in range(12):
        kill, stop = (
            FaultStep(2, "kill", parse_target("one"), 6, seed=seed),
            FaultStep(3, "stop", parse_target("one"), 4, seed=seed),
        )
        play = Play(FaultSchedule(1, (kill, stop)))
        play.play()
        killed, stopped = play.row(1, FaultPhase.HEALED), play.row(2, FaultPhase.HEALED)
        assert killed.took_effect is stopped.took_effect is True
        assert not set(killed.targets) & set(stopped.targets)


def test_a_leader_held_already_is_replaced_by_another_node() -> None:
    play = Play(steps((2, "kill", "n1", 6), (3, "stop", "leader:orders-0", 4)))
    play.play()
    row = play.row(2, FaultPhase.INJECTED)
    assert row.targets != ("n1",)
    assert "n1, leader of orders-0, is held" in row.detail["note"]


def test_a_companion_hits_who_suffers_already_rather_than_leave_no_majority() -> None:
    for seed in range(20):
        first = FaultStep(2, "kill", parse_target("n1"), 5)
        second = FaultStep(4, "partition-one", parse_target("one"), 5, seed=seed, keep_majority=True)
        play = Play(FaultSchedule(1, (first, second)))
        play.play()
        assert play.row(2, FaultPhase.INJECTED).targets == ("n1",)


class OfBrokers(Kill):
    """Names a role of servers, and hits no other."""

    name = "kill-broker"
    roles = ("broker",)


def test_a_companion_of_one_role_is_spared_onto_no_server_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeSystem, "roles", (*FakeSystem.roles, "proxy"))
    for seed in range(10):
        cluster = FakeCluster(4)
        for proxy in cluster.servers[2:]:
            proxy.role = "proxy"
        first = FaultStep(2, "partition-one", parse_target("n3"), 5)
        second = FaultStep(4, "kill-broker", parse_target("one"), 5, seed=seed, keep_majority=True)
        play = Play(FaultSchedule(1, (first, second)), cluster, catalogue=FaultCatalogue.standard(OfBrokers()))
        play.play()
        assert play.row(2, FaultPhase.INJECTED).targets[0] in ("n1", "n2")


def test_a_fault_waits_while_others_hold_all_that_it_may_hit() -> None:
    """And lasts as long as it was to last, from when it strikes."""
    play = Play(steps((2, "kill", "all", 6), (3, "stop", "one", 4), (13, "stop", "n2", 4), (14, "kill", "n2", 2)))
    play.play()
    for first, second, seconds in ((1, 2, 4), (3, 4, 2)):
        free, struck = play.record.resolved[first - 1].healed_at, play.record.resolved[second - 1]
        assert free <= struck.at <= free + 0.5
        assert struck.healed_at == pytest.approx(struck.at + seconds, abs=0.1)
        assert play.row(second, FaultPhase.HEALED).took_effect is True
    assert play.cluster.untouched


def test_a_fault_that_waited_too_long_for_others_has_failed() -> None:
    play = Play(steps((2, "kill", "all", 20), (3, "stop", "one", 4), (4, "kill", "n2", 2)))
    play.play()
    for number, reason in ((2, "active on every server"), (3, "fault of the same scope is active on n2")):
        assert play.phases(number) == ["intended", "failed"]
        assert reason in play.row(number, FaultPhase.FAILED).detail["reason"]
    assert play.cluster.untouched


def test_a_fault_that_still_waits_for_others_when_the_run_ends_has_failed_and_says_why() -> None:
    play = Play(steps((2, "kill", "all", 9), (3, "stop", "n2", 4)))

    async def main() -> None:
        conductor = play.conductor()
        running = asyncio.create_task(conductor.run())
        await asyncio.sleep(6)
        assert await conductor.heal_all() == ()
        await running

    run(main())
    assert play.phases(2) == ["intended", "failed"]
    reason = play.row(2, FaultPhase.FAILED).detail["reason"]
    assert "the run ended first" in reason
    assert "fault of the same scope is active on n2" in reason


@pytest.mark.parametrize("optional", [False, True])
def test_one_whose_event_came_and_whose_node_was_held_to_the_end_has_failed_also_if_it_need_not_wait(
    optional: bool,
) -> None:
    trigger = OnEvent("isr-change", within=5.0, optional=optional)
    play = Play(
        FaultSchedule(
            1, (*steps((2, "kill", "all", 9)).steps, FaultStep(3.0, "stop", parse_target("n2"), 4.0, trigger=trigger))
        )
    )

    async def main() -> None:
        conductor = play.conductor()
        running = asyncio.create_task(conductor.run())
        await asyncio.sleep(4)
        conductor.handle_event("n1", '{"event": "isr-change", "key": "orders-0"}')
        await asyncio.sleep(2)
        assert await conductor.heal_all() == ()
        await running

    run(main())
    assert play.phases(2)[-1] == "failed"
    failed = play.row(2, FaultPhase.FAILED)
    assert failed.stage is FailureStage.TARGET
    assert "the run ended first: another fault of the same scope is active on n2" in failed.detail["reason"]


def test_a_run_that_ends_at_the_very_moment_of_a_step_ends_well() -> None:
    """The step's time and the end come in one pass of the loop, where there is no virtual time."""
    play = Play(steps((2, "stop", "n1", 1), (3.5, "kill", "n2", 1)))

    async def main() -> None:
        conductor = play.conductor()
        came = conductor._wait_until

        async def at_once(seconds: float) -> bool:
            if seconds >= 3.5:
                ending.append(asyncio.ensure_future(conductor.heal_all()))
                await asyncio.sleep(0)
                return True
            return await came(seconds)

        ending: list[asyncio.Future[object]] = []
        conductor._wait_until = at_once  # type: ignore[method-assign]
        await conductor.run()
        assert [await end for end in ending] == [()]

    run(main())
    assert play.phases(2) == ["intended"]


def test_no_one_is_asked_who_leads_while_no_server_is_free() -> None:
    """The one who is asked may take a second, and heals would wait for that."""
    play = Play(steps((2, "kill", "all", 9), (3, "stop", "leader", 4)))
    play.system.leaders = dict.fromkeys(play.system.leaders)
    play.play()
    assert play.record.resolved[0].healed_at == pytest.approx(11, abs=0.1)


def test_a_fault_may_begin_on_a_node_at_the_moment_in_which_another_ends() -> None:
    play = Play(steps((2, "stop", "n1", 5), (7, "kill", "n1", 5)))
    play.play()
    assert play.row(1, FaultPhase.HEALED).took_effect is play.row(2, FaultPhase.HEALED).took_effect is True


# Schedules that a run leaves for a replay


def played(schedule: FaultSchedule) -> tuple[list[Any], Any]:
    """Returns what the conductor did, in its order, then the recoveries, which are observed and may coincide."""
    play = Play(schedule, FakeCluster(5))
    rows = [(row.id, row.fault, row.phase, row.targets, row.took_effect, row.stage) for row in play.play()]
    return ordered(rows), play.record


def ordered(rows: list[Any]) -> list[Any]:
    """Sorts the rows of intentions and recoveries, and keeps the conductor's order of the rest."""
    intended = sorted(row for row in rows if row[2] is FaultPhase.INTENDED)
    recovered = sorted(row for row in rows if row[2] is FaultPhase.RECOVERED)
    return intended + [row for row in rows if row[2] not in (FaultPhase.INTENDED, FaultPhase.RECOVERED)] + recovered


def rows_of_hits(rows: list[Any], record: ScheduleRecord) -> list[Any]:
    """The rows of the faults that had targets, with the numbers of those faults when they are played as resolved.

    A fault that hit no node is left out then, and one that was put off may come after one with a higher number.
    """
    assert len(record.resolved) == len(record.schedule.steps), "every step was tried"
    hits = [(done.at, number) for number, done in enumerate(record.resolved, start=1) if done.targets]
    places = {number: place for place, (_, number) in enumerate(sorted(hits), start=1)}
    return ordered([(places[row[0]], *row[1:]) for row in rows if row[0] in places])


def targets_by_step(rows: list[Any]) -> list[tuple[str, ...]]:
    """The targets of each step, as its row says that reports the injection or why that was not possible."""
    aimed = (FailureStage.TARGET, FailureStage.INJECT, FailureStage.HINDERED)
    return [row[3] for row in sorted(rows, key=itemgetter(0)) if row[2] is FaultPhase.INJECTED or row[5] in aimed]


@pytest.mark.slow
@settings(max_examples=some_of(40), deadline=None)
@example(0, ["zookeeper-kill", "zookeeper-pause"])
@example(1, ["outage", "partition"])
@example(3628011902, ["outage-power-loss", "partition-one-way"])  # A fault begins as another is healed.
@example(1326965623, ["partition-isolate-controller", "outage"])  # A fault is healed as it begins.
@example(4, ["rollback", "corrupt"])  # An injection is refused.
@example(250, ["partition-halves", "membership", "wipe"])  # A companion turns to a node left in peace.
@example(0, ["membership"])  # A step waits in vain for its turn, and hits no node.
@given(st.integers(0, 2**32), st.lists(st.sampled_from(sorted(FAKED)), min_size=1, max_size=3, unique=True))
def test_a_run_is_repeated_as_planned_and_as_resolved(seed: int, names: list[str]) -> None:
    schedule = draw(seed, names, census=CENSUS, time_limit=40)
    rows, record = played(schedule)
    assert decode_schedule(encode_schedule(record)) == record
    assert [done.targets for done in record.resolved] == targets_by_step(rows)
    assert played(record.as_planned())[0] == rows
    assert played(record.as_resolved())[0] == rows_of_hits(rows, record)


def test_leaving_out_a_step_does_not_change_the_others() -> None:
    for seed in range(10):
        schedule = draw(seed, ["kill", "stop"], census=CENSUS, target=parse_target("one"), interval=5)
        targets = [(done.step, done.targets) for done in played(schedule)[1].resolved]
        for left_out in schedule.steps:
            fewer = msgspec.structs.replace(schedule, steps=tuple(step for step in schedule.steps if step != left_out))
            alone = [entry for entry in targets if entry[0] != left_out]
            others = [step for step in schedule.steps if step != left_out]
            if not any(step.at < left_out.until and left_out.at < step.until for step in others):
                assert [(done.step, done.targets) for done in played(fewer)[1].resolved] == alone


def test_steps_without_a_seed_take_the_runs_generator() -> None:
    def first_target(seed: int) -> tuple[str, ...]:
        play = Play(steps((2, "kill", "one", 5)))

        async def main() -> None:
            stamps = iter(range(1000))
            conductor = Conductor(
                play.cluster, play.system, play.schedule, random.Random(seed), play.rows.append, stamps.__next__,
                catalogue=FAULTS,
            )  # fmt: skip
            await conductor.run()
            await conductor.close()

        run(main())
        return play.row(1, FaultPhase.INJECTED).targets

    assert {first_target(seed) for seed in range(20)} == {("n1",), ("n2",), ("n3",)}
    assert first_target(7) == first_target(7)


def test_what_is_played_again_as_resolved_does_the_same_also_without_a_seed_of_its_own() -> None:
    """The first hits no one, and is left out."""
    play = Play(steps((1, "kill", "n9", 1), (2, "corrupt", "n2", 3)))
    play.play()
    again = Play(play.record.as_resolved())
    again.play()
    damage = play.row(2, FaultPhase.HEALED).detail["evidence"]["n2"]["damage"]
    assert again.row(1, FaultPhase.HEALED).detail["evidence"]["n2"]["damage"] == damage


def test_an_unknown_fault_is_refused_before_the_run() -> None:
    with pytest.raises(ScheduleError, match="there is no fault meteor; the faults are clock, connection, "):
        Play(steps((2, "meteor", "n1", 5))).conductor()


def test_an_empty_schedule_ends_at_once() -> None:
    assert Play(FaultSchedule(1)).play() == []


@pytest.mark.parametrize("known", [True, False], ids=["foreseen", "on the way"])
@pytest.mark.parametrize("at", [4.0, 30.0], ids=["in the midst of a step", "when all was played"])
def test_the_steps_of_a_branch_are_played_from_its_time_on(at: float, known: bool) -> None:
    """Whether the branch was in the schedule from the start, or is taken while the run goes on: the same rows."""
    branch = Branch(at, 5, steps((at + 1, "stop", "n2", 2), (at + 6, "kill", "n3", 1)).steps)
    first = steps((2, "kill", "n1", 5), (9, "stop", "n1", 1))
    play = Play(msgspec.structs.replace(first, branches=(branch,)) if known else first)
    reseeded: list[float] = []
    play.options["reseed"] = lambda seed: reseeded.append(asyncio.get_running_loop().time())

    async def main() -> None:
        conductor = play.conductor()
        if not known:
            asyncio.get_running_loop().call_at(at, conductor.begin_branch, branch)
        await conductor.run()
        await asyncio.sleep(60)
        await conductor.heal_all()
        await conductor.wait_for_recoveries()
        play.record = conductor.outcome

    run(main())
    intended = {row.id: time for row, time in zip(play.rows, play.times, strict=True) if row.phase.value == "intended"}
    assert intended == {1: 0, 2: 0, 3: at, 4: at}
    assert reseeded == [at]
    assert all(play.phases(number)[1:3] == ["injected", "healed"] for number in (1, 2, 3, 4))
    assert play.record.schedule.branches == (branch,)
    assert [done.at for done in play.record.resolved] == pytest.approx([2, 9, at + 1, at + 6])


def test_a_branch_of_a_run_that_is_over_strikes_no_one() -> None:
    play = Play(steps((2, "kill", "n1", 1)))

    async def main() -> None:
        conductor = play.conductor()
        await conductor.run()
        await conductor.heal_all()
        conductor.begin_branch(Branch(4, 5, steps((5, "stop", "n2", 2)).steps))
        await asyncio.sleep(60)
        assert await conductor.close() == ()

    run(main())
    assert play.phases(2) == ["intended"]


def test_what_comes_late_since_another_took_long_is_in_force_for_a_moment() -> None:
    """A loss of power takes six seconds, and the planned slow network would be over by then."""
    steps = (
        FaultStep(2.0, "power-loss", parse_target("n2"), 3.0),
        FaultStep(3.0, "slow-network", parse_target("n3"), 2.0, {"seconds": 0.1}),
    )
    play = Play(FaultSchedule(1, steps))
    play.cluster.node("n2").slow_power_loss = 6.0
    play.play()
    assert play.row(2, FaultPhase.HEALED).took_effect is True
    assert play.at(2, FaultPhase.INJECTED) == pytest.approx(8.0)
    assert play.at(2, FaultPhase.HEALED) == pytest.approx(8.0 + MIN_DURATION)


def test_what_comes_in_time_is_healed_in_time() -> None:
    steps = (
        FaultStep(2.0, "power-loss", parse_target("n2"), 3.0),
        FaultStep(3.0, "slow-network", parse_target("n3"), 0.5, {"seconds": 0.1}),
    )
    play = Play(FaultSchedule(1, steps))
    play.play()
    assert play.at(2, FaultPhase.HEALED) == pytest.approx(3.5)
