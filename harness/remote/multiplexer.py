"""Carries many byte streams over one pair: the standard input and output of a worker process in a container.

Each frame has a header of two big-endian 32-bit numbers, the connection and the number of bytes that follow. A frame
without bytes ends its direction of the connection. Only one side, the harness, opens connections. The first frame of a
new number opens it.
"""

import asyncio
import itertools
import struct
from collections.abc import Callable
from typing import Final, Protocol

from assay.harness.remote.messages import MAX_LINE

HEADER: Final = struct.Struct(">II")
MAX_FRAME: Final = 1 << 16
"""Maximum bytes of a frame. Longer data are split, so that one connection does not delay the others for long."""


class ByteWriter(Protocol):
    """The part of ``asyncio.StreamWriter`` that the protocol uses."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None:
        """Ends this direction of the connection. Idempotent."""


class Multiplexer:
    """An end of the carrying pair. ``accept`` is called for each connection that the other side opens."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: ByteWriter,
        accept: "Callable[[asyncio.StreamReader, ByteWriter], None] | None" = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._accept = accept
        self._numbers = itertools.count(1)
        self._newest = 0
        self._received: dict[int, asyncio.StreamReader] = {}
        """Connections whose other side may still send."""
        self._ended = False

    def open_connection(self) -> tuple[asyncio.StreamReader, ByteWriter]:
        """Opens a connection. Raises ``ConnectionError`` if the carrying pair has ended."""
        if self._ended:
            raise ConnectionError("the worker process has ended")
        return self._add(next(self._numbers))

    async def run(self) -> None:
        """Distributes what arrives, until the carrying pair ends. Then every connection ends, too."""
        try:
            while True:
                number, length = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                if length > MAX_FRAME:
                    raise ConnectionError(f"a frame of {length} bytes")
                data = await self._reader.readexactly(length)
                if self._accept is not None and number > self._newest:
                    self._newest = number
                    self._accept(*self._add(number))
                self._distribute(number, data)
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            self._ended = True
            while self._received:
                self._received.popitem()[1].feed_eof()

    def _add(self, number: int) -> tuple[asyncio.StreamReader, ByteWriter]:
        reader = self._received[number] = asyncio.StreamReader(limit=MAX_LINE)
        return reader, _Writer(number, self._writer)

    def _distribute(self, number: int, data: bytes) -> None:
        if data:
            if (reader := self._received.get(number)) is not None:
                reader.feed_data(data)
        elif (reader := self._received.pop(number, None)) is not None:
            reader.feed_eof()


class _Writer:
    """Sends one connection's bytes."""

    def __init__(self, number: int, carrier: ByteWriter) -> None:
        self._number = number
        self._carrier = carrier
        self._closed = False

    def write(self, data: bytes) -> None:
        if self._closed:
            raise ConnectionError("this connection is closed")
        for start in range(0, len(data), MAX_FRAME):
            part = data[start : start + MAX_FRAME]
            self._carrier.write(HEADER.pack(self._number, len(part)) + part)

    async def drain(self) -> None:
        await self._carrier.drain()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._carrier.write(HEADER.pack(self._number, 0))
