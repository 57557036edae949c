"""Base class of clusters whose nodes are reached by SSH: their start and their end.

Blocking libraries (the Docker SDK, paramiko) run in the cluster's own threads, which end with the cluster. Every object
is written to the undo journal before it is created. Steps on several nodes run concurrently. After a failure, the start
waits until all other steps have ended.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from assay.cluster import journal as undo_journal
from assay.cluster import owner, zookeeper
from assay.cluster.checked_methods import get_stop_signal, get_system_files
from assay.cluster.naming import PlannedNode
from assay.cluster.node import Node, NodeError
from assay.cluster.slow_steps import note_if_slow
from assay.cluster.ssh import logs
from assay.cluster.ssh.clock_offset import ClockOffset, measure_clock_offset
from assay.cluster.ssh.connection import SshConnection
from assay.cluster.ssh.node import Freezer, SshNode
from assay.cluster.ssh.node_processes import Program
from assay.cluster.system import ZOOKEEPER_ROLE, System

T = TypeVar("T")

MAX_THREADS = 48
CLOCKS, CLOCKS_AT_END = "clocks", "clocks at the end"
"""Keys of a cluster's description: how far the nodes' wall clocks are ahead."""
MAX_TOLERATED_OFFSET = 1.0
"""Greatest offset of a wall clock, in seconds, that is not reported as wrong. Checks tolerate it."""


@dataclass(frozen=True)
class NodeUndoLog:
    """Writes the undo commands of nodes to the journal.

    ``to_action`` returns the journal's action for a node's name and an undo command.
    """

    journal: undo_journal.UndoJournal
    to_action: Callable[[str, Sequence[str]], undo_journal.Action]

    def note_undo(self, node: str, argv: Sequence[str]) -> int:
        return self.journal.append(self.to_action(node, argv))

    def mark_done(self, entry: int) -> None:
        self.journal.mark_done(entry)


class SshCluster(ABC):
    """See :class:`assay.cluster.node.Cluster`. A subclass defines how a cluster is set up and removed."""

    kind: str
    leftover_error: type[Exception]
    """Type of the error that ``close`` raises if something was not removed."""

    def __init__(
        self, system: System, *, run_id: str, seed: int, state_dir: Path, progress: Callable[[str], None]
    ) -> None:
        self._system = system
        self.run_id = run_id
        self._seed = seed
        self._state = state_dir
        self._progress = progress
        self._owner = owner.current_owner()
        self._executor = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="assay-nodes")
        self._journal: undo_journal.UndoJournal | None = None
        self._all_nodes: list[SshNode] = []
        self._files: dict[str, Sequence[str]] = {}
        """Paths of the files that were written to each node."""
        self._closed = False
        self.description: dict[str, str] = {}
        self._offsets: dict[str, ClockOffset] = {}
        """Offsets at the start, by machine."""
        self.clock_difference = 0.0
        """Greatest difference of two wall clocks that was measured, in seconds; 0 before the first measurement."""

    @property
    def nodes(self) -> Sequence[SshNode]:
        return self._all_nodes

    @property
    def spares(self) -> Sequence[SshNode]:
        """Empty, unless a kind of cluster has spares."""
        return ()

    @abstractmethod
    async def _set_up(self) -> None:
        """Creates the journal first, then the nodes."""

    @abstractmethod
    def _make_program(self, node: Node) -> Program:
        """Returns the command and the settings of a node's main process, with its sidecars."""

    def _create_node(
        self,
        item: PlannedNode,
        address: str,
        connection: SshConnection,
        undo_log: NodeUndoLog,
        freezer: Freezer | None = None,
    ) -> SshNode:
        return SshNode(
            name=item.name,
            role=item.role,
            index=item.index,
            address=address,
            connection=connection,
            executor=self._executor,
            program=self._make_program,
            event_log=self._system.event_log,
            undo=undo_log,
            freezer=freezer,
            stop_signal=get_stop_signal(self._system, item.role),
        )

    @abstractmethod
    def _undo(self, actions: Sequence[undo_journal.Action]) -> list[str]:
        """Undoes the journal's actions. Returns the errors."""

    async def start(self) -> None:
        """Sets the cluster up. After an error it removes everything that was created, and raises the error again.

        Errors of the removal are reported as progress.
        """
        try:
            await self._set_up()
            with self._step("measuring the clocks of the nodes"):
                await self._start_clocks()
        except BaseException:
            try:
                await self.close()
            except Exception as removal_error:  # noqa: BLE001 - users must first see why the cluster did not start
                self._progress(str(removal_error))
            raise

    async def _start_clocks(self) -> None:
        """Measures the nodes' clocks when all nodes are set up."""
        offsets = await self._measure_clocks()
        for node, (_, offset) in zip(self._all_nodes, offsets, strict=True):
            node.monotonic_ahead, node.wall_ahead = offset.monotonic_ahead, offset.wall_ahead
        self.description[CLOCKS] = _describe_clocks(offsets)
        self.clock_difference = _find_clock_difference(offsets)
        for name, offset in dict(offsets).items():
            if abs(offset.wall_ahead) > MAX_TOLERATED_OFFSET:
                self._progress(
                    f"the clock of {name} is wrong: {offset} ahead of this machine's. Set it right, because checks "
                    "of retention compare the times of both, and overlook deletions that came too early by as much"
                )
        self._offsets = dict(offsets)

    async def measure_clocks_again(self) -> None:
        """Adds to the description how far the clocks are ahead at the end of the run. Never raises a node's error.

        Reports as progress each clock whose offset has changed since the start.
        """
        try:
            offsets = await self._measure_clocks()
        except (NodeError, OSError) as error:
            self.description[CLOCKS_AT_END] = f"unknown: {error}"
            return
        self.description[CLOCKS_AT_END] = _describe_clocks(offsets)
        self.clock_difference = max(self.clock_difference, _find_clock_difference(offsets))
        for name, offset in dict(offsets).items():
            if (before := self._offsets.get(name)) is not None and offset.has_changed(before):
                self._progress(
                    f"the clocks of {name} have changed during the run, from {before} to {offset} ahead of this "
                    "machine's: the times of its events and lines are wrong by as much"
                )

    async def _measure_clocks(self) -> Sequence[tuple[str, ClockOffset]]:
        """Returns, for each node, the name of its machine and the offset of that machine's clocks.

        Here each node is a machine of its own. A subclass whose nodes share a machine overrides this method.
        """
        offsets = await gather_all(measure_clock_offset(node.shell) for node in self._all_nodes)
        return [(node.name, offset) for node, offset in zip(self._all_nodes, offsets, strict=True)]

    async def close(self) -> None:
        """Removes everything that was created.

        Failed removals stay in the journal and are raised as an error of the subclass.
        """
        if self._closed:
            return
        self._closed = True
        failed: list[str] = []
        try:
            with self._step("disconnecting from the nodes"):
                await self._disconnect()
        finally:
            with self._step("waiting for the last commands on the nodes"):
                await asyncio.to_thread(self._executor.shutdown)  # running calls must end before the undo begins
            if (journal := self._journal) is not None:
                actions = [action for _, action in undo_journal.read_journal(journal.path).actions]
                with self._step("removing the cluster"):
                    failed = await asyncio.to_thread(self._undo, actions)
                journal.close(finished=not failed)
        if failed:
            raise self.leftover_error(f"not undone: {'; '.join(failed)}; `assay heal` tries again")

    async def keep(self) -> None:
        """Replaces :meth:`close`: leaves nodes and processes for the user to look at, until ``assay heal``."""
        if self._closed:
            return
        self._closed = True
        await self._disconnect()
        if self._journal is not None:
            self._journal.keep()
            self._journal.close(finished=False)
        await asyncio.to_thread(self._executor.shutdown)

    async def collect_logs(self, folder: Path) -> list[str]:
        """Copies each node's process, system and event logs to ``folder/NODE/NAME``. Returns the unavailable ones."""
        return await logs.collect(self._system, self._all_nodes, folder)

    def _files_for(self, node: SshNode) -> Mapping[str, bytes]:
        """Returns the files that a node needs, by path."""
        return (
            zookeeper.server_files(node, self)
            if node.role == ZOOKEEPER_ROLE
            else get_system_files(self._system, node, self)
        )

    async def _write_files(self, node: SshNode, files: Mapping[str, bytes]) -> None:
        for path, data in sorted(files.items()):
            await node.write_file(path, data)
        self._files[node.name] = tuple(files)

    async def _disconnect(self) -> None:
        await asyncio.gather(*(node.close() for node in self._all_nodes))

    def _step(self, what: str, *, is_slow: bool = False) -> AbstractContextManager[None]:
        """Shows a step as progress if it takes long. ``is_slow``: at once."""
        return note_if_slow(self._progress, what, is_slow=is_slow)

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


def _find_clock_difference(offsets: Sequence[tuple[str, ClockOffset]]) -> float:
    """Returns the greatest difference, in seconds, between two wall clocks: of nodes, and of this machine."""
    ahead = [0.0, *(offset.wall_ahead for _, offset in offsets)]
    return max(ahead) - min(ahead)


def _describe_clocks(offsets: Sequence[tuple[str, ClockOffset]]) -> str:
    """Describes each machine once."""
    return ", ".join(f"{name} {offset}" for name, offset in dict(offsets).items())


async def gather_all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Waits until all calls have ended, and then raises the first error.

    If a start fails, none of its steps may still run when it is undone.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done
