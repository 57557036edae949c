"""Scan of a segment: reads it to its end, checks every entry, and collects the entries of its indexes.

A scan is needed after an unclean stop, for entries beyond the last indexed one, and after a bad block. It runs in steps
of about one index interval (blocks), so that a coroutine can let other tasks run in between.

The CRC does not cover offsets. In a compacted log, an entry whose offset was raised by a flipped bit seems to follow a
gap. The next entry then seems to be bad, because its offset is lower. If that next entry is valid and its offset lies
in the gap, the scan treats the entry after the gap as the bad one, and ends before it.
"""

from __future__ import annotations

from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import ENTRY_HEADER, HEADER_SIZE
from assay.system_under_test.records.message_set import CheckResult, SetTimes
from assay.system_under_test.runtime import File

INCOMPLETE = "the last message is not all there"


class SegmentScan:
    """A running scan; ``position`` and ``next_offset`` are the end of the good prefix so far."""

    def __init__(
        self,
        file: File,
        base_offset: int,
        config: LogConfig,
        *,
        position: int = 0,
        next_offset: int | None = None,
        limit: int | None = None,
    ) -> None:
        """``limit``: offsets after a gap must be less than it; None if it is unknown."""
        self._file = file
        self._base_offset = base_offset
        self._end = file.size
        self._config = config
        self._limit = limit
        self._interval = max(config.index_interval_bytes, HEADER_SIZE)
        self.start = position
        self.position = position
        self.next_offset = base_offset if next_offset is None else next_offset
        self._last_block = (self.position, self.next_offset)
        """``position`` and ``next_offset`` before the last block that had a good entry."""
        self.expanded = 0
        """How many bytes were decompressed for the scan."""
        self.problem: str | None = None
        """Why the scan ended before the end of the file, or None."""
        self.entries: list[tuple[int, int]] = []
        """``(offset, position)`` for the index."""
        self.times: list[SetTimes] = []
        """The timestamps of each block, for the time index."""

    def step(self) -> bool:
        """Scans one more block; returns False if the scan is complete."""
        if self.position >= self._end or self.problem is not None:
            return False
        found = self._read_next_block()
        self.expanded += found.expanded
        if found.count:
            self._last_block = (self.position, self.next_offset)
        if found.count and self.position > self.start:
            self.entries.append((found.first, self.position))
        if found.count:
            self.times.append(found.times)
        self.position += found.size
        self.next_offset = found.next_offset
        self.problem = found.problem or (None if found.count else INCOMPLETE)
        if self.problem is not None and self._config.compacted:
            self._exclude_raised_offset()
        return True

    def run(self) -> SegmentScan:
        """Runs the scan to its end."""
        while self.step():
            pass
        return self

    def _exclude_raised_offset(self) -> None:
        """Ends the scan before the last entry if only a raised offset explains the entry that follows it."""
        start, expected = self._last_block
        if self.position == start:
            return  # there is no good entry
        data = self._file.read(start, self.position - start)
        # ``position`` becomes the place of the block's last entry, ``before`` the offset that follows the entry before
        # it, and ``expected`` the offset that follows the last entry.
        position = before = 0
        for at, _, offset in message_set.scan(data):
            position, before, expected = at, expected, offset + 1
        last, following = data[position:], self._read_entry(self.position)
        if following == last or message_set.check(last, before, gaps=True).count == expected - before:
            return  # a copy of the last entry follows, or there is no gap
        found = message_set.check(following, before, gaps=True)
        if not found.count or found.first >= expected:
            return
        # Take the last block back. If its last entry is not its first, scan the block again up to that entry.
        if start > self.start:
            self.entries.pop()
        self.times.pop()
        self.position, self.next_offset, self._end, self.problem = start, before, start + position, None
        if position:
            self.next_offset = self._last_block[1]
            self.step()  # the rest of the block
        self.problem = f"offset {expected - 1}, but {found.first} follows"

    def _read_entry(self, position: int) -> bytes:
        """Returns the entry that begins at ``position``; no bytes if the file does not have all of it."""
        header = self._file.read(position, HEADER_SIZE)
        size = ENTRY_HEADER.unpack(header)[1] if len(header) == HEADER_SIZE else 0
        return self._file.read(position, HEADER_SIZE + size) if 0 < size <= self._end - position - HEADER_SIZE else b""

    def _read_next_block(self) -> CheckResult:
        """Reads and checks about one index interval, or one larger entry."""
        left = self._end - self.position
        data = self._file.read(self.position, min(self._interval, left))
        found = self._config.check(data, self.next_offset, self._base_offset, self._limit)
        if not found.count and found.problem is None and len(data) >= HEADER_SIZE:
            needed = HEADER_SIZE + ENTRY_HEADER.unpack_from(data)[1]
            if len(data) < needed <= left:
                data = self._file.read(self.position, needed)
                found = self._config.check(data, self.next_offset, self._base_offset, self._limit)
        return found
