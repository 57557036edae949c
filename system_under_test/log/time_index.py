"""The sparse time index of a segment: some messages that are younger than all before them.

The format is Kafka's: 12 bytes per entry, a timestamp in milliseconds (int64) and an offset relative to the segment's
base (uint32). An entry says that this message has this timestamp, and that no message before it is younger. Both rise
strictly.

It is only a cache, as the offset index is. Unless the last stop was clean, it is rebuilt from the segment. Entries from
before a clean stop are compared with the messages before they are used.
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
        """The last entry's timestamp; -1 if there is none."""
        return self._timestamps[-1] if self._timestamps else NO_TIMESTAMP

    def load(self, next_offset: int) -> bool:
        """Reads the file; returns False, and stays empty, if it does not fit a segment that ends at ``next_offset``."""
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
        """Adds an entry; timestamp and offset must be greater than the last entry's."""
        self._file.append(ENTRY.pack(timestamp, offset - self.base_offset))
        self._timestamps.append(timestamp)
        self._offsets.append(offset)

    def floor(self, timestamp: int) -> int:
        """Returns the offset at which a search for messages younger than ``timestamp`` must begin."""
        index = bisect_right(self._timestamps, timestamp) - 1
        return self._offsets[index] if index >= 0 else self.base_offset

    def loaded(self, timestamp: int) -> tuple[tuple[int, int], int] | None:
        """Returns the entry behind ``floor`` and its predecessor's offset or the base; None unless it was loaded."""
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
