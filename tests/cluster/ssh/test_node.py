"""Tests what a node does where a step fails in the middle; the machine is a list of commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.cluster import journal
from assay.cluster.node import CommandResult, NodeError
from assay.cluster.ssh import logs, process
from assay.cluster.ssh.node import SshNode


class Machine:
    """Its processes are as they were last made; what ``fails`` is an error once it has been done."""

    def __init__(self, names: Sequence[str], fails: str = "") -> None:
        self.states = dict.fromkeys(names, "S")
        self.fails = fails

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 0) -> str:
        for named, state in self.states.items():
            ways: Mapping[str, Callable[[str], str]] = {"T": process.stop_command, "S": process.resume_command}
            for after, way in ways.items():
                if command == way(named):
                    self.states[named] = after
            if command == process.status_command(named):
                return f"{state} 1 2"
        if self.fails == ("copy" if command.startswith("rm -rf") else command):
            raise NodeError("n1: the connection broke")
        return ""


class Journal:
    """Journal that keeps nothing."""

    def note_undo(self, node: str, argv: Sequence[str]) -> int:
        return 1

    def mark_done(self, entry: int) -> None:
        pass


def node_on(machine: Machine) -> SshNode:
    connection: Any = machine
    node = SshNode(
        name="n1", role="server", index=1, address="10.0.0.1", connection=connection, executor=ThreadPoolExecutor(1),
        program=lambda node: pytest.fail("nothing is started"), event_log=lambda node: None, undo=Journal(),
    )  # fmt: skip
    node.sidecars = [name for name in machine.states if name != process.MAIN]
    return node


@pytest.mark.parametrize(
    "fails", [process.stop_command("main"), process.stop_command("agent"), "copy", process.resume_command("main")]
)
def test_a_copy_that_cannot_be_made_leaves_no_process_stopped(fails: str) -> None:
    machine = Machine(["main", "agent", "other"], fails)
    with pytest.raises(NodeError, match="the connection broke"):
        asyncio.run(node_on(machine).save("/data"))
    assert machine.states == {"main": "S", "agent": "S", "other": "S"}


def test_a_process_that_was_stopped_before_a_copy_still_is_afterwards() -> None:
    machine = Machine(["main", "agent"])
    machine.states["agent"] = "T"
    asyncio.run(node_on(machine).save("/data"))
    assert machine.states == {"main": "S", "agent": "T"}


class Deeds:
    """The connection and the journal of a node: what was done, in order."""

    def __init__(self, answer: CommandResult | NodeError) -> None:
        self.answer = answer
        self.done_: list[tuple[str, ...]] = []

    def run_to_completion(self, command: str, *, stdin: bytes, timeout: float) -> CommandResult:
        self.done_.append(("run", command))
        if isinstance(self.answer, NodeError):
            raise self.answer
        return self.answer

    def copy_log(self, path: str, local: Path) -> None:
        raise FileNotFoundError

    def note_undo(self, node: str, argv: Sequence[str]) -> int:
        self.done_.append(("note", *argv))
        return len(self.done_)

    def mark_done(self, entry: int) -> None:
        self.done_.append(("tick off", *self.done_[entry - 1][1:]))


def node_of(deeds: Deeds) -> SshNode:
    connection: Any = deeds
    return SshNode(
        name="n1", role="server", index=1, address="10.0.0.1", connection=connection, executor=ThreadPoolExecutor(1),
        program=lambda node: pytest.fail("nothing is started"), event_log=lambda node: None, undo=deeds,
    )  # fmt: skip


def test_a_command_has_its_status_and_output_and_leaves_no_note() -> None:
    deeds = Deeds(CommandResult(3, "said", "warned"))
    node = node_of(deeds)
    assert asyncio.run(node.run(["ls", "a b"])) == CommandResult(3, "said", "warned")
    assert deeds.done_ == [("run", "ls 'a b'")]
    assert node.changes == []


def test_what_takes_a_change_back_is_noted_before_the_change_and_ticked_off_once_it_has_run() -> None:
    deeds = Deeds(CommandResult(0, ""))
    node = node_of(deeds)

    async def body() -> None:
        await node.run("up 1", undo=["down", "all"])
        await node.run("up 2", undo="down all")
        deeds.answer = CommandResult(1, "")
        await node.run("down all")
        deeds.answer = CommandResult(0, "")
        await node.run(["down", "all"])
        await node.run("down all")

    asyncio.run(body())
    note = ("sh", "-c", "down all")
    assert deeds.done_ == [
        ("note", *note), ("run", "up 1"), ("run", "up 2"), ("run", "down all"), ("run", "down all"),
        ("tick off", *note), ("run", "down all"),
    ]  # fmt: skip
    assert [line.partition(" ")[2] for line in node.changes] == [
        "exit status 0: up 1", "exit status 0: up 2", "exit status 1: down all", "exit status 0: down all",
    ]  # fmt: skip


def test_a_change_without_a_way_back_is_noted_as_one_also_where_it_is_not_answered(tmp_path: Path) -> None:
    deeds = Deeds(NodeError("n1: no end after 1 s"))
    node = node_of(deeds)
    for _ in range(2):
        with pytest.raises(NodeError, match="no end"):
            asyncio.run(node.run("forget n2", changes=True, timeout=1))
    assert deeds.done_ == [("note", "true", "not undone:", "forget n2"), *[("run", "forget n2")] * 2]
    system: Any = SimpleNamespace(event_log=lambda node: None, logs=lambda node: ())
    asyncio.run(logs.collect(system, [node], tmp_path))
    kept = (tmp_path / "n1" / logs.COMMANDS).read_text().splitlines()
    assert [line.partition(" ")[2] for line in kept] == ["no answer: forget n2"] * 2


def test_heal_says_what_a_run_has_changed_and_not_taken_back() -> None:
    reach: Any = "10.0.0.1"
    said = journal.describe(journal.RunOnHost(reach, ("true", "not undone:", "forget n2")))
    assert said == "10.0.0.1: true not undone: forget n2"
