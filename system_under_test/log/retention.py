"""Retention: removes the oldest segments of a log, by age or by total size."""

from collections.abc import Callable

from assay.system_under_test.log.files import LOG_SUFFIX, RETIRED_SUFFIX, SUFFIXES
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.segment import Segment
from assay.system_under_test.log.segment_list import SegmentList
from assay.system_under_test.runtime import Storage


async def retain(log: Log, limit: Callable[[], int], *, retention_ms: int, retention_bytes: int) -> int:
    """Removes the segments that are due, and returns their number.

    - Only segments below the offset that ``limit`` returns are removed, and none of a damaged log.
    - A bound of -1 means no limit.
    - A segment is as old as its youngest message; without timestamps, as its last append.
    - Each segment is durably gone before the next, because a power loss must not leave a hole.

    Readers may continue until :meth:`Log.purge`. Raises :class:`CorruptLog`.
    """
    row, count = log.segment_list, 0
    while True:
        cuts = row.cuts
        async with row.changing:
            if row.closed or not _is_oldest_due(row, limit(), retention_ms, retention_bytes):
                return count
            if len(row.segments) == 1:
                row.roll()  # the new segment's name records where the log starts: it must be durable first
            else:
                segment = row.segments[0]
                row.set(row.segments[1:])
                row.retire(RetiredSegment(row.storage, segment).remove)
                count += 1
            await row.storage.fsync_directory(row.directory)
            if row.cuts == cuts:  # otherwise the log may start elsewhere by now, which is not durable yet
                row.flushed = max(row.flushed, row.start)


def _is_oldest_due(row: SegmentList, limit: int, retention_ms: int, retention_bytes: int) -> bool:
    segment, is_last = row.segments[0], len(row.segments) == 1
    if row.damage is not None or (row.end if is_last else row.bases[1]) > limit:
        return False
    if not segment.size:
        return not is_last  # compaction has emptied it
    if retention_bytes >= 0 and row.size - segment.size >= retention_bytes:
        return True
    with row.recording_damage():
        return retention_ms >= 0 and row.now_ms() - segment.times.age_ms() > retention_ms


class RetiredSegment:
    """A segment that was removed from its log, but is still open for its readers.

    Its files are renamed, the data first; the renames are durable once the folder is fsynced.
    """

    def __init__(self, storage: Storage, segment: Segment) -> None:
        self._storage = storage
        self._segment = segment
        self._paths = [segment.path.removesuffix(LOG_SUFFIX) + suffix for suffix in SUFFIXES]
        for path in self._paths:
            if storage.exists(path):
                storage.rename(path, path + RETIRED_SUFFIX)

    def remove(self) -> None:
        """Closes the segment and removes its files; outstanding slices become invalid."""
        self._segment.close()
        for path in self._paths:
            if self._storage.exists(path + RETIRED_SUFFIX):
                self._storage.remove(path + RETIRED_SUFFIX)
