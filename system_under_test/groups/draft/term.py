"""The draft's groups of one partition of the offsets topic, while this broker leads that partition.

A term has three states:

- *down*: before the term begins, and after its end
- *catching up*: the groups are read from ZooKeeper, claimed for this term, and their topics' numbers of partitions
  are read
- *ready*: the coordinator serves requests

A coordinator that finds another's write stops at once. It ends all its groups, and waiting clients must look for the
coordinator again. If its term is not over, it catches up again. It then learns what the other wrote, or that the
other's term is later.
"""

import asyncio
import logging
from collections.abc import Coroutine
from enum import StrEnum
from typing import Any

from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.draft.group import DraftGroup, DraftState
from assay.system_under_test.groups.draft.metadata import CoordinatorDisplaced, GroupMetadata, MetadataStore
from assay.system_under_test.groups.draft.topics import PartitionCounts
from assay.system_under_test.groups.group import GroupError, Spawn
from assay.system_under_test.groups.terms import find_partition
from assay.system_under_test.protocol.draft_groups import COORDINATOR_STARTUP_NOT_COMPLETE
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import znodes
from assay.system_under_test.zookeeper.znodes import Versioned

_log = logging.getLogger("assay.groups")


class TermState(StrEnum):
    DOWN = "Down"
    CATCHING_UP = "CatchUp"
    READY = "Ready"


class DraftTerm:
    """A term: leader epoch ``epoch`` in the offsets topic with this czxid. The owner must call :meth:`end`."""

    def __init__(
        self, index: int, epoch: int, zookeeper: ZooKeeper, events: EventLog, spawn: Spawn, topic_czxid: int = 0
    ) -> None:
        self.index = index
        self.epoch = epoch
        self.state = TermState.DOWN
        self.groups: dict[str, DraftGroup] = {}
        self._zookeeper = zookeeper
        self._store = MetadataStore(zookeeper, epoch, topic_czxid)
        self._events = events
        self._background_spawn = spawn
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._unreadable: set[str] = set()
        self._partition_counts = self._new_partition_counts()
        self._partitions = 0
        self._over = False

    # -- life ----------------------------------------------------------------------------------------------------

    def begin(self, partitions: int) -> None:
        """Catches up, with ``partitions`` as the number of partitions of the offsets topic."""
        self._partitions = partitions
        if not self._over:
            self.state = TermState.CATCHING_UP
            self._spawn(self._catch_up(), f"groups of the draft in {self.index}")

    def recount(self, partitions: int) -> None:
        """Starts again if the offsets topic's number of partitions changed, because groups change partitions then."""
        if self._partitions not in (0, partitions):
            self._stop()
            self.begin(partitions)

    def end(self) -> None:
        self._over = True
        self._stop()

    def _stop(self) -> None:
        self.state = TermState.DOWN
        groups, self.groups = self.groups, {}
        for group in groups.values():
            group.end(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        tasks, self._tasks = self._tasks, {}
        for task in tasks:
            task.cancel()
        self._partition_counts = self._new_partition_counts()

    def _displaced(self) -> None:
        if self.state is TermState.DOWN:
            return
        self._events.emit("draft-displaced", value=self.index, epoch=self.epoch)
        self._stop()
        self.begin(self._partitions)

    async def _catch_up(self) -> None:
        loaded: dict[str, Versioned[GroupMetadata]] = {}
        for name in await self._store.names():
            if find_partition(name, self._partitions) != self.index:
                continue
            try:
                found = await self._store.claim(name)
            except CoordinatorDisplaced as error:
                _log.info("partition %d is coordinated by another broker: %s", self.index, error)
                self._stop()
                return
            except znodes.ZnodeError as error:
                _log.error("%s; that group cannot be joined", error)
                self._unreadable.add(name)
                continue
            if found is not None:
                loaded[name] = found
        for name, found in loaded.items():  # together, because their consumers' sessions begin now
            self.groups[name] = self.new_group(name)
            self.groups[name].load(found)
        self.state = TermState.READY
        self._events.emit("draft-loaded", value=len(loaded), epoch=self.epoch, detail={"partition": self.index})
        for group in list(self.groups.values()):
            await group.partitions_changed()

    # -- groups --------------------------------------------------------------------------------------------------

    def require_serving(self) -> None:
        """Raises :class:`GroupError` unless the term serves requests.

        The error is COORDINATOR_STARTUP_NOT_COMPLETE while the term catches up, and NOT_COORDINATOR_FOR_GROUP if this
        broker does not coordinate.
        """
        if self.state is TermState.DOWN:
            raise GroupError(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        if self.state is TermState.CATCHING_UP:
            raise GroupError(COORDINATOR_STARTUP_NOT_COMPLETE)

    def new_group(self, group_id: str) -> DraftGroup:
        """Returns a new, unregistered group. Raises :class:`GroupError`: -1 if its znode cannot be read."""
        if group_id in self._unreadable:
            raise GroupError(ErrorCode.UNKNOWN)
        counts = self._partition_counts
        return DraftGroup(group_id, self._store, counts.read_counts, self._events, self._spawn, self._displaced)

    async def forget(self, group: DraftGroup) -> None:
        """Deletes an empty group. A group that is created later under this name starts its generations again."""
        group.end(COORDINATOR_STARTUP_NOT_COMPLETE)
        try:
            await self._store.delete(group.group_id, group.version)
        except CoordinatorDisplaced:
            self._displaced()
            return
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    def _new_partition_counts(self) -> PartitionCounts:
        return PartitionCounts(self._zookeeper, self._spawn, self._topic_changed, self._wants)

    def _wants(self, topic: str) -> bool:
        return any(group.wants(topic) for group in self.groups.values())

    def _topic_changed(self, topic: str) -> None:
        for group in list(self.groups.values()):
            if group.state is not DraftState.DEAD and group.wants(topic):
                self._spawn(group.partitions_changed(), f"partitions of {group.group_id}")

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Starts a task that ends when the coordinator goes down."""
        task: asyncio.Task[None] = self._background_spawn(coroutine, name)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task
