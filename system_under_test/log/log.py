"""The log of one partition: a list of segments, appended at the end, truncated only on request.

Appends and reads are plain calls on the event loop, so each is atomic. Only opening, :meth:`Log.flush` and durable
notes wait. Offsets are dense when appended and never change; compaction (``cleaner``) leaves gaps. ``segment_list``
defines what survives a power loss.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.directory import DELETED_SUFFIX, add_suffix
from assay.system_under_test.log.errors import CorruptLog, OffsetOutOfRange
from assay.system_under_test.log.recovery import RecoveryResult, load_segments, remove_leftovers
from assay.system_under_test.log.segment import CutPoint, find_cut_point
from assay.system_under_test.log.segment_list import SegmentList
from assay.system_under_test.log.slices import EMPTY
from assay.system_under_test.log.tombstones import Tombstones
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import CorruptMessage
from assay.system_under_test.records.produced import ValidatedSet, stamp
from assay.system_under_test.runtime import Slice, Storage


class Log:
    """A log, made by :meth:`Log.open`. The storage defines what ``OSError`` means.

    ``row`` is for the other modules of this package: they read it, and exchange its segments.
    """

    def __init__(self, row: SegmentList) -> None:
        self.segment_list = row

    @classmethod
    async def open(
        cls,
        storage: Storage,
        directory: str,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int | None,
        wall_clock: Callable[[], float],
    ) -> tuple[Log, RecoveryResult]:
        """Opens or creates the log in ``directory``; afterwards all of it is durable.

        - ``clean``: the last process stopped cleanly
        - ``recovery_point``: all offsets below had been fsynced; 0 if nothing is known of this log; None if the
          checkpoint was lost, so that every problem counts as damage
        - ``wall_clock``: returns seconds

        Check ``RecoveryResult.damaged``: a damaged log serves its good prefix only.
        """
        storage.mkdir(directory)
        if not clean or not storage.listdir(directory):
            await storage.fsync_directory(posixpath.dirname(directory))
        row = SegmentList(storage, directory, config, wall_clock)
        if config.compacted:
            await row.tombstones.begin()
        if config.preallocate:
            await row.preallocation_note.write()
        loaded = await load_segments(
            storage,
            directory,
            row.config,
            clean=clean,
            recovery_point=recovery_point,
            gaps=row.tombstones.gaps,
            preallocated=row.preallocation_note.there,
            now_ms=row.now_ms,
            lost=row.damage_note.read() or row.tombstones.damage,
        )
        recovery = loaded.recovery
        row.set(loaded.segments)
        row.end = row.flushed = recovery.end
        row.damage = loaded.damage
        return cls(row), recovery

    @property
    def directory(self) -> str:
        return self.segment_list.directory

    @property
    def config(self) -> LogConfig:
        return self.segment_list.config

    @property
    def tombstones(self) -> Tombstones:
        return self.segment_list.tombstones

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self.segment_list.start

    @property
    def end_offset(self) -> int:
        """The offset of the next append."""
        return self.segment_list.end

    @property
    def flushed_offset(self) -> int:
        """The offset below which everything is fsynced."""
        return self.segment_list.flushed

    @property
    def closed(self) -> bool:
        return self.segment_list.closed

    @property
    def size(self) -> int:
        """Bytes of all segments, indexes not counted."""
        return self.segment_list.size

    @property
    def segment_offsets(self) -> tuple[int, ...]:
        """Base offsets of the segments, ascending; one more after each roll."""
        return self.segment_list.bases

    @property
    def damage(self) -> str | None:
        """The problem found at opening or by a read; None for a healthy log."""
        return None if self.segment_list.damage is None else self.segment_list.damage.problem

    def now_ms(self) -> int:
        """Returns this node's wall clock."""
        return self.segment_list.now_ms()

    # -- settings ------------------------------------------------------------------------------------------------

    async def configure(self, config: LogConfig) -> None:
        """Applies settings from now on; existing segments keep their sizes. A log that had gaps may have more."""
        if config.compacted:
            await self.tombstones.begin()
        if config.preallocate:
            await self.segment_list.preallocation_note.write()
        self.segment_list.configure(replace(config, compacted=self.tombstones.known))

    async def allow_gaps(self) -> None:
        """Durably and permanently allows gaps, because the log that this one copies has some."""
        await self.tombstones.begin()
        self.segment_list.configure(replace(self.config, compacted=True))

    # -- appending and reading -----------------------------------------------------------------------------------

    def append(self, produced: ValidatedSet, *, append_time: int | None = None) -> tuple[int, int]:
        """Appends a producer's set as leader, giving its messages the next offsets: ``(first, last)``.

        The set must hold whole messages only (``CorruptMessage``), and at least one. With ``append_time``, in
        milliseconds, that becomes the messages' timestamp.
        """
        if not produced.count:
            raise ValueError(f"{self.directory}: a set without messages")
        first = self.segment_list.end
        last = first + produced.count - 1
        self.segment_list.append(*stamp(produced, first, append_time), first, last)
        return first, last

    def append_replicated(self, data: bytes) -> int:
        """Appends what the leader has at ``end_offset``, offsets kept, and returns the new ``end_offset``.

        A partial last message is ignored. Raises ``CorruptMessage``, and appends nothing, for a bad CRC or for offsets
        that do not continue densely from ``end_offset`` (with ``config.compacted``: that do not rise).
        """
        found = message_set.check(data, self.segment_list.end, gaps=self.config.compacted)
        if found.problem is not None:
            raise CorruptMessage(f"{self.directory}: from the leader at byte {found.size}: {found.problem}")
        if found.count:
            whole = data if found.size == len(data) else data[: found.size]
            self.segment_list.append(whole, found.youngest, found.first, found.next_offset - 1)
        return self.segment_list.end

    def read(self, offset: int, max_bytes: int, *, limit: int | None = None, at_least_one: bool = True) -> Slice:
        """Returns whole messages from ``offset`` on, all below the offset ``limit``, at most ``max_bytes`` of them.

        With ``at_least_one`` the first message is returned even if it is larger. The range ends with its segment, so an
        answer may be shorter than possible. It is empty at the log's end or at ``limit``.

        Raises :class:`OffsetOutOfRange`, and :class:`CorruptLog` instead of returning damaged bytes. Bytes that the
        disk fails to deliver count as damaged, even if the disk fails only while the range is sent.
        """
        row, end = self.segment_list, self.segment_list.end
        if not row.bases[0] <= offset <= end:
            raise OffsetOutOfRange(offset, row.bases[0], end)
        if limit is not None and limit < end:
            end = limit
        if offset >= end:
            return EMPTY
        for index in range(bisect_right(row.bases, offset) - 1, len(row.segments)):
            segment = row.segments[index]
            try:
                start = segment.locate(offset)
                if start < segment.size:
                    return segment.slice(start, end, max_bytes, at_least_one=at_least_one)
            except CorruptLog as damage:
                row.note(damage)
                raise
        return EMPTY

    # -- cutting -------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Removes everything at or above ``offset``; below the log's start, the empty log starts there: ``reset``.

        Before the call, the caller must await ``before_cut`` and durably lower the recovery point's checkpoint to at
        most ``offset`` (0 for ``reset``). Otherwise a crash makes the log look damaged. It must ``flush`` before the
        next append.

        Raises :class:`DamagedLog`, :class:`CorruptLog`.
        """
        if offset >= self.end_offset:
            return
        row = self.segment_list
        row.check_healthy()
        if offset < row.start:
            self.reset(offset)
            return
        cut = self._cut_at(offset)
        row.keep(cut.keep)
        cut.segment.cut(cut.position, cut.next_offset)
        if cut.gap:
            row.add(cut.end)
        row.end_at(cut.end)
        row.gap = cut.gap

    async def before_cut(self, offset: int) -> None:
        """Makes the notes durable that ``truncate_to(offset)`` needs. That call, or ``cut_given_up``, must follow next.

        A log that will end after a gap could not show the gap if it were killed before its next ``flush``. A noted gap
        implies that everything below is on disk, so that is flushed first. Raises as ``truncate_to`` does, and
        ``OSError``.

        Nothing is noted if the log was closed for the deletion of its topic while the caller waited.
        """
        if self.closed:
            return
        gap = 0
        if self.start_offset <= offset < self.end_offset and self.segment_list.damage is None:
            gap = self._cut_at(offset).gap
        if gap:
            await self.flush()
        await self.tombstones.truncate(offset, gap)

    async def cut_given_up(self) -> None:
        """Restores the notes after a ``before_cut`` without truncation, even one that failed or was cancelled.

        Raises ``OSError``.
        """
        if self.tombstones.known:
            await self.tombstones.allow_gaps(self._last_gap)

    def _last_gap(self) -> int:
        """Returns the base of the last segment with a gap before it; 0 if there is none."""
        neighbours = pairwise(self.segment_list.segments)
        return max((b.base_offset for a, b in neighbours if a.next_offset < b.base_offset), default=0)

    def _cut_at(self, offset: int) -> CutPoint:
        # At the start itself the first segment stays, empty: its name records where the log starts.
        keep = max(1, bisect_right(self.segment_list.bases, offset - 1))
        with self.segment_list.recording_damage():
            return find_cut_point(self.segment_list.segments, keep, offset)

    def reset(self, start_offset: int) -> None:
        """Discards everything, damage included; the log is empty and starts at ``start_offset``.

        The recovery point's checkpoint must durably be 0 before, and ``flush`` must follow. A power loss in between
        leaves any prefix of the old log, or an empty one that starts at 0. Until then nothing counts as flushed.
        """
        self.segment_list.keep(0)
        remove_leftovers(self.segment_list.storage, self.directory, ())
        self.segment_list.damage = None
        self.segment_list.restart_at(start_offset)

    # -- notes ---------------------------------------------------------------------------------------------------

    async def note_damage(self) -> None:
        """Durably notes known damage for the next process. Raises ``OSError``."""
        await self.segment_list.damage_note.write(lambda: self.segment_list.damage)

    async def forget_damage(self) -> None:
        """Removes the damage note; call it after ``reset`` and ``flush``."""
        await self.segment_list.damage_note.clear()

    async def close_notes(self) -> None:
        """Stops all notes, because the directory is about to be removed or renamed."""
        await self.tombstones.close()
        await self.segment_list.damage_note.close()
        await self.segment_list.preallocation_note.close()

    # -- durability ----------------------------------------------------------------------------------------------

    async def flush(self) -> int:
        """Fsyncs appends and truncations made before the call, see ``SegmentList.flush``. Returns ``flushed``."""
        await self.segment_list.flush()
        return self.segment_list.flushed

    def purge(self, count: int | None = None) -> None:
        """Removes the files of the first ``count`` segments that retention or compaction removed, or of all.

        Slices of these segments become invalid.
        """
        self.segment_list.purge(count)

    async def close(self) -> None:
        """Flushes everything, including indexes, trims the files to their last entries and closes them. Idempotent."""
        row = self.segment_list
        if row.closed:
            return
        for segment in row.segments[-1:]:
            segment.trim()
        await row.flush()
        async with row.changing:
            row.closed = True
            if row.segments and row.damage is None:
                row.active.seal()
            row.purge()
            for segment in row.segments:
                segment.times.finish(segment.size)
                await segment.index.fsync()
                await segment.times.fsync()
                segment.close()

    async def delete(self) -> None:
        """Closes the log and removes its directory; no part of it is ever visible under the log's name.

        May be called again after an ``OSError``.
        """
        row, storage = self.segment_list, self.segment_list.storage
        async with row.changing:
            row.closed = True
            row.purge()
            for segment in row.segments:
                segment.close()
            parent = posixpath.dirname(self.directory)
            doomed = add_suffix(self.directory, DELETED_SUFFIX)
            if storage.exists(self.directory):
                if storage.exists(doomed):
                    storage.remove(doomed)
                storage.rename(self.directory, doomed)
            await storage.fsync_directory(parent)
            if storage.exists(doomed):
                storage.remove(doomed)
            await storage.fsync_directory(parent)
