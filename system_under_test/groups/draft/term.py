"""The draft's groups of one partition of the offsets topic, while this broker leads that partition.

A term has three states:

- *down*: before the term begins, and after its end
- *catching up*: the broker reads the groups from ZooKeeper, claims them for this term, and reads their topics' numbers
  of partitions
- *ready*: the coordinator serves requests

A coordinator that finds a write of another coordinator stops at once. It ends all its groups, and waiting clients must
look for the coordinator again. If its term is not over, it catches up again. Then it reads the other coordinator's
writes, or finds that the other term is later.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kazoo.exceptions import KazooException
from kazoo.protocol.states import WatchedEvent

from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.draft.group import DraftGroup, DraftState
from assay.system_under_test.groups.draft.metadata import BACK_OFF, CoordinatorDisplaced, GroupMetadata, MetadataStore
from assay.system_under_test.groups.group import GroupError, Spawn
from assay.system_under_test.groups.terms import find_partition
from assay.system_under_test.protocol.draft_groups import COORDINATOR_STARTUP_NOT_COMPLETE
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import Versioned

_log = logging.getLogger("assay.groups")


@dataclass
class PartitionCounts:
    """Numbers of partitions of the groups' topics in ZooKeeper, cached.

    - Each topic's znode is watched while a group subscribes to the topic. A missing topic has 0 partitions and is
      watched, too.
    - ``on_change`` is called with each topic whose number of partitions has changed.
    - ``is_wanted`` returns whether a group still subscribes to the topic.
    """

    zookeeper: ZooKeeper
    spawn: Spawn
    on_change: Callable[[str], None]
    is_wanted: Callable[[str], bool]
    _counts: dict[str, int] = field(default_factory=dict)
    _watched: set[str] = field(default_factory=set)
    _refresh_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Returns the number of partitions of each topic, sorted by name. Waits for ZooKeeper."""
        while missing := [topic for topic in sorted(topics) if topic not in self._counts]:
            for topic in missing:
                await self._refresh(topic)
        return {topic: self._counts[topic] for topic in sorted(topics)}

    async def _refresh(self, topic: str) -> None:
        async with self._refresh_lock:
            while True:
                try:
                    count = await self._read(topic)
                    break
                except KazooException as error:
                    _log.info("partitions of %s: %r", topic, error)
                    await asyncio.sleep(BACK_OFF)
            before = self._counts.get(topic)
            self._counts[topic] = count
        if before is not None and before != count:
            self.on_change(topic)

    async def _read(self, topic: str) -> int:
        path = paths.topic(topic)
        watch = None if topic in self._watched else lambda event: self._on_event(topic, event)
        self._watched.add(topic)
        try:
            if await self.zookeeper.exists(path, watch) is None:
                return 0
            found = await znodes.read(self.zookeeper, znodes.TopicAssignment, path)
            return 0 if found is None else len(found[0].partitions)  # None if deleted meanwhile; the watch has fired
        except znodes.ZnodeError as error:
            _log.error("%s; the topic counts as having no partitions", error)
            return 0
        except KazooException:
            self._watched.discard(topic)
            raise

    def _on_event(self, topic: str, _: WatchedEvent) -> None:
        self._watched.discard(topic)
        if self.is_wanted(topic):
            self.spawn(self._refresh(topic), f"partitions of {topic}")
        else:
            self._counts.pop(topic, None)


class TermState(StrEnum):
    DOWN = "Down"
    CATCHING_UP = "CatchUp"
    READY = "Ready"


class DraftTerm:
    """A term: leader epoch ``epoch`` in the offsets topic with ``topic_czxid``. The owner must call :meth:`end`."""

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

    # -- begin and end -------------------------------------------------------------------------------------------

    def begin(self, partitions: int) -> None:
        """Begins to catch up. ``partitions``: the number of partitions of the offsets topic."""
        self._partitions = partitions
        if not self._over:
            self.state = TermState.CATCHING_UP
            self._spawn(self._catch_up(), f"groups of the draft in {self.index}")

    def update_partition_count(self, partitions: int) -> None:
        """Starts again if the offsets topic's number of partitions changed, because that moves groups."""
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

    def _on_displaced(self) -> None:
        if self.state is TermState.DOWN:
            return
        self._events.emit("draft-displaced", value=self.index, epoch=self.epoch)
        self._stop()
        self.begin(self._partitions)

    async def _catch_up(self) -> None:
        loaded: dict[str, Versioned[GroupMetadata]] = {}
        for name in await self._store.list_groups():
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
        for name, found in loaded.items():  # all together, because the consumers' sessions begin now
            self.groups[name] = self.make_group(name)
            self.groups[name].load(found)
        self.state = TermState.READY
        self._events.emit("draft-loaded", value=len(loaded), epoch=self.epoch, detail={"partition": self.index})
        for group in list(self.groups.values()):
            await group.check_partition_counts()

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

    def make_group(self, group_id: str) -> DraftGroup:
        """Returns a new, unregistered group. Raises :class:`GroupError`: UNKNOWN if its znode cannot be read."""
        if group_id in self._unreadable:
            raise GroupError(ErrorCode.UNKNOWN)
        counts = self._partition_counts
        return DraftGroup(group_id, self._store, counts.read_counts, self._events, self._spawn, self._on_displaced)

    async def delete(self, group: DraftGroup) -> None:
        """Deletes an empty group. The generations of a later group of this name start again."""
        group.end(COORDINATOR_STARTUP_NOT_COMPLETE)
        try:
            await self._store.delete(group.group_id, group.version)
        except CoordinatorDisplaced:
            self._on_displaced()
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
                self._spawn(group.check_partition_counts(), f"partitions of {group.group_id}")

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Starts a task that ends when the coordinator goes down."""
        task: asyncio.Task[None] = self._background_spawn(coroutine, name)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task
