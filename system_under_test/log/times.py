"""The timestamps of one segment: the newest message, the segment's age, and lookup by time.

The time index is updated after appends. It is a cache: a search scans the messages after the last index entry. An entry
found on disk is used only after a comparison with the messages: its message must be the first one with a timestamp at
least that high.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Protocol

from assay.system_under_test.clocks import Instant
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.log.index import TimeIndex
from assay.system_under_test.records.message import NO_TIMESTAMP
from assay.system_under_test.records.message_set import SetTimes, iterate_stored, iterate_timestamps


class SegmentBlocks(Protocol):
    """The interface that :class:`SegmentTimes` needs of its segment."""

    base_offset: int
    config: LogConfig

    def read(self, position: int, size: int) -> bytes: ...

    def locate(self, offset: int) -> int: ...

    def blocks(self, position: int = 0) -> Iterator[tuple[int, bytes]]: ...


class SegmentTimes:
    """A segment's timestamps in milliseconds; -1 stands for none. "Newest" means with the greatest timestamp."""

    def __init__(self, segment: SegmentBlocks, index: TimeIndex, now: Instant) -> None:
        self._segment = segment
        self._index = index
        self.opened_ms = now.wall_ms
        """When this process made the first append to the segment, or else opened it, by the wall clock."""
        self._appended_ms: int | None = None
        """When this process last appended to the segment, by the wall clock."""
        self._touched_ms = now.monotonic_ms
        """When this process last appended to the segment, or else opened it, by the monotonic clock."""
        self._has_unstamped = False
        """Whether a message without a timestamp is known."""
        self._newest = (NO_TIMESTAMP, segment.base_offset)
        """The newest message up to ``_read_to``: its timestamp and its offset."""
        self._read_to = 0
        """The position up to which the messages' timestamps are known."""
        self._indexed_at = 0
        """The position at which an index entry was last considered."""

    def record_append(self, now: Instant, times: SetTimes, position: int, end: int) -> None:
        """Records an append of the bytes from ``position`` to ``end``."""
        if not position:
            self.opened_ms = now.wall_ms
        self._appended_ms, self._touched_ms = now
        if self._read_to == position:  # otherwise earlier bytes are unread, and ``newest`` reads them and these
            self._include(times, end)

    def newest(self) -> int:
        """Returns the newest message's timestamp. Reads only what was added since the last call."""
        for found, at, end in self._iterate_timestamps(self._read_to):
            self._include(SetTimes(found, at, found < 0), end)
        return self._newest[0]

    def _include(self, times: SetTimes, end: int) -> None:
        """Includes the timestamps of the bytes up to ``end``; adds an index entry if one is due."""
        self._has_unstamped |= times.has_unstamped
        if times.newest > self._newest[0]:
            self._newest = times.newest, times.offset
        if end - self._indexed_at > self._segment.config.index_interval_bytes:
            self._add_index_entry()
            self._indexed_at = end
        self._read_to = end

    def age_ms(self, now: Instant) -> int:
        """Returns the age of the newest message; negative if its timestamp is in the future.

        A timestamp is compared with the wall clock. The age of a message without a timestamp is the time since this
        process last appended to the segment, or else opened it, by the monotonic clock. That is at most its true age,
        even if the wall clock is set. After a clean start, messages without a timestamp before the newest message are
        not looked for.
        """
        newest = self.newest()
        unstamped_ms = now.monotonic_ms - self._touched_ms
        if newest < 0:
            return unstamped_ms
        return min(now.wall_ms - newest, unstamped_ms) if self._has_unstamped else now.wall_ms - newest

    def last_written_ms(self) -> int:
        """Returns the time of this process's last append, else the newest timestamp, else the time of opening."""
        if self._appended_ms is not None:
            return self._appended_ms
        newest = self.newest()
        return newest if newest >= 0 else self.opened_ms

    def last_written(self) -> Instant:
        """Returns :meth:`last_written_ms` by the wall clock, and the last append or opening by the monotonic clock."""
        return Instant(self.last_written_ms(), self._touched_ms)

    def first_since(self, timestamp: int) -> tuple[int, int] | None:
        """Returns ``(timestamp, offset)`` of the first message stamped at or after ``timestamp``, or None."""
        if not self._is_search_start_right(timestamp - 1):
            self.forget()
        position = self._segment.locate(self._index.floor(timestamp - 1))
        for newest, _, end in self._iterate_timestamps(position):
            if newest >= timestamp:
                for message in iterate_stored(self._segment.read(position, end - position)):
                    if message.timestamp is not None and message.timestamp >= timestamp:
                        return message.timestamp, message.offset
            position = end
        return None

    def update_index(self) -> None:
        """Reads the timestamps of all appended messages, and adds the index entries for them."""
        # The append is complete, so it must not fail now. A later reader of the damaged bytes gets the error.
        with contextlib.suppress(CorruptLog, OSError):
            self.newest()

    def seal(self) -> None:
        """Completes the index when the segment gets no more appends."""
        self.update_index()
        self._add_index_entry()

    def finish(self) -> None:
        """Adds the entry of the newest message before a clean close, so that a start has little to read."""
        self._add_index_entry()

    def forget(self) -> None:
        """Clears the index of a segment that was truncated or is new. All timestamps are read again when needed."""
        self._index.clear()
        self._newest = (NO_TIMESTAMP, self._segment.base_offset)
        self._has_unstamped = False
        self._read_to = self._indexed_at = 0

    def load(self, next_offset: int) -> None:
        """Loads the index of a segment that was closed cleanly and ends at ``next_offset``, if its last entry is right.

        The index file may have lost later entries. So the messages from the last entry's on, usually one block, are
        read again when needed.
        """
        last = self._find_last_entry() if self._index.load(next_offset) else None
        if last is None:
            self.forget()
        else:
            self._newest, self._read_to = last
            self._indexed_at = self._read_to

    def replace(self, blocks: Iterable[SetTimes], size: int) -> None:
        """Replaces all timestamps and index entries by those of a scan of all ``size`` bytes."""
        self.forget()
        for times in blocks:
            self._has_unstamped |= times.has_unstamped
            if times.newest > self._newest[0]:
                self._newest = times.newest, times.offset
                self._add_index_entry()
        self._read_to = self._indexed_at = size

    async def fsync(self) -> None:
        await self._index.fsync()

    def close(self) -> None:
        self._index.close()

    def _is_search_start_right(self, timestamp: int) -> bool:
        """Returns whether the index entry from which a search begins is right. Raises :class:`CorruptLog`."""
        found = self._index.find_loaded(timestamp)
        return found is None or self._find_first_as_new(found[0][0], since=found[1]) == found[0]

    def _find_last_entry(self) -> tuple[tuple[int, int], int] | None:
        """Returns the last index entry and its message's position; None if there is no such entry or message.

        Earlier messages are not compared, because their scan would delay the start.
        """
        found = self._index.find_loaded(self._index.newest)
        if found is not None:
            with contextlib.suppress(CorruptLog):  # the next reader gets this error
                position = self._segment.locate(found[0][1])
                if next(self._iterate_timestamps(position), (None, None, 0))[:2] == found[0]:
                    return found[0], position
        return None

    def _find_first_as_new(self, timestamp: int, *, since: int) -> tuple[int, int] | None:
        """Returns ``(timestamp, offset)`` of the first entry from offset ``since`` on that is at least this new."""
        for newest, offset, _ in self._iterate_timestamps(self._segment.locate(since)):
            if newest >= timestamp:
                return newest, offset
        return None

    def _iterate_timestamps(self, position: int) -> Iterator[tuple[int, int, int]]:
        """Yields ``(newest timestamp, last offset, end position)`` of each entry from ``position`` on."""
        for start, data in self._segment.blocks(position):
            for timestamp, offset, end in iterate_timestamps(data):
                yield timestamp, offset, start + end

    def _add_index_entry(self) -> None:
        if self._newest[0] > self._index.newest:
            with contextlib.suppress(OSError):  # a search scans the messages of missing index entries
                self._index.append(*self._newest)
