"""The log of one partition: a list of segments, appended at the end, truncated only on request.

Appends and reads are plain calls on the event loop, so each is atomic. Only opening, :meth:`Log.flush` and durable
notes wait. Offsets are dense when appended and never change; compaction (``cleaner``) leaves gaps. ``segment_list`` has
the state, and defines what survives a power loss.
"""

from __future__ import annotations

import asyncio
import posixpath
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace

from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.deletion import remove_log
from assay.system_under_test.log.errors import CorruptLog, OffsetOutOfRange
from assay.system_under_test.log.recovery import RecoveryResult, load_segments, remove_leftovers
from assay.system_under_test.log.segment import CutPoint, LogSlice, find_cut_point
from assay.system_under_test.log.segment_list import SegmentList
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import CorruptMessage
from assay.system_under_test.records.produced import ValidatedSet, stamp
from assay.system_under_test.runtime import Slice, Storage

LATEST = -1
EARLIEST = -2


class Log(SegmentList):
    """A log, made by :meth:`Log.open`. The storage defines what ``OSError`` means.

    Other packages use the methods of this class only, and the offsets.
    """

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
        monotonic_clock: Callable[[], float] | None = None,
    ) -> tuple[Log, RecoveryResult]:
        """Opens or creates the log in ``directory``; afterwards all of it is durable.

        - ``clean``: the last process stopped cleanly
        - ``recovery_point``: all offsets below had been fsynced; 0 if nothing is known of this log; None if the
          checkpoint was lost, so that every problem counts as damage
        - ``wall_clock``: returns seconds
        - ``monotonic_clock``: returns seconds, by a clock that is never set; None: the event loop's

        Check ``RecoveryResult.damaged``: a damaged log serves its good prefix only.
        """
        storage.mkdir(directory, parents=False)
        if not clean or not storage.listdir(directory):
            await storage.fsync_directory(posixpath.dirname(directory))
        log = cls(storage, directory, config, wall_clock, monotonic_clock or asyncio.get_running_loop().time)
        await log._write_notes(config)
        loaded = await load_segments(
            storage,
            directory,
            log.config,
            clean=clean,
            recovery_point=recovery_point,
            allows_gap=log.tombstones.allows_gap,
            preallocated=log.preallocation_note.exists,
            now=log.now,
            known_damage=log.damage_note.read() or log.tombstones.damage,
        )
        log.set_segments(loaded.segments)
        log.end_offset = log.flushed_offset = loaded.recovery.end
        log.found_damage = loaded.damage
        return log, loaded.recovery

    async def _write_notes(self, config: LogConfig) -> None:
        """Writes the notes that must be durable before these settings take effect."""
        if config.compacted:
            await self.tombstones.create()
        if config.preallocate:
            await self.preallocation_note.write()

    @property
    def damage(self) -> str | None:
        """The problem found at opening or by a read; None for a healthy log."""
        return None if self.found_damage is None else self.found_damage.problem

    # -- settings ------------------------------------------------------------------------------------------------

    async def configure(self, config: LogConfig) -> None:
        """Applies settings from now on; existing segments keep their sizes. A log that had gaps may have more."""
        await self._write_notes(config)
        self.apply_config(replace(config, compacted=self.tombstones.may_have_gaps))

    async def allow_gaps(self) -> None:
        """Durably and permanently allows gaps, because the log that this one copies has some."""
        await self.tombstones.create()
        self.apply_config(replace(self.config, compacted=True))

    # -- appending and reading -----------------------------------------------------------------------------------

    def append(self, produced: ValidatedSet, *, append_time: int | None = None) -> tuple[int, int]:
        """Appends a producer's set as leader, giving its messages the next offsets: ``(first, last)``.

        The set must hold whole messages only (``CorruptMessage``), and at least one. With ``append_time``, in
        milliseconds, that becomes the messages' timestamp.
        """
        if not produced.count:
            raise ValueError(f"{self.directory}: a set without messages")
        first = self.end_offset
        last = first + produced.count - 1
        self.append_entries(*stamp(produced, first, append_time), first, last)
        return first, last

    def append_replicated(self, data: bytes) -> int:
        """Appends the leader's entries from ``end_offset`` on, with their offsets; returns the new ``end_offset``.

        A partial last message is ignored. Raises ``CorruptMessage``, and appends nothing, for a bad CRC or for offsets
        that do not continue densely from ``end_offset`` (with ``config.compacted``: that do not rise).
        """
        found = message_set.check(data, self.end_offset, gaps=self.config.compacted)
        if found.problem is not None:
            raise CorruptMessage(f"{self.directory}: from the leader at byte {found.size}: {found.problem}")
        if found.count:
            whole = data if found.size == len(data) else data[: found.size]
            self.append_entries(whole, found.times, found.first, found.next_offset - 1)
        return self.end_offset

    def read(self, offset: int, max_bytes: int, *, limit: int | None = None, at_least_one: bool = True) -> Slice:
        """Returns whole messages from ``offset`` on, all below the offset ``limit``, at most ``max_bytes`` of them.

        With ``at_least_one`` the first message is returned even if it is larger. The range ends with its segment, so an
        answer may be shorter than possible. It is empty at the log's end or at ``limit``.

        Raises :class:`OffsetOutOfRange`, and :class:`CorruptLog` instead of returning damaged bytes. Bytes that the
        disk fails to deliver count as damaged, even if the disk fails only while the range is sent.
        """
        bases, end = self.segment_offsets, self.end_offset
        if not bases[0] <= offset <= end:
            raise OffsetOutOfRange(offset, bases[0], end)
        if limit is not None and limit < end:
            end = limit
        if offset >= end:
            return LogSlice(self.active, 0, 0)
        for index in range(bisect_right(bases, offset) - 1, len(bases)):
            segment = self.segments[index]
            try:
                start = segment.locate(offset)
                if start < segment.size:
                    return segment.slice(start, end, max_bytes, at_least_one=at_least_one)
            except CorruptLog as damage:
                self.mark_damaged(damage)
                raise
        return LogSlice(self.active, 0, 0)

    def find_offsets_before(self, timestamp: int, count: int) -> list[int]:
        """Returns at most ``count`` offsets at which segments begin, descending, as ListOffsets 0 requires.

        ``timestamp`` is in milliseconds:

        - :data:`LATEST`: the log's end and all segments
        - :data:`EARLIEST`: the log's start
        - otherwise: the segments last written at or before it, by this node's clock

        A segment not written since this process started counts with its newest message's timestamp, or else with the
        time of that start. Kafka uses the file's time (``fetchOffsetsBefore``).
        """
        if timestamp == EARLIEST:
            return [self.start_offset][:count]
        starts: list[int] = []
        for segment in self.segments:
            with self.recording_damage():
                if timestamp == LATEST or segment.times.last_written_ms() <= timestamp:
                    starts.append(segment.base_offset)
        if self.active.size and (timestamp == LATEST or self.now_ms() <= timestamp):
            starts.append(self.end_offset)
        return starts[::-1][:count]

    def find_offset_for_time(self, timestamp: int) -> tuple[int, int] | None:
        """Returns ``(timestamp, offset)`` of the first message stamped at or after ``timestamp`` (ms), or None.

        Scans each segment once for its newest timestamp, and then the one that has the answer.
        """
        wanted = max(timestamp, 0)
        for segment in self.segments:
            with self.recording_damage():
                if segment.times.newest() >= wanted:
                    found = segment.times.first_since(wanted)
                    if found is not None:
                        return found
        return None

    # -- truncation ----------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Removes everything at or above ``offset``; an ``offset`` below the log's start means ``reset(offset)``.

        Before the call, the caller must await ``prepare_cut`` and durably lower the recovery point's checkpoint to at
        most ``offset`` (0 for ``reset``). Otherwise a crash makes the log look damaged. The caller must ``flush``
        before the next append.

        Raises :class:`DamagedLog`, :class:`CorruptLog`.
        """
        if offset >= self.end_offset:
            return
        self.require_healthy()
        if offset < self.start_offset:
            self.reset(offset)
            return
        cut = self._find_cut_point(offset)
        self.keep_first(cut.keep)
        cut.segment.cut(cut.position, cut.next_offset)
        if cut.gap:
            self.add(cut.end)
        self.record_truncation(cut.end)
        self.unflushed_gap = cut.gap

    async def prepare_cut(self, offset: int) -> None:
        """Makes the notes durable that ``truncate_to(offset)`` needs. That call, or ``abandon_cut``, must follow next.

        A log that will end after a gap could not show the gap if it were killed before its next ``flush``. A noted gap
        implies that everything below is on disk, so that is flushed first. Raises as ``truncate_to`` does, and
        ``OSError``.

        Nothing is noted if the log was closed for the deletion of its topic while the caller waited.
        """
        if self.closed:
            return
        gap = end = 0
        if self.start_offset <= offset < self.end_offset and self.found_damage is None:
            cut = self._find_cut_point(offset)
            gap, end = cut.gap, cut.next_offset
        if gap:
            await self.flush()
        await self.tombstones.truncate(offset, gap, end)

    async def abandon_cut(self) -> None:
        """Restores the notes after a ``prepare_cut`` without truncation, even one that failed or was cancelled.

        Raises ``OSError``.
        """
        if self.tombstones.may_have_gaps:
            await self.tombstones.add_ends(self.find_gaps)
            await self.tombstones.allow_gaps(lambda: max(self.find_gaps(), default=0))

    def _find_cut_point(self, offset: int) -> CutPoint:
        # At the log's start the first segment stays, empty: its name records where the log starts.
        keep = max(1, bisect_right(self.segment_offsets, offset - 1))
        with self.recording_damage():
            return find_cut_point(self.segments, keep, offset)

    def reset(self, start_offset: int) -> None:
        """Discards everything, damage included; the log is empty and starts at ``start_offset``.

        The recovery point's checkpoint must durably be 0 before, and ``flush`` must follow. A power loss in between
        leaves any prefix of the old log, or an empty one that starts at 0. Until then nothing counts as flushed.
        """
        self.keep_first(0)
        remove_leftovers(self.storage, self.directory, ())
        self.found_damage = None
        self.add(start_offset)
        self.record_truncation(start_offset)
        self.flushed_offset = self._flushing_to = 0

    # -- notes ---------------------------------------------------------------------------------------------------

    async def note_damage(self) -> None:
        """Durably notes known damage for the next process. Raises ``OSError``."""
        await self.damage_note.write(lambda: self.found_damage)

    async def close_notes(self) -> None:
        """Stops all notes, because the directory is about to be removed or renamed."""
        await self.tombstones.close()
        await self.damage_note.close()
        await self.preallocation_note.close()

    # -- the end -------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Flushes everything, including indexes, trims the files to their last entries and closes them. Idempotent."""
        if self.closed:
            return
        for segment in self.segments[-1:]:
            segment.trim()
        await self.flush()
        async with self.change_lock:
            self.closed = True
            if self.segments and self.found_damage is None:
                self.active.seal()
            self.purge()
            for segment in self.segments:
                segment.times.finish()
                await segment.index.fsync()
                await segment.times.fsync()
                segment.close()

    async def delete(self) -> None:
        """Closes the log and removes its files; no part of it is ever visible under the log's name.

        May be called again after an ``OSError``.
        """
        async with self.change_lock:
            self.closed = True
            self.purge()
            for segment in self.segments:
                segment.close()
            await remove_log(self.storage, self.directory)
