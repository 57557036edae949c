"""Partitions with a historic defect built in; see ``system_under_test.defects``."""

from __future__ import annotations

from collections.abc import Collection

from system_under_test.replication.partition import Partition


class AckBeforeReplication(Partition):
    """acks=all is answered as soon as the leader itself has the records."""

    def acknowledged(self) -> int:
        return self.log.end_offset


def partition_class(defects: Collection[str]) -> type[Partition]:
    """What the replica manager is to build."""
    return AckBeforeReplication if "ack-before-replication" in defects else Partition
