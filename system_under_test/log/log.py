"""The log of one partition: a list of segments, appended at the end, truncated only on request.

A *note* is a small file in the log's folder (``compaction_note``, ``damage``, ``preallocation``). Appends and reads do
not await, so each is atomic on the event loop. Only opening, :meth:`Log.flush` and durable notes await.

A leader appends without gaps. Offsets never change; compaction (``cleaner``) leaves gaps. ``segment_list`` has the
state, and defines what survives a power loss.
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
from assay.system_under_test.log.segment import LogSlice, TruncationPoint, find_truncation_point
from assay.system_under_test.log.segment_list import SegmentList
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import CorruptMessage
from assay.system_under_test.records.produced import ValidatedSet, stamp
from assay.system_under_test.runtime import Slice, Storage

LATEST = -1
EARLIEST = -2


class Log(SegmentList):
    """A log, made by :meth:`Log.open`. Methods raise the storage's ``OSError``.

    Other packages use only the methods and the offsets of this class.
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
        """Opens or creates the log in ``directory``. When this returns, all of the log is durable.

        - ``clean``: whether the last process stopped cleanly
        - ``recovery_point``: all offsets below had been fsynced; 0 if nothing is known of this log; None if the
          checkpoint was lost, so that every problem counts as damage
        - ``wall_clock``: returns seconds
        - ``monotonic_clock``: returns seconds, by a clock that is never set; None: the event loop's clock

        The caller must check ``RecoveryResult.damaged``: a damaged log serves only its good prefix.
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
            allows_gap=log.compaction_note.allows_gap,
            preallocated=log.preallocation_note.exists,
            now=log.now,
            known_damage=log.damage_note.read() or log.compaction_note.damage,
        )
        log.set_segments(loaded.segments)
        log.end_offset = log.flushed_offset = loaded.recovery.end
        log.found_damage = loaded.damage
        return log, loaded.recovery

    async def _write_notes(self, config: LogConfig) -> None:
        """Writes the notes that must be durable before these settings take effect."""
        if config.compacted:
            await self.compaction_note.create()
        if config.preallocate:
            await self.preallocation_note.write()

    @property
    def damage(self) -> str | None:
        """The problem found at opening or by a read; None for a healthy log."""
        return None if self.found_damage is None else self.found_damage.problem

    # -- settings ------------------------------------------------------------------------------------------------

    async def configure(self, config: LogConfig) -> None:
        """Applies settings from now on; existing segments keep their sizes. A log that may have gaps stays so."""
        await self._write_notes(config)
        self.apply_config(replace(config, compacted=self.compaction_note.may_have_gaps))

    async def allow_gaps(self) -> None:
        """Durably and permanently allows gaps, because the leader's log, which this log copies, has gaps."""
        await self.compaction_note.create()
        self.apply_config(replace(self.config, compacted=True))

    # -- appending and reading -----------------------------------------------------------------------------------

    def append(self, produced: ValidatedSet, *, append_time: int | None = None) -> tuple[int, int]:
        """Appends a producer's set as leader. Returns the first and the last offset that its messages got.

        Raises ``ValueError`` for an empty set, and ``CorruptMessage`` for a partial message. ``append_time``, in
        milliseconds, becomes the messages' timestamp, if given.
        """
        if not produced.count:
            raise ValueError(f"{self.directory}: a set without messages")
        first = self.end_offset
        last = first + produced.count - 1
        self.append_entries(*stamp(produced, first, append_time), first, last)
        return first, last

    def append_replicated(self, data: bytes) -> int:
        """Appends the leader's entries from ``end_offset`` on, with their offsets; returns the new ``end_offset``.

        A partial last message is ignored. Raises ``CorruptMessage``, and appends nothing, for a bad CRC or a wrong
        offset. Offsets must follow ``end_offset`` without gaps; with ``config.compacted`` they must only rise.
        """
        self.append_some_replicated(data, None)
        return self.end_offset

    def append_some_replicated(self, data: bytes, max_expanded: int | None) -> tuple[int, int]:
        """Appends entries as :meth:`append_replicated`. Returns the bytes appended, and their size after decompression.

        Stops after the entry at which the decompressed bytes reach ``max_expanded`` in total.
        """
        found = message_set.check(data, self.end_offset, gaps=self.config.compacted, max_expanded=max_expanded)
        if found.problem is not None:
            raise CorruptMessage(f"{self.directory}: from the leader at byte {found.size}: {found.problem}")
        if found.count:
            whole = data if found.size == len(data) else data[: found.size]
            self.append_entries(whole, found.times, found.first, found.next_offset - 1)
        return found.size, found.expanded

    def read(self, offset: int, max_bytes: int, *, limit: int | None = None, at_least_one: bool = True) -> Slice:
        """Returns at most ``max_bytes`` of whole messages from ``offset`` on, all below the offset ``limit``.

        With ``at_least_one``, the first message is returned even if it is larger. The range never crosses the end of a
        segment, so more messages may follow. It is empty at the log's end or at ``limit``.

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
        """Returns at most ``count`` base offsets of segments, descending, as ListOffsets 0 requires.

        ``timestamp`` is in milliseconds:

        - :data:`LATEST`: returns the log's end and all segments
        - :data:`EARLIEST`: returns the log's start
        - otherwise: returns the segments last written at or before it, by this node's clock

        If this process has not written to a segment, the timestamp of its newest message counts. If no message has a
        timestamp, the time at which this process opened the segment counts. Kafka uses the file's time
        (``fetchOffsetsBefore``).
        """
        if timestamp == EARLIEST:
            return [self.start_offset][:count]
        starts: list[int] = []
        for segment in self.segments:
            with self.recording_damage():  # the error is raised again
                if timestamp == LATEST or segment.times.last_written_ms() <= timestamp:
                    starts.append(segment.base_offset)
        if self.active.size and (timestamp == LATEST or self.now_ms() <= timestamp):
            starts.append(self.end_offset)
        return starts[::-1][:count]

    def find_offset_for_time(self, timestamp: int) -> tuple[int, int] | None:
        """Returns ``(timestamp, offset)`` of the first message stamped at or after ``timestamp`` (ms), or None.

        Searches only the first segments whose newest timestamp is high enough.
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
        """Removes everything at or above ``offset``. If ``offset`` is below the log's start, calls ``reset(offset)``.

        Before the call, the caller must await ``prepare_truncation`` and durably lower the recovery point's checkpoint
        to at most ``offset`` (0 for ``reset``). Otherwise a crash makes the log look damaged. After the call, the
        caller must ``flush`` before the next append.

        Raises :class:`DamagedLog`, :class:`CorruptLog`.
        """
        if offset >= self.end_offset:
            return
        self.require_healthy()
        if offset < self.start_offset:
            self.reset(offset)
            return
        point = self._find_truncation_point(offset)
        self.keep_first(point.keep)
        point.segment.truncate(point.position, point.next_offset)
        if point.gap_end:
            self.add(point.end)  # an empty segment, whose name is the only record of the log's end after the gap
        self.record_truncation(point.end)
        self.unflushed_gap_end = point.gap_end

    async def prepare_truncation(self, offset: int) -> None:
        """Durably writes the notes for ``truncate_to(offset)``. That call or ``abandon_truncation`` must follow next.

        Compaction may have removed the last offsets below ``offset``. Then the truncated log ends with a gap, which no
        record shows. So the gap is noted now, because a crash before the next ``flush`` would lose it. A noted gap
        implies that everything below it is on disk, so the log is flushed first. Raises the errors of ``truncate_to``,
        and ``OSError``.

        Does nothing if the log was closed because its topic was deleted.
        """
        if self.closed:
            return
        gap_end = gap_start = 0
        if self.start_offset <= offset < self.end_offset and self.found_damage is None:
            point = self._find_truncation_point(offset)
            gap_end, gap_start = point.gap_end, point.next_offset
        if gap_end:
            await self.flush()
        await self.compaction_note.truncate(offset, gap_end, gap_start)

    async def abandon_truncation(self) -> None:
        """Restores the notes after a ``prepare_truncation`` without truncation, even if it failed or was cancelled.

        Raises ``OSError``.
        """
        if self.compaction_note.may_have_gaps:
            await self.compaction_note.add_gaps(self.find_gaps)
            await self.compaction_note.allow_gaps_below(lambda: max(self.find_gaps(), default=0))

    def _find_truncation_point(self, offset: int) -> TruncationPoint:
        # At the log's start the first segment stays, empty: its name records where the log starts.
        keep = max(1, bisect_right(self.segment_offsets, offset - 1))
        with self.recording_damage():
            return find_truncation_point(self.segments, keep, offset)

    def reset(self, start_offset: int) -> None:
        """Discards everything, damage included. The log is then empty and starts at ``start_offset``.

        The recovery point's checkpoint must durably be 0 before, and ``flush`` must follow. A power loss before the
        ``flush`` leaves any prefix of the old log, or an empty log that starts at 0. Until the ``flush``, no offset
        counts as flushed.
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
        """Lets no note be written any more, because the directory is about to be removed or renamed."""
        await self.compaction_note.close()
        await self.damage_note.close()
        await self.preallocation_note.close()

    # -- closing and deletion ------------------------------------------------------------------------------------

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
                self.active.seal()  # no appends follow: completes its time index
            self.purge_retired()
            for segment in self.segments:
                segment.times.finish()
                await segment.index.fsync()
                await segment.times.fsync()
                segment.close()

    async def delete(self) -> None:
        """Closes the log and removes its files. May be called again after an ``OSError``.

        A crash leaves either the whole log under its name, or none of it.
        """
        async with self.change_lock:
            self.closed = True
            self.purge_retired()
            for segment in self.segments:
                segment.close()
            await remove_log(self.storage, self.directory)
