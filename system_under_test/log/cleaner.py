"""Compaction of a log: keeps only the last value of each key, at its original offset.

A pass has two steps, as in Kafka:

1. It reads the part of the log that was not cleaned yet (the dirty part), and remembers the last offset of each key.
   The whole dirty part is checked before the first segment is replaced, because a damaged key would make other records
   obsolete.
2. It rewrites all segments from the start, without messages whose key has a later message. Small neighboring segments
   are merged.

The number of keys that a pass may remember is limited. At the limit it stops reading, even in the middle of a segment,
and keeps all messages from there on.

Compaction touches a segment only if it is no longer written to, is fsynced, and lies below the high watermark. Appends,
reads and retention continue during a pass. Readers of a replaced segment finish in the old file. A truncation of the
log interrupts the pass.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from assay.system_under_test.config import TopicConfig
from assay.system_under_test.log import swap
from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.log.index import MAX_RELATIVE
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.scan import SegmentScan
from assay.system_under_test.log.segment import Segment
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import Message
from assay.system_under_test.records.steps import REWRITE_STEP, STEP_BYTES, run_beside

YIELD_BYTES: Final = 64 * 1024
"""Bytes read or written before other tasks run. The content of compressed entries counts by ``EXPANDED_SHARE``."""
EXPANDED_SHARE: Final = STEP_BYTES // YIELD_BYTES
"""So many decompressed bytes count as one byte."""
DIGEST_SIZE: Final = 16
"""Bytes of a key's digest. Digests are remembered instead of keys, because keys may be long."""


@dataclass(frozen=True)
class CleaningPlan:
    """The plan of one pass over a log. The broker cleans the log with the greatest ``ratio`` first."""

    segments: tuple[Segment, ...]
    dirty_from: int
    """The end of the clean part: below this offset no key has two values."""
    end: int
    """The offset at which the segments end, and the next segment begins."""
    horizon: int
    """Tombstones below this offset have expired."""
    ratio: float
    """The dirty share of the segments' bytes."""
    truncations: int
    """The log's count of truncations when the plan was made."""


@dataclass(frozen=True)
class CleaningResult:
    """The result of a pass."""

    end: int
    """The end of the clean part after the pass."""
    messages: int
    """Number of messages removed."""
    size_before: int
    """Bytes of the examined segments before the pass."""
    size_after: int
    """Bytes of the same segments after the pass."""
    horizon: int
    """No tombstone is left below this offset."""
    last_tombstone: int
    """Offset of the last remaining tombstone; -1 if there is none."""
    truncations: int
    """The log's count of truncations when the plan was made."""


class CleaningInterrupted(Exception):
    """The log was truncated, closed or found damaged during a pass. Segments already rewritten stay."""


def plan_cleaning(log: Log, dirty_from: int, limit: int, topic: TopicConfig) -> CleaningPlan | None:
    """Returns the plan of a pass, or None if none is due.

    A pass is due if enough of the log is dirty, or tombstones have expired. ``limit`` is the high watermark. Raises
    :class:`CorruptLog` if the messages' times cannot be read.
    """
    dirty_from, now = max(dirty_from, log.start_offset), log.now()
    segments = swap.find_cleanable(log, limit)
    if topic.min_compaction_lag_ms:
        for index, segment in enumerate(segments):
            with log.recording_damage():
                if segment.times.age_ms(now) < topic.min_compaction_lag_ms:
                    segments = segments[:index]
                    break
    if not segments:
        return None
    ends = log.segment_offsets[1 : len(segments) + 1]
    total = sum(segment.size for segment in segments)
    dirty = sum(segment.size for segment, end in zip(segments, ends, strict=True) if end > dirty_from)
    horizon = log.compaction_note.find_expired_offset(now.wall_ms, topic.delete_retention_ms, ends[-1])
    ratio = dirty / total if total else 0.0
    if ratio <= topic.min_cleanable_dirty_ratio and horizon <= log.start_offset:
        return None
    return CleaningPlan(segments, dirty_from, ends[-1], horizon, ratio, log.truncations)


async def clean(log: Log, plan: CleaningPlan, max_keys: int, on_replaced: Callable[[int], None]) -> CleaningResult:
    """Runs one pass, which remembers at most ``max_keys`` keys. The caller must call :func:`note_cleaning` next.

    ``on_replaced`` is called after each replacement with the number of old segments. The caller must purge these
    segments once their readers have had time to finish.

    Raises :class:`CleaningInterrupted`, :class:`CorruptLog` for damage, ``OSError``, and :class:`SwapUnfinished`.
    """
    current = _Pass(log, plan, on_replaced)
    end, last = await current.read_keys(max_keys)
    examined = tuple(segment for segment in plan.segments if segment.base_offset < end)
    before = sum(segment.size for segment in examined)
    # The pass may leave gaps between segments below its end. The compaction note must allow them first, and note where
    # the segment before each gap ends. Otherwise a gap would look like a loss.
    await log.compaction_note.set_gaps(log.find_gaps)
    await log.compaction_note.allow_gaps_below(lambda: plan.end if log.truncations == plan.truncations else 0)
    for group in _group_segments(examined, log.config.segment_bytes, log.config.index_max_bytes, end):
        await current.rewrite(group, end, last)
    return CleaningResult(
        end=end,
        messages=current.dropped,
        size_before=before,
        size_after=before - current.freed,
        horizon=min(plan.horizon, end),
        last_tombstone=current.last_tombstone,
        truncations=current.truncations,
    )


async def note_cleaning(log: Log, cleaning: CleaningResult) -> bool:
    """Durably notes the ages of tombstones after a pass.

    Returns False, and notes nothing, if the log was truncated or closed since the pass began. The caller must prevent
    truncations until this returns.
    """
    if log.closed or log.truncations != cleaning.truncations:
        return False
    await log.compaction_note.record_cleaning(cleaning.horizon, cleaning.last_tombstone + 1, log.now_ms())
    return True


class _Pass:
    """The state of a running pass."""

    def __init__(self, log: Log, plan: CleaningPlan, on_replaced: Callable[[int], None]) -> None:
        self._log = log
        self._plan = plan
        self._on_replaced = on_replaced
        self.truncations = plan.truncations
        self.dropped = self.freed = 0
        self.last_tombstone = -1
        """Offset of the last tombstone that stays."""
        self._bytes_since_yield = 0

    async def read_keys(self, max_keys: int) -> tuple[int, dict[bytes, int]]:
        """Returns the offset up to which the dirty part was read, and each key's last offset in it."""
        last: dict[bytes, int] = {}
        for segment in self._plan.segments:
            if segment.next_offset <= self._plan.dirty_from:
                continue
            for data, work in self._iterate_blocks(segment):
                for number, message in enumerate(message_set.iterate_stored(data), start=1):
                    if not number % REWRITE_STEP:
                        await asyncio.sleep(0)
                    if message.offset < self._plan.dirty_from or message.key is None:
                        continue
                    key = _digest(message.key)
                    if key not in last and len(last) >= max_keys:
                        return message.offset, last
                    last[key] = message.offset
                await self._yield_after(work)
        return self._plan.end, last

    async def rewrite(self, group: Sequence[Segment], end: int, last: dict[bytes, int]) -> None:
        """Replaces a group of segments by one, unless nothing would change."""
        log, dropped, size = self._log, 0, sum(segment.size for segment in group)
        path = swap.format_cleaned_path(log.directory, group[0].base_offset)

        def is_kept(message: Message) -> bool:
            nonlocal dropped
            if message.offset < end:
                key = message.key
                obsolete = (
                    key is None  # Kafka's cleaner drops messages without a key, too
                    or last.get(_digest(key), -1) > message.offset
                    or (message.value is None and message.offset < self._plan.horizon)
                )
                if obsolete:
                    dropped += 1
                    return False
                if message.value is None:
                    self.last_tombstone = max(self.last_tombstone, message.offset)
            return True

        file = log.storage.open(path)
        try:
            file.truncate(0)
            for segment in group:
                for data, work in self._iterate_blocks(segment):
                    file.append(await run_beside(message_set.select_in_steps(data, is_kept)))
                    await self._yield_after(work)
            if len(group) == 1 and not dropped:
                return
            scan, expanded = SegmentScan(file, group[0].base_offset, log.config), 0
            while scan.step():
                work = log.config.index_interval_bytes + (scan.expanded - expanded) // EXPANDED_SHARE
                expanded = scan.expanded
                await self._yield_after(work)
            if scan.problem is not None:
                raise CorruptLog(path, scan.position, scan.next_offset, scan.problem)
            await file.fsync()
            if group[-1] not in log.segments:
                raise CleaningInterrupted
            following = log.segments[log.segments.index(group[-1]) + 1].base_offset
            if scan.next_offset < following:  # the new segment leaves a gap before the following one
                await log.compaction_note.add_gaps(
                    lambda: {following: scan.next_offset} if log.truncations == self.truncations else {}
                )
            if not await swap.exchange_segments(log, group, scan, self.truncations):
                raise CleaningInterrupted
        finally:
            with contextlib.suppress(OSError):  # remaining files are removed at the next start
                file.close()
                if log.storage.exists(path):
                    log.storage.remove(path)
        self.dropped += dropped
        self.freed += size - scan.position
        self._on_replaced(len(group))

    def _iterate_blocks(self, segment: Segment) -> Iterator[tuple[bytes, int]]:
        """Yields the bytes of each block, checked again even if they were checked before, and their work.

        The disk may have damaged them since. If damage raised the last offset of a block, only the next block or the
        segment's end shows it.
        """
        blocks, expected = segment.blocks(), segment.base_offset
        while True:
            if segment.closed or self._log.truncations != self.truncations:
                raise CleaningInterrupted
            with self._log.recording_damage():
                block = next(blocks, None)
                data = block[1] if block is not None else b""
                found = self._log.config.check(data, expected, segment.base_offset)
                if found.size < len(data) or (block is None and expected != segment.next_offset):
                    segment.rebuild_index()
                    raise CleaningInterrupted  # the data are good, and the next pass uses the rebuilt index
            if block is None:
                return
            expected = found.next_offset
            yield data, len(data) + found.expanded // EXPANDED_SHARE

    async def _yield_after(self, size: int) -> None:
        """Counts ``size`` bytes as processed, and lets other tasks run after every ``YIELD_BYTES``."""
        self._bytes_since_yield += size
        if self._bytes_since_yield >= YIELD_BYTES:
            self._bytes_since_yield = 0
            await asyncio.sleep(0)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_SIZE).digest()


def _group_segments(
    segments: Sequence[Segment], segment_bytes: int, index_bytes: int, end: int
) -> Iterator[Sequence[Segment]]:
    """Yields groups of neighbors that fit into one segment at their current sizes."""
    group: list[Segment] = []
    size = index = 0
    for segment, following in zip(segments, [*(s.base_offset for s in segments[1:]), end], strict=True):
        fits = (
            size + segment.size <= segment_bytes
            and index + segment.index.size <= index_bytes
            and (not group or following - group[0].base_offset <= MAX_RELATIVE)
        )
        if group and not fits:
            yield group
            group, size, index = [], 0, 0
        group.append(segment)
        size += segment.size
        index += segment.index.size
    if group:
        yield group
