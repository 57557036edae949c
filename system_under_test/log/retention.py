"""Retention: removes the oldest segments of a log, by age or by total size."""

from collections.abc import Callable

from assay.system_under_test.log.files import LOG_SUFFIX, RETIRED_SUFFIX, SUFFIXES
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.segment import Segment
from assay.system_under_test.log.segment_list import SegmentList
from assay.system_under_test.runtime import Storage


async def remove_expired_segments(
    log: Log, limit: Callable[[], int], *, retention_ms: int, retention_bytes: int
) -> int:
    """Removes the oldest segments that exceed the age or the size, and returns their number.

    - Only segments below the offset that ``limit`` returns (the high watermark) are removed, and none of a damaged log.
    - ``retention_ms`` or ``retention_bytes`` of -1 means no limit.
    - The age of a segment is that of its newest message; :meth:`SegmentTimes.age_ms` defines it for messages without
      timestamps.
    - Each removal is durable before the next one, because a power loss must not leave a hole.

    Readers may continue until :meth:`Log.purge_retired`. Raises :class:`CorruptLog`.
    """
    count = 0
    while True:
        truncations = log.truncations
        async with log.change_lock:
            if log.closed or not _is_oldest_due(log, limit(), retention_ms, retention_bytes):
                return count
            if len(log.segments) == 1:
                log.roll()  # the new segment's name records where the log starts: it must be durable first
            else:
                segment = log.segments[0]
                log.set_segments(log.segments[1:])
                log.retire(_retire_files(log.storage, segment))
                count += 1
            await log.storage.fsync_directory(log.directory)
            # A truncation during the fsync may have changed the start, which is then not durable yet.
            if log.truncations == truncations:
                log.flushed_offset = max(log.flushed_offset, log.start_offset)


def _is_oldest_due(log: SegmentList, limit: int, retention_ms: int, retention_bytes: int) -> bool:
    segment, is_last = log.segments[0], len(log.segments) == 1
    if log.found_damage is not None or (log.end_offset if is_last else log.segment_offsets[1]) > limit:
        return False
    if not segment.size:
        return not is_last  # compaction has emptied it
    if retention_bytes >= 0 and log.size - segment.size >= retention_bytes:
        return True
    with log.recording_damage():
        return retention_ms >= 0 and segment.times.age_ms(log.now()) > retention_ms


def _retire_files(storage: Storage, segment: Segment) -> Callable[[], None]:
    """Renames the segment's files, the data first. The renames are durable once the folder is fsynced.

    Returns the callback that closes the segment and removes its files when its readers have finished.
    """
    paths = [segment.path.removesuffix(LOG_SUFFIX) + suffix for suffix in SUFFIXES]
    for path in paths:
        if storage.exists(path):
            storage.rename(path, path + RETIRED_SUFFIX)

    def remove() -> None:
        segment.close()
        for path in paths:
            if storage.exists(path + RETIRED_SUFFIX):
                storage.remove(path + RETIRED_SUFFIX)

    return remove
