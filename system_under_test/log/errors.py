"""What goes wrong with a log as a whole; :class:`CorruptLog`, of one segment's bytes, is in ``segment``."""

from __future__ import annotations


class OffsetOutOfRange(Exception):
    """A read outside the log (Kafka's error 1)."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside the log, which is {start} to {end}")
        self.start = start
        self.end = end


class DamagedLog(Exception):
    """The log lacks something that had been fsynced, and takes no appends or cuts until it is repaired or reset."""


class UnflushedTruncation(RuntimeError):
    """An append to a log that was cut and not flushed since; the caller's mistake."""
