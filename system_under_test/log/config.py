"""The settings of one log; the fields have the names of Kafka's topic settings."""

from dataclasses import dataclass
from typing import Self
from zlib import crc32

from assay.system_under_test.config import TopicConfig
from assay.system_under_test.log.index import MAX_RELATIVE
from assay.system_under_test.log.traits import CORRECT, LogTraits
from assay.system_under_test.records.message import Buffer
from assay.system_under_test.records.message_set import CheckResult


@dataclass(frozen=True)
class LogConfig:
    """Sizes in bytes, times in milliseconds. Raises ``ValueError`` for invalid sizes."""

    segment_bytes: int = 1 << 30
    """A segment is rolled before an append that would exceed this. An append that is larger is not divided."""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """An append rolls a segment whose first append is this long ago, by the node's wall clock."""
    segment_jitter_ms: int = 0
    """Each segment is rolled earlier by up to this time, so that not all logs roll at once."""
    index_interval_bytes: int = 4096
    index_max_bytes: int = 10 << 20
    preallocate: bool = False
    """A segment's file takes up ``segment_bytes`` from its first append until the segment is rolled or closed."""
    compacted: bool = False
    """Whether offsets may have gaps. Stays true once a log was compacted. In any other log a gap is damage."""
    traits: LogTraits = CORRECT

    @classmethod
    def from_topic(cls, topic: TopicConfig, traits: LogTraits) -> Self:
        return cls(
            segment_bytes=topic.segment_bytes,
            segment_ms=topic.segment_ms,
            segment_jitter_ms=topic.segment_jitter_ms,
            index_interval_bytes=topic.index_interval_bytes,
            index_max_bytes=topic.segment_index_bytes,
            preallocate=topic.preallocate,
            compacted=topic.compacts,
            traits=traits,
        )

    def lifetime_ms(self, path: str) -> int:
        """Returns how long after its first append the segment at this path is rolled; equal on all replicas."""
        jitter = min(self.segment_jitter_ms, self.segment_ms)
        return self.segment_ms - crc32(path.encode()) % jitter if jitter else self.segment_ms

    def check(self, data: Buffer, next_offset: int, base_offset: int, limit: int | None = None) -> CheckResult:
        """Checks entries of the segment that begins at ``base_offset``. The first must have the offset ``next_offset``.

        In a log with gaps, which compaction leaves, an offset after a gap is accepted only below ``limit``.
        """
        highest = base_offset + MAX_RELATIVE if limit is None else min(base_offset + MAX_RELATIVE, limit - 1)
        return self.traits.check(data, next_offset, gaps=self.compacted, highest=highest)

    def __post_init__(self) -> None:
        for name, least in (
            ("segment_bytes", 1),
            ("segment_ms", 0),
            ("index_interval_bytes", 0),
            ("index_max_bytes", 1),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be {least} at least, not {getattr(self, name)}")
        if self.segment_bytes > 2**31 - 1:
            raise ValueError(f"segment_bytes must be below 2 GiB, not {self.segment_bytes}")
