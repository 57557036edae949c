"""A simulated node: a host of the network, a disk, a clock, and one main process at a time."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from cluster.node import Node, NodeError, ProcessState, ProcessStatus
from cluster.sim.disk import SimDisk
from cluster.sim.network import Host
from cluster.sim.process import Process

Main = Callable[["SimNode", Process], Coroutine[Any, Any, int]]
"""Makes the main coroutine of a new incarnation."""


@dataclass(frozen=True)
class Crash:
    """A main process that ended by an exception, at ``time`` seconds of virtual time."""

    node: str
    incarnation: str
    time: float
    traceback: str


class EventLog:
    """A node's event lines over all its incarnations, for any number of observers."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False

    def append(self, line: str) -> None:
        self._lines.append(line)
        self._wake()

    def close(self) -> None:
        """Observers come to an end once they have seen all."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def follow(self) -> AsyncIterator[str]:
        position = 0
        while True:
            while position < len(self._lines):
                position += 1
                yield self._lines[position - 1]
            if self._closed:
                return
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future


class SimNode:
    """Satisfies ``cluster.node.Node``. ``clock_offset``: seconds by which its wall clock is wrong."""

    def __init__(
        self, loop: Any, host: Host, role: str, index: int, disk: SimDisk, main: Main, crashes: list[Crash]
    ) -> None:
        self._loop = loop
        self.host = host
        self.disk = disk
        self.clock_offset = 0.0
        self.log = EventLog()
        self.exit_code: int | None = None
        self._role = role
        self._index = index
        self._main = main
        self._crashes = crashes
        self._starts = 0
        self._process: Process | None = None

    def __repr__(self) -> str:
        return f"<SimNode {self.name} {self._process}>"

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def role(self) -> str:
        return self._role

    @property
    def index(self) -> int:
        return self._index

    @property
    def address(self) -> str:
        return self.host.address

    # Files

    async def write_file(self, path: str, data: bytes) -> None:
        self.disk.write(path, data)

    async def read_file(self, path: str) -> bytes:
        return self.disk.read(path)

    # The process

    async def start(self) -> None:
        if self._process is not None and not self._process.dead:
            raise NodeError(f"{self.name}: cannot start its process: {self._process} is alive; kill it first")
        self._starts += 1
        self.exit_code = None
        process = Process(self._loop, self.host, self.name, f"{self.name}.{self._starts}")
        self._process = process
        task = process.spawn(self._main(self, process), name=f"{process.incarnation} main")
        task.add_done_callback(lambda done: self._ended(process, done), context=Context())

    def _ended(self, process: Process, task: asyncio.Task[int]) -> None:
        """The main coroutine returned or raised; what else the process was doing ends with it."""
        if process.dead:
            return
        if task.cancelled():
            self.exit_code = 1
        elif (error := task.exception()) is not None:
            self.exit_code = 1
            text = "".join(traceback.format_exception(error))
            self._crashes.append(Crash(self.name, process.incarnation, self._loop.time(), text))
        else:
            self.exit_code = task.result()
        process.kill()

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def power_loss(self) -> None:
        """The machine loses power: its process is gone, and of its files only what had been fsynced is left."""
        await self.kill()
        self.disk.power_loss()

    async def stop(self) -> None:
        if self._process is None or self._process.dead:
            raise NodeError(f"{self.name}: cannot stop its process: there is none; start it first")
        self._process.stop()

    async def resume(self) -> None:
        """Also when the process was killed meanwhile: a heal finds what it finds."""
        if self._process is not None:
            self._process.resume()

    async def process(self) -> ProcessStatus:
        process = self._process
        if process is None or process.dead:
            return ProcessStatus(ProcessState.DEAD)
        return ProcessStatus(ProcessState.STOPPED if process.stopped else ProcessState.RUNNING, process.incarnation)

    # The network

    async def drop_from(self, peers: Sequence[Node]) -> None:
        for peer in peers:
            if not isinstance(peer, SimNode):
                raise NodeError(f"{self.name}: cannot drop packets from {peer.name}: it is not a simulated node")
            self._loop.network.drop(peer.host, self.host)

    async def accept_all(self) -> None:
        self._loop.network.heal(self.host)

    async def dropped(self) -> Mapping[str, int]:
        return {host.name: count for host, count in self.host.rules.items()}

    def events(self) -> AsyncIterator[str]:
        return self.log.follow()
