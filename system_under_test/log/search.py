"""Finding offsets of a log by time."""

from assay.system_under_test.log.log import Log

LATEST = -1
EARLIEST = -2


def offsets_before(log: Log, timestamp: int, count: int) -> list[int]:
    """At most ``count`` offsets at which segments begin, falling, as ListOffsets 0 wants them.

    ``timestamp`` in milliseconds: :data:`LATEST` for the log's end and what is before it, :data:`EARLIEST` for
    its start; else the segments last written at or before it, by this node's clock. A segment not written since
    this process started counts with its newest message's timestamp, or else with that start (Kafka, which has
    the file's time: ``fetchOffsetsBefore``).
    """
    if timestamp == EARLIEST:
        return [log.start_offset][:count]
    row = log.row
    starts: list[int] = []
    for segment in row.segments:
        with row.noting():
            if timestamp == LATEST or segment.times.written_ms() <= timestamp:
                starts.append(segment.base_offset)
    if row.active.size and (timestamp == LATEST or row.now_ms() <= timestamp):
        starts.append(row.end)
    return starts[::-1][:count]


def offset_for_time(log: Log, timestamp: int) -> tuple[int, int] | None:
    """``(timestamp, offset)`` of the first message stamped at or after ``timestamp`` (ms); None when none is.

    Scans each segment once for its newest timestamp, and then the one that has the answer.
    """
    wanted = max(timestamp, 0)
    for segment in log.row.segments:
        with log.row.noting():
            if segment.times.newest() >= wanted:
                found = segment.times.first_since(wanted)
                if found is not None:
                    return found
    return None
