"""The bytes that a read gives: a range of one segment, or nothing."""

import asyncio
import errno
from typing import Protocol

from assay.system_under_test.runtime import File, Slice


class EmptySlice:
    """Nothing to read."""

    size = 0

    def read(self) -> bytes:
        return b""

    async def send(self, writer: asyncio.StreamWriter) -> None:
        """Sends nothing, at once."""


EMPTY = EmptySlice()


class SliceCut(OSError):
    """The bytes of a slice were cut from the log before they were sent; the connection can only be closed."""


class Cuttable(Protocol):
    """What a slice needs of its segment. ``cuts`` counts how often bytes were cut from it."""

    path: str
    file: File
    cuts: int

    def lost(self, error: OSError) -> Exception:
        """The disk does not give what is in it, of which this makes damage."""


class LogSlice:
    """A range of a segment. Once anything was cut there it fails to read: other bytes may stand there now."""

    __slots__ = ("_cuts", "_position", "_segment", "size")

    def __init__(self, segment: Cuttable, position: int, size: int) -> None:
        self._segment = segment
        self._position = position
        self.size = size
        self._cuts = segment.cuts

    def read(self) -> bytes:
        """The bytes; :class:`SliceCut` when the log was truncated, deleted or closed since."""
        stored = self._stored()
        try:
            return stored.read()
        except OSError as error:
            self._failed(error)
            raise

    async def send(self, writer: asyncio.StreamWriter) -> None:
        """As :meth:`read`, to a connection."""
        stored = self._stored()
        try:
            await stored.send(writer)
        except OSError as error:  # most often of the connection
            self._failed(error)
            raise

    def _failed(self, error: OSError) -> None:
        if error.errno == errno.EIO:
            self._segment.lost(error)

    def _stored(self) -> Slice:
        if self._segment.cuts != self._cuts:
            raise SliceCut(errno.ESTALE, "cut from the log before it was sent", self._segment.path)
        return self._segment.file.slice(self._position, self.size)
