"""The errors of a log."""


class OffsetOutOfRange(Exception):
    """A read outside the log (Kafka's error 1)."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside the log, which is {start} to {end}")
        self.start = start
        self.end = end


class CorruptLog(Exception):
    """Stored bytes are damaged. The good prefix ends at ``position`` in the segment's file, before ``offset``."""

    def __init__(self, path: str, position: int, offset: int, problem: str) -> None:
        super().__init__(f"{path}: damaged at byte {position} (offset {offset}): {problem}")
        self.path = path
        self.position = position
        self.offset = offset


class DamagedLog(Exception):
    """The log lacks records that had been fsynced. It rejects appends and truncations until it is reset."""


class UnflushedTruncation(RuntimeError):
    """An append to a log that was truncated and not flushed since: a bug of the caller."""


class SwapUnfinished(Exception):
    """Segments were replaced on disk, or will be at the next start, but this process still has the old ones open.

    The process must end before it changes the log. The next start finishes the replacement.
    """
