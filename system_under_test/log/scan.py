"""Scans a segment: reads it to its end, checks every entry, and builds its indexes.

A scan is needed after an unclean stop, for entries beyond the last indexed one, and after a bad block. It runs in steps
of about one index interval, so that a coroutine can let other tasks run in between.
"""

from __future__ import annotations

from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.records.message import ENTRY_HEADER, HEADER_SIZE
from assay.system_under_test.records.message_set import CheckResult
from assay.system_under_test.runtime import File

INCOMPLETE = "the last message is not all there"


class SegmentScan:
    """A running scan; ``position`` and ``next_offset`` are the end of the good prefix so far."""

    def __init__(
        self, file: File, base_offset: int, config: LogConfig, *, position: int = 0, next_offset: int | None = None
    ) -> None:
        self._file = file
        self._base_offset = base_offset
        self._end = file.size
        self._config = config
        self._interval = max(config.index_interval_bytes, HEADER_SIZE)
        self.start = position
        self.position = position
        self.next_offset = base_offset if next_offset is None else next_offset
        self.problem: str | None = None
        """Why the scan ended before the end of the file, or None."""
        self.entries: list[tuple[int, int]] = []
        """``(offset, position)`` for the index."""
        self.times: list[tuple[int, int]] = []
        """``(timestamp, offset)`` of the youngest message of each block, for the time index."""

    def step(self) -> bool:
        """Scans one more block; returns False if the scan is complete."""
        if self.position >= self._end or self.problem is not None:
            return False
        found = self._next_block()
        if found.count and self.position > self.start:
            self.entries.append((found.first, self.position))
        if found.count:
            self.times.append(found.youngest)
        self.position += found.size
        self.next_offset = found.next_offset
        self.problem = found.problem or (None if found.count else INCOMPLETE)
        return True

    def run(self) -> SegmentScan:
        """Runs the scan to its end."""
        while self.step():
            pass
        return self

    def _next_block(self) -> CheckResult:
        """Reads about one interval's bytes, or one larger entry."""
        left = self._end - self.position
        data = self._file.read(self.position, min(self._interval, left))
        found = self._config.check(data, self.next_offset, self._base_offset)
        if not found.count and found.problem is None and len(data) >= HEADER_SIZE:
            needed = HEADER_SIZE + ENTRY_HEADER.unpack_from(data)[1]
            if len(data) < needed <= left:
                data = self._file.read(self.position, needed)
                found = self._config.check(data, self.next_offset, self._base_offset)
        return found
