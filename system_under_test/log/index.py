"""The two sparse indexes of a segment, in Kafka's formats.

- The offset index has the offset and the file position of some of the segment's entries. An index entry has 8 bytes: an
  offset relative to the segment's base (uint32 here), and a position (uint32).
- The time index lists some messages that are newer than all messages before them. An index entry has 12 bytes: the
  message's timestamp in milliseconds (int64), and its offset relative to the segment's base (uint32).

Both columns of an index rise strictly.

An index is only a cache, and is not fsynced before a clean close. Each file may lack its last entries, so the part of
the segment after the last index entry is read.

- A reader that looks up a position checks that the entry there has the promised offset. If not, the reader rebuilds the
  index from the segment. Without this check, a stale index would make readers skip records after a truncation.
- The time index is rebuilt unless the last stop was clean. After a clean stop, an index entry is used only after a
  comparison with the messages.
"""

import struct
from bisect import bisect_right
from itertools import pairwise

from assay.system_under_test.records.message import NO_TIMESTAMP
from assay.system_under_test.runtime import File

OFFSET_ENTRY = struct.Struct(">II")
TIME_ENTRY = struct.Struct(">qI")
MAX_RELATIVE = 2**32 - 1
"""The greatest relative offset and position that an entry can hold."""


class _IndexFile:
    """The file of an index. ``base_offset`` is the segment's base offset."""

    __slots__ = ("_file", "base_offset")

    def __init__(self, file: File, base_offset: int) -> None:
        self._file = file
        self.base_offset = base_offset

    def _read_entries(self, entry: struct.Struct) -> list[tuple[int, int]] | None:
        """Reads the file. Returns None if a column does not rise, or the last entry is incomplete."""
        data = self._file.read(0, self._file.size)
        if len(data) % entry.size:
            return None
        entries: list[tuple[int, int]] = list(entry.iter_unpack(data))
        rising = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise([(-1, -1), *entries]))
        return entries if rising else None

    async def fsync(self) -> None:
        await self._file.fsync()

    def close(self) -> None:
        self._file.close()


class OffsetIndex(_IndexFile):
    """An offset index in memory. Each entry is also appended to the file."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self, file: File, base_offset: int) -> None:
        super().__init__(file, base_offset)
        self._offsets: list[int] = []
        self._positions: list[int] = []

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self._offsets) * OFFSET_ENTRY.size

    @property
    def last_position(self) -> int:
        """Position of the last indexed entry; 0 if there is none."""
        return self._positions[-1] if self._positions else 0

    def load(self, segment_size: int) -> bool:
        """Reads the file; returns False, and stays empty, if it cannot be the index of a segment of this size."""
        entries = self._read_entries(OFFSET_ENTRY)
        if entries is None or (entries and entries[-1][1] >= segment_size):
            return False
        self._offsets = [self.base_offset + offset for offset, _ in entries]
        self._positions = [position for _, position in entries]
        return True

    def append(self, offset: int, position: int) -> None:
        """Adds an entry; offset and position must be greater than the last entry's."""
        self._file.append(OFFSET_ENTRY.pack(offset - self.base_offset, position))
        self._offsets.append(offset)
        self._positions.append(position)

    def floor(self, offset: int) -> tuple[int, int]:
        """Returns ``(offset, position)`` of the last indexed entry at or below ``offset``, or the segment's start."""
        index = bisect_right(self._offsets, offset) - 1
        return (self._offsets[index], self._positions[index]) if index >= 0 else (self.base_offset, 0)

    def floor_position(self, position: int) -> int:
        """Returns the position of the last indexed entry that begins at or before ``position``; 0 if there is none."""
        index = bisect_right(self._positions, position) - 1
        return self._positions[index] if index >= 0 else 0

    def ceiling_position(self, position: int, end: int) -> int:
        """Returns the position of the first indexed entry that begins after ``position``; ``end`` if there is none."""
        index = bisect_right(self._positions, position)
        return self._positions[index] if index < len(self._positions) else end

    def offset_at(self, position: int) -> int:
        """Returns the offset of the last indexed entry that begins at or before ``position``, or the segment's base."""
        index = bisect_right(self._positions, position) - 1
        return self._offsets[index] if index >= 0 else self.base_offset

    def truncate(self, position: int) -> None:
        """Removes the entries at or beyond that position of the segment."""
        keep = bisect_right(self._positions, position - 1)
        if keep < len(self._positions):
            del self._offsets[keep:]
            del self._positions[keep:]
            self._file.truncate(keep * OFFSET_ENTRY.size)

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Replaces all ``(offset, position)`` entries, in the file too."""
        self._offsets = [offset for offset, _ in entries]
        self._positions = [position for _, position in entries]
        self._file.truncate(0)
        self._file.append(
            b"".join(OFFSET_ENTRY.pack(offset - self.base_offset, position) for offset, position in entries)
        )


class TimeIndex(_IndexFile):
    """A time index in memory. Each entry is also appended to the file."""

    __slots__ = ("_loaded", "_offsets", "_timestamps")

    def __init__(self, file: File, base_offset: int) -> None:
        super().__init__(file, base_offset)
        self._timestamps: list[int] = []
        self._offsets: list[int] = []
        self._loaded = 0
        """Number of entries that were read from the file."""

    @property
    def newest(self) -> int:
        """The last entry's timestamp; -1 if there is none."""
        return self._timestamps[-1] if self._timestamps else NO_TIMESTAMP

    def load(self, next_offset: int) -> bool:
        """Reads the file; returns False, and stays empty, if it does not fit a segment that ends at ``next_offset``."""
        entries = self._read_entries(TIME_ENTRY)
        if entries is None or (entries and self.base_offset + entries[-1][1] >= next_offset):
            return False
        self._timestamps = [timestamp for timestamp, _ in entries]
        self._offsets = [self.base_offset + offset for _, offset in entries]
        self._loaded = len(entries)
        return True

    def append(self, timestamp: int, offset: int) -> None:
        """Adds an entry; timestamp and offset must be greater than the last entry's."""
        self._file.append(TIME_ENTRY.pack(timestamp, offset - self.base_offset))
        self._timestamps.append(timestamp)
        self._offsets.append(offset)

    def floor(self, timestamp: int) -> int:
        """Returns the offset at which a search for messages newer than ``timestamp`` must begin."""
        index = bisect_right(self._timestamps, timestamp) - 1
        return self._offsets[index] if index >= 0 else self.base_offset

    def find_loaded(self, timestamp: int) -> tuple[tuple[int, int], int] | None:
        """Returns the entry that ``floor`` finds, and the offset of the entry before it, or the segment's base.

        Returns None if ``floor`` finds no entry, or one that this process has added.
        """
        index = bisect_right(self._timestamps, timestamp) - 1
        if not 0 <= index < self._loaded:
            return None
        before = self._offsets[index - 1] if index else self.base_offset
        return (self._timestamps[index], self._offsets[index]), before

    def clear(self) -> None:
        if self._file.size:
            self._file.truncate(0)
        self._timestamps, self._offsets = [], []
        self._loaded = 0
