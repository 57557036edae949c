"""Partitions with a historic defect built in; see ``system_under_test.defects``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from system_under_test.replication.partition import LeaderTerm, Partition


class AckBeforeReplication(Partition):
    """acks=all is answered as soon as the leader itself has the records; they reach the followers in the background,
    when these ask the next time, since nobody waits for that.
    """

    def acknowledged(self) -> int:
        return self.log.end_offset

    def replicate(self) -> None:
        """Later."""


class IsrOfOne(Partition):
    """A leader whose followers are away drops them in memory alone, and takes itself for enough."""

    def enough_in_sync(self, term: LeaderTerm) -> bool:
        return True

    def drop(self, term: LeaderTerm, lagging: Sequence[int]) -> None:
        members = term.in_sync.committed.without(lagging, self.config.min_insync_replicas)
        self.isr_written(term, members, term.in_sync.zk_version)


_CLASSES: Mapping[str, type[Partition]] = MappingProxyType(
    {"ack-before-replication": AckBeforeReplication, "isr-of-one": IsrOfOne}
)


def partition_class(defects: Collection[str]) -> type[Partition]:
    """What the replica manager is to build."""
    for name, defective in _CLASSES.items():
        if name in defects:
            return defective
    return Partition
