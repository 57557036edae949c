"""Carries many byte streams over one pair: the standard input and output of a worker process, or a Unix socket.

Each frame has a header of two big-endian 32-bit numbers, the connection and the number of bytes that follow. A frame
without bytes ends its direction of the connection. Only one side, the harness, opens connections. The first frame of a
new number opens it.

A connection whose receiver reads slowly delays no other one, and its unread bytes do not grow without limit. Once more
than ``WINDOW`` bytes are unread, the receiver asks the sender to pause this connection. The header of such a request
has ``PAUSE`` or ``RESUME`` in place of the number of bytes. A paused sender waits in ``drain``.

Each write costs processor time here, in all programs that pass the bytes on, and on the other side, which wakes up for
each. So the frames of all connections are collected during an iteration of the event loop, and written at once.
"""

import asyncio
import itertools
import struct
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, Protocol, SupportsIndex

from assay.harness.remote.messages import ObservedReader

HEADER: Final = struct.Struct(">II")
MAX_FRAME: Final = 1 << 16
"""Maximum bytes of a frame. Longer data are split, so that one connection does not delay the others for long."""
MAX_COLLECTED: Final = 1 << 16
"""Number of collected bytes that are written without waiting for the end of the iteration."""

WINDOW: Final = 1 << 18
"""Number of unread bytes of a connection above which its sender must pause. It resumes at half of them."""
PAUSE: Final = 0xFFFFFFFF
RESUME: Final = 0xFFFFFFFE


class ByteWriter(Protocol):
    """The part of ``asyncio.StreamWriter`` that the protocol uses."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None:
        """Ends this direction of the connection. Idempotent."""


Accept = Callable[[ObservedReader, ByteWriter], None]


class WindowedReader(ObservedReader):
    """Stream reader that pauses its sender while too many bytes are unread.

    ``request``: sends ``PAUSE`` or ``RESUME`` to the sender.
    """

    def __init__(self, request: Callable[[int], None]) -> None:
        super().__init__()
        self._request = request
        self._unread = 0
        self._is_paused = False
        self._closed = False
        self._is_unlimited = False
        """Whether a call waits for more bytes than the window, or this side has closed the connection."""

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        piece = bytes(data)
        super().feed_data(piece)
        self._unread += len(piece)
        self._adjust()

    def end_limit(self) -> None:
        """Pauses the sender no longer, because this side has closed the connection and may never read again."""
        self._closed = self._is_unlimited = True
        self._adjust()

    async def read(self, n: int = -1) -> bytes:
        data = await super().read(n)
        if n >= 0:  # else the base class has called this method for each piece
            self._consume(len(data))
        return data

    async def readexactly(self, n: int) -> bytes:
        return await self._read_without_limit(super().readexactly(n))

    async def readuntil(self, separator: Any = b"\n") -> bytes:
        """Also called by ``readline``."""
        return await self._read_without_limit(super().readuntil(separator))

    async def _read_without_limit(self, reading: Coroutine[Any, Any, bytes]) -> bytes:
        self._is_unlimited = True
        self._adjust()
        try:
            data = await reading
        finally:
            self._is_unlimited = self._closed
        self._consume(len(data))
        return data

    def _consume(self, size: int) -> None:
        self._unread -= size
        self._adjust()

    def _adjust(self) -> None:
        limit = WINDOW // 2 if self._is_paused else WINDOW
        pauses = self._unread > limit and not self._is_unlimited and not self.has_ended
        if pauses != self._is_paused:
            self._is_paused = pauses
            self._request(PAUSE if pauses else RESUME)


class Multiplexer(asyncio.Protocol):
    """An end of the carrying pair: the asyncio protocol of one transport for both directions, or of one for each.

    ``accept`` is called for each connection that the other side opens.
    """

    def __init__(self, accept: Accept | None = None) -> None:
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._newest = 0
        self._received: dict[int, WindowedReader] = {}
        """Connections whose other side may still send."""
        self._sending: dict[int, asyncio.Event] = {}
        """Connections on which this side may still send. The event is set unless the other side has paused this one."""
        self._rest = b""
        """The beginning of a frame whose end has not arrived."""
        self._transports: list[asyncio.BaseTransport] = []
        self._output: asyncio.WriteTransport | None = None
        self._collected: list[bytes] = []
        """Frames that are written at the end of this iteration of the event loop."""
        self._collected_size = 0
        self._writable = asyncio.Event()
        """Set unless the transport has too many unwritten bytes."""
        self._writable.set()
        self._ended = asyncio.Event()

    def open_connection(self) -> tuple[ObservedReader, ByteWriter]:
        """Opens a connection. Raises ``ConnectionError`` if the carrying pair has ended."""
        if self._ended.is_set():
            raise ConnectionError("the worker process has ended")
        return self._add(next(self._numbers))

    @property
    def has_ended(self) -> bool:
        """Whether the carrying pair has ended."""
        return self._ended.is_set()

    async def wait_end(self) -> None:
        """Waits until the carrying pair ends. Then every connection has ended, too."""
        await self._ended.wait()

    def close_output(self) -> None:
        """Writes the collected frames, and closes the transport that carries them. Idempotent."""
        self._flush()
        if self._output is not None:
            self._output.close()

    def close(self) -> None:
        """Ends the carrying pair. Idempotent."""
        self.close_output()
        for transport in self._transports:
            transport.close()
        self._end()

    def send(self, number: int, data: bytes) -> None:
        """Sends bytes of a connection."""
        for start in range(0, len(data), MAX_FRAME):
            self._send_frame(number, data[start : start + MAX_FRAME])

    def send_end(self, number: int) -> None:
        """Ends this direction of a connection."""
        self._send_frame(number, b"")
        if (may_send := self._sending.pop(number, None)) is not None:
            may_send.set()
        if (reader := self._received.get(number)) is not None:
            reader.end_limit()

    async def drain(self, number: int) -> None:
        """Waits while there are too many unwritten bytes, or the receiver of this connection reads too slowly.

        Raises ``ConnectionError`` if the pair has ended.
        """
        may_send = self._sending.get(number)
        if may_send is not None and not may_send.is_set():
            await may_send.wait()
        if not self._writable.is_set():
            await self._writable.wait()
        if self._ended.is_set() or self._output is None or self._output.is_closing():
            raise ConnectionResetError("the worker process has ended")

    # -- called by the event loop -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transports.append(transport)
        if isinstance(transport, asyncio.WriteTransport):
            self._output = transport

    def data_received(self, data: bytes) -> None:
        """Distributes all frames that have arrived."""
        if self._ended.is_set():
            return None
        if self._rest:
            data = self._rest + data
        position, end = 0, len(data)
        while end - position >= HEADER.size:
            number, length = HEADER.unpack_from(data, position)
            if length in (PAUSE, RESUME):
                self._obey(number, length)
                position += HEADER.size
                continue
            if length > MAX_FRAME:
                return self.close()
            frame_end = position + HEADER.size + length
            if frame_end > end:
                break
            self._distribute(number, data[position + HEADER.size : frame_end])
            position = frame_end
        self._rest = data[position:]
        return None

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all connections, unless only the output is lost: answers may still arrive."""
        self._writable.set()
        if all(one.is_closing() for one in self._transports if isinstance(one, asyncio.ReadTransport)):
            self._end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _obey(self, number: int, request: int) -> None:
        """Pauses or resumes a connection for its receiver."""
        may_send = self._sending.get(number)
        if may_send is None:
            return
        if request == PAUSE:
            may_send.clear()
        else:
            may_send.set()

    def _send_frame(self, number: int, data: bytes) -> None:
        self._collect(HEADER.pack(number, len(data)), data)

    def _send_request(self, number: int, request: int) -> None:
        self._collect(HEADER.pack(number, request), b"")

    def _collect(self, header: bytes, data: bytes) -> None:
        if not self._collected:
            self._loop.call_soon(self._flush)
        self._collected += (header, data)
        self._collected_size += HEADER.size + len(data)
        if self._collected_size >= MAX_COLLECTED:
            self._flush()

    def _flush(self) -> None:
        if self._collected:
            data = b"".join(self._collected)
            self._collected.clear()
            self._collected_size = 0
            if self._output is not None and not self._output.is_closing():
                self._output.write(data)

    def _end(self) -> None:
        self._ended.set()
        self._writable.set()
        while self._sending:
            self._sending.popitem()[1].set()
        while self._received:
            self._received.popitem()[1].feed_eof()

    def _add(self, number: int) -> tuple[ObservedReader, ByteWriter]:
        reader = self._received[number] = WindowedReader(partial(self._send_request, number))
        may_send = self._sending[number] = asyncio.Event()
        may_send.set()
        return reader, _Writer(number, self)

    def _distribute(self, number: int, data: bytes) -> None:
        if self._accept is not None and number > self._newest:
            self._newest = number
            self._accept(*self._add(number))
        if data:
            if (reader := self._received.get(number)) is not None:
                reader.feed_data(data)
        elif (reader := self._received.pop(number, None)) is not None:
            reader.feed_eof()


class _Writer:
    """Sends one connection's bytes."""

    def __init__(self, number: int, multiplexer: Multiplexer) -> None:
        self._number = number
        self._multiplexer = multiplexer
        self._closed = False

    def write(self, data: bytes) -> None:
        if self._closed:
            raise ConnectionError("this connection is closed")
        self._multiplexer.send(self._number, data)

    async def drain(self) -> None:
        await self._multiplexer.drain(self._number)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._multiplexer.send_end(self._number)
