"""A simulated node: a host of the network, a disk, a clock, and one main process at a time.

A fault may start a second copy of the main process, and also ends it.
"""

import asyncio
import logging
import traceback
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from assay.cluster.node import (
    CommandResult,
    DiskChange,
    DiskErrorEffects,
    DiskRoom,
    Exhaustion,
    Flow,
    Node,
    NodeError,
    ProcessState,
    ProcessStatus,
    Slowed,
    Traffic,
)
from assay.cluster.second_copy import SECOND_COPY, SecondCopyStatus
from assay.cluster.sim.disk import FolderSnapshot, SimDisk
from assay.cluster.sim.disk_faults import DiskRejectionError
from assay.cluster.sim.host import SimHost
from assay.cluster.sim.process import Process

MEMORY_PRESSURE = 0.3
"""Seconds from the shortage of memory until the kernel kills a process."""
TERMINATE_SECONDS = 15.0
"""Maximum seconds of virtual time until a process that was asked to end has ended."""
POLL_SECONDS = 0.01
"""Seconds between two checks whether a process has ended, if its last step has stopped it."""

PROBE_BYTES = 4096
"""Size of the write that is tried when a disk is examined."""

Main = Callable[["SimNode", Process], Coroutine[Any, Any, int]]
"""Creates the main coroutine of a new incarnation."""

_log = logging.getLogger("assay.sim")


@dataclass(frozen=True)
class Crash:
    """A main process that ended by an exception, at ``time`` seconds of virtual time.

    ``expected``: whether the process was asked to end, or its disk had rejected a change.
    """

    node: str
    incarnation: str
    time: float
    traceback: str
    expected: bool = False
    error: BaseException | None = None


BLOCK_LINES: Final = 1000
"""Number of event lines that are compressed together."""


class NodeEventLog:
    """A node's event lines over all its incarnations, for any number of observers.

    Whole blocks of lines are compressed, because a long run has many lines and late observers need all of them.
    """

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._lines: list[str] = []
        """The lines that are in no block yet."""
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False
        self._on_line: Callable[[str], None] | None = None

    def append(self, line: str) -> None:
        self._lines.append(line)
        if len(self._lines) == BLOCK_LINES:
            self._blocks.append(zlib.compress("\n".join(self._lines).encode()))
            self._lines = []
        self._wake()
        if self._on_line is not None:
            self._on_line(line)

    def watch(self, on_line: Callable[[str], None]) -> None:
        """Calls ``on_line`` with each existing line, and with each new line as soon as the process writes it."""
        position = 0
        while lines := self._read(position):
            for line in lines:
                on_line(line)
            position += len(lines)
        self._on_line = on_line

    def close(self) -> None:
        """Ends the observers once they have read all lines."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _read(self, position: int) -> list[str]:
        """Returns the lines from the number ``position`` to the end of its block; none if there is no such line yet."""
        block, first = divmod(position, BLOCK_LINES)
        if block < len(self._blocks):
            return zlib.decompress(self._blocks[block]).decode().split("\n")[first:]
        return self._lines[first:]

    async def follow(self) -> AsyncIterator[str]:
        position = 0
        while True:
            while lines := self._read(position):
                for line in lines:
                    position += 1
                    yield line
            if self._closed:
                return
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future


class SimNode:
    """A simulated node. Satisfies ``assay.cluster.node.Node``.

    ``clock_offset``: seconds by which the node's wall clock is ahead.
    """

    def __init__(
        self, loop: Any, host: SimHost, role: str, index: int, disk: SimDisk, main: Main, crashes: list[Crash]
    ) -> None:
        self._loop = loop
        self.host = host
        self.disk = disk
        self.clock_offset = 0.0
        self.log = NodeEventLog()
        self.exit_code: int | None = None
        self.losses = 0
        """How often its files were rolled back or lost data while it had no process."""
        self.damaged = False
        """Whether a fault has changed its files."""
        self.role = role
        self.index = index
        self._main = main
        self._crashes = crashes
        self._asked_to_end = False
        self._began = 0.0
        self._starts = 0
        self._process: Process | None = None
        self._task: asyncio.Task[int] | None = None
        self._stopped_before_freeze = False
        self._saved: FolderSnapshot | None = None
        self.second_events: list[str] = []
        """The event lines of all second copies; no observer reads them."""
        self._second_starts = 0
        self._second_process: Process | None = None
        self._second_exit_code: int | None = None

    def __repr__(self) -> str:
        return f"<SimNode {self.name} {self._process}>"

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def address(self) -> str:
        return self.host.address

    # Files

    async def write_file(self, path: str, data: bytes) -> None:
        self._require_reachable()
        if not path.startswith("/"):
            # A real node would look for it in a home folder.
            raise NodeError(f"{self.name}: {path!r} is not an absolute path")
        self.disk.write(path, data)

    async def read_file(self, path: str) -> bytes:
        self._require_reachable()
        return self.disk.read(path)

    async def run(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 30.0,
        changes: bool = False,
        undo: str | Sequence[str] | None = None,
    ) -> CommandResult:
        raise NodeError(
            f"{self.name} is simulated and has no programs, so {command!r} cannot run there: take --cluster=docker"
        )

    async def find_files(self, pattern: str) -> Mapping[str, int]:
        self._require_reachable()
        return self.disk.sizes(pattern)

    async def read_range(self, path: str, position: int, size: int) -> bytes:
        self._require_reachable()
        return self.disk.read(path)[position : position + size]

    async def write_range(self, path: str, position: int, data: bytes) -> None:
        content = bytearray(self._read_to_damage(path))
        if position > len(content):
            raise NodeError(f"{self.name}: {path} has {len(content)} bytes, none at {position} to be overwritten")
        content[position : position + len(data)] = data
        self.disk.write(path, bytes(content))

    async def truncate_file(self, path: str, size: int) -> None:
        self.disk.write(path, self._read_to_damage(path)[:size])

    def _read_to_damage(self, path: str) -> bytes:
        self._require_dead(path)
        self.damaged = True
        return self.disk.read(path)

    def _require_dead(self, path: str) -> None:
        self._require_reachable()
        for process in (self._process, self._second_process):
            if process is not None and not process.dead:
                raise NodeError(f"{self.name}: cannot change {path} while {process} is alive; kill it first")

    # The process

    async def start(self) -> None:
        self._require_reachable()
        if self._process is not None and not self._process.dead:
            raise NodeError(f"{self.name}: cannot start its process: {self._process} is alive; kill it first")
        self._starts += 1
        self.exit_code = None
        self._asked_to_end = False
        self._began = self._loop.time()
        self._process = Process(self._loop, self.host, self.name, f"{self.name}.{self._starts}")
        self._task = self._spawn_main(self._process)

    def _spawn_main(self, process: Process) -> asyncio.Task[int]:
        process.on_exit = partial(self._set_exit_code, process)
        task = process.spawn(self._main(self, process), name=f"{process.incarnation} main")
        task.add_done_callback(lambda done: self._finish(process, done), context=Context())
        return task

    def event_writer(self, process: Process) -> Callable[[str], None]:
        """Returns the function that takes the process's event lines."""
        return self.second_events.append if process is self._second_process else self.log.append

    def _finish(self, process: Process, task: asyncio.Task[int]) -> None:
        """Ends the process after its main coroutine has returned or raised, and records the exit code or the error.

        An error of a second copy is only logged. It does not count as a crash of the system.
        """
        if process.dead:
            return
        if process.stopped:  # its last step has stopped it, so it ends after the resume
            process.call_after_resume(self._finish, process, task)
            return
        error = None if task.cancelled() else task.exception()
        exit_code = 1 if task.cancelled() or error is not None else task.result()
        self._set_exit_code(process, exit_code)
        if error is not None:
            if process is self._second_process:
                process.context.copy().run(_log.error, "ended by an exception", exc_info=error)
            else:
                text = "".join(traceback.format_exception(error))
                expected = self._asked_to_end or isinstance(error, DiskRejectionError)
                self._crashes.append(Crash(self.name, process.incarnation, self._loop.time(), text, expected, error))
        process.kill()

    def _set_exit_code(self, process: Process, code: int) -> None:
        if process is self._second_process:
            self._second_exit_code = code
        else:
            self.exit_code = code

    @property
    def alive_since(self) -> float | None:
        """Start of the living process, in seconds of the loop's time; None if there is none."""
        return None if self._process is None or self._process.dead else self._began

    @property
    def running(self) -> bool:
        """Whether there is a process that is not stopped."""
        return self._process is not None and self._process.running

    async def kill(self) -> None:
        self._require_reachable()
        if self._process is not None:
            self._process.kill()

    async def terminate(self) -> None:
        """Cancels the main task, as the signal handler of a real process does."""
        self._require_reachable()
        process, task = self._process, self._task
        if process is None or task is None or process.dead:
            raise NodeError(f"{self.name}: cannot terminate its process: there is none; start it first")
        self._asked_to_end = True
        task.cancel()
        deadline = self._loop.time() + TERMINATE_SECONDS
        await asyncio.wait([task], timeout=TERMINATE_SECONDS)
        while not process.dead:
            if self._loop.time() < deadline:
                await asyncio.sleep(POLL_SECONDS)
                continue
            raise NodeError(f"{self.name}: {process} did not end within {TERMINATE_SECONDS:g} s of being asked to")

    async def freezing_unavailable(self) -> str | None:
        return None

    async def memory_unavailable(self) -> str | None:
        return None

    async def exhaust_memory(self) -> Exhaustion:
        """Simulates exhaustion: the process blocks as if under memory pressure, and is killed."""
        self._require_reachable()
        if self._process is None or self._process.dead:
            raise NodeError(f"{self.name}: no process to kill for lack of memory; start it first")
        self._process.wait(MEMORY_PRESSURE)
        await asyncio.sleep(MEMORY_PRESSURE)
        await self.kill()
        return Exhaustion(limit=0, taken=0, ended=1)

    # A second copy of the main process

    def second_unavailable(self) -> str | None:
        return None

    async def start_second(self, data: str | None = None) -> None:
        """Starts the copy. All its changes of the disk are counted, not only those in the folder ``data``."""
        self._require_reachable()
        if self._second_process is not None and not self._second_process.dead:
            raise NodeError(f"{self.name}: {self._second_process} is alive; end it first")
        self._second_starts += 1
        self._second_exit_code = None
        incarnation = f"{self.name}.{SECOND_COPY}.{self._second_starts}"
        self._second_process = Process(self._loop, self.host, f"{self.name}/{SECOND_COPY}", incarnation)
        self.disk.slowness.second = self._second_process
        self._spawn_main(self._second_process)

    async def second(self) -> SecondCopyStatus:
        self._require_reachable()
        process = self._second_process
        if process is None:
            raise NodeError(f"{self.name}: no second copy of its process was started")
        changes = self.disk.failure_plan.counted[process]
        return SecondCopyStatus(process.incarnation, not process.dead, self._second_exit_code, changes)

    async def end_second(self) -> None:
        if self._second_process is not None:
            self._second_process.kill()

    # The disk

    async def fill_disk(self) -> None:
        self._require_reachable()
        self.disk.capacity = self.disk.used

    async def free_disk(self) -> None:
        self._require_reachable()
        self.disk.capacity = None

    async def room(self) -> DiskRoom:
        self._require_reachable()
        return DiskRoom(self.disk.free, self.disk.free < PROBE_BYTES)

    def own_disk_unavailable(self) -> str | None:
        return None

    async def unsynced(self, pattern: str) -> Mapping[str, int]:
        """Maps each matching file with bytes that a power loss could take to the number of these bytes."""
        return {path: size for path in await self.find_files(pattern) if (size := self.disk.state(path).unsynced)}

    def slowness_unavailable(self) -> str | None:
        return None

    async def slow_disk(self, fsync: float, call: float = 0.0) -> None:
        self._require_reachable()
        self.disk.slowness.fsync, self.disk.slowness.call = fsync, call

    async def halt_in_fsync(self, after: float) -> None:
        self._require_reachable()
        self.disk.slowness.halt = after
        if not after:
            await self.resume()

    async def read_disk_delays(self) -> Slowed:
        is_halted = (await self.process()).state is ProcessState.STOPPED
        return replace(self.disk.slowness.so_far, is_halted=is_halted)

    async def break_disk(
        self, changes: Collection[DiskChange], after: int = 0, errors: int = 1, *, after_change: bool = False
    ) -> None:
        self._require_reachable()
        plan = self.disk.failure_plan
        plan.changes, plan.after, plan.errors, plan.after_change = frozenset(changes), after, errors, after_change

    async def read_disk_errors(self) -> DiskErrorEffects:
        self._require_reachable()
        return self.disk.failure_plan.so_far

    async def cut_power(self) -> Mapping[str, int]:
        """Cuts the power: the process is gone, and only fsynced data of its files survive."""
        await self.kill()
        await self.end_second()
        self.losses += 1
        before = {path: len(self.disk.read(path)) for path in self.disk.files()}
        self.disk.cut_power()
        after = {path: len(self.disk.read(path)) for path in self.disk.files()}
        return {path: size - after.get(path, 0) for path, size in before.items() if size > after.get(path, 0)}

    async def contents(self, folder: str, kept: Collection[str] = ()) -> Mapping[str, str]:
        self._require_reachable()
        return self.disk.snapshot(folder, kept).sums

    async def remove_contents(self, folder: str, kept: Collection[str] = ()) -> None:
        self._require_dead(folder)
        self.losses += 1
        self.disk.wipe(folder, kept)

    async def save(self, folder: str, kept: Collection[str] = ()) -> Mapping[str, str]:
        self._require_reachable()
        self._saved = self.disk.snapshot(folder, kept)
        return self._saved.sums

    async def restore(self, folder: str, kept: Collection[str] = ()) -> None:
        self._require_dead(folder)
        if self._saved is None:
            raise NodeError(f"{self.name}: there is no copy of {folder}; save it first")
        self.losses += 1
        self.disk.roll_back(self._saved, kept)

    async def discard(self, folder: str) -> None:
        self._saved = None

    async def shaping_unavailable(self) -> str | None:
        return None

    async def shape(self, traffic: Traffic | None, peers: Sequence[Node] | None = None) -> None:
        self._require_reachable()
        self._loop.network.shape(self.host, traffic, None if peers is None else self._hosts(peers))

    async def shaped(self) -> Mapping[str, int]:
        self._require_reachable()
        return {} if self.host.shaping is None else dict(self.host.shaping.counts)

    async def shift_clock(self, seconds: float) -> None:
        self._require_reachable()
        self.clock_offset = seconds

    async def clock_shift(self) -> float:
        self._require_reachable()
        return self.clock_offset

    async def stop(self) -> None:
        self._require_reachable()
        if self._process is None or self._process.dead:
            raise NodeError(f"{self.name}: cannot stop its process: there is none; start it first")
        self._process.stop()

    async def resume(self) -> None:
        """Continues the process. It is no error if the process is dead, because a heal accepts any state."""
        self._require_reachable()
        if self._process is not None:
            self._process.resume()

    async def freeze(self) -> None:
        self._require_reachable()
        self._loop.network.freeze(self.host)
        if self._process is not None:
            self._stopped_before_freeze = self._process.suspended
            self._process.stop()

    async def thaw(self) -> None:
        if not self.host.frozen:
            return
        self._loop.network.thaw(self.host)
        if self._process is not None and not self._stopped_before_freeze:
            self._process.resume()

    async def frozen(self) -> bool:
        return self.host.frozen

    def _require_reachable(self) -> None:
        """Rejects calls to a frozen machine."""
        if self.host.frozen:
            raise NodeError(f"{self.name} is frozen; thaw it first")

    async def process(self) -> ProcessStatus:
        self._require_reachable()
        process = self._process
        if process is None or process.dead:
            return ProcessStatus(ProcessState.DEAD)
        return ProcessStatus(ProcessState.STOPPED if process.suspended else ProcessState.RUNNING, process.incarnation)

    # The network

    async def drop_from(self, peers: Sequence[Node], flow: Flow | None = None) -> None:
        for host in self._hosts(peers):
            if flow is None:
                self._loop.network.drop(host, self.host)
            else:
                self._loop.network.add_flow_rule(host, self.host, flow, rejects=False)

    async def reject_from(self, peers: Sequence[Node], flow: Flow | None = None) -> None:
        for host in self._hosts(peers):
            if flow is None:
                self._loop.network.reject(host, self.host)
            else:
                self._loop.network.add_flow_rule(host, self.host, flow, rejects=True)

    def _hosts(self, peers: Sequence[Node]) -> list[SimHost]:
        self._require_reachable()
        hosts = []
        for peer in peers:
            if not isinstance(peer, SimNode):
                raise NodeError(f"{self.name}: cannot filter packets of {peer.name}: it is not a simulated node")
            hosts.append(peer.host)
        return hosts

    async def accept_all(self) -> None:
        self._require_reachable()
        self._loop.network.heal(self.host)

    async def dropped(self) -> Mapping[str, int]:
        self._require_reachable()
        flows = {f"{rule.source.name}{rule.flow}": rule.count for rule in self.host.flows}
        return {**{host.name: count for host, count in self.host.rules.items()}, **flows}

    def events(self) -> AsyncIterator[str]:
        return self.log.follow()
