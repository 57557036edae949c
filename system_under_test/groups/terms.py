"""The terms in which this broker leads partitions of the offsets topic, and so coordinates their groups."""

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kazoo.exceptions import KazooException
from kazoo.protocol.states import WatchedEvent

from assay.system_under_test.config import OFFSETS_TOPIC
from assay.system_under_test.groups.group import Group, GroupError
from assay.system_under_test.groups.stored_groups import StoredGroups
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes


def compute_java_hash(text: str) -> int:
    """Returns Java's ``String.hashCode`` as an unsigned 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


def find_partition(group_id: str, partitions: int) -> int:
    """Returns the partition of the offsets topic that stores the group, computed as in Kafka."""
    return (compute_java_hash(group_id) & 0x7FFFFFFF) % partitions


_log = logging.getLogger("assay.groups")


BACK_OFF: Final = 0.1
"""Seconds before ZooKeeper is asked again."""


class OffsetsTopic(NamedTuple):
    """Identity and size of the offsets topic. ``czxid`` distinguishes topics of the same name."""

    czxid: int
    partitions: int


NO_TOPIC: Final = OffsetsTopic(-1, 0)


class GroupTerms:
    """The terms, one for each partition of the offsets topic that this broker leads. A term has the type
    :class:`StoredGroups`: the groups that the broker coordinates in it.

    The number of partitions is read from ZooKeeper, because a broker's metadata may be incomplete. The topic may be
    deleted in ZooKeeper and created again with another number of partitions. So a term serves only while its partition
    belongs to the topic that was last read.
    """

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._by_partition: dict[int, StoredGroups] = {}
        self._topic: OffsetsTopic | None = None

    def __iter__(self) -> Iterator[StoredGroups]:
        return iter([stored for stored in self._by_partition.values() if self.is_current(stored)])

    def begin(self, stored: StoredGroups) -> None:
        self._by_partition[stored.index] = stored

    def end(self, stored: StoredGroups) -> None:
        stored.end()
        if self._by_partition.get(stored.index) is stored:
            del self._by_partition[stored.index]

    @property
    def partitions(self) -> int | None:
        """The number of partitions of the offsets topic; 0 if that topic does not exist, None if not known yet."""
        return None if self._topic is None else self._topic.partitions

    async def watch_partition_count(self, on_count: Callable[[int], None]) -> None:
        """Watches the number of partitions in ZooKeeper, until it is cancelled.

        ``on_count`` is called with each new number of partitions of the same topic.
        """
        path = paths.topic(OFFSETS_TOPIC)
        changed = asyncio.Event()

        def on_event(_: WatchedEvent) -> None:
            changed.set()

        while True:
            changed.clear()
            try:
                topic = NO_TOPIC
                if (found := await znodes.read_watched(self._zookeeper, path, on_event)) is not None:
                    data, stat = found
                    assignment = znodes.decode(znodes.TopicAssignment, path, data)
                    topic = OffsetsTopic(stat.czxid, len(assignment.partitions))
            except znodes.ZnodeError as error:
                _log.error("%s; the number of partitions is left unchanged", error)
            except KazooException as error:
                _log.info("partitions of %s: %r", OFFSETS_TOPIC, error)
                await asyncio.sleep(BACK_OFF)
                continue
            else:
                self._set_topic(topic, on_count)
            await changed.wait()

    def _set_topic(self, topic: OffsetsTopic, on_count: Callable[[int], None]) -> None:
        before, self._topic = self._topic or NO_TOPIC, topic
        if before == topic:
            return
        _log.info("%s: %s, before: %s", OFFSETS_TOPIC, topic, before)
        if before.czxid == topic.czxid:
            for stored in self:
                moved = [name for name in stored.groups if find_partition(name, topic.partitions) != stored.index]
                stored.end_groups(moved)
            on_count(topic.partitions)

    def is_current(self, stored: StoredGroups) -> bool:
        """Returns whether the partition belongs to the offsets topic that was last read."""
        return self._topic is not None and stored.partition.incarnation == self._topic.czxid

    def get_stored_groups(self, group_id: str) -> StoredGroups:
        """Returns the groups of the partition of ``group_id``.

        Raises :class:`GroupError`: GROUP_LOAD_IN_PROGRESS, GROUP_COORDINATOR_NOT_AVAILABLE or
        NOT_COORDINATOR_FOR_GROUP.
        """
        if not self.partitions:
            raise GroupError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
        stored = self._by_partition.get(find_partition(group_id, self.partitions))
        if stored is None or not self.is_current(stored):
            raise GroupError(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        stored.require_serving()
        return stored

    def get_group(self, group_id: str) -> Group:
        """Returns the group for a member's request. Raises :class:`GroupError`: UNKNOWN_MEMBER_ID if there is none."""
        group = self.get_stored_groups(group_id).groups.get(group_id)
        if group is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group
