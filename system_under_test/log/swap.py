"""Putting one new segment in the place of several, so that a crash at any instant leaves the old ones or the new one.

The new segment is written as ``<base>.log.cleaned`` and fsynced; then it is named ``<base>-<end>.log.swap``, which says
that it holds all that is to stay of the segments that begin from ``base`` to below ``end``, and the folder is fsynced.
From then on it counts: the old files go and it takes the first one's name. A start that finds it does just that.
A ``.cleaned`` file is nothing. Kafka does the same; its swap files do not say where they end, and reading it off their
last entry could take too much with it, were that entry damaged.
"""

from collections.abc import Sequence

from assay.system_under_test.log.errors import SwapUnfinished
from assay.system_under_test.log.files import LOG_SUFFIX, remove_files, remove_indexes, segment_bases, segment_name
from assay.system_under_test.log.scan import SegmentScan
from assay.system_under_test.log.segment import Segment, open_segment
from assay.system_under_test.log.segment_list import SegmentRow
from assay.system_under_test.runtime import Storage

CLEANED_SUFFIX = ".log.cleaned"
SWAP_SUFFIX = ".log.swap"


def cleanable(row: SegmentRow, limit: int) -> tuple[Segment, ...]:
    """The oldest segments, as far as compaction may touch them: durable, and with a message below ``limit`` after
    them, so that a reader or a follower always finds its way from what is left of them to where they ended.
    """
    if row.closed or row.damage is not None or row.is_cut:
        return ()
    limit = min(limit, row.flushed)
    return tuple(s for s, following in zip(row.segments, row.bases[1:], strict=False) if following < limit)


async def exchange(row: SegmentRow, old: Sequence[Segment], scan: SegmentScan, cuts: int) -> bool:
    """Durably puts a cleaned file in the place of neighbours from :func:`cleanable`.

    ``scan`` is the finished scan of the file at :func:`cleaned_path`, which is durable; ``cuts`` as it was when the
    file was begun. Readers of the old ones may go on until ``SegmentRow.purge``. False, and the row is as it was, if it
    was cut, closed or found damaged since, or retention has taken one of the old ones. Raises :class:`SwapUnfinished`,
    and ``OSError`` when nothing has changed.
    """
    base = old[0].base_offset
    async with row.changing:
        if row.closed or row.damage is not None or row.cuts != cuts or old[0] not in row.segments:
            return False
        end = row.segments[row.segments.index(old[-1]) + 1].base_offset
        written = old[-1].times.written_ms()
        counts = False
        row.swap_file = _swap_path(row.directory, base, end)
        try:
            row.storage.rename(cleaned_path(row.directory, base), row.swap_file)
            await row.storage.fsync_directory(row.directory)
            counts = row.swap_file is not None and row.damage is None
        finally:
            if not counts:
                _abandon(row)
        if not counts:
            return False
        row.swap_file = None  # it stays from here on, whatever fails: what it stands for may be half gone
        try:
            _replace_files(row.storage, row.directory, base, end)
            new = open_segment(row.storage, row.directory, base, row.config, now_ms=written)
            new.adopt(scan)
        except OSError as error:
            raise SwapUnfinished(f"{row.directory}: the segments from {base} to {end} are half exchanged") from error
        new.synced = new.changes
        first = row.segments.index(old[0])  # again: appends may have rolled while the folder was fsynced
        row.set((*row.segments[:first], new, *row.segments[first + len(old) :]))
        for segment in old:
            row.retire(segment.close)
        await row.storage.fsync_directory(row.directory)
        return True


def _abandon(row: SegmentRow) -> None:
    try:
        row.abandon_swap()
    except OSError as error:
        raise SwapUnfinished(f"{row.directory}: a file that a start would swap in cannot be removed") from error


def cleaned_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{segment_name(base_offset)}{CLEANED_SUFFIX}"


async def finish(storage: Storage, directory: str) -> None:
    """Durably finishes the swaps that a crash interrupted, and discards what never got so far."""
    names = storage.listdir(directory)
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            storage.remove(f"{directory}/{name}")
        elif name.endswith(SWAP_SUFFIX):
            base, _, end = name.removesuffix(SWAP_SUFFIX).partition("-")
            if base.isdigit() and end.isdigit():
                _replace_files(storage, directory, int(base), int(end))
    if any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
        await storage.fsync_directory(directory)


def _swap_path(directory: str, base_offset: int, end_offset: int) -> str:
    return f"{directory}/{segment_name(base_offset)}-{segment_name(end_offset)}{SWAP_SUFFIX}"


def _replace_files(storage: Storage, directory: str, base_offset: int, end_offset: int) -> None:
    """What is left to do once the swap file is durable; may have been begun before. Durable after an fsync."""
    for base in segment_bases(storage, directory):
        if base_offset < base < end_offset:
            remove_files(storage, f"{directory}/{segment_name(base)}")
    target = f"{directory}/{segment_name(base_offset)}"
    remove_indexes(storage, target)
    storage.rename(_swap_path(directory, base_offset, end_offset), target + LOG_SUFFIX)
