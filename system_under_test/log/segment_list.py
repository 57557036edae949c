"""The list of a log's segments: the state that appends, truncation, retention and compaction share.

The tuple of segments is never edited, only replaced as a whole. Three offsets describe the state: start <= flushed <=
end.

- Everything below ``flushed`` survives a power loss.
- ``end`` is the offset of the next append.
- ``flushed`` may be below ``start`` until the new start is durable: the old files may come back.

A power loss can undo a truncation that was not fsynced. A removed segment can then come back *behind* records that were
appended after it. So a truncated list must be flushed before the next append, which otherwise raises
:class:`UnflushedTruncation`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.damage import Damage, DamageNote
from assay.system_under_test.log.errors import CorruptLog, DamagedLog, UnflushedTruncation
from assay.system_under_test.log.preallocation import PreallocationNote
from assay.system_under_test.log.segment import Segment, create_segment, remove_segment
from assay.system_under_test.log.tombstones import Tombstones
from assay.system_under_test.runtime import Storage


def _ignore(_: object) -> None:
    """Does nothing."""


class SegmentList:
    """A log's segments. ``on_roll`` is called with a new segment's base offset, ``on_damage`` with damage found."""

    def __init__(self, storage: Storage, directory: str, config: LogConfig, wall_clock: Callable[[], float]) -> None:
        self.storage = storage
        self.directory = directory
        self.tombstones = Tombstones(storage, directory)
        self.damage_note = DamageNote(storage, directory)
        self.preallocation_note = PreallocationNote(storage, directory)
        self.config = replace(config, compacted=config.compacted or self.tombstones.known)
        self.on_roll: Callable[[int], None] = _ignore
        self.on_damage: Callable[[Damage], None] = _ignore
        self.segments: tuple[Segment, ...] = ()
        self.bases: tuple[int, ...] = ()
        self.active: Segment
        self.end = 0
        self.flushed = 0
        self.cuts = 0
        """How often the list was truncated."""
        self.changing = asyncio.Lock()
        """Held while something is made durable, or segments are exchanged."""
        self.damage: Damage | None = None
        self.closed = False
        self.gap = 0
        """The last segment's base, if an unflushed truncation has left a gap before it."""
        self.swap_file: str | None = None
        """The swap file in progress."""
        self._wall_clock = wall_clock
        self._flight = 0
        """The offset up to which the fsync in progress counts."""
        self._durable_cuts = 0
        self._renamed = 0
        """How often files were created or removed."""
        self._durable_renamed = 0
        self._retired: list[Callable[[], None]] = []
        """Callbacks that close the segments that were removed."""

    @property
    def start(self) -> int:
        """The first offset that can be read; the end, if a failed disk has left no segment."""
        return self.bases[0] if self.bases else self.end

    @property
    def size(self) -> int:
        """Bytes of all segments, indexes not counted."""
        return sum(segment.size for segment in self.segments)

    @property
    def is_cut(self) -> bool:
        """Whether it was truncated and not flushed since."""
        return self.cuts != self._durable_cuts

    def now_ms(self) -> int:
        """Returns this node's wall clock in milliseconds."""
        return int(self._wall_clock() * 1000)

    # -- damage --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def recording_damage(self) -> Iterator[None]:
        """Context for code that reads a segment: marks the log as damaged if the block raises :class:`CorruptLog`."""
        try:
            yield
        except CorruptLog as damage:
            self.note(damage)
            raise

    def note(self, damage: CorruptLog) -> None:
        if self.damage is None or damage.offset < self.damage.offset:
            self.damage = Damage(damage.offset, str(damage))
            self.on_damage(self.damage)

    def check_healthy(self) -> None:
        """Raises :class:`DamagedLog` if the log is damaged."""
        if self.damage is not None:
            raise DamagedLog(f"{self.damage.problem}; hand over, then reset the log")

    # -- segments ------------------------------------------------------------------------------------------------

    def configure(self, config: LogConfig) -> None:
        self.config = config
        for segment in self.segments:
            segment.config = config
        if self.segments and not config.preallocate:
            self.active.trim()

    def set(self, segments: tuple[Segment, ...]) -> None:
        for segment in self.segments:
            segment.on_damage = _ignore
        for segment in segments:
            segment.on_damage = self.note
        self.segments = segments
        self.bases = tuple(segment.base_offset for segment in segments)
        if segments:
            self.active = segments[-1]

    def append(self, data: bytes, youngest: tuple[int, int], first: int, last: int) -> None:
        """Appends valid whole entries with offsets ``first`` to ``last``; ``youngest``: see ``CheckResult``."""
        self.check_healthy()
        if self.is_cut:
            raise UnflushedTruncation(f"{self.directory}: was truncated; await flush() before the next append")
        now = self.now_ms()
        segment, config = self.active, self.config
        if segment.size and (
            segment.is_full(len(data), last, config.segment_bytes, config.index_max_bytes)
            or now - segment.times.opened_ms >= config.lifetime_ms(segment.path)
        ):
            segment = self.roll()
        if config.preallocate and not segment.size:
            segment.preallocate(config.segment_bytes)
        segment.append(data, youngest, first, last, now)
        self.end = last + 1

    def roll(self) -> Segment:
        """Begins a new segment at the end."""
        former = self.active
        former.seal()
        segment = self.add(self.end)
        self.on_roll(segment.base_offset)
        former.trim()
        return segment

    def add(self, base_offset: int) -> Segment:
        """Adds an empty segment after the others."""
        self._renamed += 1
        segment = create_segment(self.storage, self.directory, base_offset, self.config, now_ms=self.now_ms())
        self.set((*self.segments, segment))
        return segment

    def keep(self, count: int) -> None:
        """Removes all but the first ``count`` segments, last first: whenever it stops, a prefix is left."""
        self.abandon_swap()  # first: a start that found the swap file would bring back what is removed now
        doomed = self.segments[count:]
        self.set(self.segments[:count])
        for segment in reversed(doomed):
            remove_segment(self.storage, segment)
        self._renamed += 1

    def end_at(self, offset: int) -> None:
        """Records that the list was truncated and ends at ``offset`` now."""
        self.cuts += 1
        self.gap = 0
        self.end = offset
        self.flushed = min(self.flushed, offset)
        self._flight = min(self._flight, offset)

    def restart_at(self, offset: int) -> None:
        """Records that the list was emptied, and adds a segment at ``offset``."""
        self.add(offset)
        self.end_at(offset)
        self.flushed = self._flight = 0

    def retire(self, end: Callable[[], None]) -> None:
        """Registers a removed segment that is still open for its readers; ``end`` closes it, see :meth:`purge`."""
        self._retired.append(end)

    def purge(self, count: int | None = None) -> None:
        """Closes the first ``count`` removed segments, or all; slices of them become invalid."""
        retired, self._retired = self._retired[:count], [] if count is None else self._retired[count:]
        for end in retired:
            end()

    def abandon_swap(self) -> None:
        """Removes the swap file. Raises ``OSError`` if that fails: the next start would swap it in over newer data."""
        if self.swap_file is not None:
            if self.storage.exists(self.swap_file):
                self.storage.remove(self.swap_file)
            self.swap_file = None

    # -- durability ----------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Fsyncs what was appended or truncated before the call.

        Calls that arrive during a flush share the next one. Records appended during it are not waited for; records
        removed during it do not count.
        """
        async with self.changing:
            if self.closed:
                return
            cuts, renamed = self.cuts, self._renamed
            self._flight = self.end
            for segment in self._dirty():
                if not segment.closed:
                    await segment.fsync()
            if renamed != self._durable_renamed:
                await self.storage.fsync_directory(self.directory)
                self._durable_renamed = renamed
            if self.gap:
                await self.tombstones.allow_gaps(lambda: self.gap)
            self._durable_cuts = cuts
            self.flushed = max(self.flushed, self._flight)
            if self.flushed > self.end:  # otherwise later appends would count as durable too early
                problem = f"the log ends there, but counts as durable below {self.flushed}"
                self.note(CorruptLog(self.active.path, self.active.size, self.end, problem))

    def _dirty(self) -> list[Segment]:
        """Returns segments with changes that are not durable, in order. Only the last ones can have any."""
        dirty: list[Segment] = []
        for segment in reversed(self.segments):
            if segment.synced == segment.changes:
                break
            dirty.insert(0, segment)
        return dirty
