"""The sparse index of a segment: the offset and the file position of some of its entries.

The format is Kafka's: 8 bytes per entry, an offset relative to the segment's base (uint32 here) and a position
(uint32), both ascending.

The index is only a cache, and is not fsynced before a clean close. A reader that looks up a position checks that the
entry there has the promised offset. If not, it rebuilds the index from the segment. A stale index that is trusted makes
readers skip records after a truncation.
"""

import struct
from bisect import bisect_right

from assay.system_under_test.runtime import File

ENTRY = struct.Struct(">II")
MAXIMUM = 2**32 - 1
"""The greatest relative offset and position that an entry can hold."""


class OffsetIndex:
    """An index in memory and, append by append, in its file."""

    __slots__ = ("_file", "_offsets", "_positions", "base_offset")

    def __init__(self, file: File, base_offset: int) -> None:
        self._file = file
        self.base_offset = base_offset
        self._offsets: list[int] = []
        self._positions: list[int] = []

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self._offsets) * ENTRY.size

    @property
    def last_position(self) -> int:
        """Position of the last indexed entry; 0 if there is none."""
        return self._positions[-1] if self._positions else 0

    def load(self, segment_size: int) -> bool:
        """Reads the file; returns False, and stays empty, if it cannot be the index of a segment of this size."""
        data = self._file.read(0, self._file.size)
        if len(data) % ENTRY.size:
            return False
        offsets, positions = [], []
        previous = (-1, -1)
        for offset, position in ENTRY.iter_unpack(data):
            if offset <= previous[0] or position <= previous[1] or position >= segment_size:
                return False
            previous = (offset, position)
            offsets.append(self.base_offset + offset)
            positions.append(position)
        self._offsets, self._positions = offsets, positions
        return True

    def append(self, offset: int, position: int) -> None:
        """Adds an entry; offset and position must be greater than the last entry's."""
        self._file.append(ENTRY.pack(offset - self.base_offset, position))
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
            self._file.truncate(keep * ENTRY.size)

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Replaces all ``(offset, position)`` entries, in the file too."""
        self._offsets = [offset for offset, _ in entries]
        self._positions = [position for _, position in entries]
        self._file.truncate(0)
        self._file.append(b"".join(ENTRY.pack(offset - self.base_offset, position) for offset, position in entries))

    async def fsync(self) -> None:
        await self._file.fsync()

    def close(self) -> None:
        self._file.close()
