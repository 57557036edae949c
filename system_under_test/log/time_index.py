"""The sparse index of a segment by time: how young its messages were up to some of them.

On disk as Kafka has it: 12 bytes an entry, a timestamp in milliseconds (int64) and an offset relative to the segment's
base (uint32). An entry says: this message has this timestamp, and no message before it is younger. Both rise strictly.
Like the other index it is a cache: after anything but a clean stop it is rebuilt from the segment, and what a clean
stop has left is compared with the messages before it is used.
"""

import struct
from bisect import bisect_right

from assay.system_under_test.records.message import NO_TIMESTAMP
from assay.system_under_test.runtime import File

ENTRY = struct.Struct(">qI")


class TimeIndex:
    """An index in memory and, entry by entry, in its file."""

    __slots__ = ("_file", "_loaded", "_offsets", "_timestamps", "base_offset")

    def __init__(self, file: File, base_offset: int) -> None:
        self._file = file
        self.base_offset = base_offset
        self._timestamps: list[int] = []
        self._offsets: list[int] = []
        self._loaded = 0

    @property
    def newest(self) -> int:
        """The last entry's timestamp; -1 when there is none."""
        return self._timestamps[-1] if self._timestamps else NO_TIMESTAMP

    def load(self, next_offset: int) -> bool:
        """Reads the file; False, and the index stays empty, when it cannot be that of a segment that ends there."""
        data = self._file.read(0, self._file.size)
        timestamps, offsets = [], []
        previous = (NO_TIMESTAMP, -1)
        if len(data) % ENTRY.size:
            return False
        for timestamp, offset in ENTRY.iter_unpack(data):
            if timestamp <= previous[0] or offset <= previous[1] or self.base_offset + offset >= next_offset:
                return False
            previous = (timestamp, offset)
            timestamps.append(timestamp)
            offsets.append(self.base_offset + offset)
        self._timestamps, self._offsets = timestamps, offsets
        self._loaded = len(offsets)
        return True

    def append(self, timestamp: int, offset: int) -> None:
        """Both must be greater than the last entry's."""
        self._file.append(ENTRY.pack(timestamp, offset - self.base_offset))
        self._timestamps.append(timestamp)
        self._offsets.append(offset)

    def floor(self, timestamp: int) -> int:
        """No message before this offset is younger than ``timestamp``: a search for one begins here."""
        index = bisect_right(self._timestamps, timestamp) - 1
        return self._offsets[index] if index >= 0 else self.base_offset

    def loaded(self, timestamp: int) -> tuple[tuple[int, int], int] | None:
        """The entry behind ``floor``, and the offset of the one before it or the base; None unless it was loaded."""
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

    async def fsync(self) -> None:
        await self._file.fsync()

    def close(self) -> None:
        self._file.close()
