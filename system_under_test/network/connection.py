"""Client end of a connection to a broker, for clients and other brokers.

Calls are pipelined: each is written at once, and matched with its response by correlation id. After an error a caller
must know whether the request may have been carried out, so there are exactly two errors:

- :class:`NotSent`: no byte of the request was sent, so it was not carried out
- :class:`UnknownOutcome`: the request was written and no response came

A call that times out makes the connection *suspect*. A suspect connection takes no new calls, so its users open a new
connection. It is closed when its pending calls have ended, each by a response or at its own deadline.

Responses are handled in the transport's callback. A stream and a task that reads it would need one more turn of the
event loop and two more futures for each response.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from assay.system_under_test.config import join_host_port
from assay.system_under_test.protocol.compiler import decode
from assay.system_under_test.protocol.header import SIZE_BYTES, decode_correlation_id, encode_request, read_frame_size
from assay.system_under_test.protocol.schema import ProtocolError, Request, get_request_info

R = TypeVar("R")

MAX_RESPONSE_BYTES = 256 * 1024 * 1024
"""Maximum size of a response. A peer that announces more does not speak this protocol."""


LINGER_NONE = struct.pack("ii", 1, 0)
"""Value of ``SO_LINGER`` that makes a close discard unacknowledged data and send a reset."""


class CallError(Exception):
    """Base class: a call to a broker got no response."""


class NotSent(CallError):
    """No byte of the request was sent, so it was certainly not carried out."""


class UnknownOutcome(CallError):
    """The request was sent and no response came. It may have been carried out, may still be, or never will be."""


class _PendingCall(NamedTuple):
    answer: asyncio.Future[Any]
    request: str
    response: type[Any]
    version: int


class _FrameProtocol(asyncio.Protocol):
    """Transport protocol: splits incoming bytes into frames, and tracks whether the transport is writable or closed."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.on_frame: Callable[[bytes], None] = _ignore
        self.on_end: Callable[[Exception | None], None] = _ignore
        self.writable = asyncio.Event()
        """Set while the transport accepts more data, and after the transport has closed."""
        self.writable.set()
        self.closed = asyncio.Event()
        """Set when the transport has closed."""
        self._partial = bytearray()
        self._wanted = SIZE_BYTES
        """Bytes that ``_partial`` must have before it is parsed again."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        partial = self._partial
        if partial:
            partial += data
            if len(partial) < self._wanted:
                return  # incomplete, so do not copy it yet
            data = bytes(partial)
            partial.clear()
        position, end = 0, len(data)
        try:
            while True:
                body = position + SIZE_BYTES
                if end < body:
                    self._wanted = SIZE_BYTES
                    break
                size = read_frame_size(data[position:body])
                if not 0 <= size <= MAX_RESPONSE_BYTES:
                    raise ProtocolError(f"a response announces {size} bytes")
                if end < body + size:
                    self._wanted = SIZE_BYTES + size
                    break
                position = body + size
                self.on_frame(data[body:position])
        except ProtocolError as error:
            self.on_end(error)
            return
        partial += data[position:]

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()
        self.on_end(error)
        self.writable.set()


def _ignore(_: object) -> None:
    """Ignores frames and errors. The callback before a connection sets its own, and after its end."""


class Connection:
    """An open connection, created by :meth:`open`. It must be closed."""

    def __init__(self, wire: _FrameProtocol, peer: str, client_id: str, abort_on_timeout: bool = False) -> None:
        self.peer = peer
        self._abort_on_timeout = abort_on_timeout
        self._wire = wire
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, _PendingCall] = {}
        self._next_id = 0
        self._suspect: str | None = None
        """Why the connection takes no new calls, while earlier calls may still be answered."""
        self._broken: str | None = None
        """Why the connection has ended."""
        wire.on_frame = self._on_response
        wire.on_end = self._on_end
        if wire.closed.is_set():
            self._on_end(None)

    @classmethod
    async def open(
        cls, host: str, port: int, timeout: float, client_id: str = "assay", *, abort_on_timeout: bool = False
    ) -> Connection:
        """Connects within ``timeout`` seconds. Raises ``NotSent``.

        With ``abort_on_timeout``, a call that times out or is cancelled ends the connection at once and discards unsent
        data. Without it, the kernel still sends its buffered data, even long afterwards if the network was partitioned.
        """
        peer = join_host_port(host, port)
        try:
            async with asyncio.timeout(timeout):
                _, wire = await asyncio.get_running_loop().create_connection(_FrameProtocol, host, port)
        except TimeoutError as error:
            raise NotSent(f"no connection to {peer} within {timeout:.3g} s") from error
        except OSError as error:
            raise NotSent(f"no connection to {peer}: {error}") from error
        return cls(wire, peer, client_id, abort_on_timeout)

    @property
    def usable(self) -> bool:
        """Whether the connection takes new calls."""
        return self._suspect is None and self._broken is None

    @property
    def finished(self) -> bool:
        """Whether the socket is closed."""
        return self._wire.closed.is_set()

    async def wait_ended(self) -> None:
        """Waits until the socket is closed, by either side."""
        await self._wire.closed.wait()

    async def call(self, request: Request[R], version: int, timeout: float) -> R:
        """Sends ``request`` in ``version`` and returns the response.

        Raises ``NotSent`` or ``UnknownOutcome`` if there is no response within ``timeout`` seconds. Raises
        ``ProtocolError``, with nothing sent, if the request does not fit its wire types.
        """
        deadline = self._loop.time() + timeout
        frame, correlation_id = self._make_frame(request, version)
        name = type(request).__name__
        try:
            await self._wait_for_room(name, timeout)
        except TimeoutError as error:
            self._mark_suspect(f"{name} to {self.peer} was not taken within {timeout:.3g} s")
            raise NotSent(f"{name} to {self.peer}: earlier requests were not taken within {timeout:.3g} s") from error
        if self._loop.time() >= deadline:
            raise NotSent(f"{name} to {self.peer}: no time is left")
        answer: asyncio.Future[R] = self._loop.create_future()
        timer = self._loop.call_at(deadline, self._expire, correlation_id, timeout)
        self._pending[correlation_id] = _PendingCall(answer, name, get_request_info(type(request)).response, version)
        self._wire.transport.write(frame)
        try:
            return await answer
        finally:
            timer.cancel()
            self._pending.pop(correlation_id, None)
            if self._abort_on_timeout and answer.cancelled():
                self._mark_suspect(f"{name} to {self.peer} was given up")
            self._end_if_suspect()
            if answer.done() and not answer.cancelled():
                answer.exception()  # marks it as retrieved, in case the caller was cancelled when it arrived

    async def send(self, request: object, version: int, timeout: float) -> None:
        """Sends a request that has no response (Produce with acks 0). Raises ``NotSent``."""
        frame, _ = self._make_frame(request, version)
        name = type(request).__name__
        try:
            await self._wait_for_room(name, timeout)
        except TimeoutError as error:
            self._break(f"requests to {self.peer} were not taken within {timeout:.3g} s")
            raise NotSent(f"{name} to {self.peer}: {self._broken}") from error
        self._wire.transport.write(frame)

    def abort(self, reason: str) -> None:
        """Breaks the connection; pending calls raise ``UnknownOutcome``. It must still be closed."""
        self._break(reason)

    async def close(self) -> None:
        """Breaks the connection like ``abort`` and waits until its socket is closed."""
        self._break(f"the connection to {self.peer} was closed")
        await self._wire.closed.wait()

    def _make_frame(self, request: object, version: int) -> tuple[bytes, int]:
        """Returns the encoded request, and its correlation id. Raises ``NotSent`` if the connection is not usable."""
        if not self.usable:
            raise NotSent(f"{type(request).__name__} to {self.peer}: {self._broken or self._suspect}")
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        return encode_request(request, version, self._next_id, self._client_id), self._next_id

    async def _wait_for_room(self, request: str, timeout: float) -> None:
        """Waits until the transport takes a request. If that fails, the request was certainly not carried out."""
        if not self._wire.writable.is_set():
            async with asyncio.timeout(timeout):
                while not self._wire.writable.is_set():  # the transport may be full again when this task runs
                    await self._wire.writable.wait()
            if self._broken is not None:
                raise NotSent(f"{request} to {self.peer}: {self._broken}")

    def _expire(self, correlation_id: int, timeout: float) -> None:
        pending = self._pending.get(correlation_id)
        if pending is None or pending.answer.done():
            return
        what = f"{pending.request} to {self.peer}"
        pending.answer.set_exception(UnknownOutcome(f"{what}: no answer within {timeout:.3g} s"))
        # This may break the connection and end all calls.
        self._mark_suspect(f"{what} was not answered within {timeout:.3g} s")

    def _mark_suspect(self, reason: str) -> None:
        self._suspect = self._suspect or reason
        self._end_if_suspect()

    def _end_if_suspect(self) -> None:
        if self._suspect is not None and (self._abort_on_timeout or not self._pending):
            self._break(self._suspect)

    def _on_response(self, frame: bytes) -> None:
        pending = self._pending.pop(decode_correlation_id(frame), None)
        if pending is None or pending.answer.done():
            return  # the caller no longer waits
        try:
            pending.answer.set_result(
                decode(pending.response, pending.version, frame, 4)
            )  # 4: after the correlation id
        except ProtocolError as error:
            pending.answer.set_exception(UnknownOutcome(f"the answer of {self.peer} cannot be read: {error}"))
            raise

    def _on_end(self, error: Exception | None) -> None:
        if error is None:
            self._break(f"{self.peer} closed the connection")
        elif isinstance(error, ProtocolError):
            self._break(f"{self.peer} does not speak Kafka's protocol: {error}")
        else:
            self._break(f"the connection to {self.peer} was lost: {error}")

    def _break(self, reason: str) -> None:
        if self._broken is not None:
            return
        self._broken = reason
        self._wire.on_frame = self._wire.on_end = _ignore
        if self._abort_on_timeout and not self._wire.closed.is_set():
            self._wire.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
        self._wire.transport.abort()
        pending, self._pending = self._pending, {}
        for call in pending.values():
            if not call.answer.done():
                call.answer.set_exception(UnknownOutcome(reason))


async def ask(
    host: str, port: int, request: Request[R], version: int, timeout: float, *, connect_timeout: float | None = None
) -> R:
    """Sends a request over a new connection, and returns the answer. Raises ``CallError``.

    Times are in seconds; ``connect_timeout`` defaults to ``timeout``.
    """
    connection = await Connection.open(host, port, timeout if connect_timeout is None else connect_timeout)
    try:
        return await connection.call(request, version, timeout)
    finally:
        await connection.close()
