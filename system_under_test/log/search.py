"""Finds offsets of a log by time."""

from assay.system_under_test.log.log import Log

LATEST = -1
EARLIEST = -2


def find_offsets_before(log: Log, timestamp: int, count: int) -> list[int]:
    """Returns at most ``count`` offsets at which segments begin, descending, as ListOffsets 0 requires.

    ``timestamp`` is in milliseconds:

    - :data:`LATEST`: the log's end and all segments
    - :data:`EARLIEST`: the log's start
    - otherwise: the segments last written at or before it, by this node's clock

    A segment not written since this process started counts with its newest message's timestamp, or else with that
    start. Kafka uses the file's time (``fetchOffsetsBefore``).
    """
    if timestamp == EARLIEST:
        return [log.start_offset][:count]
    row = log.segment_list
    starts: list[int] = []
    for segment in row.segments:
        with row.recording_damage():
            if timestamp == LATEST or segment.times.written_ms() <= timestamp:
                starts.append(segment.base_offset)
    if row.active.size and (timestamp == LATEST or row.now_ms() <= timestamp):
        starts.append(row.end)
    return starts[::-1][:count]


def find_offset_for_time(log: Log, timestamp: int) -> tuple[int, int] | None:
    """Returns ``(timestamp, offset)`` of the first message stamped at or after ``timestamp`` (ms), or None.

    Scans each segment once for its newest timestamp, and then the one that has the answer.
    """
    wanted = max(timestamp, 0)
    for segment in log.segment_list.segments:
        with log.segment_list.recording_damage():
            if segment.times.newest() >= wanted:
                found = segment.times.first_since(wanted)
                if found is not None:
                    return found
    return None
