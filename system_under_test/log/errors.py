"""What goes wrong with a log."""


class OffsetOutOfRange(Exception):
    """A read outside the log (Kafka's error 1)."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside the log, which is {start} to {end}")
        self.start = start
        self.end = end


class CorruptLog(Exception):
    """Stored bytes are damaged. ``position`` in the segment's file and ``offset`` are where the good prefix ends."""

    def __init__(self, path: str, position: int, offset: int, problem: str) -> None:
        super().__init__(f"{path}: damaged at byte {position} (offset {offset}): {problem}")
        self.path = path
        self.position = position
        self.offset = offset


class DamagedLog(Exception):
    """The log lacks something that had been fsynced. It takes no appends or cuts until it is reset."""


class UnflushedTruncation(RuntimeError):
    """An append to a log that was cut and not flushed since; the caller's mistake."""


class SwapUnfinished(Exception):
    """Files of a log are exchanged on the disk, or may be at the next start, and not in memory: the process must end
    before it changes anything of it. The next start finishes the exchange.
    """
