"""What a node does where a step fails in the middle; the machine is a list of commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from assay.cluster.node import NodeError
from assay.cluster.ssh import process
from assay.cluster.ssh.node import SshNode


class Machine:
    """Its processes are as they were last made; what ``fails`` is an error once it has been done."""

    def __init__(self, names: Sequence[str], fails: str = "") -> None:
        self.states = dict.fromkeys(names, "S")
        self.fails = fails

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 0) -> str:
        for named, state in self.states.items():
            ways: Mapping[str, Callable[[str], str]] = {"T": process.stop, "S": process.resume}
            for after, way in ways.items():
                if command == way(named):
                    self.states[named] = after
            if command == process.look(named):
                return f"{state} 1 2"
        if self.fails == ("copy" if command.startswith("rm -rf") else command):
            raise NodeError("n1: the connection broke")
        return ""


class Journal:
    """Of no interest here."""

    def command(self, node: str, argv: Sequence[str]) -> int:
        return 1

    def done(self, entry: int) -> None:
        pass


def node_on(machine: Machine) -> SshNode:
    connection: Any = machine
    node = SshNode(
        name="n1", role="server", index=1, address="10.0.0.1", connection=connection, executor=ThreadPoolExecutor(1),
        program=lambda node: pytest.fail("nothing is started"), event_log=lambda node: None, undo=Journal(),
    )  # fmt: skip
    node.beside = [name for name in machine.states if name != process.MAIN]
    return node


@pytest.mark.parametrize("fails", [process.stop("main"), process.stop("agent"), "copy", process.resume("main")])
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
