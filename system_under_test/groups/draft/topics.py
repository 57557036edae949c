"""Numbers of partitions of the groups' topics in ZooKeeper, with a notice of every change.

Each topic's znode is watched while a group subscribes to the topic. A missing topic has 0 partitions and is watched,
too.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kazoo.exceptions import KazooException
from kazoo.protocol.states import WatchedEvent

from assay.system_under_test.groups.draft.metadata import BACK_OFF
from assay.system_under_test.groups.group import Spawn
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.groups")


@dataclass
class PartitionCounts:
    """Cached numbers of partitions.

    ``on_change`` is called with each topic whose number differs from the last known one. ``wanted`` returns whether a
    group still subscribes to the topic.
    """

    zookeeper: ZooKeeper
    spawn: Spawn
    on_change: Callable[[str], None]
    wanted: Callable[[str], bool]
    _counts: dict[str, int] = field(default_factory=dict)
    _watched: set[str] = field(default_factory=set)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Returns the number of partitions of each topic, sorted by name. Waits for ZooKeeper."""
        while missing := [topic for topic in sorted(topics) if topic not in self._counts]:
            for topic in missing:
                await self._look(topic)
        return {topic: self._counts[topic] for topic in sorted(topics)}

    async def _look(self, topic: str) -> None:
        async with self._looking:
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
        watch = None if topic in self._watched else lambda event: self._fired(topic, event)
        self._watched.add(topic)
        try:
            if await self.zookeeper.exists(path, watch) is None:
                return 0
            found = await znodes.read(self.zookeeper, znodes.TopicAssignment, path)
            return 0 if found is None else len(found[0].partitions)  # None if deleted meanwhile; the watch has fired
        except znodes.ZnodeError as error:
            _log.error("%s; the topic counts as one without partitions", error)
            return 0
        except KazooException:
            self._watched.discard(topic)
            raise

    def _fired(self, topic: str, _: WatchedEvent) -> None:
        self._watched.discard(topic)
        if self.wanted(topic):
            self.spawn(self._look(topic), f"partitions of {topic}")
        else:
            self._counts.pop(topic, None)
