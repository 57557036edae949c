"""Recovery: opens a log and decides how many of the bytes on disk belong to it.

- After a clean stop the files are trusted. Each segment's last block is checked at once, older blocks when they are
  first read.
- After an unclean stop everything from the segment of the recovery point on is scanned. The log ends at the first entry
  that is incomplete, fails its CRC or has the wrong offset, so torn and garbage tails are treated alike. Segments after
  that end are removed, because they would leave a hole.

Everything below the recovery point had been fsynced and perhaps acknowledged, so damage there is never truncated. The
log opens *damaged*, with its good prefix, and every byte is kept until the replication layer has decided.

A link or another special file in the place of a segment's file counts as damage below the recovery point. It is neither
opened nor removed, because it may lead to records or to another program's file.

The CRC does not cover offsets. In a log that may have gaps, a flipped bit can raise the last offset of a file, and thus
the log's end above the recovery point. Fsynced records that are missing after it would then not count as damage. So
recovery accepts an offset after a gap only if it is below the base of the next segment. After a clean stop, the
recovery point is the log's end, so that offset must also be below the recovery point. In a log that may have
gaps, every entry lost after a clean stop is damage.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from assay.system_under_test.clocks import Instant
from assay.system_under_test.log import files, swap
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.damage import Damage
from assay.system_under_test.log.index import MAX_RELATIVE
from assay.system_under_test.log.preallocation import ends_in_zeros
from assay.system_under_test.log.scan import SegmentScan
from assay.system_under_test.log.segment import Segment, open_found_segment, remove_segment
from assay.system_under_test.records.message import ENTRY_HEADER, HEADER_SIZE, MINIMUM_SIZE
from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.atomic import TEMPORARY_SUFFIX

YIELD_BYTES = 1 << 20
"""Bytes scanned or decompressed before other tasks run."""


@dataclass(frozen=True)
class RecoveryResult:
    """The outcome of opening a log."""

    end: int
    """The log end; everything below has been checked or was closed cleanly."""
    truncated_bytes: int
    """Bytes removed or, in a damaged log, unreachable."""
    damaged: bool
    """Whether the log lacks records that had been fsynced. If so, all its bytes were kept."""
    problem: str | None
    """The problem, with file and byte position; None if there was no problem."""


@dataclass(frozen=True)
class LoadedSegments:
    """A log's segments, at least one, and the outcome of opening them."""

    segments: tuple[Segment, ...]
    recovery: RecoveryResult
    damage: Damage | None


async def load_segments(
    storage: Storage,
    directory: str,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int | None,
    allows_gap: Callable[[int, int], bool],
    preallocated: bool,
    now: Callable[[], Instant],
    known_damage: Damage | None = None,
) -> LoadedSegments:
    """Opens all segments of an existing directory, finds the log's end, and makes the log durable up to its end.

    - ``recovery_point``: every offset below it had been fsynced; None: unknown, so every problem counts as damage
    - ``known_damage``: damage that an earlier process noted
    - ``allows_gap(end, base)``: returns whether compaction may have left a gap between the end of a segment and the
      base of the next one; any other gap is a loss
    - ``preallocated``: whether files may end in zeros, which are removed

    Raises ``OSError``.
    """
    rejected = await swap.finish_swaps(storage, directory, config)  # exchanges of compacted segments, after a crash
    bases = files.list_segment_bases(storage, directory)
    segments = [open_found_segment(storage, directory, base, config, now=now()) for base in bases or [0]]
    good: list[Segment] = []
    problem: str | None = None
    truncated = 0
    # A clean stop writes the log's end as the recovery point. A recovery point of 0, or of a damaged log, says nothing.
    clean_end = recovery_point if clean and config.compacted and recovery_point and known_damage is None else None
    for index, segment in enumerate(segments):
        if segment.unusable is not None:
            problem = segment.unusable
            good = good or [segment]
            known_damage = known_damage or Damage(good[-1].next_offset, problem)
            break
        overlaps = bool(good) and segment.base_offset < good[-1].next_offset
        continued = overlaps and any(other.base_offset == good[-1].next_offset for other in segments[index + 1 :])
        if overlaps and (not segment.file.size or continued):
            continue  # a failed roll or a user left this file; the previous segment has its offsets
        gap_allowed = (
            bool(good)
            and good[-1].next_offset < segment.base_offset
            and allows_gap(good[-1].next_offset, segment.base_offset)
        )
        if good and segment.base_offset != good[-1].next_offset and not gap_allowed:
            problem = f"{segment.path}: begins at {segment.base_offset}, but {good[-1].next_offset} comes next"
            break
        if good and segment.base_offset > good[-1].next_offset:
            known_damage = known_damage or _find_swapped_loss(good[-1].next_offset, segment.base_offset, rejected)
        following = next((other.base_offset for other in segments[index + 1 :] if other.file.size), None)
        is_durable = following is not None and following <= (recovery_point or 0)
        limit = _find_limit(segments[index + 1 :], clean_end) if config.compacted else None
        scan = await _load_segment(
            segment, trust=clean or is_durable, closed_cleanly=clean, preallocated=preallocated, limit=limit
        )
        good.append(segment)
        if scan is not None and scan.problem is not None:
            problem = f"{segment.path}: at byte {scan.position} (offset {scan.next_offset}): {scan.problem}"
            truncated = segment.file.size - segment.size
            break
    dropped = [segment for segment in segments if segment not in good]
    end = good[-1].next_offset
    if clean_end is not None and problem is not None and (truncated or any(map(_may_have_entries, dropped))):
        known_damage = known_damage or Damage(end, problem)
    for segment in dropped:
        truncated += segment.file.size
    damage = _find_damage(directory, end, recovery_point, problem, known_damage)
    if damage is not None:
        for segment in dropped:
            segment.close()
        problem = damage.problem
        await storage.fsync_directory(directory)  # a killed process may have written the damage note without an fsync
    else:
        untouched = clean and bases and problem is None
        await _make_durable(storage, directory, good, dropped, None if untouched else recovery_point or 0)
    recovery = RecoveryResult(end, truncated, damage is not None, problem)
    return LoadedSegments(tuple(good), recovery, damage)


def _find_damage(
    directory: str, end: int, recovery_point: int | None, problem: str | None, known_damage: Damage | None
) -> Damage | None:
    if known_damage is not None:
        return Damage(min(known_damage.offset, end), known_damage.problem)
    if recovery_point is None:
        return None if problem is None else Damage(end, problem)
    if end >= recovery_point:
        return None
    return Damage(end, problem or f"{directory}: ends at offset {end}, below its recovery point {recovery_point}")


def _find_swapped_loss(start: int, end: int, rejected: Collection[swap.RejectedSwap]) -> Damage | None:
    """Returns damage if the offsets from ``start`` to ``end`` may have been in a swap file that was rejected.

    The gap may also be a normal one of compaction. It counts as damage anyway: the log is then copied again.
    """
    return next((Damage(start, swapped.problem) for swapped in rejected if swapped.base < end <= swapped.end), None)


def remove_leftovers(storage: Storage, directory: str, bases: Collection[int]) -> None:
    """Removes the files of all segments that are not in ``bases``, last first, and all swap files.

    Such files are orphaned indexes, segments after damage, and segments removed by retention. All complete swap files
    have been swapped in before.
    """
    kept = {files.format_segment_name(base) + suffix for base in bases for suffix in files.SUFFIXES}
    for name in reversed(storage.listdir(directory)):
        if swap.is_swap_file(name) or (
            name.endswith((*files.SUFFIXES, files.RETIRED_SUFFIX, files.LOG_SUFFIX + TEMPORARY_SUFFIX))
            and files.is_segment_file(name)
            and name not in kept
        ):
            storage.remove(f"{directory}/{name}")


def _find_limit(following: list[Segment], clean_end: int | None) -> int | None:
    """Returns the limit of offsets after a gap in a segment: the base of the next segment with entries, or the end."""
    bases = (segment.base_offset for segment in following if segment.file.size and _may_have_entries(segment))
    limits = [limit for limit in (next(bases, None), clean_end) if limit is not None]
    return min(limits, default=None)


def _may_have_entries(segment: Segment) -> bool:
    """Returns whether the file seems to begin with an entry of this segment. False for a foreign file of that name."""
    try:
        header = segment.file.read(0, HEADER_SIZE)
    except OSError:
        return True
    if len(header) < HEADER_SIZE:
        return False
    offset, size = ENTRY_HEADER.unpack(header)
    return bool(0 <= offset - segment.base_offset <= MAX_RELATIVE and size >= MINIMUM_SIZE)


async def _load_segment(
    segment: Segment, *, trust: bool, closed_cleanly: bool, preallocated: bool, limit: int | None
) -> SegmentScan | None:
    """Loads a segment. Returns None if its index can be trusted, else a finished scan of the whole segment."""
    tail = segment.load(limit) if trust else None
    if tail is not None:
        await _run_scan(tail)
        if tail.problem is None:
            segment.trust(tail, closed_cleanly=closed_cleanly)
            return None
    scan = segment.scan(limit)
    await _run_scan(scan)
    if preallocated and scan.problem is not None and await ends_in_zeros(segment.file, scan.position):
        scan.problem = None
        segment.file.truncate(scan.position)
    segment.adopt(scan)
    return scan


async def _run_scan(scan: SegmentScan) -> None:
    yield_at = scan.position + scan.expanded + YIELD_BYTES
    while scan.step():
        if scan.position + scan.expanded >= yield_at:
            yield_at = scan.position + scan.expanded + YIELD_BYTES
            await asyncio.sleep(0)


async def _make_durable(
    storage: Storage, directory: str, good: list[Segment], dropped: list[Segment], durable_below: int | None
) -> None:
    """Removes files that are not part of the log, and fsyncs the rest, because a killed process may not have done so.

    Segments below the offset ``durable_below`` are durable already; None: all segments are.
    """
    for segment in reversed(dropped):
        remove_segment(storage, segment)
    remove_leftovers(storage, directory, [segment.base_offset for segment in good])
    last = good[-1]
    if last.file.size > last.size:
        last.truncate(last.size, last.next_offset)
    # A truncation that was not fsynced has lowered the durable offset at least to the base of the following segment. So
    # if the following segment begins below `durable_below`, this segment has no such truncation.
    for segment, following in zip(good, [*good[1:], None], strict=True):
        if durable_below is None or (following is not None and following.base_offset < durable_below):
            segment.durable_changes = segment.changes  # all changes of the file are durable
        else:
            await segment.fsync()
    if durable_below is not None:
        await storage.fsync_directory(directory)
