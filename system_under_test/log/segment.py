"""A segment: consecutive entries in ``<base offset, 20 digits>.log``, and the sparse indexes next to it.

The index divides a segment into blocks of about ``index_interval_bytes``; every search reads and walks one block.

Blocks found on disk at opening are not trusted until all their entries have been checked: CRC, size, dense offsets, and
the index entries on both sides. This happens once, at the first read that needs them. Bytes appended by this process
were checked before the append. If a block fails, either the index or the data is bad. A scan of the whole segment then
repairs the index or names the first bad entry.

``size`` is the segment's end as far as this process trusts it; a damaged segment's file may be longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from assay.system_under_test.clocks import Instant
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.log.files import LOG_SUFFIX, SUFFIXES, UnusableFile, format_segment_name, remove_files
from assay.system_under_test.log.index import MAXIMUM, OffsetIndex, TimeIndex
from assay.system_under_test.log.scan import SegmentScan
from assay.system_under_test.log.times import SegmentTimes
from assay.system_under_test.records.message import ENTRY_HEADER, ENTRY_PREFIX, HEADER_SIZE, RecordError
from assay.system_under_test.records.message_set import SetTimes, read_first_offset, scan
from assay.system_under_test.runtime import File, IrregularFileError, Slice, Storage

RECENT_APPENDS = 256
"""How many of the last appends' positions are kept, because tailing readers ask for exactly those."""


class SliceCut(OSError):
    """The bytes of a slice were removed from the log before they were sent; the connection can only be closed."""


class LogSlice:
    """The result of a read: a range of a segment.

    Reading fails after any truncation of the segment, because other bytes may have taken the place of the old ones.
    """

    __slots__ = ("_cuts", "_position", "_segment", "size")

    def __init__(self, segment: Segment, position: int, size: int) -> None:
        self._segment = segment
        self._position = position
        self.size = size
        self._cuts = segment.cuts

    def read(self) -> bytes:
        """Returns the bytes. Raises :class:`SliceCut` if the log was truncated, deleted or closed since."""
        stored = self._open()
        try:
            return stored.read()
        except OSError as error:
            self._mark_if_unreadable(error)
            raise

    async def send(self, writer: asyncio.StreamWriter) -> None:
        """Sends the bytes to a connection; raises as :meth:`read`."""
        stored = self._open()
        try:
            await stored.send(writer)
        except OSError as error:  # usually an error of the connection
            self._mark_if_unreadable(error)
            raise

    def _mark_if_unreadable(self, error: OSError) -> None:
        if error.errno == errno.EIO:
            self._segment.record_read_error(error)

    def _open(self) -> Slice:
        if self._segment.cuts != self._cuts:
            raise SliceCut(errno.ESTALE, "removed from the log before it was sent", self._segment.path)
        return self._segment.file.slice(self._position, self.size)


def ignore(_: object) -> None:
    """Ignores an event of a segment or log that has no listener."""


class Segment:
    """An open segment. Offsets are of messages; positions are of bytes in the file."""

    def __init__(
        self, path: str, file: File, index: OffsetIndex, times: TimeIndex, config: LogConfig, *, now: Instant
    ) -> None:
        self.path = path
        self.file = file
        self.index = index
        self.config = config
        self.base_offset = index.base_offset
        self.next_offset = index.base_offset
        self.size = file.size
        self.times = SegmentTimes(self, times, now)
        self.cuts = 0
        """How often bytes were removed; closing counts, too."""
        self.changes = 1
        self.durable_changes = 0
        """How many of ``changes`` are known to be durable."""
        self.closed = False
        self.unusable: str | None = None
        """Why its files were not opened; None if they were."""
        self.on_damage: Callable[[CorruptLog], None] = ignore
        self._preallocated = False
        self._trusted_from = file.size
        """The position from which on all bytes were checked when they were opened or appended."""
        self._verified: set[int] = set()
        """Positions of the other blocks that were checked."""
        self._recent: dict[int, int] = {}
        """Offsets and positions of the last appends."""

    def is_full(self, extra: int, last_offset: int, segment_bytes: int, index_bytes: int) -> bool:
        """Returns whether ``extra`` more bytes, ending with ``last_offset``, belong in a new segment."""
        size = self.size + extra
        return size > segment_bytes or size > MAXIMUM or self.index.size >= index_bytes or (
            last_offset - self.base_offset > MAXIMUM
        )  # fmt: skip

    def append(self, data: bytes, times: SetTimes, first: int, last: int, now: Instant) -> None:
        """Appends valid whole entries with offsets ``first`` to ``last``. An ``OSError`` changes nothing."""
        position = self.size
        indexed = position - self.index.last_position > self.config.index_interval_bytes
        if indexed:
            self.index.append(first, position)
        try:
            self.file.append(data)
        except OSError:
            self.index.truncate(position)
            raise
        self.size = position + len(data)
        self.times.record_append(now, times, position, self.size)
        self.next_offset = last + 1
        self.changes += 1
        recent = self._recent
        recent[first] = position
        if indexed:
            self.times.update_index()
        if len(recent) > RECENT_APPENDS:
            del recent[next(iter(recent))]

    def preallocate(self, size: int) -> None:
        """Makes the file take up ``size`` bytes until it is trimmed. An ``OSError`` leaves it unchanged."""
        self.file.reserve(size)
        self._preallocated = True

    def trim(self) -> None:
        """Gives back the file's space beyond its last entry."""
        if self._preallocated:
            self.file.reserve(0)
            self._preallocated = False
            self.changes += 1

    def locate(self, offset: int) -> int:
        """Returns the position of the first entry at or above ``offset``, or the segment's end."""
        position = self._recent.get(offset)
        if position is not None:
            return position
        if offset >= self.next_offset:
            return self.size
        start, data = self._block_of(offset)
        for position, _, found in scan(data):
            if found >= offset:
                return start + position
        return start + len(data)

    def _end_of_range(self, start: int, end: int, max_bytes: int, at_least_one: bool) -> int:
        """Returns the greatest end of an entry at most ``max_bytes`` after ``start``, and not after ``end``.

        ``start`` is the position of an entry below ``end``. With ``at_least_one`` that entry is always included.
        """
        target = start + max_bytes
        if target >= end:
            return end
        if start < self._trusted_from:
            self._verify(start, target)
        cut = begin = max(start, self.index.floor_position(target))
        for position, size, _ in scan(self._block(begin)):
            if begin + position + size > target:
                break
            cut = begin + position + size
        if cut > start or not at_least_one:
            return cut
        size = ENTRY_HEADER.unpack(self.read(start, HEADER_SIZE))[1]
        return start + HEADER_SIZE + int(size)

    def slice(self, start: int, end: int, max_bytes: int, *, at_least_one: bool) -> Slice:
        """Returns the messages from position ``start``, a boundary, below the offset ``end``: ``max_bytes`` at most.

        With ``at_least_one`` the first one is returned even if it is larger. Raises :class:`CorruptLog`.
        """
        stop = self.size if end >= self.next_offset else self.locate(end)
        if stop - start > max_bytes:
            stop = self._end_of_range(start, stop, max_bytes, at_least_one)
        if stop <= start:
            return LogSlice(self, start, 0)
        if start < self._trusted_from:
            self._verify(start, stop)
        return LogSlice(self, start, stop - start)

    def load(self, limit: int | None = None) -> SegmentScan | None:
        """Returns an unstarted scan of what follows the last index entry; None if the index is not usable.

        An offset after a gap must be below ``limit``.
        """
        if not self.index.load(self.size):
            return None
        start = self.index.last_position
        offset = self.index.offset_at(start)
        if start and not self._entry_begins_at(start, offset):
            return None
        return SegmentScan(self.file, self.base_offset, self.config, position=start, next_offset=offset, limit=limit)

    def _entry_begins_at(self, position: int, offset: int) -> bool:
        """Returns whether an entry whose first message has this offset seems to be there."""
        header = self.file.read(position, HEADER_SIZE)
        if len(header) < HEADER_SIZE:
            return False
        entry = self.file.read(position, HEADER_SIZE + max(0, ENTRY_HEADER.unpack(header)[1]))
        try:
            return len(entry) >= ENTRY_PREFIX.size and read_first_offset(entry) == offset
        except RecordError:
            return False

    def trust(self, tail: SegmentScan, *, closed_cleanly: bool) -> None:
        """Trusts the data on disk: ``tail`` is the finished scan of :meth:`load`, without a problem.

        The blocks before it are checked when they are first read; the times are trusted after a clean stop only.
        """
        for entry in tail.entries:
            self.index.append(*entry)
        self._trusted_from = tail.start
        self.next_offset = tail.next_offset
        if closed_cleanly:
            self.times.load(self.next_offset)
        else:
            self.times.forget()

    def scan(self, limit: int | None = None) -> SegmentScan:
        """Returns an unstarted scan of the file. An offset after a gap must be below ``limit``."""
        return SegmentScan(self.file, self.base_offset, self.config, limit=limit)

    def adopt(self, scan: SegmentScan) -> None:
        """Adopts the good prefix that a finished scan found; the file may be longer."""
        self.index.replace(scan.entries)
        self.size = scan.position
        self.next_offset = scan.next_offset
        self._trusted_from = 0
        self.times.replace(scan.times, self.size)

    def cut(self, position: int, next_offset: int) -> None:
        """Truncates the file, which then ends with ``next_offset - 1``."""
        self.index.truncate(position)
        self.file.truncate(position)
        self._preallocated = False
        self.size = position
        self.next_offset = next_offset
        self.cuts += 1
        self.changes += 1
        self._trusted_from = min(self._trusted_from, position)
        self._recent.clear()
        self.times.forget()

    def cut_point(self, offset: int) -> tuple[int, int, int]:
        """Returns where to truncate: a position, the offset after the last remaining entry, and the log's new end.

        The position is that of the first entry whose last message is at or above ``offset``. The new end is greater
        than the offset after the last remaining entry if compaction has left a gap there.
        """
        if offset <= self.base_offset:
            return 0, self.base_offset, self.base_offset
        start, data = self._recheck_block_of(offset - 1)
        cut, next_offset = start, None
        for position, size, found in scan(data):
            if found >= offset:  # a compressed set that holds both the offset before and this one is removed as a whole
                end = min(offset, read_first_offset(data[position : position + size]))
                return cut, self._end_before(start) if next_offset is None else next_offset, end
            cut, next_offset = start + position + size, found + 1
        return cut, self._end_before(start) if next_offset is None else next_offset, offset

    def _end_before(self, position: int) -> int:
        """Returns the offset after the entry that ends at ``position``: the next one's, unless there is a gap."""
        if position == 0:
            return self.base_offset
        start, data = self._recheck_block_of(self.index.offset_at(position - 1))
        while start + len(data) < position:
            start += len(data)
            data = self._block(start)
        *_, (_, _, last) = scan(data)
        return last + 1

    def seal(self) -> None:
        """Ends the appends, until the log is opened again or truncated."""
        self._recent.clear()
        self.times.seal()

    def blocks(self, position: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yields position and checked bytes of each block from ``position``, a boundary, on."""
        while position < self.size:
            data = self._block(position)
            yield position, data
            position += len(data)

    async def fsync(self) -> None:
        """Makes the data durable as of the call."""
        changes = self.changes
        await self.file.fsync()
        self.durable_changes = max(self.durable_changes, changes)

    def close(self) -> None:
        """Closes the files; outstanding slices become invalid. Idempotent."""
        self.cuts += 1
        self.closed = True
        self.file.close()
        self.index.close()
        self.times.close()

    def read(self, position: int, size: int) -> bytes:
        """Reads bytes of the file. Raises :class:`CorruptLog` if the disk cannot deliver them."""
        with self._reading():
            return self.file.read(position, size)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise self.record_read_error(error) from error

    def record_read_error(self, error: OSError) -> CorruptLog:
        """Marks the log as damaged and returns the exception for it."""
        damage = CorruptLog(self.path, 0, self.base_offset, f"it cannot be read: {error}")
        self.on_damage(damage)
        return damage

    def _block_of(self, offset: int) -> tuple[int, bytes]:
        """Returns position and checked bytes of the block that would hold ``offset``."""
        start = self.index.floor(offset)[1]
        if start < self._trusted_from and self._verify(start, start + 1):
            start = self.index.floor(offset)[1]
        return start, self._block(start)

    def _recheck_block_of(self, offset: int) -> tuple[int, bytes]:
        """Returns the block of :meth:`_block_of` for a truncation, checked even if it was checked before.

        The disk may have damaged an offset since, and the truncation would remove other messages then.
        """
        start, data = self._block_of(offset)
        if not self._is_block_good(start, data):
            self.rebuild_index()
            start, data = self._block_of(offset)
        return start, data

    def _block(self, position: int) -> bytes:
        """Returns the checked bytes from an entry known to be at ``position`` to the end of its block."""
        if position < self._trusted_from:
            self._verify(position, position + 1)
        return self.read(position, self.index.ceiling_position(position, self.size) - position)

    def _verify(self, start: int, end: int) -> bool:
        """Checks the blocks between two positions that were found on disk and not checked yet.

        Returns True if the index was bad and has been rebuilt. The caller must then repeat its lookups.
        """
        end = min(end, self._trusted_from)
        position = self.index.floor_position(start)
        while position < end:
            stop = min(self.index.ceiling_position(position, self.size), self._trusted_from)
            if position not in self._verified:
                if not self._is_block_good(position, self.read(position, stop - position)):
                    self.rebuild_index()
                    return True
                self._verified.add(position)
            position = stop
        return False

    def _is_block_good(self, position: int, data: bytes) -> bool:
        """Returns whether ``data`` is exactly the entries of the block, and the first has the offset of the index."""
        offset, end = self.index.offset_at(position), position + len(data)
        found = self.config.check(data, offset, self.base_offset)
        # The block before the first index entry has only the base offset, at which a compacted segment need not begin.
        promised = not position or (found.count > 0 and found.first == offset)
        # If gaps are allowed, only the next block shows that the last offset of this one is too high.
        following = self.index.offset_at(end) if self.index.floor_position(end) == end else self.next_offset
        fits = found.size == end - position and found.next_offset <= following
        return promised and fits and found.problem is None

    def rebuild_index(self) -> None:
        """Scans the segment after a bad block: rebuilds the index if the data are good, else raises CorruptLog."""
        with self._reading():
            scan = self.scan().run()
        if scan.problem is not None or (scan.position, scan.next_offset) != (self.size, self.next_offset):
            problem = scan.problem or f"{self.size} bytes up to offset {self.next_offset} expected"
            raise CorruptLog(self.path, scan.position, scan.next_offset, problem)
        self.adopt(scan)


def open_segment(storage: Storage, directory: str, base_offset: int, config: LogConfig, *, now: Instant) -> Segment:
    """Opens the segment's files, created if missing; the segment must still be loaded or rebuilt.

    Raises :class:`IrregularFileError` if a link or another special file has the name of one of them.
    """
    path = f"{directory}/{format_segment_name(base_offset)}"
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(contextlib.closing(storage.open(path + suffix))) for suffix in SUFFIXES]
        opened.pop_all()
    return _make_segment(path, files, base_offset, config, now)


def open_found_segment(
    storage: Storage, directory: str, base_offset: int, config: LogConfig, *, now: Instant
) -> Segment:
    """Opens a segment as :func:`open_segment`, but returns an ``unusable`` one for a special file."""
    try:
        return open_segment(storage, directory, base_offset, config, now=now)
    except IrregularFileError as error:
        path = f"{directory}/{format_segment_name(base_offset)}"
        segment = _make_segment(path, [UnusableFile(error)] * len(SUFFIXES), base_offset, config, now)
        segment.unusable = f"{error.filename}: {error.strerror}"
        return segment


def _make_segment(path: str, files: Sequence[File], base_offset: int, config: LogConfig, now: Instant) -> Segment:
    """``files``: in the order of ``SUFFIXES``."""
    data, index, times = files
    offsets = config.traits.index(index, base_offset)
    return Segment(path + LOG_SUFFIX, data, offsets, TimeIndex(times, base_offset), config, now=now)


def create_segment(storage: Storage, directory: str, base_offset: int, config: LogConfig, *, now: Instant) -> Segment:
    """Creates an empty segment and wipes the leftovers of an earlier one from its index.

    After an ``OSError`` its files are removed if possible. The previous segment may continue, and the name would then
    be one in its middle. A file that was there before stays (``FileExistsError``).
    """
    try:
        segment = open_segment(storage, directory, base_offset, config, now=now)
        if segment.size:
            raise FileExistsError(errno.EEXIST, f"a new segment has {segment.size} bytes", segment.path)
        segment.index.replace([])
        segment.times.forget()
    except FileExistsError:
        raise
    except OSError:
        with contextlib.suppress(OSError):
            remove_files(storage, f"{directory}/{format_segment_name(base_offset)}")
        raise
    return segment


def remove_segment(storage: Storage, segment: Segment) -> None:
    """Closes a segment and removes its files."""
    segment.close()
    remove_files(storage, segment.path.removesuffix(LOG_SUFFIX))


@dataclass(frozen=True, slots=True)
class CutPoint:
    """A point at which a log can be truncated, and where the log then ends."""

    keep: int
    """Number of segments that stay."""
    segment: Segment
    """The last of them."""
    position: int
    """The byte position at which that segment is truncated."""
    next_offset: int
    """The offset after its last remaining message."""
    end: int
    """The offset of the next append; greater than ``next_offset`` if the truncation leaves a gap before it."""

    @property
    def gap(self) -> int:
        """``end`` if there is a gap before it, which only the name of a further segment can record; else 0."""
        return self.end if self.next_offset < self.end else 0


def find_cut_point(segments: Sequence[Segment], keep: int, offset: int) -> CutPoint:
    """Finds the point that leaves everything below ``offset``. Raises ``CorruptLog``.

    ``offset`` must be in, or at the end of, the last of the first ``keep`` segments.
    """
    segment = segments[keep - 1]
    position, next_offset, end = segment.cut_point(offset)
    if next_offset < end and any(other.base_offset == end for other in segments[keep:]):
        return CutPoint(keep + 1, segments[keep], 0, end, end)  # the segment that records the gap exists
    return CutPoint(keep, segment, position, next_offset, end)
