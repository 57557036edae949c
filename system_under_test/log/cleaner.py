"""Compaction of a log: of each key only the last value stays, at the offset that it always had.

A pass has two parts, as in Kafka. The part of the log that was not cleaned yet (the dirty one) is read for the last
offset of each key; then all segments from the start on are rewritten without what a later message makes obsolete, small
neighbours into one. Every message from the end of what was read on stays, also in the middle of a segment, so that a
pass that has seen as many keys as it may remember just ends there.

Segments that are written to, not fsynced, or not below the high watermark are never touched. Readers go on in the old
segments; appends, reads, retention and cuts go on during a pass, and a cut of what is being cleaned ends it.
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
from assay.system_under_test.log.index import MAXIMUM
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.scan import SegmentScan
from assay.system_under_test.log.segment import Segment
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import Message

YIELD_BYTES: Final = 64 * 1024
"""How much is read or written before other tasks run."""
DIGEST_SIZE: Final = 16
"""Bytes: keys may be long, and there may be many."""


@dataclass(frozen=True)
class Work:
    """What a pass over a log is to do."""

    segments: tuple[Segment, ...]
    dirty_from: int
    """Below this offset each key has one value."""
    end: int
    """Where the segments end, and the next one begins."""
    horizon: int
    """The time of the tombstones below this offset is over."""
    ratio: float
    """Which part of the segments' bytes is dirty."""
    cuts: int
    """Of the log, when this was found."""


@dataclass(frozen=True)
class Cleaning:
    """What a pass did."""

    end: int
    """Below this offset each key has one value now."""
    messages: int
    """Taken out."""
    size_before: int
    size_after: int
    """Bytes, of the segments looked at."""
    horizon: int
    """No tombstone is left below this offset."""
    last_tombstone: int
    """Offset of the last one that is left; -1 when none is."""
    cuts: int
    """Of the log, when the work was found."""


class Interrupted(Exception):
    """The log was cut, closed or found damaged while it was being cleaned. What was done until then stays."""


def due(log: Log, dirty_from: int, limit: int, topic: TopicConfig) -> Work | None:
    """What is to be done, if a pass is due: enough is dirty, or the time of tombstones is over.

    ``limit``: the high watermark. Raises :class:`CorruptLog` when the messages' times cannot be read.
    """
    dirty_from, now = max(dirty_from, log.start_offset), log.now_ms()
    segments = swap.cleanable(log.row, limit)
    if topic.min_compaction_lag_ms:
        for index, segment in enumerate(segments):
            with log.row.noting():
                if segment.times.age_ms() > now - topic.min_compaction_lag_ms:
                    segments = segments[:index]
                    break
    if not segments:
        return None
    ends = log.segment_offsets[1 : len(segments) + 1]
    total = sum(segment.size for segment in segments)
    dirty = sum(segment.size for segment, end in zip(segments, ends, strict=True) if end > dirty_from)
    horizon = log.tombstones.horizon(now, topic.delete_retention_ms, ends[-1])
    ratio = dirty / total if total else 0.0
    if ratio <= topic.min_cleanable_dirty_ratio and horizon <= log.start_offset:
        return None
    return Work(segments, dirty_from, ends[-1], horizon, ratio, log.row.cuts)


async def clean(log: Log, work: Work, max_keys: int, on_replaced: Callable[[int], None]) -> Cleaning:
    """One pass, to be followed by :func:`note`. ``max_keys``: how many keys it may remember, at least 1.

    ``on_replaced`` is called with how many segments were taken out, group by group; they are to be purged when their
    readers have had time to finish.

    Raises :class:`Interrupted`, :class:`CorruptLog` for damage that it met, ``OSError``, and :class:`SwapUnfinished`.
    """
    run = _Pass(log, work, on_replaced)
    end, last = await run.read_keys(max_keys)
    touched = tuple(segment for segment in work.segments if segment.base_offset < end)
    before = sum(segment.size for segment in touched)
    await log.tombstones.allow_gaps(lambda: work.end if log.row.cuts == work.cuts else 0)
    for group in _groups(touched, log.config.segment_bytes, log.config.index_max_bytes, end):
        await run.rewrite(group, end, last)
    return Cleaning(
        end=end,
        messages=run.dropped,
        size_before=before,
        size_after=before - run.freed,
        horizon=min(work.horizon, end),
        last_tombstone=run.last_tombstone,
        cuts=run.cuts,
    )


async def note(log: Log, cleaning: Cleaning) -> bool:
    """Durably notes the tombstones' time. False, and nothing is noted, when the log was cut or closed since.

    No cut may begin before this has returned.
    """
    if log.closed or log.row.cuts != cleaning.cuts:
        return False
    await log.tombstones.cleaned(cleaning.horizon, cleaning.last_tombstone + 1, log.now_ms())
    return True


class _Pass:
    """A pass under way."""

    def __init__(self, log: Log, work: Work, on_replaced: Callable[[int], None]) -> None:
        self._log = log
        self._work = work
        self._on_replaced = on_replaced
        self.cuts = work.cuts
        self.dropped = self.freed = 0
        self.last_tombstone = -1
        """Offset of the last one that stays."""
        self._breath = 0

    async def read_keys(self, max_keys: int) -> tuple[int, dict[bytes, int]]:
        """Up to which offset the dirty part was read, and each key's last offset in it."""
        last: dict[bytes, int] = {}
        for segment in self._work.segments:
            if segment.next_offset <= self._work.dirty_from:
                continue
            for data in self._blocks(segment):
                for message in message_set.messages(data, check_crcs=False):
                    if message.offset < self._work.dirty_from or message.key is None:
                        continue
                    key = _digest(message.key)
                    if key not in last and len(last) >= max_keys:
                        return message.offset, last
                    last[key] = message.offset
                await self._breathe(len(data))
        return self._work.end, last

    async def rewrite(self, group: Sequence[Segment], end: int, last: dict[bytes, int]) -> None:
        """Puts one segment in the place of these, unless nothing would change."""
        log, dropped, size = self._log, 0, sum(segment.size for segment in group)
        path = swap.cleaned_path(log.directory, group[0].base_offset)

        def stays(message: Message) -> bool:
            nonlocal dropped
            if message.offset < end:
                key = message.key
                obsolete = (
                    key is None  # it stands for no value of a key (Kafka's cleaner drops it, too)
                    or last.get(_digest(key), -1) > message.offset
                    or (message.value is None and message.offset < self._work.horizon)
                )
                if obsolete:
                    dropped += 1
                    return False
                if message.value is None:
                    self.last_tombstone = max(self.last_tombstone, message.offset)
            return True

        file = log.row.storage.open(path)
        try:
            file.truncate(0)
            for segment in group:
                for data in self._blocks(segment):
                    file.append(message_set.select(data, stays))
                    await self._breathe(len(data))
            if len(group) == 1 and not dropped:
                return
            scan = SegmentScan(file, group[0].base_offset, log.config)
            while scan.step():
                await self._breathe(log.config.index_interval_bytes)
            if scan.problem is not None:
                raise CorruptLog(path, scan.position, scan.next_offset, scan.problem)
            await file.fsync()
            if not await swap.exchange(log.row, group, scan, self.cuts):
                raise Interrupted
        finally:
            with contextlib.suppress(OSError):  # what is left is removed at the next start
                file.close()
                if log.row.storage.exists(path):
                    log.row.storage.remove(path)
        self.dropped += dropped
        self.freed += size - scan.position
        self._on_replaced(len(group))

    def _blocks(self, segment: Segment) -> Iterator[bytes]:
        blocks = segment.blocks()
        while True:
            if segment.closed or self._log.row.cuts != self.cuts:
                raise Interrupted
            with self._log.row.noting():
                block = next(blocks, None)
            if block is None:
                return
            yield block[1]

    async def _breathe(self, size: int) -> None:
        """Lets other tasks run when it is time."""
        self._breath += size
        if self._breath >= YIELD_BYTES:
            self._breath = 0
            await asyncio.sleep(0)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_SIZE).digest()


def _groups(segments: Sequence[Segment], segment_bytes: int, index_bytes: int, end: int) -> Iterator[Sequence[Segment]]:
    """Neighbours that fit into one segment as they are."""
    group: list[Segment] = []
    size = index = 0
    for segment, following in zip(segments, [*(s.base_offset for s in segments[1:]), end], strict=True):
        fits = (
            size + segment.size <= segment_bytes
            and index + segment.index.size <= index_bytes
            and (not group or following - group[0].base_offset <= MAXIMUM)
        )
        if group and not fits:
            yield group
            group, size, index = [], 0, 0
        group.append(segment)
        size += segment.size
        index += segment.index.size
    if group:
        yield group
