"""The segments of a log in a row: what appends, cuts, retention and compaction of it share.

The tuple of segments is replaced as a whole when it changes, never edited. Three offsets describe the state::

    start <= flushed <= end

Below ``flushed`` everything survives a power loss. ``end`` is the offset of the next append. While it is not durable
that the row starts there, ``flushed`` may be below ``start``: the row's files may come back as they were before.

The one trap of files: a cut that was not fsynced can be undone by a power loss, and a removed segment can come back
*behind* records that were appended after it. So a row that was cut must be flushed before the next append, which
otherwise raises :class:`UnflushedTruncation`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.damage import Damage, DamageNote
from assay.system_under_test.log.errors import CorruptLog, DamagedLog, UnflushedTruncation
from assay.system_under_test.log.preallocation import PreallocationNote
from assay.system_under_test.log.segment import Segment, new_segment, remove_segment
from assay.system_under_test.log.tombstones import Tombstones
from assay.system_under_test.runtime import Storage


def _ignore(_: object) -> None:
    """Does nothing."""


class SegmentRow:
    """See the module. ``on_roll`` is called with each new segment's base offset, ``on_damage`` with what is found."""

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
        """How often the row was cut."""
        self.changing = asyncio.Lock()
        """Held while something is made durable, or segments are exchanged."""
        self.damage: Damage | None = None
        self.closed = False
        self.gap = 0
        """Where the last segment begins, if a cut that is not flushed has left a gap before it."""
        self.swap_file: str | None = None
        """The swap file under way."""
        self._wall_clock = wall_clock
        self._flight = 0
        """Up to where the fsync under way counts."""
        self._durable_cuts = 0
        self._renamed = 0
        """How often files came or went."""
        self._durable_renamed = 0
        self._retired: list[Callable[[], None]] = []
        """What ends the segments that were taken out."""

    @property
    def start(self) -> int:
        """The first offset that can be read; the end, when a disk that failed has left the row without a segment."""
        return self.bases[0] if self.bases else self.end

    @property
    def size(self) -> int:
        """Bytes of all segments, indexes not counted."""
        return sum(segment.size for segment in self.segments)

    @property
    def is_cut(self) -> bool:
        """Was it cut, and not flushed since?"""
        return self.cuts != self._durable_cuts

    def now_ms(self) -> int:
        """This node's wall clock."""
        return int(self._wall_clock() * 1000)

    # -- damage --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Around what reads a segment: damage that is found becomes the log's."""
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
        """Raises :class:`DamagedLog`."""
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
        """Good whole entries with offsets ``first`` to ``last``; their youngest as ``message_set.Checked`` has it."""
        self.check_healthy()
        if self.is_cut:
            raise UnflushedTruncation(f"{self.directory}: was cut; await flush() before the next append")
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
        """An empty segment after the others."""
        self._renamed += 1
        segment = new_segment(self.storage, self.directory, base_offset, self.config, now_ms=self.now_ms())
        self.set((*self.segments, segment))
        return segment

    def keep(self, count: int) -> None:
        """Removes all but the first ``count`` segments, the last first: whenever it stops, a prefix is left."""
        self.abandon_swap()  # first: found at a start, it would bring back what goes now
        doomed = self.segments[count:]
        self.set(self.segments[:count])
        for segment in reversed(doomed):
            remove_segment(self.storage, segment)
        self._renamed += 1

    def end_at(self, offset: int) -> None:
        """The row was cut, and ends there now."""
        self.cuts += 1
        self.gap = 0
        self.end = offset
        self.flushed = min(self.flushed, offset)
        self._flight = min(self._flight, offset)

    def restart_at(self, offset: int) -> None:
        """The row was emptied, and begins and ends there now."""
        self.add(offset)
        self.end_at(offset)
        self.flushed = self._flight = 0

    def retire(self, end: Callable[[], None]) -> None:
        """A segment was taken out, and is still open for those who read it; ``end`` closes it, see :meth:`purge`."""
        self._retired.append(end)

    def purge(self, count: int | None = None) -> None:
        """Ends the ``count`` segments that were taken out first, or all; slices of them become invalid."""
        retired, self._retired = self._retired[:count], [] if count is None else self._retired[count:]
        for end in retired:
            end()

    def abandon_swap(self) -> None:
        """Raises ``OSError`` when it is still there: a start would put it in the place of what is there by then."""
        if self.swap_file is not None:
            if self.storage.exists(self.swap_file):
                self.storage.remove(self.swap_file)
            self.swap_file = None

    # -- durability ----------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Fsyncs what was appended or cut before the call.

        Calls that come while one is under way share the next fsync. What is appended during it is not waited for; what
        is cut during it is not counted.
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
            if self.flushed > self.end:  # what comes next would count as durable before it is
                problem = f"it is said to be durable below {self.flushed}"
                self.note(CorruptLog(self.active.path, self.active.size, self.end, problem))

    def _dirty(self) -> list[Segment]:
        """Segments with something not durable, in order. Only the last ones can be: sealed ones do not change."""
        dirty: list[Segment] = []
        for segment in reversed(self.segments):
            if segment.synced == segment.changes:
                break
            dirty.insert(0, segment)
        return dirty
