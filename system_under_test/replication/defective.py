"""Partitions with a historic defect built in; see ``assay.system_under_test.defects``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from assay.system_under_test.protocol.internal import EpochAnswer
from assay.system_under_test.replication.partition import LeaderTerm, Partition


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


class TruncateToHighWatermark(Partition):
    """A follower cuts its log to its own high watermark, which it learns one fetch later than the leader."""

    def parting(self, answer: EpochAnswer) -> tuple[int, bool]:
        return min(self.high_watermark, self.log.end_offset), True


class HighWatermarkLost(TruncateToHighWatermark):
    """A checkpoint names only what is led at that moment; the high watermark of anything else is 0 after a restart,
    and so is the follower's log.
    """

    def noted_mark(self) -> int:
        return 0 if self.leader is None else self.high_watermark


class DivergentTail(Partition):
    """A follower compares lengths alone: it cuts what the leader's log is too short for, and goes on at its own end."""

    def parting(self, answer: EpochAnswer) -> tuple[int, bool]:
        if answer.epoch == self.epochs.latest() == max(entry.epoch for entry in answer.history):
            return min(answer.end_offset, self.log.end_offset), True
        self.epochs.replace(
            (entry.epoch, entry.start_offset) for entry in answer.history if entry.start_offset < self.log.end_offset
        )
        return self.log.end_offset, True


class FetchAppendRace(Partition):
    """A new leader takes its high watermark for the end of its log until it has appended something, and whoever is
    told so that it is out of range starts over from the beginning.
    """

    def fetchable_end(self, term: LeaderTerm) -> int:
        return self.log.end_offset if term.appended else self.high_watermark

    def is_beyond_reach(self, log_start: int) -> bool:
        return True


class ReadAboveHighWatermark(Partition):
    """Consumers get what the leader has, committed or not."""

    def readable(self) -> int:
        return self.log.end_offset


_CLASSES: Mapping[str, type[Partition]] = MappingProxyType(
    {
        "ack-before-replication": AckBeforeReplication,
        "isr-of-one": IsrOfOne,
        "truncate-to-hw": TruncateToHighWatermark,
        "hw-checkpoint-lost": HighWatermarkLost,
        "divergent-tail": DivergentTail,
        "fetch-append-race": FetchAppendRace,
        "read-above-hw": ReadAboveHighWatermark,
    }
)


def partition_class(defects: Collection[str]) -> type[Partition]:
    """What the replica manager is to build."""
    for name, defective in _CLASSES.items():
        if name in defects:
            return defective
    return Partition
