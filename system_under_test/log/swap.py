"""Atomic replacement of several segments by one: a crash at any instant leaves either the old segments or the new one.

1. The new segment is written as ``<base>.log.cleaned`` and fsynced. If a crash follows, the next start removes it.
2. It is renamed to ``<base>-<end>-<size>.log.swap``, and the folder is fsynced. The name says that this file of
   ``size`` bytes replaces the segments whose bases are from ``base`` to below ``end``.
3. The old files are removed, and the swap file takes the name of the first one. A start that finds a swap file repeats
   this step.

Kafka does the same, but its swap files do not name their end, which is then read from the last entry. If that entry
were damaged, too many segments could be removed.

A start checks a swap file before it removes any segment, because only a complete file can replace segments. A file that
was truncated between two entries looks complete, so its size is compared with its name. A swap file of an earlier
version has no size in its name, and is accepted unless it is empty.
"""

import asyncio
import logging
import posixpath
import re
from collections.abc import Sequence
from typing import NamedTuple

from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.errors import SwapUnfinished
from assay.system_under_test.log.files import (
    LOG_SUFFIX,
    format_segment_name,
    is_segment_file,
    list_segment_bases,
    remove_files,
    remove_indexes,
)
from assay.system_under_test.log.scan import SegmentScan
from assay.system_under_test.log.segment import Segment, open_segment
from assay.system_under_test.log.segment_list import SegmentList
from assay.system_under_test.runtime import IrregularFileError, Storage

CLEANED_SUFFIX = ".log.cleaned"
SWAP_SUFFIX = ".log.swap"
_SWAP_NAME = re.compile(r"([0-9]{20})-([0-9]{20})(?:-([0-9]+))?" + re.escape(SWAP_SUFFIX))

_log = logging.getLogger("assay.log")


class RejectedSwap(NamedTuple):
    """A swap file that is not used, with the offsets in its name: ``base`` and ``end`` of the segments to replace."""

    base: int
    end: int
    problem: str


def find_cleanable(log: SegmentList, limit: int) -> tuple[Segment, ...]:
    """Returns the oldest segments that compaction may rewrite: durable, and followed by a message below ``limit``.

    If compaction removes all messages of a segment, readers and followers continue at that message.
    """
    if log.closed or log.found_damage is not None or log.has_unflushed_truncation:
        return ()
    limit = min(limit, log.flushed_offset)
    return tuple(s for s, following in zip(log.segments, log.segment_offsets[1:], strict=False) if following < limit)


async def exchange_segments(log: SegmentList, old: Sequence[Segment], scan: SegmentScan, truncations: int) -> bool:
    """Durably replaces neighboring segments from :func:`find_cleanable` by a cleaned file.

    - ``scan``: the finished scan of the durable file at :func:`format_cleaned_path`
    - ``truncations``: the log's count of truncations when the file was begun

    Readers of the old segments may continue until ``SegmentList.purge_retired``.

    Returns False, and changes nothing, if the log was meanwhile truncated, closed or found damaged, or if retention has
    removed one of the old segments. Raises ``OSError`` if nothing has changed, else :class:`SwapUnfinished`.
    """
    base = old[0].base_offset
    async with log.change_lock:
        if log.closed or log.found_damage is not None or log.truncations != truncations or old[0] not in log.segments:
            return False
        end = log.segments[log.segments.index(old[-1]) + 1].base_offset
        written = old[-1].times.last_written()  # the new segment keeps the times of the last old one
        is_in_place = False
        swapped = f"{log.directory}/{format_swap_name(base, end, scan.position)}"
        log.swap_file = swapped
        try:
            log.storage.rename(format_cleaned_path(log.directory, base), swapped)
            await log.storage.fsync_directory(log.directory)
            is_in_place = log.swap_file is not None and log.found_damage is None
        finally:
            if not is_in_place:
                _abandon(log)
        if not is_in_place:
            return False
        log.swap_file = None  # the swap file stays from here on, whatever fails: the old files may be half removed
        try:
            _replace_files(log.storage, log.directory, base, end, swapped)
            new = open_segment(log.storage, log.directory, base, log.config, now=written)
            new.adopt(scan)
        except OSError as error:
            raise SwapUnfinished(f"{log.directory}: the segments from {base} to {end} are half exchanged") from error
        new.durable_changes = new.changes
        first = log.segments.index(old[0])  # again: appends may have rolled while the folder was fsynced
        log.set_segments((*log.segments[:first], new, *log.segments[first + len(old) :]))
        for segment in old:
            log.retire(segment.close)
        await log.storage.fsync_directory(log.directory)
        return True


def _abandon(log: SegmentList) -> None:
    try:
        log.abandon_swap()
    except OSError as error:
        raise SwapUnfinished(f"{log.directory}: a file that a start would swap in cannot be removed") from error


def format_cleaned_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{format_segment_name(base_offset)}{CLEANED_SUFFIX}"


def format_swap_name(base_offset: int, end_offset: int, size: int) -> str:
    return f"{format_segment_name(base_offset)}-{format_segment_name(end_offset)}-{size}{SWAP_SUFFIX}"


def is_swap_file(name: str) -> bool:
    """Returns whether the broker could have given a swap file this name."""
    return _SWAP_NAME.fullmatch(name) is not None


async def finish_swaps(storage: Storage, directory: str, config: LogConfig) -> list[RejectedSwap]:
    """Durably finishes the swaps that a crash interrupted, and removes unfinished cleaned files.

    Returns the swap files that are incomplete or damaged. These files and the segments stay unchanged. The broker
    removes a segment only after the swap file is complete. So no segment was removed for such a file, unless the disk
    has damaged the file since.
    """
    rejected, changed = [], False
    for name in storage.listdir(directory):
        if name.endswith(CLEANED_SUFFIX) and is_segment_file(name):
            storage.remove(f"{directory}/{name}")
            changed = True
        elif found := _SWAP_NAME.fullmatch(name):
            base, end, size = int(found[1]), int(found[2]), None if found[3] is None else int(found[3])
            path = f"{directory}/{name}"
            problem = await _find_problem(storage, path, base, end, size, config)
            if problem is None:
                _replace_files(storage, directory, base, end, path)
                changed = True
            else:
                _log.error("%s does not replace any segment: %s", path, problem)
                rejected.append(RejectedSwap(base, end, f"{path}: {problem}"))
    if changed:
        await storage.fsync_directory(directory)
    return rejected


async def _find_problem(
    storage: Storage, path: str, base: int, end: int, size: int | None, config: LogConfig
) -> str | None:
    """Returns why the swap file cannot replace the segments from ``base`` to below ``end``; None if it can.

    ``size``: the size of the file by its name; None if the name has no size.
    """
    if not config.compacted:
        return "this log was never compacted"
    if not {base, end} <= {*list_segment_bases(storage, posixpath.dirname(path))}:
        return f"there is no segment at {base} or none at {end}"
    try:
        file = storage.open(path)
    except IrregularFileError as error:
        return str(error.strerror)
    try:
        if file.size != size and (size is not None or not file.size):
            return f"it has {file.size} bytes, and {'some' if size is None else size} belong there"
        scan = SegmentScan(file, base, config)
        for _ in iter(scan.step, False):
            await asyncio.sleep(0)  # lets other tasks run
    finally:
        file.close()
    if scan.problem is not None:
        return f"at byte {scan.position} (offset {scan.next_offset}): {scan.problem}"
    return f"it reaches up to offset {scan.next_offset}" if scan.next_offset > end else None


def _replace_files(storage: Storage, directory: str, base_offset: int, end_offset: int, swapped: str) -> None:
    """Removes the replaced segments and renames the swap file. Repeatable; durable after an fsync of the folder."""
    for base in list_segment_bases(storage, directory):
        if base_offset < base < end_offset:
            remove_files(storage, f"{directory}/{format_segment_name(base)}")
    target = f"{directory}/{format_segment_name(base_offset)}"
    remove_indexes(storage, target)
    storage.rename(swapped, target + LOG_SUFFIX)
