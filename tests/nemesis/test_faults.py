"""Each fault on nodes that obey takes effect; on nodes that only say they obey it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import partial

import pytest

from assay.cluster.node import DiskChange, DiskRoom, NodeError, ProcessState, Traffic
from assay.nemesis.engine.conductor import Conductor
from assay.nemesis.engine.cut_ledger import CutLedger
from assay.nemesis.engine.reporter import FailureStage, FaultPhase, FaultRow
from assay.nemesis.faults.fault import FaultContext, Injection
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, Parameter, PartitionShape
from assay.nemesis.schedule.target import Target, TargetKind, parse_target

from helpers.nemesis_fakes import FAULTS, HOLD_FILE, FakeAgent, FakeCluster, FakeNode, FakeSystem, Play, now, run

MIXES = {"partition", "connection", "membership", "packets"}
"""Faults of which only the draw says what they do."""
SHAPES = [str(shape) for shape in PartitionShape]
CONSUMERS = (
    "consumer-from-coordinator", "consumer-from-zookeeper", "consumer-zookeeper-resets", "cut-consumer",
    "kill-consumer", "stop-consumer",
)  # fmt: skip
TARGETS = {
    "halves": Target(TargetKind.HALF),
    "membership-add": Target(TargetKind.SPARE),
    "random-halves": Target(TargetKind.HALF),
    "isolate-leader": parse_target("leader:orders-1"),
    "majorities-ring": Target(TargetKind.ALL),
    **dict.fromkeys(CONSUMERS, parse_target("client1")),
    "zookeeper-kill": parse_target("zookeeper"),
    "zookeeper-pause": parse_target("zookeepers"),
    "restart-rolling": Target(TargetKind.ALL),
    "outage": Target(TargetKind.ALL),
    "outage-power-loss": Target(TargetKind.ALL),
}
PARAMETERS: dict[str, dict[str, Parameter]] = {
    "membership-add": {"change": "add"},
    "membership-remove": {"change": "remove"},
    "membership-replace": {"change": "replace"},
    "slow-disk": {"seconds": 0.01},
    "slow-fsync": {"seconds": 0.2},
    "slow-network": {"seconds": 0.2},
    "packets-loss": {"share": 0.1},
    "packets-duplicate": {"share": 0.1, "to": "zookeeper"},
    "packets-reorder": {"share": 0.1, "seconds": 0.05},
    "packets-rate": {"rate": 30_000, "to": "n1"},
    "kill-in-fsync": {"seconds": 0.2, "slow_for": 0.3, "part": 0.5},
    "power-loss-in-fsync": {"seconds": 0.2, "part": 0.5},
    "disk-error": {"change": "fsync", "after": 2, "errors": 3},
    "kill-in-write": {"change": "write", "after": 5},
    "power-loss-in-write": {"change": "name", "after": 0},
    "partition-links": {"shape": "links", "links": "n1|n2 n2<-zk1"},
    "hold": {"restart": True},
    "clock": {"seconds": -30.0, "strobe": 0.5},
}


def one_step(fault: str, target: str = "n2", parameters: dict[str, Parameter] | None = None) -> Play:
    shape = fault.removeprefix("partition-")
    given = PARAMETERS.get(fault, {}) if parameters is None else parameters
    return Play(
        FaultSchedule(1, (FaultStep(2.0, fault, TARGETS.get(shape, parse_target(target)), 5.0, given),)), FakeCluster(5)
    )


def healed(play: Play) -> FaultRow:
    play.play()
    return play.row(1, FaultPhase.HEALED)


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in MIXES | {"zookeeper-expire"}])
def test_each_fault_takes_effect_and_leaves_nothing_behind(name: str) -> None:
    play = one_step(name)
    row = healed(play)
    assert row.took_effect is True
    # The fake ZooKeeper answers no one, so that it serves again is never seen.
    assert play.phases(1) == [
        "intended",
        "injected",
        "healed",
        "failed" if name.startswith("zookeeper-") else "recovered",
    ]
    assert play.cluster.untouched


@pytest.mark.parametrize("other", ["membership-remove", "membership-replace"])
def test_one_server_at_a_time_leaves_or_joins(other: str) -> None:
    """Two servers that leave at once would be given each other's replicas, and keys would have fewer than before."""
    one = FaultStep(2.0, "membership-remove", parse_target("n2"), 5.0, PARAMETERS["membership-remove"])
    two = FaultStep(3.0, other, parse_target("n3"), 2.0, PARAMETERS[other])
    play = Play(FaultSchedule(1, (one, two)), FakeCluster(5))
    play.play()
    assert play.at(1, FaultPhase.HEALED) <= play.at(2, FaultPhase.INJECTED)
    assert play.row(2, FaultPhase.HEALED).took_effect is True


@pytest.mark.parametrize(
    ("name", "deaf", "reason"),
    [
        ("kill", "kill", "was not dead while the fault was in force"),
        ("kill", "start", "no new process ran"),
        ("stop", "stop", "was running, not stopped"),
        ("partition-one", "drop_from", "no packet to or from n2 was dropped"),
        ("partition-one-way", "drop_from", "no packet to or from n2 was dropped"),
        ("partition-fast-fail", "reject_from", "no packet to or from n2 was dropped"),
        ("connection-fetch", "drop_from", "no packet to or from n2 was dropped"),
        ("connection-controller", "drop_from", "no packet to or from n2 was dropped"),
        ("connection-zookeeper", "drop_from", "no packet to or from n2 was dropped"),
        ("restart", "terminate", "had not ended after it was asked to"),
        ("freeze", "freeze", "was not frozen"),
        ("zookeeper-kill", "kill", "was not dead"),
        ("zookeeper-pause", "stop", "was running, not stopped"),
        ("truncate-tail", "truncate_file", "no byte of n2 was changed"),
        ("corrupt", "write_range", "no byte of n2 was changed"),
        ("garbage-tail", "write_range", "no byte of n2 was changed"),
        ("hold", "write_file", "never reached"),
        ("wipe", "remove_contents", "n2 still had 3 of 3 files"),
        ("rollback", "restore", "n2 had 1 of 1 changed files that differed from the copy"),
        ("power-loss", "power_loss", "was not dead while the fault was in force"),
        ("memory", "exhaust_memory", "was not dead while the fault was in force"),
        ("memory", "count", "n2: the kernel ended nothing for lack of memory"),
        ("slow-fsync", "slow_disk", "n2 made no fsync that was slow"),
        ("slow-disk", "slow_disk", "n2 made no read or write that was slow"),
        ("slow-network", "shape", "n2 sent nothing that was late"),
        ("packets-loss", "shape", "n2 sent nothing that was lost"),
        ("packets-duplicate", "shape", "n2 sent nothing that was doubled"),
        ("packets-reorder", "shape", "n2 sent nothing that was late"),
        ("packets-rate", "shape", "n2 sent nothing that was late or lost"),
        ("disk-full", "fill_disk", "a write was not rejected for lack of space after the injection"),
        ("kill-in-fsync", "fsync", "no fsync of n2 was in progress"),
        ("power-loss-in-fsync", "fsync", "no fsync of n2 was in progress"),
        ("disk-error", "break_disk", "n2: no change to its disk was rejected"),
        ("kill-in-write", "break_disk", "n2 was not killed at a change to the disk"),
        ("power-loss-in-write", "break_disk", "n2 was not killed at a change to the disk"),
        ("partition-leader-and-follower", "drop_from", "no packet to or from n2 was dropped"),
        ("partition-follower-from-leader", "drop_from", "no packet to or from n2 was dropped"),
        ("partition-links", "drop_from", "no packet to or from n2 was dropped"),
        ("clock", "shift_clock", "no process of n2 read its clock while that was wrong by -30.0 s"),
        ("hold", "hold", "never reached"),
        ("kill-consumer", "kill", "was not dead"),
        ("stop-consumer", "stop", "was running, not stopped"),
        ("cut-consumer", "drop_from", "no packet to or from client1 was dropped"),
        ("consumer-from-zookeeper", "drop_from", "no packet to or from client1 was dropped"),
        ("consumer-zookeeper-resets", "reject_from", "no packet to or from client1 was dropped"),
        ("consumer-from-coordinator", "drop_from", "no packet to or from client1 was dropped"),
        ("move-replicas", "move", "are where they were"),
        ("membership-add", "remove_contents", "2 of 2 files of n6 were left"),
        ("membership-remove", "remove_contents", "files of n2 were left"),
        ("membership-replace", "remove_contents", "files of n2 were left"),
        ("controlled-shutdown", "terminate", "had not ended after it was asked to"),
        ("controlled-shutdown", "hand over", "does not say what it still led"),
    ],
)
def test_a_fault_that_did_nothing_is_a_failed_fault(name: str, deaf: str, reason: str) -> None:
    play = one_step(name)
    for node in (*play.cluster.nodes, *play.cluster.spares):
        node.deaf.add(deaf)
    row = healed(play)
    assert row.took_effect is False
    assert reason in row.detail["reason"]
    failed = play.row(1, FaultPhase.FAILED)
    assert failed.detail["stage"] == FailureStage.EFFECT
    assert reason in failed.detail["reason"]


@pytest.mark.parametrize("why", ["no other replica lives", ""])
def test_a_lead_that_is_kept_at_a_controlled_shutdown_needs_a_reason(why: str) -> None:
    play = one_step("controlled-shutdown")
    play.cluster.node("n2").kept = {"orders-1": why}
    row = healed(play)
    assert row.detail["evidence"]["n2"]["kept"] == {"orders-1": why}
    assert row.detail["evidence"]["n2"]["led"] == 2
    assert row.took_effect is bool(why)


@pytest.mark.parametrize("ends", [True, False])
def test_only_a_process_that_ends_may_leave_space_on_a_full_disk(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    play = one_step("disk-full")
    node = play.cluster.node("n2")
    plain = node.room

    async def room() -> DiskRoom:
        """It has some space after the first look at it."""
        found = await plain()
        node.filled = False
        if ends:
            await node.kill()
        return found

    monkeypatch.setattr(node, "room", room)
    row = healed(play)
    assert row.took_effect is ends
    assert row.detail["evidence"]["n2"]["at_heal"]["refused"] is False


@pytest.mark.parametrize("shape", SHAPES)
def test_a_partition_without_traffic_took_no_effect(shape: str) -> None:
    play = one_step(f"partition-{shape}")
    for node in play.cluster.nodes:
        node.quiet = True
    assert healed(play).took_effect is False


def test_one_counter_at_either_end_is_enough() -> None:
    play = one_step("partition-one")
    play.cluster = FakeCluster(3)
    play.system = FakeSystem(play.cluster)
    for node in play.cluster.nodes:
        node.quiet = node.name != "n3"
    row = healed(play)
    assert row.took_effect is True
    assert list(row.detail["evidence"]["dropped"]) == ["n3<-n2"]
    assert len(row.detail["evidence"]["quiet"]) == 3


def test_every_isolated_node_must_have_suffered() -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, "partition-one", parse_target("n1+n2"), 5.0),)), FakeCluster(5))
    for node in play.cluster.nodes:
        node.quiet = node.name != "n1"
    row = healed(play)
    assert row.took_effect is False
    assert row.detail["reason"] == "no packet to or from n2 was dropped"


def test_a_process_that_was_dead_before_was_not_killed() -> None:
    play = one_step("kill")
    play.cluster.node("n2").kill_by_itself()
    row = healed(play)
    assert row.took_effect is False
    assert "dead already" in row.detail["reason"]
    assert play.cluster.untouched


@pytest.mark.parametrize(("name", "state"), [("kill", "dead"), ("stop", "stopped"), ("restart", "dead")])
@pytest.mark.parametrize("process", ["agent", "main"])
def test_one_process_of_a_node_is_hit_and_the_others_are_not(name: str, state: str, process: str) -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, name, parse_target(f"n2@{process}"), 6.0),)), FakeCluster(3))
    node = play.cluster.node("n2")
    agent = FakeAgent(node)
    row = healed(play)
    assert row.took_effect, row
    injected = play.row(1, FaultPhase.INJECTED)
    assert str(injected) == f"{name} n2@{process}"
    assert injected.detail["what"] == f"{name} n2, its process {process}"
    hit, spared = (agent, node) if process == "agent" else (node, agent)
    assert {"kill": "kill", "stop": "stop", "restart": "terminate"}[name] in hit.calls
    assert set(spared.calls) <= {"process"}
    seen = row.detail["evidence"]["n2"]
    assert state in {moment["state"] for moment in seen.values() if isinstance(moment, dict)}
    assert node.state is agent.state is ProcessState.RUNNING
    assert row.impact.stops_work is (process == "main"), "who reads the history counts on a server that goes on"
    assert row.impact == injected.impact == play.row(1, FaultPhase.INTENDED).impact


@pytest.mark.parametrize("name", ["stop", "outage"])
@pytest.mark.parametrize("main", [ProcessState.DEAD, ProcessState.RUNNING])
def test_what_was_stopped_beside_a_process_that_ended_meanwhile_goes_on_at_the_heal(
    name: str, main: ProcessState
) -> None:
    cluster = FakeCluster(3)
    node, step = cluster.node("n2"), FaultStep(2.0, name, parse_target("n2"), 6.0)
    agent = FakeAgent(node)
    injection = Injection(1, step, (node,), FaultContext(cluster, FakeSystem(cluster), CutLedger(cluster)))
    node.state, agent.state = main, ProcessState.STOPPED
    run(FAULTS[name].heal(injection))
    assert agent.state is ProcessState.RUNNING
    calls = list(agent.calls)
    run(FAULTS[name].heal(injection))
    assert set(agent.calls[len(calls) :]) <= {"process"}, "what runs is left alone"


def test_a_process_that_there_is_not_is_a_fault_that_failed() -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, "kill", parse_target("n2@agent"), 6.0),)), FakeCluster(3))
    play.play()
    row = play.row(1, FaultPhase.FAILED)
    assert "n2 has only one process, and it is not named agent: leave out @agent" in str(row.detail)
    assert play.cluster.untouched


@pytest.mark.parametrize(
    ("name", "parameters", "cut"),
    [
        ("partition-one", {"zookeeper": False}, {"n1|n2", "n2|n3", "n2|n4"}),
        ("partition-one", {"zookeeper": True}, {"n1|n2", "n2|n3", "n2|n4", "n2|zk1", "n2|zk2"}),
        ("partition-isolate-leader", {}, {"n1|n2", "n2|n3", "n2|n4"}),
        ("partition-from-zookeeper", {}, {"n2|zk1", "n2|zk2"}),
        ("cut-consumer", {}, {"client1|n1", "client1|n2", "client1|n3", "client1|n4"}),
        ("consumer-from-zookeeper", {}, {"client1|zk1", "client1|zk2"}),
        ("consumer-zookeeper-resets", {}, {"client1<-zk1:2181/3", "client1<-zk2:2181/3"}),
        ("consumer-from-coordinator", {}, {"client1|n2"}),
        ("consumer-from-coordinator", {"group": "members"}, {"client1|n2"}),
    ],
)
def test_what_each_shape_cuts(name: str, parameters: dict[str, Parameter], cut: set[str]) -> None:
    play = one_step(name, "n2", parameters)
    play.cluster = FakeCluster(4, 2)
    play.system = FakeSystem(play.cluster)
    play.play()
    evidence = play.row(1, FaultPhase.INJECTED).detail["evidence"]
    assert set(evidence["cut"]) == cut
    assert evidence["zookeeper"] is any("zk" in link for link in cut)


def test_where_there_is_no_zookeeper_nothing_is_said_of_it() -> None:
    play = one_step("partition-isolate-leader", "n2", {})
    play.cluster = FakeCluster(3, 0)
    play.system = FakeSystem(play.cluster)
    play.play()
    assert "zookeeper" not in play.row(1, FaultPhase.INJECTED).detail["evidence"]


def test_halves_are_halves_and_zookeeper_is_reached_by_both() -> None:
    sides = set()
    for seed in range(20):
        step = FaultStep(2.0, "partition", Target(TargetKind.HALF), 5.0, {"shape": "halves"}, seed)
        play = Play(FaultSchedule(1, (step,)), FakeCluster(4, 1))
        row = healed(play)
        cut = {frozenset(link.split("|")) for link in row.detail["evidence"]["cut"]}
        assert len(row.targets) == 2
        assert cut == {frozenset((a, b)) for a in row.targets for b in {"n1", "n2", "n3", "n4"} - set(row.targets)}
        sides.add(row.targets)
    assert len(sides) > 2


def test_a_zookeeper_node_can_be_isolated_from_everybody() -> None:
    play = one_step("partition-one", "zk1")
    play.cluster = FakeCluster(2, 3)
    play.system = FakeSystem(play.cluster)
    play.play()
    assert set(play.row(1, FaultPhase.INJECTED).detail["evidence"]["cut"]) == {"n1|zk1", "n2|zk1", "zk1|zk2", "zk1|zk3"}


def test_a_cut_is_made_at_both_ends() -> None:
    play = one_step("partition-isolate-leader")
    play.play()
    for name in ("n1", "n2", "n3", "n4", "n5"):
        assert play.cluster.node(name).calls.count("drop_from") == 1
    assert "drop_from" not in play.cluster.node("zk1").calls


@pytest.mark.parametrize(
    ("fault", "target", "parameters"),
    [
        ("partition", "n2", {"shape": "moon"}),
        ("partition-one", "n1+n2+n3", {}),
        ("partition-from-zookeeper", "zk1", {}),
        ("consumer-from-coordinator", "client1", {"group": "moon"}),
    ],
)
def test_a_partition_that_makes_no_sense_fails_and_touches_nothing(
    fault: str, target: str, parameters: dict[str, Parameter]
) -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, fault, parse_target(target), 5.0, parameters),)))
    play.play()
    assert play.row(1, FaultPhase.FAILED).detail["stage"] == FailureStage.INJECT
    assert play.row(1, FaultPhase.HEALED).took_effect is False
    assert not any("drop_from" in node.calls for node in play.cluster.nodes)


def test_a_node_whose_power_cannot_be_cut_says_why() -> None:
    cluster = FakeCluster(3)
    cluster.node("n2").unpowered = "no loop devices"

    async def probe() -> str | None:
        return await FAULTS["power-loss"].probe(cluster, FakeSystem(cluster))

    assert run(probe()) == "the power of n2 cannot be cut: no loop devices"


@pytest.mark.parametrize("name", ["kill-in-fsync", "power-loss-in-fsync"])
def test_an_fsync_of_a_process_that_the_main_one_has_started_is_one_of_the_server(name: str) -> None:
    play = one_step(name, "n2")
    play.cluster.node("n2").child = ProcessState.RUNNING
    row = healed(play)
    assert row.took_effect is True
    assert row.detail["evidence"]["in_fsync"] == ["n2"]
    assert row.detail["evidence"]["n2"]["before"]["state"] == ProcessState.RUNNING


@pytest.mark.parametrize("name", ["slow-fsync", "slow-disk", "kill-in-fsync", "power-loss-in-fsync"])
def test_a_disk_that_cannot_be_slow_is_said_to_be_so_before_the_run(name: str) -> None:
    cluster = FakeCluster(3)
    cluster.node("n3").unslowed = "there is no C compiler"
    reason = run(FAULTS[name].probe(cluster, FakeSystem(cluster)))
    assert reason == "the disk of n3 cannot be made slow: there is no C compiler"


@pytest.mark.parametrize("name", ["disk-error", "kill-in-write", "power-loss-in-write"])
def test_a_disk_that_cannot_fail_is_said_to_be_so_before_the_run(name: str) -> None:
    cluster = FakeCluster(3)
    cluster.node("n3").unslowed = "there is no C compiler"
    reason = run(FAULTS[name].probe(cluster, FakeSystem(cluster)))
    assert reason == "the disk of n3 cannot be made to fail: there is no C compiler"


@pytest.mark.parametrize(("name", "errors"), [("disk-error", 3), ("kill-in-write", 0)])
def test_where_no_change_of_the_chosen_kind_comes_any_is_taken(name: str, errors: int) -> None:
    parameters: dict[str, Parameter] = {"change": "name", "after": 4} | ({"errors": errors} if errors else {})
    play = one_step(name, "n2", parameters)
    asked: list[tuple[list[str], int, int]] = []
    node = play.cluster.node("n2")
    break_disk = node.break_disk

    async def noted(
        changes: Collection[DiskChange], after: int = 0, errors: int = 1, *, after_change: bool = False
    ) -> None:
        asked.append((sorted(changes), after, errors))
        await break_disk(changes, after, errors, after_change=after_change)

    node.break_disk = noted  # type: ignore[method-assign]
    row = healed(play)
    assert row.took_effect
    assert asked[:2] == [(["name"], 4, errors), (sorted(DiskChange), 0, errors)]
    assert {changes == [] for changes, _, _ in asked[2:]} == {True}
    assert row.detail["evidence"]["chosen"] == "no name came in 1 s, so that any change was taken"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"change": "read"}, "the parameter change is 'read'; it must be one of write, fsync, cut, name"),
        ({"after": -1}, "the parameter after is -1; it must be a whole number from 0 to 1000000"),
        ({"errors": 0.5}, "the parameter errors is 0.5; it must be a whole number from 1 to 1000000"),
        ({"errors": 0}, "the parameter errors is 0; it must be a whole number from 1 to 1000000"),
        ({"errors": "all"}, "the parameter errors is 'all'; it must be a whole number from 1 to 1000000"),
    ],
)
def test_a_disk_fails_at_what_it_knows_alone(given: dict[str, Parameter], reason: str) -> None:
    play = one_step("disk-error", "n2", given)
    play.play()
    failed = play.row(1, FaultPhase.FAILED)
    assert reason in failed.detail["reason"]
    assert play.cluster.untouched


@pytest.mark.parametrize(("side", "made"), [("before", False), ("after", True), (None, False)])
def test_a_process_ends_before_a_change_or_after_it(side: str | None, made: bool) -> None:
    play = one_step("kill-in-write", "n2", {"change": "write"} | ({"side": side} if side else {}))
    node = play.cluster.node("n2")
    asked: list[bool] = []
    break_disk = node.break_disk

    async def noted(
        changes: Collection[DiskChange], after: int = 0, errors: int = 1, *, after_change: bool = False
    ) -> None:
        asked.append(made)
        await break_disk(changes, after, errors, after_change=after_change)

    node.break_disk = noted  # type: ignore[method-assign]
    assert healed(play).took_effect
    assert asked[0] is made


def test_a_side_of_a_change_that_there_is_not_is_an_error() -> None:
    play = one_step("kill-in-write", "n2", {"side": "within"})
    play.play()
    reason = play.row(1, FaultPhase.FAILED).detail["reason"]
    assert "the parameter side is 'within'; it must be before or after" in reason


def dying(play: Play, *, failing: bool, delay: float) -> FakeNode:
    """The process of n2 ends so many seconds after its disk began to fail, or after it has ended to."""
    node = play.cluster.node("n2")
    break_disk = node.break_disk

    async def ending(
        changes: Collection[DiskChange], after: int = 0, errors: int = 1, *, after_change: bool = False
    ) -> None:
        await break_disk(changes, after, errors)
        if bool(changes) == failing:
            asyncio.get_running_loop().call_later(delay, node.kill_by_itself)

    node.break_disk = ending  # type: ignore[method-assign]
    return node


def test_a_process_that_ends_of_an_error_of_its_disk_is_started_again() -> None:
    play = one_step("disk-error")
    node = dying(play, failing=True, delay=0.0)
    row = healed(play)
    assert row.took_effect
    assert row.detail["evidence"]["n2"]["process"]["state"] == "dead"
    assert row.detail["evidence"]["n2"]["started"]
    assert node.state is ProcessState.RUNNING


def ending_late(fault: str, *more: FaultStep) -> Play:
    """The process of n2 ends 0.1 s after the first fault was healed, at 7 s."""
    play = Play(
        FaultSchedule(1, (FaultStep(2.0, fault, parse_target("n2"), 5.0, PARAMETERS.get(fault, {})), *more)),
        FakeCluster(5),
    )
    node, conductor = play.cluster.node("n2"), play.conductor

    def made() -> Conductor:
        asyncio.get_running_loop().call_later(7.1, node.kill_by_itself)
        return conductor()

    play.conductor = made  # type: ignore[method-assign]
    return play


@pytest.mark.parametrize("fault", ["disk-error", "disk-full"])
def test_one_that_was_about_to_end_of_it_at_the_heal_is_started_again_too(fault: str) -> None:
    play = ending_late(fault)
    assert healed(play).took_effect
    assert play.cluster.node("n2").state is ProcessState.RUNNING
    assert play.phases(1)[-1] == "recovered"


def test_one_that_ends_by_itself_after_another_fault_is_not() -> None:
    play = ending_late("partition-one")
    assert healed(play).took_effect
    assert play.cluster.node("n2").state is ProcessState.DEAD
    assert play.row(1, FaultPhase.FAILED).stage is FailureStage.RECOVER


@pytest.mark.parametrize("other", ["partition-from-zookeeper", "zookeeper-kill"])
def test_one_that_gives_up_as_others_are_in_its_way_is_started_again(other: str) -> None:
    target = TARGETS.get(other, parse_target("n2"))
    play = ending_late("kill", FaultStep(6.5, other, target, 3.0, PARAMETERS.get(other, {})))
    assert healed(play).took_effect
    assert play.cluster.node("n2").state is ProcessState.RUNNING


@pytest.mark.parametrize("other", ["clock", "disk-full"])
def test_nor_is_one_where_nothing_is_in_its_way(other: str) -> None:
    play = ending_late("kill", FaultStep(6.5, other, parse_target("n1"), 3.0, PARAMETERS.get(other, {})))
    assert healed(play).took_effect
    assert play.cluster.node("n2").state is ProcessState.DEAD


def test_nor_is_one_that_another_fault_has_ended_before_that_is_healed() -> None:
    play = ending_late("disk-error", FaultStep(7.05, "kill", parse_target("n2"), 3.0))
    assert healed(play).took_effect
    assert play.row(2, FaultPhase.HEALED).took_effect
    assert play.at(1, FaultPhase.RECOVERED) > play.at(2, FaultPhase.HEALED) == 10.05


def test_a_process_that_ends_of_an_error_of_its_disk_a_moment_after_the_heal_is_started_again() -> None:
    play = one_step("disk-error")
    node = dying(play, failing=False, delay=1.0)
    row = healed(play)
    assert row.took_effect
    assert row.detail["evidence"]["n2"]["process"]["state"] == "running"
    assert row.detail["evidence"]["n2"]["started"]
    assert node.state is ProcessState.RUNNING


def test_several_machines_lose_power_when_one_of_them_changes_something() -> None:
    play = one_step("power-loss-in-write", "n1+n2+n3")
    for name in ("n1", "n3"):
        play.cluster.node(name).changes = []
    row = healed(play)
    assert row.took_effect
    assert row.detail["evidence"]["in_write"] == ["n2"]
    assert all("power_loss" in play.cluster.node(name).calls for name in ("n1", "n2", "n3"))


def test_a_server_without_a_limit_of_memory_is_left_alone() -> None:
    cluster = FakeCluster(3)
    cluster.node("n3").unlimited = "its memory has no limit of its own"
    reason = run(FAULTS["memory"].probe(cluster, FakeSystem(cluster)))
    assert reason == "n3 cannot run out of memory: its memory has no limit of its own"
    assert not any("exhaust_memory" in node.calls for node in cluster.servers)


def test_a_slow_disk_has_fsyncs_of_ten_times_the_length() -> None:
    play = one_step("slow-disk")
    asked: list[tuple[float, float]] = []
    node = play.cluster.node("n2")
    slow_disk = node.slow_disk

    async def noted(fsync: float, call: float = 0.0) -> None:
        asked.append((fsync, call))
        await slow_disk(fsync, call)

    node.slow_disk = noted  # type: ignore[method-assign]
    play.play()
    assert asked == [(0.1, 0.01), (0.0, 0.0)]


def test_several_machines_lose_power_at_the_same_time() -> None:
    play = one_step("power-loss", "n1+n2+n3")
    for node in play.cluster.nodes:
        node.slow_power_loss = 0.5
    play.play()
    assert play.at(1, FaultPhase.INJECTED) == 2.5
    assert healed(play).detail["evidence"]["n2"]["lost_bytes"] == 7


def test_power_that_cannot_be_cut_on_one_node_is_cut_on_the_others() -> None:
    play = one_step("power-loss", "n1+n2+n3")
    play.cluster.node("n2").refuse["power_loss"] = 1
    play.play()
    assert play.phases(1)[1] == "failed"
    assert "n2: power_loss refused" in play.row(1, FaultPhase.FAILED).detail["reason"]
    assert all(play.cluster.node(name).incarnation == 2 for name in ("n1", "n3"))
    assert play.cluster.untouched


@pytest.mark.parametrize("name", list(FAULTS))
def test_probe_says_what_is_missing_and_changes_nothing(name: str) -> None:
    fault = FAULTS[name]

    async def probe(cluster: FakeCluster) -> str | None:
        return await fault.probe(cluster, FakeSystem(cluster))

    cluster = FakeCluster(5)
    assert run(probe(cluster)) is None
    assert {call for node in cluster.nodes for call in node.calls} <= {"process", "dropped", "frozen", "clock_shift"}
    broken = FakeCluster(5)
    for node in broken.nodes:
        node.refuse = {"process": 1, "dropped": 1, "frozen": 1, "clock_shift": 1}
    assert "refused" in (run(probe(broken)) or "")
    assert run(probe(FakeCluster(0, 0, 0)))
    if name.startswith("partition"):
        assert run(probe(FakeCluster(1, 0)))


def test_a_coordinator_that_no_one_knows_is_replaced_and_the_evidence_says_so() -> None:
    play = one_step("consumer-from-coordinator")
    play.system.coordinator = None
    row = healed(play)
    injected = play.row(1, FaultPhase.INJECTED).detail["evidence"]
    assert "no node is known to be coordinator of members" in injected["note"]
    assert row.took_effect is True
    assert row.detail["evidence"]["cut"] == [f"client1|{injected['coordinator']}"]


@pytest.fixture
def zookeeper(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[str, float]]:
    """The sessions that a ZooKeeper tells of: number to client and timeout."""
    held = {1: ("198.18.0.1", 3.0), 2: ("198.18.0.2", 3.0), 7: ("198.18.0.2", 4.0)}

    async def connected(nodes: object) -> dict[int, tuple[str, float]]:
        return held

    async def sessions(nodes: object) -> set[int]:
        return {session for session, (client, timeout) in held.items() if client != "198.18.0.2" or now() < 2 + timeout}

    monkeypatch.setattr("assay.cluster.zookeeper.read_connected_sessions", connected)
    monkeypatch.setattr("assay.cluster.zookeeper.read_sessions", sessions)
    return held


def test_a_session_is_cut_off_until_zookeeper_has_ended_it(zookeeper: object) -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, "zookeeper-expire", parse_target("n2"), 1.0),)))
    row = healed(play)
    assert row.took_effect is True
    assert row.detail["evidence"]["sessions"] == {"n2": {"0x2": 3.0, "0x7": 4.0}}
    assert play.at(1, FaultPhase.HEALED) == 6.0, "as long as the longest of its sessions, not the second asked for"
    assert play.cluster.untouched


def test_no_other_heal_waits_for_a_sessions_end(zookeeper: object) -> None:
    """Another fault may keep ZooKeeper from answering, or the session from ending."""
    steps = FaultStep(2.0, "zookeeper-expire", parse_target("n2"), 1.0), FaultStep(2.5, "kill", parse_target("n1"), 1.0)
    play = Play(FaultSchedule(1, steps))
    assert healed(play).took_effect is True
    assert play.at(1, FaultPhase.HEALED) == 6.0
    assert play.at(2, FaultPhase.HEALED) == 3.5


def test_a_session_is_cut_off_until_its_end_in_a_run_that_ends_before(zookeeper: object) -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, "zookeeper-expire", parse_target("n2"), 1.0),)))

    async def main() -> None:
        conductor = play.conductor()
        running = asyncio.create_task(conductor.run())
        await asyncio.sleep(2.5)
        assert await conductor.heal_all() == ()
        await running
        await conductor.close()

    run(main())
    assert play.row(1, FaultPhase.HEALED).took_effect is True
    assert play.at(1, FaultPhase.HEALED) == 6.0


def test_a_session_that_lives_on_has_not_expired(zookeeper: dict[int, tuple[str, float]]) -> None:
    zookeeper[7] = ("198.18.0.2", 60.0)
    play = Play(FaultSchedule(1, (FaultStep(2.0, "zookeeper-expire", parse_target("n2"), 1.0),)))
    row = healed(play)
    assert row.took_effect is False
    assert row.detail["reason"] == "ZooKeeper still had 0x7 at the heal"
    assert play.cluster.untouched


def test_who_is_about_to_hold_a_session_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier fault took it, and a partition that has just healed lets the node register again."""

    async def connected(nodes: object) -> dict[int, tuple[str, float]]:
        return {8: ("198.18.0.2", 1.0)} if now() > 3.2 else {}

    async def sessions(nodes: object) -> set[int]:
        return {8} if now() < 4.0 else set()

    monkeypatch.setattr("assay.cluster.zookeeper.read_connected_sessions", connected)
    monkeypatch.setattr("assay.cluster.zookeeper.read_sessions", sessions)
    play = Play(FaultSchedule(1, (FaultStep(2.0, "zookeeper-expire", parse_target("n2"), 1.0),)))
    row = healed(play)
    assert row.took_effect is True
    assert row.detail["evidence"]["sessions"] == {"n2": {"0x8": 1.0}}
    assert play.at(1, FaultPhase.INJECTED) == pytest.approx(3.25)


def test_who_holds_no_session_cannot_lose_one(zookeeper: object) -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, "zookeeper-expire", parse_target("n3"), 1.0),)))
    assert healed(play).took_effect is False
    assert "n3 had no ZooKeeper session" in play.row(1, FaultPhase.FAILED).detail["reason"]
    assert not any("drop_from" in node.calls for node in play.cluster.nodes)


@pytest.mark.parametrize("parameter", ["draw_event", pytest.param("seen", id="its name in older schedules")])
def test_a_hold_at_a_drawn_event_stops_there_or_else_at_a_start(parameter: str) -> None:
    def played(says: bool) -> FaultRow:
        step = FaultStep(2.0, "hold", parse_target("n2"), 6.0, {parameter: True})
        play = Play(FaultSchedule(1, (step,)), FakeCluster(3))

        async def speak(node: FakeNode) -> None:
            for _ in range(4):
                node.say("isr-change", "orders-0")
            await asyncio.sleep(3)
            if says:
                node.say("isr-change", "orders-0")

        async def main() -> None:
            conductor = play.conductor()
            speaking = asyncio.create_task(speak(play.cluster.node("n2")))
            await conductor.run()
            await speaking
            await conductor.wait_for_recoveries()

        run(main())
        return play.row(1, FaultPhase.HEALED)

    came, missed = played(says=True), played(says=False)
    assert (came.took_effect, missed.took_effect) == (True, True)
    assert came.detail["evidence"]["event"] == "isr-change"
    assert "fell_back" not in came.detail["evidence"]
    assert missed.detail["evidence"]["event"] in FakeSystem.start_events
    assert missed.detail["evidence"]["fell_back"] == "isr-change did not come"


@pytest.mark.parametrize(
    ("way", "parameters", "to", "traffic"),
    [
        ("delay", {"seconds": 0.2}, None, Traffic(delay=0.2)),
        ("loss", {"share": 0.3, "to": "zookeeper"}, ["zk1"], Traffic(loss=0.3)),
        ("duplicate", {"share": 0.3, "to": "n1"}, ["n1"], Traffic(copies=0.3)),
        ("reorder", {"share": 0.3, "seconds": 0.1}, None, Traffic(delay=0.1, late=0.3, overtaking=True)),
        ("rate", {"rate": 100_000}, None, Traffic(rate=100_000)),
    ],
)
def test_packets_suffer_in_the_way_that_is_given_on_the_node_or_the_link(
    way: str, parameters: dict[str, Parameter], to: list[str] | None, traffic: Traffic
) -> None:
    play = one_step("packets", parameters={"way": way, **parameters})
    node = play.cluster.node("n2")
    seen: list[object] = []
    shaped = node.shaped

    async def watched() -> Mapping[str, int]:
        seen.append(node.traffic)
        return await shaped()

    node.shaped = watched  # type: ignore[method-assign]
    assert healed(play).took_effect is True
    assert seen[-1] == (traffic, to)
    assert play.cluster.untouched


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"way": "loss"}, "the parameter share is missing; it must be more than 0 and at most 0.9"),
        ({"way": "loss", "share": 1.0}, "the parameter share is 1.0; it must be more than 0 and at most 0.9"),
        ({"way": "delay", "seconds": "long"}, "the parameter seconds"),
        ({"way": "theft"}, "the parameter way is 'theft'; it must be one of delay, loss"),
        ({"way": "loss", "share": 0.1, "to": "n9"}, "the parameter to is 'n9'"),
    ],
)
def test_packets_need_a_way_and_a_measure(parameters: dict[str, Parameter], reason: str) -> None:
    play = one_step("packets", parameters=parameters)
    assert healed(play).took_effect is False
    assert reason in play.row(1, FaultPhase.FAILED).detail["reason"]
    assert play.cluster.untouched


def test_packets_without_traffic_took_no_effect() -> None:
    play = one_step("packets-loss")
    play.cluster.node("n2").quiet = True
    assert healed(play).took_effect is False


def test_where_packets_cannot_be_queued_the_fault_says_why() -> None:
    cluster = FakeCluster(3)
    cluster.node("n3").unshaped = "no nfnetlink_queue"
    for name in ("packets", "slow-network", "packets-rate"):
        said = run(FAULTS[name].probe(cluster, FakeSystem(cluster)))
        assert said == "the packets of n3 cannot be queued: no nfnetlink_queue"


@pytest.mark.parametrize("ends", [False, True])
def test_a_disk_is_full_until_the_heal_and_who_ended_of_it_is_started_again(ends: bool) -> None:
    play = one_step("disk-full")
    node = play.cluster.node("n2")
    fill = node.fill_disk

    async def full() -> None:
        await fill()
        if ends:
            node.state = ProcessState.DEAD

    node.fill_disk = full  # type: ignore[method-assign]
    row = healed(play)
    assert row.took_effect is True
    assert row.detail["evidence"]["n2"]["at_heal"] == {"free": 0, "refused": True}
    assert row.detail["evidence"]["n2"].get("started", False) is ends
    assert ("start" in node.calls) is ends
    assert play.cluster.untouched


def test_a_disk_on_which_something_fitted_at_the_heal_was_not_full() -> None:
    play = one_step("disk-full")
    node = play.cluster.node("n2")
    room = node.room

    async def roomy() -> DiskRoom:
        found = await room()
        node.filled = False
        return found

    node.room = roomy  # type: ignore[method-assign]
    row = healed(play)
    assert row.took_effect is False
    assert "not rejected for lack of space at the heal" in row.detail["reason"]


def test_after_an_outage_now_and_then_one_stands_still_as_soon_as_it_is_registered() -> None:
    """It goes on by itself, and no order is left that would stop it at its next start."""
    falters = 0
    for seed in range(12):
        play = Play(
            FaultSchedule(1, (FaultStep(2.0, "outage", Target(TargetKind.ALL), 3.0, {}, seed),)), FakeCluster(3)
        )
        assert healed(play).took_effect is True
        servers = [node for node in play.cluster.nodes if node.role == "broker"]
        assert all(node.state is ProcessState.RUNNING and not node.files.get(HOLD_FILE) for node in servers)
        stood = [node for node in servers if "resume" in _after(node.calls, "start")]
        falters += len(stood)
        assert len(stood) <= 1
    assert 1 <= falters < 8


def test_a_server_of_a_quorum_which_serves_no_one_alone_keeps_the_others_waiting_for_seconds_only() -> None:
    lasted = []
    for seed in range(12):
        play = Play(
            FaultSchedule(1, (FaultStep(2.0, "outage", Target(TargetKind.ALL), 3.0, {}, seed),)), FakeCluster(3)
        )
        play.system.never_ready |= {"n1", "n2", "n3"}
        play.play()
        lasted.append(play.at(1, FaultPhase.HEALED) - play.at(1, FaultPhase.INJECTED))
    assert max(lasted) < 3 + 2 * 4 + 5
    assert any(one >= 3 + 2 * 4 for one in lasted), "it is waited for"


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_server_that_an_outage_asks_in_vain_to_end_does_not_end_after_its_heal(cancelled: bool) -> None:
    """The run would take that for an end of its own."""
    slow = 0
    for seed in range(8):
        play = Play(
            FaultSchedule(1, (FaultStep(2.0, "outage", Target(TargetKind.ALL), 3.0, {}, seed),)), FakeCluster(3)
        )
        servers = [node for node in play.cluster.nodes if node.role == "broker"]
        late: list[FakeNode] = []

        async def terminate(node: FakeNode, late: list[FakeNode]) -> None:
            if not late and now() < 5:  # in the injection; it ends by itself in the end
                late.append(node)
                incarnation = node.incarnation
                end = lambda: node.kill_by_itself() if node.incarnation == incarnation else None  # noqa: E731
                asyncio.get_running_loop().call_later(60.0, end)
                if cancelled:
                    await asyncio.sleep(40.0)
                raise NodeError(f"{node.name}: still in state S")
            await FakeNode.terminate(node)

        for node in servers:
            node.terminate = partial(terminate, node, late)  # type: ignore[method-assign]
        play.play()
        if late:
            slow += 1
            said = "it did not end within 30 s" if cancelled else "still in state S"
            assert said in play.row(1, FaultPhase.FAILED).detail["reason"]
            assert play.row(1, FaultPhase.HEALED).took_effect is False
            assert late[0].incarnation > 1, "another one was started in its place"
        assert all(node.state is ProcessState.RUNNING for node in servers)
    assert slow


def _after(calls: list[str], last: str) -> list[str]:
    """Returns those after the last one of that name."""
    return calls[len(calls) - calls[::-1].index(last) :]
