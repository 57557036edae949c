"""A second copy of a process: when the fault counts as done, and what it leaves of lock files to others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from assay.cluster.node import ProcessState
from assay.nemesis.engine.reporter import FaultPhase, FaultRow
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, Parameter
from assay.nemesis.schedule.target import parse_target

from helpers.nemesis_fakes import FAULTS, LOCK_FILE, FakeCluster, FakeNode, Play


def played(fault: str, change: Callable[[FakeNode], None] = lambda node: None, duration: float = 4.0) -> Play:
    given: dict[str, Parameter] = {"change": "remove"} if fault.startswith("membership") else {}
    play = Play(FaultSchedule(1, (FaultStep(1.0, fault, parse_target("n2"), duration, given),)), FakeCluster(5))
    change(play.cluster.node("n2"))
    play.play()
    return play


def healed(play: Play) -> FaultRow:
    return play.row(1, FaultPhase.HEALED)


def test_a_copy_that_is_refused_took_effect_and_leaves_the_first_process_alone() -> None:
    play = played("start-twice")
    row = healed(play)
    assert row.took_effect
    assert row.detail["evidence"]["n2"]["second"]["exit_status"] == 1
    node = play.cluster.node("n2")
    assert (node.incarnation, node.state) == (1, ProcessState.RUNNING)
    assert "start" not in node.calls
    assert not row.impact.stops_work


def test_a_copy_that_lives_took_effect_and_is_ended_at_the_heal() -> None:
    def lets_in(node: FakeNode) -> None:
        node.refuses_second = False

    play = played("start-twice", lets_in)
    assert healed(play).took_effect
    assert healed(play).detail["evidence"]["n2"]["second"]["alive"] is True
    assert not play.cluster.node("n2").copies[-1].alive


def test_a_copy_that_had_no_time_lingers_until_it_has_had_some() -> None:
    def lets_in(node: FakeNode) -> None:
        node.refuses_second = False

    row = healed(played("start-twice", lets_in, duration=0.5))
    assert row.took_effect
    assert row.detail["evidence"]["n2"]["lived"] >= 2.0


def test_a_copy_that_was_not_started_is_a_fault_that_failed() -> None:
    row = healed(played("start-twice", lambda node: node.deaf.add("start_second")))
    assert not row.took_effect


def test_a_first_process_that_ended_of_it_is_not_started_again() -> None:
    def ends(node: FakeNode) -> None:
        real = node.start_second

        async def start_second(data: str | None = None) -> None:
            await real(data)
            node.state = ProcessState.DEAD

        node.start_second = start_second  # type: ignore[method-assign]

    node = played("start-twice", ends).cluster.node("n2")
    assert node.state is ProcessState.DEAD
    assert "start" not in node.calls


@pytest.mark.parametrize("state", [ProcessState.DEAD, ProcessState.STOPPED])
def test_no_copy_is_started_of_a_process_that_does_not_run(state: ProcessState) -> None:
    """It would take the dead process's place, unseen by all observers, and keep it from starting again."""

    def does_not_run(node: FakeNode) -> None:
        node.state = state

    play = played("start-twice", does_not_run)
    row = healed(play)
    assert not row.took_effect
    assert "n2: was not running when its copy was to be started" in str(row.detail)
    assert play.cluster.node("n2").copies == []


def test_where_a_copy_cannot_be_had_the_reason_is_given() -> None:
    play = Play(FaultSchedule(1))
    play.cluster.node("n2").no_second = "its event log is not in the command"
    reason = asyncio.run(FAULTS["start-twice"].probe(play.cluster, play.system))
    assert reason == "n2 cannot run a second copy of its process: its event log is not in the command"


@pytest.mark.parametrize("fault", ["wipe", "rollback", "membership-remove"])
def test_faults_that_take_data_leave_the_lock_file_as_it_is(fault: str) -> None:
    def locked(node: FakeNode) -> None:
        node.files[LOCK_FILE] = b"by the first"
        real = node.kill

        async def kill() -> None:
            await real()
            node.files[LOCK_FILE] = b"by a later one"

        node.kill = kill  # type: ignore[method-assign]

    play = played(fault, locked)
    assert healed(play).took_effect
    assert LOCK_FILE in play.cluster.node("n2").files
    if fault == "rollback":
        assert play.cluster.node("n2").files[LOCK_FILE] == b"by a later one"
