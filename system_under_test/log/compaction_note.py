"""The compaction state of a log: the offset below which segments may leave gaps, and the ages of tombstones.

Compaction removes the values before a null value (a tombstone) at once. It removes the tombstone itself
``delete.retention.ms`` after the first cleaning that kept it, so that a slow reader has time to see it. Kafka
0.10.2 uses the times of the segments' files for that, which a copy of the disk loses.

A segment that was never cleaned ends where the next one begins. Below the offset ``gaps``, a segment may end earlier
because of compaction. Above ``gaps``, a missing offset between segments was lost in a power loss. A loss below ``gaps``
would look like compaction. So each segment that ends early is noted with its end before it is put in place.

The file ``compaction-checkpoint`` in the log's folder has these lines:

- ``gaps OFFSET``
- ``ends BASE END BASE END ...``, ascending: before the segment that begins at ``BASE``, the log may lack the offsets
  from ``END`` on. All other segments follow each other without a gap. Without this line, in a file of an earlier
  version, gaps below ``gaps`` may be anywhere.
- ``OFFSET TIME``, ascending: since this time (milliseconds of the node's clock), all tombstones below the offset have
  been cleaned at least once

While the file exists, there may be gaps within segments. It is never removed, because gaps do not close when the topic
is no longer compacted.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

from assay.system_under_test.log.checkpoints import CheckpointError, format_lines, parse_lines
from assay.system_under_test.log.damage import Damage
from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.atomic import LogStateFile, write_atomic

COMPACTION_NOTE = "compaction-checkpoint"
MAX_OFFSET = 2**63 - 1


class TombstoneAge(NamedTuple):
    """All tombstones below ``offset`` had survived a cleaning at ``time`` (ms); ``delete.retention.ms`` begins then."""

    offset: int
    time: int


class CompactionState(NamedTuple):
    """The content of the file."""

    gaps_below: int = 0
    rows: tuple[TombstoneAge, ...] = ()
    ends: tuple[tuple[int, int], ...] | None = None
    """``(base, end)``, ascending in both; None: unknown, because an earlier version has written the file."""


class CompactionNote(LogStateFile):
    """The file and its content. Each change is durable when its call returns."""

    def __init__(self, storage: Storage, directory: str) -> None:
        """Reads the file. Sets ``damage`` if it is unreadable, because any records may then be missing."""
        super().__init__(storage, f"{directory}/{COMPACTION_NOTE}")
        self.may_have_gaps = storage.exists(self._path)
        """Whether the log's offsets may have gaps."""
        self.damage: Damage | None = None
        self._state = CompactionState()
        self._written: CompactionState | None = None
        """The content that the file has for certain; None during a write, and after a write that failed."""
        if self.may_have_gaps:
            try:
                self._state = _parse(self._path, storage.read_bytes(self._path))
            except CheckpointError as error:
                self.damage, self._state = Damage(0, str(error)), CompactionState(gaps_below=MAX_OFFSET)
            self._written = self._state

    @property
    def gaps_below(self) -> int:
        """The offset below which a segment may end before the next one begins."""
        return self._state.gaps_below

    def allows_gap(self, end: int, base: int) -> bool:
        """Returns whether a segment may end at ``end`` if the next one begins at ``base``."""
        return base <= self.gaps_below and (self._state.ends is None or dict(self._state.ends).get(base, base) <= end)

    def rows(self) -> tuple[TombstoneAge, ...]:
        """Returns the rows, ascending in offset and time."""
        return self._state.rows

    def find_expired_offset(self, now_ms: int, retention_ms: int, limit: int) -> int:
        """Returns the offset, at most ``limit``, below which all tombstones have expired; 0 if none have."""
        expired = (row.offset for row in self.rows() if now_ms - row.time >= retention_ms and row.offset <= limit)
        return max(expired, default=0)

    async def create(self) -> None:
        """Creates the file, which allows gaps in the log from now on."""
        if not self.may_have_gaps:
            await self._update(lambda state: state)

    async def allow_gaps_below(self, offset: Callable[[], int]) -> None:
        """Notes that segments may leave gaps below the offset that ``offset`` returns just before the write.

        Everything below that offset must be on disk.
        """
        if offset() > self.gaps_below or self._written is None:
            await self._update(lambda state: state._replace(gaps_below=max(state.gaps_below, offset())))

    async def set_gaps(self, gaps: Callable[[], Mapping[int, int]]) -> None:
        """Notes all gaps. ``gaps`` maps the base of the segment after each gap to the end of the segment before it."""
        await self._update(lambda state: state._replace(ends=tuple(sorted(gaps().items()))))

    async def add_gaps(self, gaps: Callable[[], Mapping[int, int]]) -> None:
        """Notes further gaps, as :meth:`set_gaps`; does nothing if the earlier gaps are unknown."""

        def add(state: CompactionState) -> CompactionState:
            known = dict(state.ends or ())
            known |= {base: min(end, known.get(base, end)) for base, end in gaps().items()}
            return state if state.ends is None else state._replace(ends=tuple(sorted(known.items())))

        if self.may_have_gaps:
            await self._update(add)

    async def record_cleaning(self, horizon: int, offset: int, now_ms: int) -> None:
        """Drops the rows up to ``horizon``, whose tombstones are gone. Adds one for the tombstones below ``offset``."""

        def add_row(state: CompactionState) -> CompactionState:
            rows = tuple(row for row in state.rows if row.offset > horizon)
            if offset > max((row.offset for row in rows), default=horizon):
                # If the clock was set back, later tombstones must not look older than earlier ones.
                rows += (TombstoneAge(offset, max([now_ms, *(row.time for row in rows)])),)
            return state._replace(rows=rows)

        await self._update(add_row)

    async def truncate(self, offset: int, gap_end: int = 0, gap_start: int = 0) -> None:
        """Adapts the file before a truncation at ``offset``.

        ``gap_end``: the log's end if it follows a gap, else 0. ``gap_start``: the offset at which that gap begins.
        """

        def clip(state: CompactionState) -> CompactionState:
            rows = {min(row.offset, offset): row.time for row in reversed(state.rows)}
            ends = None
            if state.ends is not None:
                left = {base: before for base, before in state.ends if base <= offset} | (
                    {gap_end: gap_start} if gap_end else {}
                )
                ends = tuple(sorted(left.items()))
            ages = tuple(TombstoneAge(at, rows[at]) for at in sorted(rows) if at > 0)
            return CompactionState(max(gap_end, min(state.gaps_below, offset)), ages, ends)

        if self.may_have_gaps:
            await self._update(clip)

    async def _update(self, change: Callable[[CompactionState], CompactionState]) -> None:
        """Writes the state that ``change`` returns for the present state, if they differ."""
        async with self._writing:
            state = change(self._state)
            if self._closed or state == self._written:
                return
            self._written = None
            lines = [f"gaps {state.gaps_below}", *(f"{offset} {time}" for offset, time in state.rows)]
            if state.ends is not None:
                lines.insert(1, " ".join(["ends", *(f"{base} {end}" for base, end in state.ends)]))
            await write_atomic(self._storage, self._path, format_lines(lines))
            self._state = self._written = state
            self.may_have_gaps = True


def _parse(path: str, data: bytes) -> CompactionState:
    words = parse_lines(path, data)
    try:
        (name, gaps), *pairs = words
        ends = None
        if pairs and pairs[0][0] == "ends":
            bases = list(map(int, pairs.pop(0)[1:]))
            ends = tuple(zip(bases[::2], bases[1::2], strict=True))
        rows = tuple(TombstoneAge(int(offset), int(time)) for offset, time in pairs)
        state = CompactionState(int(gaps), rows, ends)
    except ValueError as error:
        raise CheckpointError(
            f"{path}: expected 'gaps OFFSET', perhaps 'ends BASE END ...', and then lines 'OFFSET TIME', found {words}"
        ) from error
    rising = all(a.offset < b.offset and a.time <= b.time for a, b in pairwise(state.rows))
    rising &= all(a < b for a, b in pairwise(base for base, _ in state.ends or ()))
    if name != "gaps" or not rising:
        raise CheckpointError(f"{path}: expected 'gaps OFFSET', then ascending offsets and times; found {words}")
    return state
