"""Which partitions of the offsets topic this broker leads, and so which groups it coordinates."""

import logging
import struct
from collections.abc import Iterator

from kazoo.exceptions import KazooException

from assay.system_under_test.config import OFFSETS_TOPIC
from assay.system_under_test.groups.group import Group, GroupError
from assay.system_under_test.groups.stored import StoredGroups
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes


def java_hash(text: str) -> int:
    """What Java's ``String.hashCode`` gives, as an unsigned number of 32 bits: clients and tools compute it, too."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


def partition_of(group_id: str, partitions: int) -> int:
    return (java_hash(group_id) & 0x7FFFFFFF) % partitions


_log = logging.getLogger("assay.groups")


class GroupTerms:
    """One term for each partition that is led; empty on a broker that leads none."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._led: dict[int, StoredGroups] = {}
        self._partitions = 0
        """Of the offsets topic; 0 while that is not known. Groups belong to one of them by this number, which never
        changes: what the brokers' metadata knows of a topic may be a part of it.
        """

    def __iter__(self) -> Iterator[StoredGroups]:
        return iter(list(self._led.values()))

    def begin(self, stored: StoredGroups) -> None:
        self._led[stored.index] = stored

    def end(self, stored: StoredGroups) -> None:
        stored.end()
        if self._led.get(stored.index) is stored:
            del self._led[stored.index]

    async def count_partitions(self) -> int:
        """How many the offsets topic has; 0 when there is none, or that is not known now."""
        if not self._partitions:
            try:
                found = await znodes.read(self._zookeeper, znodes.TopicAssignment, paths.topic(OFFSETS_TOPIC))
                self._partitions = 0 if found is None else len(found[0].partitions)
            except (KazooException, znodes.ZnodeError) as error:
                _log.info("partitions of %s: %r", OFFSETS_TOPIC, error)
        return self._partitions

    def stored(self, group_id: str) -> StoredGroups:
        """The groups of the partition that this one belongs to. Raises :class:`GroupError`: 14, 15, 16."""
        if not self._partitions:
            raise GroupError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
        stored = self._led.get(partition_of(group_id, self._partitions))
        if stored is None:
            raise GroupError(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        stored.serving()
        return stored

    def group(self, group_id: str) -> Group:
        """For a request of one of its members. Raises :class:`GroupError`: 14, 15, 16, and 25 when there is none."""
        group = self.stored(group_id).groups.get(group_id)
        if group is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group
