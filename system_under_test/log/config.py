"""How one log is kept; the fields bear the names of Kafka's topic settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from assay.system_under_test.config import TopicConfig
from assay.system_under_test.log.index import OffsetIndex
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import Buffer
from assay.system_under_test.records.message_set import Checked
from assay.system_under_test.runtime import Storage


@dataclass(frozen=True)
class LogConfig:
    """Sizes in bytes, times in milliseconds. Raises ``ValueError`` for sizes that cannot work."""

    segment_bytes: int = 1 << 30
    """A segment is not begun to be filled beyond this; one append larger than it still goes into one segment."""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """A segment that has been filled for so long is rolled at the next append, by the node's wall clock."""
    index_interval_bytes: int = 4096
    index_max_bytes: int = 10 << 20
    compacted: bool = False
    """Offsets may have gaps, as they may for good once the log was compacted. In a log that never was a gap is damage,
    and recovery treats it as such.
    """

    @classmethod
    def of(cls, topic: TopicConfig) -> Self:
        return cls(
            segment_bytes=topic.segment_bytes,
            segment_ms=topic.segment_ms,
            index_interval_bytes=topic.index_interval_bytes,
            index_max_bytes=topic.segment_index_bytes,
            compacted=topic.compacts,
        )

    def check(self, data: Buffer, next_offset: int) -> Checked:
        """How far ``data`` from a disk, to begin at ``next_offset``, is good. A defect replaces this method."""
        return message_set.check(data, next_offset, gaps=self.compacted)

    def open_index(self, storage: Storage, path: str, base_offset: int) -> OffsetIndex:
        """The index over the file at ``path``, still to be loaded or rebuilt. A defect replaces this method."""
        return OffsetIndex(storage.open(path), base_offset)

    def __post_init__(self) -> None:
        for name in ("segment_bytes", "segment_ms", "index_interval_bytes", "index_max_bytes"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.segment_bytes > 2**31 - 1:
            raise ValueError(f"segment_bytes must be below 2 GiB, not {self.segment_bytes}")
