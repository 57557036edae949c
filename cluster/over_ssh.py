"""Base of the clusters whose nodes are reached by SSH: their start and their end.

Blocking libraries (the Docker SDK, paramiko) run in the cluster's own threads, which end with it. Everything is written
to the undo journal before it is created.

Steps on several nodes run concurrently, and none is left running after a failure.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from assay.cluster import journal as undo
from assay.cluster import owner, zookeeper
from assay.cluster.checked_hooks import read_files
from assay.cluster.ssh import logs
from assay.cluster.ssh.node import SshNode
from assay.cluster.system import ZOOKEEPER_ROLE, System

T = TypeVar("T")

WORKERS = 48


class SshCluster(ABC):
    """See :class:`assay.cluster.node.Cluster`. A subclass defines how a cluster is set up and removed."""

    kind: str

    def __init__(
        self, system: System, *, run_id: str, seed: int, state_dir: Path, progress: Callable[[str], None]
    ) -> None:
        self._system = system
        self.run_id = run_id
        self._seed = seed
        self._state = state_dir
        self._progress = progress
        self._owner = owner.current_owner()
        self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="assay-nodes")
        self._journal: undo.UndoJournal | None = None
        self._made: list[SshNode] = []
        self._files: dict[str, Sequence[str]] = {}
        """Paths of the files that each node was given."""
        self._closed = False
        self.description: dict[str, str] = {}

    @property
    def nodes(self) -> Sequence[SshNode]:
        return self._made

    @property
    def spares(self) -> Sequence[SshNode]:
        """Empty, unless a kind of cluster has spares."""
        return ()

    @abstractmethod
    async def _set_up(self) -> None:
        """Creates the journal first, then the nodes."""

    @abstractmethod
    def _undo(self, actions: Sequence[undo.Action]) -> list[str]:
        """Undoes the journal's actions. Returns the errors."""

    async def start(self) -> None:
        """Sets the cluster up. After an error it removes what exists already, and raises the error again.

        Failures of that removal are reported as progress.
        """
        try:
            await self._set_up()
        except BaseException:
            try:
                await self.close()
            except Exception as left:  # noqa: BLE001 - users must first see why the cluster did not start
                self._progress(str(left))
            raise

    async def close(self) -> None:
        """Removes everything that was created.

        Failed removals stay in the journal and are raised as an error of the subclass.
        """
        if self._closed:
            return
        self._closed = True
        failed: list[str] = []
        try:
            await self._disconnect()
        finally:
            await asyncio.to_thread(self._executor.shutdown)  # running calls must end before the undo begins
            if (journal := self._journal) is not None:
                actions = [action for _, action in undo.read_journal(journal.path).actions]
                failed = await asyncio.to_thread(self._undo, actions)
                journal.close(finished=not failed)
        if failed:
            raise self._left("; ".join(failed) + "; `assay heal` tries again")

    @abstractmethod
    def _left(self, what: str) -> Exception:
        """Returns the error that lists what was not removed."""

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
        return await logs.collect(self._system, self._made, folder)

    def _provided(self, node: SshNode) -> Mapping[str, bytes]:
        """Returns the files that a node needs, by path."""
        return (
            zookeeper.server_files(node, self) if node.role == ZOOKEEPER_ROLE else read_files(self._system, node, self)
        )

    async def _write(self, node: SshNode, files: Mapping[str, bytes]) -> None:
        for path, data in sorted(files.items()):
            await node.write_file(path, data)
        self._files[node.name] = tuple(files)

    async def _disconnect(self) -> None:
        await asyncio.gather(*(node.close() for node in self._made))

    async def _call(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


async def gather_all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Awaits all calls to their end, then raises the first error.

    No step of a failed start may still run when the start is undone.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done
