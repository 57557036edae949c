"""The log of one partition: segments in a row, appended at the end, cut only on purpose.

Appends and reads are plain calls on the event loop, so each is atomic; only :meth:`Log.flush` and opening wait. The
list of segments is replaced as a whole when it changes, never edited. Three offsets tell the state::

    start_offset <= flushed_offset <= end_offset

Below ``flushed_offset`` everything survives a power loss. ``end_offset`` is the offset of the next append. Offsets
are dense as appended and never change; compaction (``cleaner``) leaves gaps.

The one trap of files: a cut that was not fsynced can be undone by a power loss, and a removed segment can come back
*behind* records that were appended after it. So a log that was cut must be flushed before the next append, which
otherwise raises :class:`UnflushedTruncation`.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from assay.system_under_test.log import swap
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.cut import Cut, cut_at
from assay.system_under_test.log.directory import DELETED_SUFFIX
from assay.system_under_test.log.errors import DamagedLog, OffsetOutOfRange, UnflushedTruncation
from assay.system_under_test.log.recovery import Recovery, load_segments, remove_leftovers
from assay.system_under_test.log.scan import SegmentScan
from assay.system_under_test.log.segment import (
    CorruptLog,
    RetiredSegment,
    Segment,
    new_segment,
    open_segment,
    remove_segment,
)
from assay.system_under_test.log.slices import EMPTY, whole_messages
from assay.system_under_test.log.tombstones import Tombstones
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import CorruptMessage, Message
from assay.system_under_test.runtime import Slice, Storage

__all__ = [
    "EARLIEST",
    "LATEST",
    "CorruptLog",
    "DamagedLog",
    "Log",
    "LogConfig",
    "OffsetOutOfRange",
    "Recovery",
    "UnflushedTruncation",
]


LATEST = -1
EARLIEST = -2


def _nobody(_: int) -> None:
    """Nobody wants to hear of it."""


class Log:
    """See the module. Made by :meth:`Log.open`. ``OSError`` means what the storage means by it.

    ``on_roll`` hears of each new segment's base offset.
    """

    def __init__(self, storage: Storage, directory: str, config: LogConfig, wall_clock: Callable[[], float]) -> None:
        self._storage = storage
        self._directory = directory
        self._wall_clock = wall_clock
        self.tombstones = Tombstones(storage, directory)
        self.config = replace(config, compacted=config.compacted or self.tombstones.known)
        self.on_roll: Callable[[int], None] = _nobody
        self._segments: tuple[Segment, ...] = ()
        self._bases: tuple[int, ...] = ()
        self._active: Segment
        self._end = 0
        self._flushed = 0
        self._flushing = asyncio.Lock()
        self._flight = 0
        self._cuts = 0
        self._durable_cuts = 0
        self._renamed = 0
        self._durable_renamed = 0
        self._damage: _Damage | None = None
        self._closed = False
        self._retired: list[Callable[[], None]] = []
        """What ends the segments that were taken out."""
        self._gap = 0
        """Where the last segment begins, if a cut that is not flushed has left a gap before it."""
        self._swap: str | None = None
        """The swap file under way."""

    @classmethod
    async def open(
        cls,
        storage: Storage,
        directory: str,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int,
        wall_clock: Callable[[], float],
    ) -> tuple[Log, Recovery]:
        """Opens or creates the log in ``directory``; afterwards all of it is durable.

        ``clean``: the last process stopped cleanly. ``recovery_point``: all offsets below had been fsynced (0 when
        unknown). ``wall_clock`` gives seconds. Look at ``Recovery.damaged``: such a log serves its good prefix only.
        Raises ``CheckpointError`` when what compaction has noted makes no sense.
        """
        storage.mkdir(directory)
        if not clean or not storage.listdir(directory):
            await storage.fsync_directory(posixpath.dirname(directory))
        log = cls(storage, directory, config, wall_clock)
        if config.compacted:
            await log.tombstones.begin()
        loaded = await load_segments(
            storage,
            directory,
            log.config,
            clean=clean,
            recovery_point=recovery_point,
            gaps=log.tombstones.gaps,
            now_ms=log.now_ms,
        )
        recovery = loaded.recovery
        log._replace(loaded.segments)
        log._end = log._flushed = recovery.end_after
        if recovery.damaged:
            last = log._active
            log._damage = _Damage(last.base_offset, last.size, last.next_offset, recovery.problem or "damaged")
        return log, recovery

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._bases[0]

    @property
    def end_offset(self) -> int:
        """The offset of the next append."""
        return self._end

    @property
    def flushed_offset(self) -> int:
        """Everything below is fsynced."""
        return self._flushed

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def size(self) -> int:
        """Bytes of all segments, indexes not counted."""
        return sum(segment.size for segment in self._segments)

    @property
    def segment_offsets(self) -> tuple[int, ...]:
        """Base offsets of the segments, rising; one more after each roll."""
        return self._bases

    @property
    def damage(self) -> str | None:
        """What is wrong, found at opening or by a read; None for a healthy log."""
        return None if self._damage is None else self._damage.problem

    def append(self, data: bytes, count: int, *, append_time: int | None = None) -> tuple[int, int]:
        """Appends a set of ``count`` messages as leader, giving them the next offsets: ``(first, last)``.

        The set must have passed ``message_set.validate`` and hold whole messages only (``CorruptMessage``). With
        ``append_time``, in milliseconds, that becomes the messages' timestamp.
        """
        first = self._end
        stamped, found = message_set.stamp(data, first, append_time)
        if found != count or not count:
            raise ValueError(f"{self._directory}: a set of {found} messages was announced as {count}")
        last = first + count - 1
        self._append(stamped, first, last)
        return first, last

    async def configure(self, config: LogConfig) -> None:
        """From now on; the sizes of segments that are there stay as they are. A log that had gaps may go on to."""
        if config.compacted:
            await self.tombstones.begin()
        self.config = replace(config, compacted=self.tombstones.known)
        for segment in self._segments:
            segment.config = self.config

    async def allow_gaps(self) -> None:
        """Durably, and for good: whoever this log is copied from has some."""
        await self.tombstones.begin()
        self.config = replace(self.config, compacted=True)
        for segment in self._segments:
            segment.config = self.config

    def append_replicated(self, data: bytes) -> int:
        """Appends what the leader has at ``end_offset``, offsets kept, and returns the new ``end_offset``.

        A partial last message is ignored. Raises ``CorruptMessage``, and then appends nothing, for a bad CRC or
        offsets that do not go on densely from ``end_offset`` (``config.compacted``: that do not rise).
        """
        found = message_set.check(data, self._end, gaps=self.config.compacted)
        if found.problem is not None:
            raise CorruptMessage(f"{self._directory}: from the leader at byte {found.size}: {found.problem}")
        if found.count:
            whole = data if found.size == len(data) else data[: found.size]
            self._append(whole, message_set.first_offset(data), found.next_offset - 1)
        return self._end

    def read(self, offset: int, max_bytes: int, *, limit: int | None = None, at_least_one: bool = True) -> Slice:
        """Whole messages from ``offset`` on, all below the offset ``limit``, at most ``max_bytes`` of them.

        With ``at_least_one`` the first message comes even if it is larger. The range ends with its segment, so an
        answer may be shorter than possible. Empty at the log's end or at ``limit``.
        Raises :class:`OffsetOutOfRange`, and :class:`CorruptLog` instead of ever giving a damaged byte.
        """
        end = self._end
        if not self._bases[0] <= offset <= end:
            raise OffsetOutOfRange(offset, self._bases[0], end)
        if limit is not None and limit < end:
            end = limit
        if offset >= end:
            return EMPTY
        for index in range(bisect_right(self._bases, offset) - 1, len(self._segments)):
            segment = self._segments[index]
            try:
                start = segment.locate(offset)
                if start < segment.size:
                    return whole_messages(segment, start, end, max_bytes, at_least_one)
            except CorruptLog as damage:
                self._note(segment, damage)
                raise
        return EMPTY

    def decode(self, first: int, last: int) -> list[Message]:
        """The messages from offset ``first`` up to, not including, ``last``. Raises as :meth:`read`."""
        messages: list[Message] = []
        while first < last:
            data = self.read(first, 1 << 20, limit=last).read()
            if not data:
                break
            found = message_set.decode(data)
            messages += [message for message in found if first <= message.offset < last]
            first = found[-1].offset + 1
        return messages

    def offsets_before(self, timestamp: int, count: int) -> list[int]:
        """At most ``count`` offsets at which segments begin, falling, as ListOffsets 0 wants them.

        ``timestamp`` in milliseconds: :data:`LATEST` for the log's end and what is before it, :data:`EARLIEST` for
        its start; else the segments last written at or before it, by this node's clock. A segment not written since
        this process started counts with its newest message's timestamp, or else with that start (Kafka, which has
        the file's time: ``fetchOffsetsBefore``).
        """
        if timestamp == EARLIEST:
            return [self.start_offset][:count]
        starts: list[int] = []
        for segment in self._segments:
            with self.noting(segment):
                if timestamp == LATEST or segment.written_ms() <= timestamp:
                    starts.append(segment.base_offset)
        if self._active.size and (timestamp == LATEST or self.now_ms() <= timestamp):
            starts.append(self._end)
        return starts[::-1][:count]

    def offset_for_time(self, timestamp: int) -> tuple[int, int] | None:
        """``(timestamp, offset)`` of the first message stamped at or after ``timestamp`` (ms); None when none is.

        Scans each segment once for its newest timestamp, and then the one that has the answer.
        """
        wanted = max(timestamp, 0)
        for segment in self._segments:
            with self.noting(segment):
                if segment.newest_timestamp() >= wanted:
                    found = segment.first_since(wanted)
                    if found is not None:
                        return found
        return None

    def truncate_to(self, offset: int) -> None:
        """Cuts everything at or above ``offset``; below the log's start, the empty log starts there: ``reset``.

        Before: ``before_cut``, and the recovery point's checkpoint must durably be at most ``offset``, else a crash
        makes the log look damaged. After: ``flush`` before the next append. Raises :class:`DamagedLog`,
        :class:`CorruptLog`.
        """
        if offset >= self._end:
            return
        self._refuse_if_damaged()
        if offset < self.start_offset:
            self.reset(offset)
            return
        cut = self._cut_at(offset)
        self._remove_after(cut.keep)
        cut.segment.cut(cut.position, cut.next_offset)
        if cut.gap:
            self._replace((*self._segments, self._new_segment(cut.end)))
        self._end_at(cut.end)
        self._gap = cut.gap

    async def before_cut(self, offset: int) -> None:
        """Makes the notes durable that ``truncate_to(offset)`` needs, which must be the next change.

        A log that will end after a gap could not tell so if it were killed before its next ``flush``; what is noted of
        a gap holds for all below it, so that must be on the disk. Raises as ``truncate_to`` does, and ``OSError``.
        """
        gap = 0
        if self.start_offset <= offset < self._end and self._damage is None:
            gap = self._cut_at(offset).gap
        if gap:
            await self.flush()
        await self.tombstones.truncate(offset, gap)

    def _cut_at(self, offset: int) -> Cut:
        # At the start itself the first segment stays, empty: its name is what tells where the log starts.
        keep = max(1, bisect_right(self._bases, offset - 1))
        with self.noting(self._segments[keep - 1]):
            return cut_at(self._segments, keep, offset)

    def reset(self, start_offset: int) -> None:
        """Discards everything, damage included; the log is empty and starts at ``start_offset``.

        Checkpoint before, ``flush`` after, as with ``truncate_to``: a power loss in between leaves any prefix of
        the old log, or an empty one that starts at 0.
        """
        self._remove_after(0)
        remove_leftovers(self._storage, self._directory, ())
        self._damage = None
        self._replace((self._new_segment(start_offset),))
        self._end_at(start_offset)
        self._flushed = start_offset
        self._flight = -1

    def repair(self) -> int:
        """Cuts a damaged log where its good prefix ends, and returns that offset; nothing to do for a healthy one.

        What follows the damage is lost to this replica: call it only once others are known to hold it, or nobody
        ever will. As after ``truncate_to``, ``flush`` before the next append.
        """
        damage = self._damage
        if damage is None:
            return self._end
        keep = self._bases.index(damage.base_offset) + 1
        self._remove_after(keep)
        remove_leftovers(self._storage, self._directory, self._bases)
        self._active.cut(damage.position, damage.offset)
        self._damage = None
        self._end_at(damage.offset)
        return self._end

    async def retain(self, limit: Callable[[], int], *, retention_ms: int, retention_bytes: int) -> int:
        """Takes out the oldest segments that are past their time, or more than is to be kept; says how many.

        Only what lies below the offset that ``limit`` gives goes, and nothing of a damaged log; -1 means no such bound.
        A segment is as old as its youngest message, one without timestamps as old as its last append. One is durably
        gone before the next goes, since a power loss must not leave a hole. Readers of them may go on until
        :meth:`purge`. Raises :class:`CorruptLog`.
        """
        count = 0
        while True:
            async with self._flushing:
                if self._closed or not self._is_oldest_due(limit(), retention_ms, retention_bytes):
                    return count
                if len(self._segments) == 1:
                    self._roll()  # where the log starts must be on the disk before the last that tells it goes
                else:
                    segment = self._segments[0]
                    self._replace(self._segments[1:])
                    self._retired.append(RetiredSegment(self._storage, segment).remove)
                    self._flushed = max(self._flushed, self.start_offset)
                    count += 1
                await self._storage.fsync_directory(self._directory)

    def _is_oldest_due(self, limit: int, retention_ms: int, retention_bytes: int) -> bool:
        segment, is_last = self._segments[0], len(self._segments) == 1
        if self._damage is not None or (self._end if is_last else self._bases[1]) > limit:
            return False
        if not segment.size:
            return not is_last  # compaction has left nothing of it
        if retention_bytes >= 0 and self.size - segment.size >= retention_bytes:
            return True
        with self.noting(segment):
            return retention_ms >= 0 and self.now_ms() - segment.age_ms() > retention_ms

    def purge(self, count: int | None = None) -> None:
        """Removes the files of the ``count`` segments taken out first, or of all; slices of them become invalid."""
        retired, self._retired = self._retired[:count], [] if count is None else self._retired[count:]
        for end in retired:
            end()

    def cleanable(self, limit: int) -> tuple[Segment, ...]:
        """The oldest segments, as far as compaction may touch them: durable, and with a message below ``limit`` after
        them, so that whoever reads or copies what is left of them always finds its way to where they ended.
        """
        if self._closed or self._damage is not None or self._cuts != self._durable_cuts:
            return ()
        limit = min(limit, self._flushed)
        return tuple(s for s, following in zip(self._segments, self._bases[1:], strict=False) if following < limit)

    @property
    def cuts(self) -> int:
        """How often it was cut."""
        return self._cuts

    @property
    def storage(self) -> Storage:
        return self._storage

    async def swap(self, old: Sequence[Segment], scan: SegmentScan, cuts: int) -> bool:
        """Durably puts a cleaned file in the place of neighbours from :meth:`cleanable`: see the module ``swap``.

        ``scan`` is the finished scan of the file at ``swap.cleaned_path``, which is durable; ``cuts`` as it was when
        the file was begun. Readers of the old ones may go on until :meth:`purge`. False, and the log is as it was, if
        it was cut, closed or found damaged since, or retention has taken one of the old ones.
        """
        base = old[0].base_offset
        async with self._flushing:
            if self._closed or self._damage is not None or self._cuts != cuts or old[0] not in self._segments:
                return False
            end = self._segments[self._segments.index(old[-1]) + 1].base_offset
            self._swap = swap.swap_path(self._directory, base, end)
            try:
                self._storage.rename(swap.cleaned_path(self._directory, base), self._swap)
                await self._storage.fsync_directory(self._directory)
                if self._swap is None or self._damage is not None:
                    return False
                swap.replace_files(self._storage, self._directory, base, end)
                self._swap = None
            finally:
                self._abandon_swap()
            written = old[-1].written_ms()
            new = open_segment(self._storage, self._directory, base, self.config, now_ms=written)
            new.adopt(scan)
            new.synced = new.changes
            first = self._segments.index(old[0])  # anew: while the folder was fsynced appends may have rolled
            self._replace((*self._segments[:first], new, *self._segments[first + len(old) :]))
            self._retired += [segment.close for segment in old]
            await self._storage.fsync_directory(self._directory)
            return True

    def _abandon_swap(self) -> None:
        if self._swap is not None:
            path, self._swap = self._swap, None
            with contextlib.suppress(OSError):
                self._storage.remove(path)

    async def flush(self) -> int:
        """Fsyncs what was appended or cut before the call, and returns ``flushed_offset``.

        Calls that come while one is under way share the next fsync. What is appended meanwhile is not waited for;
        what is cut meanwhile is not counted.
        """
        async with self._flushing:
            if self._closed:
                return self._flushed
            cuts, renamed = self._cuts, self._renamed
            self._flight = self._end
            for segment in self._dirty():
                if not segment.closed:
                    await segment.fsync()
            if renamed != self._durable_renamed:
                await self._storage.fsync_directory(self._directory)
                self._durable_renamed = renamed
            if self._gap:
                await self.tombstones.allow_gaps(lambda: self._gap)
            self._durable_cuts = cuts
            self._flushed = max(self._flushed, self._flight)
            return self._flushed

    async def close(self) -> None:
        """Flushes all, indexes too, and closes the files. Idempotent."""
        if self._closed:
            return
        await self.flush()
        async with self._flushing:
            self._closed = True
            if self._segments and self._damage is None:
                self._active.seal()
            self.purge()
            for segment in self._segments:
                await segment.index.fsync()
                await segment.times.fsync()
                segment.close()

    async def delete(self) -> None:
        """Closes the log and removes its directory; at no instant does a part of it stand under its own name."""
        async with self._flushing:
            self._closed = True
            self.purge()
            for segment in self._segments:
                segment.close()
            parent = posixpath.dirname(self._directory)
            doomed = self._directory + DELETED_SUFFIX
            if self._storage.exists(doomed):
                self._storage.remove(doomed)
            self._storage.rename(self._directory, doomed)
            await self._storage.fsync_directory(parent)
            self._storage.remove(doomed)
            await self._storage.fsync_directory(parent)

    def _append(self, data: bytes, first: int, last: int) -> None:
        self._refuse_if_damaged()
        if self._cuts != self._durable_cuts:
            raise UnflushedTruncation(f"{self._directory}: was cut; await flush() before the next append")
        now = self.now_ms()
        segment, config = self._active, self.config
        if segment.size and (
            segment.is_full(len(data), last, config.segment_bytes, config.index_max_bytes)
            or now - segment.opened_ms >= config.segment_ms
        ):
            segment = self._roll()
        segment.append(data, first, last, now)
        self._end = last + 1

    def _roll(self) -> Segment:
        self._active.seal()
        segment = self._new_segment(self._end)
        self._replace((*self._segments, segment))
        self._renamed += 1
        self.on_roll(segment.base_offset)
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        config = self.config
        return new_segment(
            self._storage,
            self._directory,
            base_offset,
            config,
            now_ms=self.now_ms(),
        )

    def _replace(self, segments: tuple[Segment, ...]) -> None:
        self._segments = segments
        self._bases = tuple(segment.base_offset for segment in segments)
        if segments:
            self._active = segments[-1]

    def _remove_after(self, keep: int) -> None:
        """Removes all but the first ``keep`` segments, the last first: whenever it stops, a prefix is left."""
        self._abandon_swap()  # first: found at a start, it would bring back what goes now
        doomed = self._segments[keep:]
        self._replace(self._segments[:keep])
        for segment in reversed(doomed):
            remove_segment(self._storage, segment)
        self._renamed += 1

    def _end_at(self, offset: int) -> None:
        self._cuts += 1
        self._gap = 0
        self._end = offset
        self._flushed = min(self._flushed, offset)
        self._flight = min(self._flight, offset)

    def _dirty(self) -> list[Segment]:
        """Segments with something not durable, in order. Only the last ones can be: sealed ones do not change."""
        dirty: list[Segment] = []
        for segment in reversed(self._segments):
            if segment.synced == segment.changes:
                break
            dirty.insert(0, segment)
        return dirty

    @contextlib.contextmanager
    def noting(self, segment: Segment) -> Iterator[None]:
        """Around what reads the segment: damage that is found becomes the log's."""
        try:
            yield
        except CorruptLog as damage:
            self._note(segment, damage)
            raise

    def _note(self, segment: Segment, damage: CorruptLog) -> None:
        if self._damage is None or damage.offset < self._damage.offset:
            self._damage = _Damage(segment.base_offset, damage.position, damage.offset, str(damage))

    def _refuse_if_damaged(self) -> None:
        if self._damage is not None:
            raise DamagedLog(f"{self._damage.problem}; hand over, then repair or reset the log")

    def now_ms(self) -> int:
        """This node's wall clock."""
        return int(self._wall_clock() * 1000)


@dataclass(frozen=True)
class _Damage:
    """Where the good prefix ends, and why."""

    base_offset: int
    position: int
    offset: int
    problem: str
