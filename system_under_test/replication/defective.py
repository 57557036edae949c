"""Partitions with a historic defect built in; see ``system_under_test.defects``."""

from __future__ import annotations

from collections.abc import Collection

from system_under_test.replication.partition import Partition


class AckBeforeReplication(Partition):
    """acks=all is answered as soon as the leader itself has the records; they reach the followers in the background,
    when these ask the next time, since nobody waits for that.
    """

    def acknowledged(self) -> int:
        return self.log.end_offset

    def replicate(self) -> None:
        """Later."""


def partition_class(defects: Collection[str]) -> type[Partition]:
    """What the replica manager is to build."""
    return AckBeforeReplication if "ack-before-replication" in defects else Partition
