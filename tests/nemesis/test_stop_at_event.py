"""A step whose trigger holds strikes a process that stands still at the event; no one is left standing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from assay.cluster.node import ProcessState
from assay.nemesis.engine.reporter import FailureStage, FaultPhase
from assay.nemesis.faults.fault import Census, Scope
from assay.nemesis.faults.partition import PartitionFault
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, PartitionShape, ScheduleError, decode_schedule
from assay.nemesis.schedule.target import parse_target as target
from assay.nemesis.schedule.trigger import OnEvent, TriggerError, parse_trigger

from helpers.nemesis_fakes import HOLD_FILE, FakeAgent, FakeCluster, Play, draw, run

EXACT = OnEvent("isr-change", "orders-1", hold=True, within=6)


def waiting(fault: str = "kill", whom: str = "origin", trigger: OnEvent = EXACT, **parameters: Any) -> Play:
    return Play(
        FaultSchedule(1, (FaultStep(2.0, fault, target(whom), 5.0, parameters, trigger=trigger),)), FakeCluster(3)
    )


def held(play: Play, *happenings: tuple[float, Callable[[], None]]) -> Play:
    """Plays while these things happen at these seconds; in the end all is as it was."""

    async def main() -> None:
        conductor = play.conductor()
        for at, happening in happenings:
            asyncio.get_running_loop().call_at(at, happening)
        await conductor.run()
        await conductor.wait_for_recoveries()
        assert await conductor.close() == ()

    run(main())
    assert play.cluster.untouched, "all run, and nothing is in their way"
    assert all(not node.files.get(HOLD_FILE) for node in play.cluster.servers), "the orders are withdrawn"
    return play


def says(play: Play, name: str, event: str = "isr-change", key: str = "orders-1") -> Callable[[], None]:
    return lambda: play.cluster.node(name).say(event, key)


def test_the_process_is_killed_where_it_stands() -> None:
    play = waiting()
    other = says(play, "n1", key="orders-0")
    row = held(play, (3.0, other), (4.0, says(play, "n2"))).row(1, FaultPhase.INJECTED)
    assert play.at(1, FaultPhase.INJECTED) == pytest.approx(4.0)
    assert row.targets == ("n2",)
    assert row.detail["trigger"]["held"] is True
    assert row.detail["trigger"]["line"]["key"] == "orders-1"
    assert row.detail["evidence"]["n2"]["before"]["state"] == ProcessState.STOPPED
    assert play.row(1, FaultPhase.HEALED).took_effect is True


class CutWhole(PartitionFault):
    """Holds whole nodes, as the expiry of a session does, and leaves their processes alone."""

    scope = Scope.NODE

    def __init__(self) -> None:
        super().__init__(PartitionShape.ONE)
        self.name = "cut-whole"


def test_a_process_goes_on_when_the_fault_that_strikes_it_does_not_stop_it() -> None:
    step = FaultStep(2.0, "cut-whole", target("origin"), 5.0, trigger=EXACT)
    play = Play(FaultSchedule(1, (step,)), FakeCluster(3), catalogue=FaultCatalogue.standard(CutWhole()))
    states: list[ProcessState] = []
    node = play.cluster.node("n2")
    held(play, (4.0, says(play, "n2")), (5.0, lambda: states.append(node.state)))
    assert states == [ProcessState.RUNNING], "while the fault is in force"
    assert play.row(1, FaultPhase.HEALED).took_effect is True


def test_a_line_that_is_read_after_the_time_was_over_counts_if_its_process_stands_there() -> None:
    play = waiting()
    node = play.cluster.node("n2")
    lines: list[str] = []

    def silently() -> None:
        tell, node.on_event = node.on_event, lambda name, line: lines.append(line)
        node.say("isr-change", "orders-1")
        node.on_event = tell

    def read() -> None:
        assert node.on_event is not None
        node.on_event("n2", lines[0])

    held(play, (7.5, silently), (9.5, read))  # it waits until 8
    assert play.at(1, FaultPhase.INJECTED) == pytest.approx(9.5)
    assert play.row(1, FaultPhase.INJECTED).targets == ("n2",)


def test_one_that_stands_and_whose_line_never_comes_is_given_up() -> None:
    play = waiting()
    node = play.cluster.node("n2")

    def silently() -> None:
        node.on_event = None
        node.say("isr-change", "orders-1")

    held(play, (7.5, silently))
    assert play.row(1, FaultPhase.FAILED).detail["stage"] == FailureStage.TRIGGER


def test_a_line_from_before_the_order_does_not_count() -> None:
    """Its process was asked too late and went on: what it did since is not "exactly there"."""
    play = waiting()
    node = play.cluster.node("n2")

    def late() -> None:
        node.files.pop(HOLD_FILE)
        node.say("isr-change", "orders-1")
        node.files[HOLD_FILE] = b"isr-change orders-1\n"

    held(play, (3.0, late), (5.5, says(play, "n3")))
    assert play.at(1, FaultPhase.INJECTED) == pytest.approx(5.5)
    assert play.row(1, FaultPhase.INJECTED).targets == ("n3",)


def test_one_that_stops_while_another_is_looked_at_is_found() -> None:
    play = waiting()
    node = play.cluster.node("n2")

    def late() -> None:
        node.files.pop(HOLD_FILE)
        node.say("isr-change", "orders-1")

    held(play, (3.0, late), (3.5, says(play, "n3")))
    assert play.row(1, FaultPhase.INJECTED).targets == ("n3",)
    assert play.at(1, FaultPhase.INJECTED) == pytest.approx(3.5, abs=0.02)


def test_in_vain_the_order_is_withdrawn() -> None:
    play = held(waiting(), (4.0, lambda: None))
    assert play.row(1, FaultPhase.FAILED).detail["stage"] == FailureStage.TRIGGER
    assert play.at(1, FaultPhase.FAILED) == pytest.approx(8.0)


@pytest.mark.parametrize(("fault", "whom"), [("partition-one", "origin"), ("kill", "n1"), ("stop", "origin")])
def test_who_need_not_stand_goes_on_once_the_step_has_acted(fault: str, whom: str) -> None:
    play = waiting(fault, whom)
    seen: list[ProcessState] = []
    play = held(play, (4.0, says(play, "n2")), (5.0, lambda: seen.append(play.cluster.node("n2").state)))
    assert seen == [ProcessState.STOPPED if fault == "stop" else ProcessState.RUNNING]
    assert play.row(1, FaultPhase.HEALED).took_effect is True


@pytest.mark.parametrize("whom", ["disk-full origin", "disk-error origin", "kill origin@agent", "stop origin@agent"])
def test_one_that_the_fault_neither_pauses_nor_ends_at_once_goes_on(whom: str) -> None:
    """No one else would have it go on: not at the heal, which knows of no process that stands."""
    fault, named = whom.split()
    play = waiting(fault, named)
    for server in play.cluster.servers:
        FakeAgent(server)
    seen: list[ProcessState] = []
    play = held(play, (4.0, says(play, "n2")), (8.0, lambda: seen.append(play.cluster.node("n2").state)))
    assert seen == [ProcessState.RUNNING]
    assert FaultPhase.RECOVERED in play.phases(1)


@pytest.mark.parametrize("whom", ["n2", "n1"])
def test_a_frozen_machine_keeps_no_one_standing_and_its_own_process_goes_on_after_the_heal(whom: str) -> None:
    """The order on it is withdrawn once it can be reached; that another fault is still to come changes nothing."""
    later = FaultStep(2.0, "kill", target("n3"), 18.0, trigger=OnEvent("became-leader", within=20))
    play = Play(FaultSchedule(1, (FaultStep(2.0, "freeze", target(whom), 5.0, trigger=EXACT), later)), FakeCluster(3))
    nodes = [play.cluster.node(name) for name in ("n1", "n2")]
    seen: list[tuple[ProcessState, ...]] = []

    def look() -> None:
        seen.append(tuple(node.state for node in nodes))

    held(play, (4.0, says(play, "n2")), (5.0, look), (9.5, look), (15.0, says(play, "n3", "became-leader")))
    frozen = ProcessState.STOPPED if whom == "n2" else ProcessState.RUNNING
    assert seen == [(ProcessState.RUNNING, frozen), (ProcessState.RUNNING,) * 2]


def test_one_that_another_fault_has_paused_was_not_caught() -> None:
    """Its last line is the event, and it stands; but not there."""
    steps = (FaultStep(1.0, "stop", target("n1"), 9.0), FaultStep(2.0, "kill", target("origin"), 5.0, trigger=EXACT))
    play = Play(FaultSchedule(1, steps), FakeCluster(3))
    held(play, (0.5, says(play, "n1")), (4.0, says(play, "n2")))
    assert play.row(2, FaultPhase.INJECTED).targets == ("n2",)
    assert play.row(2, FaultPhase.INJECTED).detail["trigger"]["origin"] == "n2"


def test_a_second_who_comes_past_the_event_goes_on() -> None:
    play = waiting()
    seen: list[ProcessState] = []
    held(
        play,
        (4.0, lambda: (says(play, "n2")(), says(play, "n3")())[0]),
        (5.0, lambda: seen.extend(play.cluster.node(name).state for name in ("n2", "n3"))),
    )
    assert sorted(seen) == [ProcessState.DEAD, ProcessState.RUNNING]


def test_one_step_at_a_time_and_not_beside_the_fault_hold() -> None:
    steps = (
        FaultStep(2.0, "kill", target("origin"), 3.0, trigger=EXACT),
        FaultStep(2.5, "kill", target("origin"), 3.0, trigger=OnEvent("became-leader", hold=True)),
    )
    play = Play(FaultSchedule(1, steps), FakeCluster(3))
    held(play, (4.0, says(play, "n2")))
    assert "one step at a time" in play.row(2, FaultPhase.FAILED).detail["reason"]
    assert play.row(1, FaultPhase.HEALED).took_effect is True
    order = FaultStep(1.0, "hold", target("n1"), 3.0, {"event": "isr-change"})
    play = Play(FaultSchedule(1, (order, steps[0])), FakeCluster(3))
    held(play, (2.5, says(play, "n1")))
    assert "its own event" in play.row(2, FaultPhase.FAILED).detail["reason"]
    assert play.row(1, FaultPhase.HEALED).took_effect is True


def test_what_stands_in_an_ambush_goes_on_at_once_when_another_fault_holds_it() -> None:
    """The other one may wait for it."""
    steps = (
        FaultStep(1.0, "cut-whole", target("n2"), 9.0),
        FaultStep(2.0, "kill", target("origin"), 3.0, trigger=EXACT),
    )
    play = Play(FaultSchedule(1, steps), FakeCluster(3), catalogue=FaultCatalogue.standard(CutWhole()))
    states: list[ProcessState] = []
    node = play.cluster.node("n2")
    held(play, (4.0, says(play, "n2")), (4.5, lambda: states.append(node.state)))
    assert "fault of the same scope is active on n2" in play.row(2, FaultPhase.FAILED).detail["reason"]
    assert states == [ProcessState.RUNNING]


def test_a_hold_gives_no_orders_while_an_ambush_is_laid() -> None:
    steps = (
        FaultStep(2.0, "kill", target("origin"), 3.0, trigger=EXACT),
        FaultStep(3.0, "hold", target("n1"), 4.0, {"event": "isr-change"}),
        FaultStep(9.0, "hold", target("n1"), 4.0, {"event": "isr-change"}),
    )
    play = Play(FaultSchedule(1, steps), FakeCluster(3))
    held(play, (4.0, says(play, "n1")), (10.0, says(play, "n1")))
    assert play.row(1, FaultPhase.HEALED).took_effect is True
    assert play.row(2, FaultPhase.FAILED).stage is FailureStage.TARGET
    assert "its own event" in play.row(2, FaultPhase.FAILED).detail["reason"]
    assert play.row(3, FaultPhase.HEALED).took_effect is True


def test_a_node_that_takes_no_order_fails_the_step_and_the_others_go_on() -> None:
    play = waiting()
    play.cluster.node("n3").refuse["write_file"] = 1
    held(play, (4.0, says(play, "n1")))
    assert play.row(1, FaultPhase.FAILED).detail["stage"] == FailureStage.TRIGGER
    assert "write_file refused" in play.row(1, FaultPhase.FAILED).detail["reason"]


def test_what_cannot_be_held_at_is_refused() -> None:
    for wrong in ({"nth": 2}, {"fields": {"epoch": 1}}, {"delay": 0.5}, {"key": "two words"}):
        with pytest.raises(TriggerError):
            OnEvent("isr-change", hold=True, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="leave out fields, nth and delay"):
        decode_schedule(
            b'{"type": "schedule", "seed": 1, "steps": [{"at": 1, "fault": "kill", "target": {"kind": "origin"}, '
            b'"duration": 1, "trigger": {"type": "event", "event": "x", "nth": 2, "hold": true}}]}'
        )
    assert parse_trigger("hold:isr-change:orders-1") == OnEvent("isr-change", "orders-1", hold=True)
    servers = Census(3, 1, ("orders-0",))
    with pytest.raises(ScheduleError, match="can trigger only one fault"):
        draw(1, ["kill", "stop"], census=servers, trigger=parse_trigger("hold:isr-change"))
    (step,) = draw(1, ["kill"], census=servers, trigger=parse_trigger("hold:isr-change"), target=target("origin")).steps
    assert isinstance(step.trigger, OnEvent)
    assert step.trigger.hold
