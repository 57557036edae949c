"""The timestamps of one segment: the youngest message, and lookup by time.

The time index follows the appends. It is a cache: missing entries are scanned for. An entry found on disk is compared
with the messages before it is used: its message must be the first with a timestamp at least that high.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Protocol

from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.log.time_index import TimeIndex
from assay.system_under_test.records.message import NO_TIMESTAMP
from assay.system_under_test.records.message_set import iterate_messages, iterate_timestamps


class SegmentBlocks(Protocol):
    """The interface that is needed of the segment."""

    base_offset: int
    config: LogConfig

    def read(self, position: int, size: int) -> bytes: ...

    def locate(self, offset: int) -> int: ...

    def blocks(self, position: int = 0) -> Iterator[tuple[int, bytes]]: ...


class SegmentTimes:
    """A segment's timestamps in milliseconds; -1 stands for none."""

    def __init__(self, segment: SegmentBlocks, index: TimeIndex, now_ms: int) -> None:
        self._segment = segment
        self._index = index
        self.opened_ms = now_ms
        """When this process began to fill the segment, by the wall clock."""
        self._appended_ms: int | None = None
        self._newest = (NO_TIMESTAMP, segment.base_offset)
        """The youngest message up to ``_read_to``: its timestamp and its offset."""
        self._read_to = 0
        self._noted_at = 0

    def appended(self, now_ms: int, youngest: tuple[int, int], position: int, end: int) -> None:
        """Records an append of the bytes from ``position`` to ``end``; ``youngest`` as in ``CheckResult``."""
        if not position:
            self.opened_ms = now_ms
        self._appended_ms = now_ms
        if self._read_to == position:  # otherwise earlier bytes are still unread, and these follow after them
            self._take(*youngest, end)

    def newest(self) -> int:
        """Returns the youngest message's timestamp. Reads only what was added since the last call."""
        for found, at, end in self._timestamps(self._read_to):
            self._take(found, at, end)
        return self._newest[0]

    def _take(self, timestamp: int, offset: int, end: int) -> None:
        """Takes over the youngest message of the bytes up to ``end``."""
        if timestamp > self._newest[0]:
            self._newest = timestamp, offset
        if end - self._noted_at > self._segment.config.index_interval_bytes:
            self._note()
            self._noted_at = end
        self._read_to = end

    def age_ms(self) -> int:
        """Returns the youngest message's own timestamp, else the time of the last append."""
        newest = self.newest()
        return newest if newest >= 0 else self.written_ms()

    def written_ms(self) -> int:
        """Returns the time of this process's last append, else the newest timestamp, else the time of opening."""
        if self._appended_ms is not None:
            return self._appended_ms
        newest = self.newest()
        return newest if newest >= 0 else self.opened_ms

    def first_since(self, timestamp: int) -> tuple[int, int] | None:
        """Returns ``(timestamp, offset)`` of the first message stamped at or after ``timestamp``, or None."""
        if not self._holds(timestamp - 1):
            self.forget()
        position = self._segment.locate(self._index.floor(timestamp - 1))
        for newest, _, end in self._timestamps(position):
            if newest >= timestamp:
                for message in iterate_messages(self._segment.read(position, end - position)):
                    if message.timestamp is not None and message.timestamp >= timestamp:
                        return message.timestamp, message.offset
            position = end
        return None

    def follow(self) -> None:
        """Updates the index up to the last append."""
        # readers of damaged bytes get this error; an append, which is complete already, must not fail
        with contextlib.suppress(CorruptLog, OSError):
            self.newest()

    def seal(self) -> None:
        """Prepares for a time without appends."""
        self.follow()
        self._note()

    def finish(self, size: int) -> None:
        """Completes the index before a clean close, after which it is trusted.

        It must cover all of the segment's ``size`` bytes, or be empty.
        """
        if self._read_to == size:
            self._note()
        if self._read_to != size or self._index.newest != self._newest[0]:
            self.forget()

    def forget(self) -> None:
        """Resets the index of a segment that was truncated or is new: all is read again when needed."""
        self._index.clear()
        self._newest = (NO_TIMESTAMP, self._segment.base_offset)
        self._read_to = self._noted_at = 0

    def load(self, next_offset: int, size: int) -> None:
        """Trusts the index of a segment that was closed cleanly, if its last entry is right.

        The segment ends at this offset and this byte.
        """
        if not self._index.load(next_offset) or not self._last_holds():
            self.forget()
        elif self._index.newest != NO_TIMESTAMP:
            self._newest = self._index.newest, self._index.floor(self._index.newest)
            self._read_to = self._noted_at = size

    def replace(self, found: Iterable[tuple[int, int]], size: int) -> None:
        """Takes ``(timestamp, offset)`` of the youngest message of each block, from a scan of all ``size`` bytes."""
        self.forget()
        for timestamp, offset in found:
            if timestamp > self._newest[0]:
                self._newest = timestamp, offset
                self._note()
        self._read_to = self._noted_at = size

    async def fsync(self) -> None:
        await self._index.fsync()

    def close(self) -> None:
        self._index.close()

    def _holds(self, timestamp: int) -> bool:
        """Returns whether the entry at which a search for this time begins is right. Raises :class:`CorruptLog`."""
        found = self._index.loaded(timestamp)
        return found is None or self._first_as_young(found[0][0], since=found[1]) == found[0]

    def _last_holds(self) -> bool:
        """Returns whether a message matches the last entry. It need not be the first: a scan would delay the start."""
        found = self._index.loaded(self._index.newest)
        with contextlib.suppress(CorruptLog):  # the next reader gets this error
            return found is None or self._first_as_young(found[0][0], since=found[0][1]) == found[0]
        return False

    def _first_as_young(self, timestamp: int, *, since: int) -> tuple[int, int] | None:
        for newest, offset, _ in self._timestamps(self._segment.locate(since)):
            if newest >= timestamp:
                return newest, offset
        return None

    def _timestamps(self, position: int) -> Iterator[tuple[int, int, int]]:
        """Yields ``(newest timestamp, last offset, end position)`` of each entry from ``position``, a boundary, on."""
        for start, data in self._segment.blocks(position):
            for timestamp, offset, end in iterate_timestamps(data):
                yield timestamp, offset, start + end

    def _note(self) -> None:
        if self._newest[0] > self._index.newest:
            with contextlib.suppress(OSError):  # missing index entries are scanned for
                self._index.append(*self._newest)
