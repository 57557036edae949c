"""A server's data are removed, or put back: of one server, the same one all through, and never of the last that has
them."""

from __future__ import annotations

import asyncio
import random

import pytest

from assay.cluster.node import ProcessState
from assay.nemesis.engine.reporter import FailureStage, FaultPhase
from assay.nemesis.faults.fault import Census
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, ScheduleError
from assay.nemesis.schedule.target import Target, TargetKind, parse_target
from assay.nemesis.schedule.trigger import AfterOperations

from helpers.nemesis_fakes import FAULTS, FakeCluster, Play, run

OLD = {"/data/orders-0/00.log": b"old", "/data/orders-0/11.log": bytes(range(200))}
NAMES = ["wipe", "rollback"]


def play(name: str, *whom: str, copied: str = "running") -> Play:
    steps = [
        FaultStep(2.0 + 8 * at, name, parse_target(target), 5.0, {"copied": copied}, at)
        for at, target in enumerate(whom)
    ]
    return Play(FaultSchedule(1, tuple(steps)), FakeCluster(3))


def wiping(end: str) -> Play:
    step = FaultStep(2.0, "wipe", parse_target("n2"), 5.0, {"end": end}, 0)
    return Play(FaultSchedule(1, (step,)), FakeCluster(3))


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_wiped_is_everything_and_no_one_elses(end: str) -> None:
    one = wiping(end)
    one.play()
    assert one.row(1, FaultPhase.HEALED).took_effect is True
    assert one.row(1, FaultPhase.HEALED).detail["evidence"]["n2"]["files"] == (3 if end == "killed" else 2)
    assert one.cluster.node("n2").files == {}
    assert one.cluster.node("n1").files == OLD
    assert [call for call in one.cluster.node("n2").calls if call in ("kill", "terminate")] == [
        "kill" if end == "killed" else "terminate"
    ]
    assert one.cluster.untouched


def test_what_a_server_that_was_asked_to_end_came_to_have_alone_is_left_to_it() -> None:
    """The others may have lost it while it took its time to end."""
    one = wiping("stopped")
    node = one.cluster.node("n2")
    one.system.alone_when_ended.add("n2")
    one.play()
    reason = "n2 must keep its data, because no other server is known to have all of orders-1"
    assert one.row(1, FaultPhase.FAILED).detail["reason"] == reason
    assert node.files == OLD
    assert node.state is ProcessState.RUNNING
    assert one.cluster.untouched


def test_an_end_that_there_is_not_is_rejected_before_anything_is_done() -> None:
    one = wiping("tired")
    one.play()
    assert one.row(1, FaultPhase.FAILED).detail["reason"] == (
        "wipe: the parameter end is 'tired'; it must be killed or stopped"
    )
    assert one.cluster.node("n2").files == OLD


@pytest.mark.parametrize("copied", ["running", "stopped"])
def test_rolled_back_is_what_was_there_when_it_was_copied(copied: str) -> None:
    one = play("rollback", "n2", copied=copied)
    one.play()
    row = one.row(1, FaultPhase.HEALED)
    assert row.took_effect is True
    seen = row.detail["evidence"]["n2"]
    assert (seen["copied"], seen["files"], seen["changed"], seen["back"]) == (copied, 2, 1, 1)
    assert one.cluster.node("n2").files == OLD, "what came later is gone"
    calls = one.cluster.node("n2").calls
    assert ("terminate" in calls) is (copied == "stopped")
    assert calls.index("save") < calls.index("kill") < calls.index("restore") < calls.index("discard")
    assert one.cluster.untouched


def test_a_copy_after_which_nothing_was_written_proves_nothing() -> None:
    one = play("rollback", "n2")
    one.cluster.node("n2").writes = False
    one.play()
    row = one.row(1, FaultPhase.HEALED)
    assert row.took_effect is False
    assert "had changed nothing since" in row.detail["reason"]


def test_a_server_without_data_has_none_to_lose() -> None:
    one = play("wipe", "n2")
    one.cluster.node("n2").files = {}
    one.play()
    assert "had no data" in one.row(1, FaultPhase.HEALED).detail["reason"]


@pytest.mark.parametrize("name", NAMES)
def test_who_was_hit_first_is_hit_again(name: str) -> None:
    one = play(name, "leader:orders-1", "leader:orders-0", "follower:orders-0")
    one.play()
    rows = [one.row(number, FaultPhase.INJECTED) for number in (1, 2, 3)]
    assert [row.targets for row in rows] == [("n2",)] * 3
    assert rows[1].detail["evidence"]["instead_of"] == "n1"
    assert [node.name for node in one.cluster.servers if "kill" in node.calls] == ["n2"]


def test_an_injection_that_turned_to_another_node_and_failed_is_recorded_with_that_node() -> None:
    one = play("wipe", "leader:orders-1", "leader:orders-0")

    async def main() -> None:
        conductor = one.conductor()
        asyncio.get_running_loop().call_later(9.0, one.cluster.node("n2").refuse.update, {"kill": 1})
        await conductor.run()
        await conductor.close()
        record = conductor.outcome
        assert [done.targets for done in record.resolved] == [("n2",), ("n2",)]
        assert [step.target.names for step in record.as_resolved().steps] == [("n2",), ("n2",)]

    run(main())
    failed = one.row(2, FaultPhase.FAILED)
    assert (failed.targets, failed.stage) == (("n2",), FailureStage.INJECT)


def test_another_by_name_is_rejected() -> None:
    one = play("wipe", "n2", "n3")
    one.play()
    failed = one.row(2, FaultPhase.FAILED)
    assert failed.detail["stage"] == FailureStage.INJECT
    assert "n2 has lost its data in this run" in failed.detail["reason"]
    assert "kill" not in one.cluster.node("n3").calls


@pytest.mark.parametrize("name", NAMES)
def test_it_waits_until_another_has_everything(name: str) -> None:
    one = play(name, "n2")
    one.system.alone_until["n2"] = 4.0
    one.play()
    assert one.row(1, FaultPhase.HEALED).took_effect is True
    assert one.at(1, FaultPhase.INJECTED) >= 4.0


@pytest.mark.parametrize("name", NAMES)
def test_what_a_server_has_alone_is_left_to_it(name: str) -> None:
    one = play(name, "n2")
    one.system.alone_until["n2"] = 1000.0
    one.play()
    failed = one.row(1, FaultPhase.FAILED)
    assert failed.detail["reason"] == "n2 must keep its data, because no other server is known to have all of orders-1"
    assert one.cluster.node("n2").files == OLD
    assert one.cluster.untouched


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("fault", "holds"), [("partition-from-zookeeper", True), ("stop", True), ("slow-network", False)]
)
def test_who_is_held_by_another_fault_is_not_counted_on(name: str, fault: str, holds: bool) -> None:
    """Its session may be over, and it out of the in-sync set, before that of the server which lost its data is."""
    steps = (
        FaultStep(2.0, fault, parse_target("n3"), 6.0, {}, 1),
        FaultStep(3.0, name, parse_target("n2"), 3.0, {}, 2),
    )
    one = Play(FaultSchedule(1, steps), FakeCluster(3))
    one.system.in_sync_with["n2"] = {"n3"}
    one.play()
    if holds:
        reason = "n2 must keep its data, because only it and servers under other faults (n3) have all of orders-1"
        assert one.row(2, FaultPhase.FAILED).detail["reason"] == reason
        assert one.cluster.node("n2").files == OLD
    else:
        assert one.row(2, FaultPhase.HEALED).took_effect is True


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", [0, 1])
def test_who_is_cut_from_zookeeper_beside_a_target_is_not_counted_on_either(name: str, order: int) -> None:
    """The leader and one other server are, whichever that is."""
    pair = {"shape": "leader-and-follower", "order": order}
    steps = (
        FaultStep(2.0, "partition-leader-and-follower", parse_target("n1"), 6.0, pair, 1),
        FaultStep(3.0, name, parse_target("n2"), 3.0, {}, 2),
    )
    one = Play(FaultSchedule(1, steps), FakeCluster(3))
    one.system.in_sync_with["n2"] = {"n3"}
    one.play()
    third = "n3|zk1" in one.row(1, FaultPhase.INJECTED).detail["evidence"]["cut"]
    assert third is (order == 0)
    assert one.row(2, FaultPhase.HEALED).took_effect is not third


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("fault", "waits"), [("restart", True), ("partition-one", True), ("slow-network", False)])
@pytest.mark.parametrize("others", [{"n3"}, {"n1", "n3"}])
def test_the_last_that_others_count_on_is_taken_away_when_the_emptied_one_serves_again(
    name: str, fault: str, waits: bool, others: set[str]
) -> None:
    """It may be in sync in its former life until then, and would be left as the last that is."""
    steps = (
        FaultStep(2.0, name, parse_target("n2"), 2.0, {}, 1),
        FaultStep(4.5, fault, parse_target("n3"), 2.0, {"seconds": 0.2}, 2),
    )
    one = Play(FaultSchedule(1, steps), FakeCluster(3))
    one.system.in_sync_with["n2"] = others
    one.system.slow = 3.0
    one.play()
    served = one.at(1, FaultPhase.RECOVERED)
    assert served > 6.0
    if waits and others == {"n3"}:
        assert served <= one.at(2, FaultPhase.INJECTED) < served + 0.5
    else:
        assert one.at(2, FaultPhase.INJECTED) < 5.0
    assert one.row(2, FaultPhase.HEALED).took_effect is True


def test_a_fault_that_an_event_has_triggered_waits_as_well() -> None:
    wiped = FaultStep(2.0, "wipe", parse_target("n2"), 2.0, {}, 1)
    struck = FaultStep(4.5, "kill", parse_target("n3"), 1.0, {}, 2, trigger=AfterOperations(1))
    one = Play(FaultSchedule(1, (wiped, struck)), FakeCluster(3))
    one.system.in_sync_with["n2"] = {"n3"}
    one.system.slow = 3.0

    async def main() -> None:
        conductor = one.conductor()
        asyncio.get_running_loop().call_later(5.0, conductor.count_acknowledged)
        await conductor.run()
        await conductor.wait_for_recoveries()

    run(main())
    assert one.row(2, FaultPhase.INJECTED).detail["trigger"]["at"] == pytest.approx(5.0)
    assert one.at(2, FaultPhase.INJECTED) >= one.at(1, FaultPhase.RECOVERED) > 6.0
    assert one.row(2, FaultPhase.HEALED).took_effect is True


@pytest.mark.parametrize(
    ("fault", "waits"), [("restart", True), ("controlled-shutdown", True), ("disk-full", True), ("kill", False)]
)
def test_one_that_was_asked_to_end_is_counted_on_no_longer_than_one_that_is_killed_after_it(
    fault: str, waits: bool
) -> None:
    """Its session was over before its data were gone."""
    steps = (
        FaultStep(2.0, "wipe", parse_target("n2"), 2.0, {"end": "stopped"}, 1),
        FaultStep(4.5, fault, parse_target("n3"), 2.0, {}, 2),
    )
    one = Play(FaultSchedule(1, steps), FakeCluster(3))
    one.system.in_sync_with["n2"] = {"n3"}
    one.system.slow = 3.0
    one.play()
    assert (one.at(2, FaultPhase.INJECTED) >= one.at(1, FaultPhase.RECOVERED)) is waits


def test_the_emptied_one_itself_may_be_struck_again_before_it_serves() -> None:
    steps = (
        FaultStep(2.0, "wipe", parse_target("n2"), 2.0, {}, 1),
        FaultStep(4.5, "kill", parse_target("n2"), 1.0, {}, 2),
    )
    one = Play(FaultSchedule(1, steps), FakeCluster(3))
    one.system.in_sync_with["n2"] = {"n3"}
    one.system.slow = 3.0
    one.play()
    assert one.at(2, FaultPhase.INJECTED) < 5.0


def test_a_fault_that_has_waited_for_long_has_failed() -> None:
    steps = (
        FaultStep(2.0, "wipe", parse_target("n2"), 2.0, {}, 1),
        FaultStep(4.5, "kill", parse_target("n3"), 1.0, {}, 2),
    )
    one = Play(FaultSchedule(1, steps), FakeCluster(3), recovery_seconds=30.0)
    one.system.in_sync_with["n2"] = {"n3"}
    one.system.never_ready.add("n2")
    one.play()
    failed = one.row(2, FaultPhase.FAILED)
    assert failed.stage is FailureStage.TARGET
    assert failed.detail["reason"] == (
        "n2 has lost its data and does not serve again yet. Apart from it and n3, no server is known to have all of "
        "orders-1"
    )
    assert "kill" not in one.cluster.node("n3").calls
    assert one.cluster.untouched


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("others", [{"n3"}, {"n1", "n3"}])
def test_one_that_was_away_counts_when_it_serves_again(name: str, others: set[str]) -> None:
    """Until then it may be in sync in its former life, which ends before that of the server that loses its data."""
    steps = (
        FaultStep(2.0, "kill", parse_target("n3"), 1.0, {}, 1),
        FaultStep(3.5, name, parse_target("n2"), 2.0, {}, 2),
    )
    one = Play(FaultSchedule(1, steps), FakeCluster(3))
    one.system.in_sync_with["n2"] = others
    one.system.slow = 4.0
    one.play()
    served = one.at(1, FaultPhase.RECOVERED)
    assert served > 6.0
    assert (one.at(2, FaultPhase.INJECTED) >= served) is (others == {"n3"})
    assert one.row(2, FaultPhase.HEALED).took_effect is True


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_that_is_over_holds_no_one(name: str) -> None:
    steps = (
        FaultStep(2.0, "stop", parse_target("n3"), 2.0, {}, 1),
        FaultStep(6.0, name, parse_target("n2"), 3.0, {}, 2),
    )
    one = Play(FaultSchedule(1, steps), FakeCluster(3))
    one.system.in_sync_with["n2"] = {"n3"}
    one.play()
    assert one.row(2, FaultPhase.HEALED).took_effect is True


def test_a_copy_that_fails_midway_leaves_a_process_and_no_copy() -> None:
    one = play("rollback", "n2", copied="stopped")
    one.cluster.node("n2").refuse["save"] = 1
    one.play()
    assert one.row(1, FaultPhase.FAILED).detail["stage"] == FailureStage.INJECT
    assert one.cluster.node("n2").state is ProcessState.RUNNING
    assert one.cluster.untouched


@pytest.mark.parametrize("name", NAMES)
def test_it_takes_one_server_of_several(name: str) -> None:
    rng = random.Random(1)
    for kind in (TargetKind.MINORITY, TargetKind.MAJORITY, TargetKind.ALL):
        with pytest.raises(ScheduleError, match="hits one server"):
            FAULTS[name].draw(rng, Census(5), Target(kind))
    with pytest.raises(ScheduleError, match="hits one server"):
        FAULTS[name].draw(rng, Census(5), parse_target("n1+n2"))
    with pytest.raises(ScheduleError, match="second server"):
        FAULTS[name].draw(rng, Census(1), None)


@pytest.mark.parametrize(
    ("name", "parameter", "sorts"),
    [("wipe", "end", {"killed", "stopped"}), ("rollback", "copied", {"running", "stopped"})],
)
def test_both_sorts_are_drawn(name: str, parameter: str, sorts: set[str]) -> None:
    drawn = {FAULTS[name].draw(random.Random(seed), Census(3), None)[1][parameter] for seed in range(20)}
    assert drawn == sorts


@pytest.mark.parametrize("last", ["n1", "n2", "n3"])
def test_of_servers_that_go_down_one_after_the_other_the_chosen_one_loses_its_power(last: str) -> None:
    for seed in range(8):
        step = FaultStep(2.0, "outage-power-loss", parse_target("all"), 5.0, {"last": last}, seed)
        play = Play(FaultSchedule(1, (step,)))
        play.play()
        assert [node.name for node in play.cluster.servers if "power_loss" in node.calls] == [last]
