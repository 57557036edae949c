"""The result of a read: a range of one segment, or nothing."""

import asyncio
import errno
from typing import Protocol

from assay.system_under_test.runtime import File, Slice


class EmptySlice:
    """An empty range."""

    size = 0

    def read(self) -> bytes:
        return b""

    async def send(self, writer: asyncio.StreamWriter) -> None:
        """Sends nothing, at once."""


EMPTY = EmptySlice()


class SliceCut(OSError):
    """The bytes of a slice were removed from the log before they were sent; the connection can only be closed."""


class SliceSource(Protocol):
    """The interface that a slice needs of its segment. ``cuts`` counts how often bytes were removed from it."""

    path: str
    file: File
    cuts: int

    def record_read_error(self, error: OSError) -> Exception:
        """Marks the log as damaged and returns the exception for it."""


class LogSlice:
    """A range of a segment.

    Reading fails after any truncation of the segment, because other bytes may have taken the place of the old ones.
    """

    __slots__ = ("_cuts", "_position", "_segment", "size")

    def __init__(self, segment: SliceSource, position: int, size: int) -> None:
        self._segment = segment
        self._position = position
        self.size = size
        self._cuts = segment.cuts

    def read(self) -> bytes:
        """Returns the bytes. Raises :class:`SliceCut` if the log was truncated, deleted or closed since."""
        stored = self._stored()
        try:
            return stored.read()
        except OSError as error:
            self._failed(error)
            raise

    async def send(self, writer: asyncio.StreamWriter) -> None:
        """Sends the bytes to a connection; raises as :meth:`read`."""
        stored = self._stored()
        try:
            await stored.send(writer)
        except OSError as error:  # usually an error of the connection
            self._failed(error)
            raise

    def _failed(self, error: OSError) -> None:
        if error.errno == errno.EIO:
            self._segment.record_read_error(error)

    def _stored(self) -> Slice:
        if self._segment.cuts != self._cuts:
            raise SliceCut(errno.ESTALE, "removed from the log before it was sent", self._segment.path)
        return self._segment.file.slice(self._position, self.size)
