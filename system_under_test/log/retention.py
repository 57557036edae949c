"""Taking the oldest segments out of a log: those past their time, or more than is to be kept."""

from collections.abc import Callable

from assay.system_under_test.log.files import LOG_SUFFIX, RETIRED_SUFFIX, SUFFIXES
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.segment import Segment
from assay.system_under_test.log.segment_list import SegmentRow
from assay.system_under_test.runtime import Storage


async def retain(log: Log, limit: Callable[[], int], *, retention_ms: int, retention_bytes: int) -> int:
    """Takes out the segments that are due, and returns how many.

    Only what lies below the offset that ``limit`` gives goes, and nothing of a damaged log; -1 means no such bound.
    A segment is as old as its youngest message, one without timestamps as old as its last append. One is durably
    gone before the next goes, since a power loss must not leave a hole. Readers of them may go on until
    :meth:`Log.purge`. Raises :class:`CorruptLog`.
    """
    row, count = log.row, 0
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
            if row.cuts == cuts:  # else it may start elsewhere by now, which is not durable yet
                row.flushed = max(row.flushed, row.start)


def _is_oldest_due(row: SegmentRow, limit: int, retention_ms: int, retention_bytes: int) -> bool:
    segment, is_last = row.segments[0], len(row.segments) == 1
    if row.damage is not None or (row.end if is_last else row.bases[1]) > limit:
        return False
    if not segment.size:
        return not is_last  # compaction has left nothing of it
    if retention_bytes >= 0 and row.size - segment.size >= retention_bytes:
        return True
    with row.noting():
        return retention_ms >= 0 and row.now_ms() - segment.times.age_ms() > retention_ms


class RetiredSegment:
    """A segment that is out of its log and still open for those who read it.

    Its files are renamed, the data first; durably so once their folder is fsynced.
    """

    def __init__(self, storage: Storage, segment: Segment) -> None:
        self._storage = storage
        self._segment = segment
        self._paths = [segment.path.removesuffix(LOG_SUFFIX) + suffix for suffix in SUFFIXES]
        for path in self._paths:
            if storage.exists(path):
                storage.rename(path, path + RETIRED_SUFFIX)

    def remove(self) -> None:
        """Outstanding slices become invalid."""
        self._segment.close()
        for path in self._paths:
            if self._storage.exists(path + RETIRED_SUFFIX):
                self._storage.remove(path + RETIRED_SUFFIX)
