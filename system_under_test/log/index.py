"""The sparse index of a segment: for some entries, their offset and their position in the segment's file.

On disk as Kafka has it: 8 bytes an entry, offset relative to the segment's base (uint32 here) and position (uint32),
both rising. The index is a cache and never the truth. It is not fsynced before a clean close. A reader that
looks a position up checks that the entry there has the offset promised, and rebuilds the index from the segment when it
has not. A stale index that was believed is how records get skipped after a truncation.
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
        """Bytes."""
        return len(self._offsets) * ENTRY.size

    @property
    def last_position(self) -> int:
        """Position of the last indexed entry; 0 when none is."""
        return self._positions[-1] if self._positions else 0

    def load(self, segment_size: int) -> bool:
        """Reads the file; False, and the index stays empty, when it cannot be that of a segment of this size."""
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
        """Both must be greater than the last entry's."""
        self._file.append(ENTRY.pack(offset - self.base_offset, position))
        self._offsets.append(offset)
        self._positions.append(position)

    def floor(self, offset: int) -> tuple[int, int]:
        """``(offset, position)`` of the last indexed entry at or below ``offset``; the segment's start without one."""
        index = bisect_right(self._offsets, offset) - 1
        return (self._offsets[index], self._positions[index]) if index >= 0 else (self.base_offset, 0)

    def floor_position(self, position: int) -> int:
        """Position of the last indexed entry that begins at or before ``position``; 0 when none does."""
        index = bisect_right(self._positions, position) - 1
        return self._positions[index] if index >= 0 else 0

    def ceiling_position(self, position: int, end: int) -> int:
        """Position of the first indexed entry that begins after ``position``; ``end`` when none does."""
        index = bisect_right(self._positions, position)
        return self._positions[index] if index < len(self._positions) else end

    def offset_at(self, position: int) -> int:
        """Offset of the last indexed entry that begins at or before ``position``; the segment's base when none."""
        index = bisect_right(self._positions, position) - 1
        return self._offsets[index] if index >= 0 else self.base_offset

    def truncate(self, position: int) -> None:
        """Drops the entries at or beyond that position of the segment."""
        keep = bisect_right(self._positions, position - 1)
        if keep < len(self._positions):
            del self._offsets[keep:]
            del self._positions[keep:]
            self._file.truncate(keep * ENTRY.size)

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Replaces all ``(offset, position)``, in the file too."""
        self._offsets = [offset for offset, _ in entries]
        self._positions = [position for _, position in entries]
        self._file.truncate(0)
        self._file.append(b"".join(ENTRY.pack(offset - self.base_offset, position) for offset, position in entries))

    async def fsync(self) -> None:
        await self._file.fsync()

    def close(self) -> None:
        self._file.close()
