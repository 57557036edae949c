"""A segment: consecutive entries in ``<base offset, 20 digits>.log``, and the sparse indexes next to it.

The index divides a segment into blocks of about ``index_interval_bytes``. A search reads one block.

Blocks found on disk at opening are not trusted until all their entries have been checked. The check covers CRCs, sizes
and the order of offsets, and that the index entries before and after the block fit. It happens once, at the first read
that needs the block. Bytes appended by this process were checked before the append. If a block fails, either the index
or the data is bad. A scan of the whole segment then repairs the index or names the first bad entry.

``size`` is the end of the trusted bytes; a damaged segment's file may be longer.
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
from assay.system_under_test.log.index import MAX_RELATIVE, OffsetIndex, TimeIndex
from assay.system_under_test.log.scan import SegmentScan
from assay.system_under_test.log.times import SegmentTimes
from assay.system_under_test.records.message import ENTRY_HEADER, ENTRY_PREFIX, HEADER_SIZE, RecordError
from assay.system_under_test.records.message_set import SetTimes, read_first_offset, scan
from assay.system_under_test.records.steps import STEP_BYTES
from assay.system_under_test.runtime import File, IrregularFileError, Slice, Storage

RECENT_APPENDS = 256
"""How many appends' positions are remembered. Readers at the end of the log need exactly the latest ones."""


class SliceRemoved(OSError):
    """The bytes of a slice were removed from the log before they were sent. The connection must be closed."""


class LogSlice:
    """The result of a read: a range of a segment.

    A read fails after any truncation of the segment, because new bytes may have replaced the old ones.
    """

    __slots__ = ("_position", "_segment", "_truncations", "size")

    def __init__(self, segment: Segment, position: int, size: int) -> None:
        self._segment = segment
        self._position = position
        self.size = size
        self._truncations = segment.truncations

    def read(self) -> bytes:
        """Returns the bytes. Raises :class:`SliceRemoved` if the log was truncated, deleted or closed since."""
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
        if self._segment.truncations != self._truncations:
            raise SliceRemoved(errno.ESTALE, "removed from the log before it was sent", self._segment.path)
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
        self.truncations = 0
        """Number of truncations; closing counts as one."""
        self.changes = 1
        """Number of changes of the file."""
        self.durable_changes = 0
        """How many of ``changes`` are known to be durable."""
        self.closed = False
        self.unusable: str | None = None
        """Why the segment's files were not opened; None if they were."""
        self.on_damage: Callable[[CorruptLog], None] = ignore
        self._preallocated = False
        self._trusted_from = file.size
        """All bytes from this position on were checked when the segment was opened, or when they were appended."""
        self._verified: set[int] = set()
        """Positions of the blocks before ``_trusted_from`` that were checked."""
        self._expanded = 0
        """How many bytes were decompressed for these checks."""
        self._recent: dict[int, int] = {}
        """Offsets and positions of the last appends."""

    def is_full(self, extra: int, last_offset: int, segment_bytes: int, index_bytes: int) -> bool:
        """Returns whether an append of ``extra`` bytes, up to ``last_offset``, belongs in a new segment."""
        size = self.size + extra
        return size > segment_bytes or size > MAX_RELATIVE or self.index.size >= index_bytes or (
            last_offset - self.base_offset > MAX_RELATIVE
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
        start, data = self._find_block(offset)
        for position, _, found in scan(data):
            if found >= offset:
                return start + position
        return start + len(data)

    def _find_range_end(self, start: int, end: int, max_bytes: int, at_least_one: bool) -> int:
        """Returns the position of the last entry boundary within ``max_bytes`` after ``start``, at most ``end``.

        ``start`` is the position of an entry below ``end``. With ``at_least_one`` that entry is always included.
        """
        target = start + max_bytes
        if target >= end:
            return end
        if start < self._trusted_from:
            self._check_blocks(start, target, STEP_BYTES)
        boundary = begin = max(start, self.index.floor_position(target))
        for position, size, _ in scan(self._read_block(begin)):
            if begin + position + size > target:
                break
            boundary = begin + position + size
        if boundary > start or not at_least_one:
            return boundary
        size = ENTRY_HEADER.unpack(self.read(start, HEADER_SIZE))[1]
        return start + HEADER_SIZE + int(size)

    def slice(self, start: int, end: int, max_bytes: int, *, at_least_one: bool) -> Slice:
        """Returns at most ``max_bytes`` of messages from the entry at position ``start`` on, below the offset ``end``.

        With ``at_least_one`` the first message is returned even if it is larger. Raises :class:`CorruptLog`.
        """
        stop = self.size if end >= self.next_offset else self.locate(end)
        if stop - start > max_bytes:
            stop = self._find_range_end(start, stop, max_bytes, at_least_one)
        if stop <= start:
            return LogSlice(self, start, 0)
        if start < self._trusted_from:
            self._check_blocks(start, stop, STEP_BYTES)
            stop = self._find_checked_end(start, stop)
        return LogSlice(self, start, stop - start)

    def load(self, limit: int | None = None) -> SegmentScan | None:
        """Returns an unstarted scan of the bytes after the last index entry; None if the index is not usable.

        ``limit``: see :meth:`scan`.
        """
        if not self.index.load(self.size):
            return None
        start = self.index.last_position
        offset = self.index.offset_at(start)
        if start and not self._entry_begins_at(start, offset):
            return None
        return SegmentScan(self.file, self.base_offset, self.config, position=start, next_offset=offset, limit=limit)

    def _entry_begins_at(self, position: int, offset: int) -> bool:
        """Returns whether an entry at this position seems to begin with a message of this offset."""
        header = self.file.read(position, HEADER_SIZE)
        if len(header) < HEADER_SIZE:
            return False
        entry = self.file.read(position, HEADER_SIZE + max(0, ENTRY_HEADER.unpack(header)[1]))
        try:
            return len(entry) >= ENTRY_PREFIX.size and read_first_offset(entry) == offset
        except RecordError:
            return False

    def trust(self, tail: SegmentScan, *, closed_cleanly: bool) -> None:
        """Trusts the data on disk. ``tail`` is the finished scan of :meth:`load`, without a problem.

        The blocks before ``tail`` are checked when they are first read. The time index is used after a clean stop only.
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
        """Returns an unstarted scan of the file.

        Compaction leaves gaps between offsets. The scan accepts an offset after a gap only if it is below ``limit``.
        """
        return SegmentScan(self.file, self.base_offset, self.config, limit=limit)

    def adopt(self, scan: SegmentScan) -> None:
        """Takes over the indexes and the size from a finished scan. The file may be longer than its good prefix."""
        self.index.replace(scan.entries)
        self.size = scan.position
        self.next_offset = scan.next_offset
        self._trusted_from = 0
        self.times.replace(scan.times, self.size)

    def truncate(self, position: int, next_offset: int) -> None:
        """Truncates the file, which then ends with ``next_offset - 1``."""
        self.index.truncate(position)
        self.file.truncate(position)
        self._preallocated = False
        self.size = position
        self.next_offset = next_offset
        self.truncations += 1
        self.changes += 1
        self._trusted_from = min(self._trusted_from, position)
        self._recent.clear()
        self.times.forget()

    def find_truncation_point(self, offset: int) -> tuple[int, int, int]:
        """Returns where to truncate: a position, the offset after the last remaining entry, and the log's new end.

        The position is the start of the first entry whose last message is at or above ``offset``. If compaction has
        left a gap before that entry, the new end is greater than the offset after the last remaining entry.
        """
        if offset <= self.base_offset:
            return 0, self.base_offset, self.base_offset
        start, data = self._find_and_recheck_block(offset - 1)
        truncate_at, next_offset = start, None
        for position, size, found in scan(data):
            if found >= offset:  # a compressed set that also holds earlier offsets is removed as a whole
                end = min(offset, read_first_offset(data[position : position + size]))
                return truncate_at, self._find_end_before(start) if next_offset is None else next_offset, end
            truncate_at, next_offset = start + position + size, found + 1
        return truncate_at, self._find_end_before(start) if next_offset is None else next_offset, offset

    def _find_end_before(self, position: int) -> int:
        """Returns the offset after the last message of the entry that ends at ``position``."""
        if position == 0:
            return self.base_offset
        start, data = self._find_and_recheck_block(self.index.offset_at(position - 1))
        while start + len(data) < position:
            start += len(data)
            data = self._read_block(start)
        *_, (_, _, last) = scan(data)
        return last + 1

    def seal(self) -> None:
        """Marks the segment as complete: no append follows until the log is opened again or truncated."""
        self._recent.clear()
        self.times.seal()

    def blocks(self, position: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yields position and checked bytes of each block, from the entry at ``position`` on."""
        while position < self.size:
            data = self._read_block(position)
            yield position, data
            position += len(data)

    async def fsync(self) -> None:
        """Makes the data as of the call durable."""
        changes = self.changes
        await self.file.fsync()
        self.durable_changes = max(self.durable_changes, changes)

    def close(self) -> None:
        """Closes the files; outstanding slices become invalid. Idempotent."""
        self.truncations += 1
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

    def _find_block(self, offset: int) -> tuple[int, bytes]:
        """Returns position and checked bytes of the block to which ``offset`` belongs."""
        start = self.index.floor(offset)[1]
        if start < self._trusted_from and self._check_blocks(start, start + 1):
            start = self.index.floor(offset)[1]
        return start, self._read_block(start)

    def _find_and_recheck_block(self, offset: int) -> tuple[int, bytes]:
        """Returns the block of :meth:`_find_block` for a truncation, checked again even if it was checked before.

        The disk may have damaged an offset since, and the truncation would then remove the wrong messages.
        """
        start, data = self._find_block(offset)
        if not self._is_block_good(start, data):
            self.rebuild_index()
            start, data = self._find_block(offset)
        return start, data

    def _read_block(self, position: int) -> bytes:
        """Returns the checked bytes from an entry known to be at ``position`` to the end of its block."""
        if position < self._trusted_from:
            self._check_blocks(position, position + 1)
        return self.read(position, self.index.ceiling_position(position, self.size) - position)

    def _check_blocks(self, start: int, end: int, max_expanded: int | None = None) -> bool:
        """Checks the unchecked blocks between two positions.

        Ends after the first block with which the checks have decompressed ``max_expanded`` bytes. Returns True if the
        index was bad and has been rebuilt. The caller must then repeat its lookups.
        """
        end = min(end, self._trusted_from)
        position, expanded = self.index.floor_position(start), self._expanded
        while position < end:
            if max_expanded is not None and self._expanded - expanded >= max_expanded:
                break
            stop = min(self.index.ceiling_position(position, self.size), self._trusted_from)
            if position not in self._verified:
                if not self._is_block_good(position, self.read(position, stop - position)):
                    self.rebuild_index()
                    return True
                self._verified.add(position)
            position = stop
        return False

    def _find_checked_end(self, start: int, end: int) -> int:
        """Returns the end of the checked bytes from ``start`` on, at most ``end``. The first block must be checked."""
        position = self.index.floor_position(start)
        while position < min(end, self._trusted_from):
            if position not in self._verified:
                return position
            position = min(self.index.ceiling_position(position, self.size), self._trusted_from)
        return end

    def _is_block_good(self, position: int, data: bytes) -> bool:
        """Returns whether ``data`` consists of whole, valid entries, and the first one has the offset of the index."""
        offset, end = self.index.offset_at(position), position + len(data)
        found = self.config.check(data, offset, self.base_offset)
        self._expanded += found.expanded
        # The first block has no index entry, and a compacted segment need not begin at its base offset.
        promised = not position or (found.count > 0 and found.first == offset)
        # If gaps are allowed, only the next block shows that the last offset of this one is too high.
        following = self.index.offset_at(end) if self.index.floor_position(end) == end else self.next_offset
        fits = found.size == end - position and found.next_offset <= following
        return promised and fits and found.problem is None

    def rebuild_index(self) -> None:
        """Rebuilds the index by a scan of the segment. Raises :class:`CorruptLog` if the data are bad."""
        with self._reading():
            scan = self.scan().run()
        if scan.problem is not None or (scan.position, scan.next_offset) != (self.size, self.next_offset):
            problem = scan.problem or f"{self.size} bytes up to offset {self.next_offset} expected"
            raise CorruptLog(self.path, scan.position, scan.next_offset, problem)
        self.adopt(scan)


def open_segment(storage: Storage, directory: str, base_offset: int, config: LogConfig, *, now: Instant) -> Segment:
    """Opens the segment's files, and creates missing ones. The caller must still load or rebuild the segment.

    Raises :class:`IrregularFileError` if a link or another special file has the name of one of the files.
    """
    path = f"{directory}/{format_segment_name(base_offset)}"
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(contextlib.closing(storage.open(path + suffix))) for suffix in SUFFIXES]
        opened.pop_all()
    return _make_segment(path, files, base_offset, config, now)


def open_found_segment(
    storage: Storage, directory: str, base_offset: int, config: LogConfig, *, now: Instant
) -> Segment:
    """Opens a segment as :func:`open_segment`, but returns an ``unusable`` segment if one of its files is special."""
    try:
        return open_segment(storage, directory, base_offset, config, now=now)
    except IrregularFileError as error:
        path = f"{directory}/{format_segment_name(base_offset)}"
        segment = _make_segment(path, [UnusableFile(error)] * len(SUFFIXES), base_offset, config, now)
        segment.unusable = f"{error.filename}: {error.strerror}"
        return segment


def _make_segment(path: str, files: Sequence[File], base_offset: int, config: LogConfig, now: Instant) -> Segment:
    """Makes a segment of these files, which are in the order of ``SUFFIXES``."""
    data, index, times = files
    offsets = config.traits.index(index, base_offset)
    return Segment(path + LOG_SUFFIX, data, offsets, TimeIndex(times, base_offset), config, now=now)


def create_segment(storage: Storage, directory: str, base_offset: int, config: LogConfig, *, now: Instant) -> Segment:
    """Creates an empty segment, and empties the indexes if an earlier segment of that name left any.

    After an ``OSError`` the new files are removed if possible, because the previous segment may then be continued
    beyond ``base_offset``. A file with data that was there before stays (``FileExistsError``).
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
class TruncationPoint:
    """A point at which a log can be truncated, and the log's end after that."""

    keep: int
    """Number of segments that stay."""
    segment: Segment
    """The last segment that stays."""
    position: int
    """The byte position at which that segment is truncated."""
    next_offset: int
    """The offset after the last remaining message."""
    end: int
    """The offset of the next append; greater than ``next_offset`` if there is a gap between them."""

    @property
    def gap_end(self) -> int:
        """The offset at which a new segment must begin, because its name records the gap; 0 without a gap."""
        return self.end if self.next_offset < self.end else 0


def find_truncation_point(segments: Sequence[Segment], keep: int, offset: int) -> TruncationPoint:
    """Finds the point at which a truncation leaves everything below ``offset``. Raises ``CorruptLog``.

    ``offset`` must lie in or at the end of the segment ``keep - 1``.
    """
    segment = segments[keep - 1]
    position, next_offset, end = segment.find_truncation_point(offset)
    if next_offset < end and any(other.base_offset == end for other in segments[keep:]):
        return TruncationPoint(keep + 1, segments[keep], 0, end, end)  # the segment that records the gap exists
    return TruncationPoint(keep, segment, position, next_offset, end)
