"""The list of a log's segments: the state that appends, truncation, retention and compaction share.

The tuple of segments is never edited, only replaced as a whole. Three offsets describe the state, usually in ascending
order:

- ``start_offset``: the first offset that can be read
- ``flushed_offset``: everything below survives a power loss. It may be below ``start_offset`` while the removal of old
  segments is not durable.
- ``end_offset``: the offset of the next append

A power loss can undo a truncation that was not fsynced. A removed segment could then come back *behind* records that
were appended after the truncation. So a truncated list must be flushed before the next append, which otherwise raises
:class:`UnflushedTruncation`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from assay.system_under_test.clocks import Instant
from assay.system_under_test.log.compaction_note import CompactionNote
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.damage import Damage, DamageNote
from assay.system_under_test.log.errors import CorruptLog, DamagedLog, UnflushedTruncation
from assay.system_under_test.log.preallocation import PreallocationNote
from assay.system_under_test.log.segment import Segment, create_segment, ignore, remove_segment
from assay.system_under_test.records.message_set import SetTimes
from assay.system_under_test.runtime import Storage


class SegmentList:
    """A log's segments. ``on_roll`` is called with a new segment's base offset, ``on_damage`` with damage found.

    ``config.compacted`` stays true once the log may have gaps.
    """

    def __init__(
        self,
        storage: Storage,
        directory: str,
        config: LogConfig,
        wall_clock: Callable[[], float],
        monotonic_clock: Callable[[], float],
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.compaction_note = CompactionNote(storage, directory)
        self.damage_note = DamageNote(storage, directory)
        self.preallocation_note = PreallocationNote(storage, directory)
        self.config = replace(config, compacted=config.compacted or self.compaction_note.may_have_gaps)
        self.on_roll: Callable[[int], None] = ignore
        self.on_damage: Callable[[Damage], None] = ignore
        self.segments: tuple[Segment, ...] = ()
        self.segment_offsets: tuple[int, ...] = ()
        """Base offsets of the segments, ascending."""
        self.active: Segment
        """The last segment, which gets the appends."""
        self.end_offset = 0
        """The offset of the next append."""
        self.flushed_offset = 0
        """The offset below which everything is fsynced."""
        self.truncations = 0
        """How often the list was truncated."""
        self.change_lock = asyncio.Lock()
        """Held during flushes, retention, deletion and exchanges of segments."""
        self.found_damage: Damage | None = None
        self.closed = False
        self.unflushed_gap_end = 0
        """The last segment's base, if an unflushed truncation has left a gap before it; else 0."""
        self.swap_file: str | None = None
        """The path of a swap file (``swap``: a compacted segment that will replace others) that may be abandoned."""
        self._wall_clock = wall_clock
        self._monotonic_clock = monotonic_clock
        self._flushing_to = 0
        """The offset below which everything will be durable after the fsync in progress."""
        self._durable_truncations = 0
        self._directory_changes = 0
        """How often files were created or removed."""
        self._durable_directory_changes = 0
        self._retired: list[Callable[[], None]] = []
        """Callbacks that close removed segments, oldest removal first."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read; the end, if a failed disk has left no segment."""
        return self.segment_offsets[0] if self.segment_offsets else self.end_offset

    @property
    def size(self) -> int:
        """Bytes of all segments, indexes not counted."""
        return sum(segment.size for segment in self.segments)

    @property
    def has_unflushed_truncation(self) -> bool:
        """Whether the log was truncated and not flushed since."""
        return self.truncations != self._durable_truncations

    def now_ms(self) -> int:
        """Returns this node's wall clock in milliseconds."""
        return int(self._wall_clock() * 1000)

    def now(self) -> Instant:
        """Returns the current time by both clocks."""
        return Instant(self.now_ms(), int(self._monotonic_clock() * 1000))

    # -- damage --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def recording_damage(self) -> Iterator[None]:
        """Context manager for reads of a segment: marks the log as damaged if the body raises :class:`CorruptLog`."""
        try:
            yield
        except CorruptLog as damage:
            self.mark_damaged(damage)
            raise

    def mark_damaged(self, damage: CorruptLog) -> None:
        """Marks the log as damaged from this offset on, unless damage at a lower offset is known."""
        if self.found_damage is None or damage.offset < self.found_damage.offset:
            self.found_damage = Damage(damage.offset, str(damage))
            self.on_damage(self.found_damage)

    def require_healthy(self) -> None:
        """Raises :class:`DamagedLog` if the log is damaged."""
        if self.found_damage is not None:
            raise DamagedLog(f"{self.found_damage.problem}; hand over, then reset the log")

    # -- segments ------------------------------------------------------------------------------------------------

    def apply_config(self, config: LogConfig) -> None:
        self.config = config
        for segment in self.segments:
            segment.config = config
        if self.segments and not config.preallocate:
            self.active.trim()

    def set_segments(self, segments: tuple[Segment, ...]) -> None:
        for segment in self.segments:
            segment.on_damage = ignore
        for segment in segments:
            segment.on_damage = self.mark_damaged
        self.segments = segments
        self.segment_offsets = tuple(segment.base_offset for segment in segments)
        if segments:
            self.active = segments[-1]

    def append_entries(self, data: bytes, times: SetTimes, first: int, last: int) -> None:
        """Appends valid whole entries with offsets ``first`` to ``last``. Rolls the active segment first if due."""
        self.require_healthy()
        if self.has_unflushed_truncation:
            raise UnflushedTruncation(f"{self.directory}: was truncated; await flush() before the next append")
        now = self.now()
        segment, config = self.active, self.config
        if segment.size and (
            segment.is_full(len(data), last, config.segment_bytes, config.index_max_bytes)
            or now.wall_ms - segment.times.opened_ms >= config.lifetime_ms(segment.path)
        ):
            segment = self.roll()
        if config.preallocate and not segment.size:
            segment.preallocate(config.segment_bytes)
        segment.append(data, times, first, last, now)
        self.end_offset = last + 1

    def roll(self) -> Segment:
        """Seals the active segment and begins a new one at the log's end."""
        former = self.active
        former.seal()
        segment = self.add(self.end_offset)
        self.on_roll(segment.base_offset)
        former.trim()
        return segment

    def add(self, base_offset: int) -> Segment:
        """Adds an empty segment at the end of the list."""
        self._directory_changes += 1
        segment = create_segment(self.storage, self.directory, base_offset, self.config, now=self.now())
        self.set_segments((*self.segments, segment))
        return segment

    def find_gaps(self) -> dict[int, int]:
        """Returns the gaps between segments: the base of the segment after each gap, to the end of the one before."""
        return {b.base_offset: a.next_offset for a, b in pairwise(self.segments) if a.next_offset < b.base_offset}

    def keep_first(self, count: int) -> None:
        """Removes all but the first ``count`` segments, the last one first, so that a crash leaves a prefix."""
        self.abandon_swap()  # first: otherwise the next start could find the swap file and restore removed segments
        removed = self.segments[count:]
        self.set_segments(self.segments[:count])
        for segment in reversed(removed):
            remove_segment(self.storage, segment)
        self._directory_changes += 1

    def record_truncation(self, offset: int) -> None:
        """Records that the list was truncated and ends at ``offset`` now."""
        self.truncations += 1
        self.unflushed_gap_end = 0
        self.end_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)
        self._flushing_to = min(self._flushing_to, offset)

    def retire(self, close: Callable[[], None]) -> None:
        """Registers a removed segment that is still open for its readers; :meth:`purge_retired` calls ``close``."""
        self._retired.append(close)

    def purge_retired(self, count: int | None = None) -> None:
        """Closes the ``count`` oldest retired segments, or all, and removes their files. Their slices turn invalid."""
        retired, self._retired = self._retired[:count], [] if count is None else self._retired[count:]
        for close in retired:
            close()

    def abandon_swap(self) -> None:
        """Removes the swap file, which the next start would swap in over newer data. Raises ``OSError``."""
        if self.swap_file is not None:
            if self.storage.exists(self.swap_file):
                self.storage.remove(self.swap_file)
            self.swap_file = None

    # -- durability ----------------------------------------------------------------------------------------------

    async def flush(self) -> int:
        """Fsyncs appends and truncations made before the call. Returns ``flushed_offset``.

        Flushes run one after the other. A flush does not wait for records appended after it began, and does not count
        records that are removed meanwhile as durable.
        """
        async with self.change_lock:
            if self.closed:
                return self.flushed_offset
            truncations, directory_changes = self.truncations, self._directory_changes
            self._flushing_to = self.end_offset
            for segment in self._list_dirty_segments():
                if not segment.closed:
                    await segment.fsync()
            if directory_changes != self._durable_directory_changes:
                await self.storage.fsync_directory(self.directory)
                self._durable_directory_changes = directory_changes
            if self.unflushed_gap_end:
                await self.compaction_note.add_gaps(self.find_gaps)
                await self.compaction_note.allow_gaps_below(lambda: self.unflushed_gap_end)
            self._durable_truncations = truncations
            self.flushed_offset = max(self.flushed_offset, self._flushing_to)
            if self.flushed_offset > self.end_offset:  # otherwise later appends would count as durable too early
                problem = f"the log ends there, but counts as durable below {self.flushed_offset}"
                self.mark_damaged(CorruptLog(self.active.path, self.active.size, self.end_offset, problem))
            return self.flushed_offset

    def _list_dirty_segments(self) -> list[Segment]:
        """Returns the segments with changes that are not durable, in order. They are the last ones of the list."""
        dirty: list[Segment] = []
        for segment in reversed(self.segments):
            if segment.durable_changes == segment.changes:
                break
            dirty.insert(0, segment)
        return dirty
