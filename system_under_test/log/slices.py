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
        return self._stored().read()

    async def send(self, writer: asyncio.StreamWriter) -> None:
        """As :meth:`read`, to a connection."""
        await self._stored().send(writer)

    def _stored(self) -> Slice:
        if self._segment.cuts != self._cuts:
            raise SliceCut(errno.ESTALE, "cut from the log before it was sent", self._segment.path)
        return self._segment.file.slice(self._position, self.size)
