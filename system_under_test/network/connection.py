"""The calling end of a connection: to a broker from a client or from another broker.

Calls are pipelined: each is written at once and matched with its answer by correlation id. What a caller most needs to
know after an error is whether the request may have been carried out, so there are exactly two errors: :class:`NotSent`
(it was not: no byte of it left) and :class:`Unknown` (it was written and no answer came).

A call that ran out of time makes the connection *suspect*: it takes no new calls, so that whoever shares it connects
anew at once, and is closed when the calls still waiting have ended, each by its answer or at its own deadline.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, TypeVar

from system_under_test.protocol.compiler import decode
from system_under_test.protocol.header import SIZE_BYTES, decode_correlation_id, encode_request, frame_size
from system_under_test.protocol.schema import ProtocolError, Request, request_info

R = TypeVar("R")

MAX_RESPONSE_BYTES = 256 * 1024 * 1024
"""A larger announced size means that the peer does not speak this protocol."""

_READ_AHEAD = 256 * 1024


class CallError(Exception):
    """A call to a broker that got no answer."""


class NotSent(CallError):
    """The request was certainly not carried out: it never left."""


class Unknown(CallError):
    """The request was sent and no answer came: it may have been carried out, may still be, or never."""


class _Pending(NamedTuple):
    answer: asyncio.Future[Any]
    response: type[Any]
    version: int


class Connection:
    """One open connection. Made by :meth:`open`; must be closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str, client_id: str) -> None:
        self.peer = peer
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, _Pending] = {}
        self._next_id = 0
        self._suspect: str | None = None
        self._broken: str | None = None
        self._receiver = self._loop.create_task(self._receive(), name=f"answers of {peer}")

    @classmethod
    async def open(cls, host: str, port: int, timeout: float, client_id: str = "assay") -> Connection:
        """Connects within ``timeout`` seconds. Raises ``NotSent``."""
        peer = f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(host, port, limit=_READ_AHEAD)
        except TimeoutError as error:
            raise NotSent(f"no connection to {peer} within {timeout:.3g} s") from error
        except OSError as error:
            raise NotSent(f"no connection to {peer}: {error}") from error
        return cls(reader, writer, peer, client_id)

    @property
    def usable(self) -> bool:
        """Whether it takes new calls."""
        return self._suspect is None and self._broken is None

    @property
    def finished(self) -> bool:
        """Whether it is broken and nothing of it is left to be closed."""
        return self._receiver.done()

    async def call(self, request: Request[R], version: int, timeout: float) -> R:
        """The answer to ``request``, sent in ``version``.

        Raises ``NotSent`` or ``Unknown`` when there is none within ``timeout`` seconds, and ``ProtocolError``, with
        nothing sent, when the request does not fit its wire types.
        """
        frame, correlation_id = self._frame(request, version)
        info = request_info(type(request))
        answer: asyncio.Future[R] = self._loop.create_future()
        sent = False
        try:
            async with asyncio.timeout(timeout):
                await self._write(frame, correlation_id, _Pending(answer, info.response, version))
                sent = True
                return await answer
        except TimeoutError as error:
            what = f"{type(request).__name__} to {self.peer}"
            self._suspect = self._suspect or f"{what} was not answered within {timeout:.3g} s"
            if sent:
                raise Unknown(f"{what}: no answer within {timeout:.3g} s") from error
            raise NotSent(f"{what}: earlier requests were not taken within {timeout:.3g} s") from error
        finally:
            self._pending.pop(correlation_id, None)
            if self._suspect is not None and not self._pending:
                self._break(self._suspect)
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen, should the timeout have been faster than the waking up

    async def send(self, request: object, version: int, timeout: float) -> None:
        """Sends a request that has no answer (Produce with acks 0). Raises ``NotSent``."""
        frame, _ = self._frame(request, version)
        try:
            async with asyncio.timeout(timeout):
                await self._write(frame)
        except TimeoutError as error:
            self._break(f"requests to {self.peer} were not taken within {timeout:.3g} s")
            raise NotSent(f"{type(request).__name__} to {self.peer}: {self._broken}") from error

    async def close(self) -> None:
        """Ends the connection; calls still waiting raise ``Unknown``."""
        self._break(f"the connection to {self.peer} was closed")
        self._receiver.cancel()
        await asyncio.wait([self._receiver])
        await asyncio.sleep(0)  # the transport closes its socket in the loop's next round

    def _frame(self, request: object, version: int) -> tuple[bytes, int]:
        if not self.usable:
            raise NotSent(f"{type(request).__name__} to {self.peer}: {self._broken or self._suspect}")
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        return encode_request(request, version, self._next_id, self._client_id), self._next_id

    async def _write(self, frame: bytes, correlation_id: int = 0, pending: _Pending | None = None) -> None:
        """Waits for room before writing: what has not been written has certainly not been done."""
        try:
            await self._writer.drain()
        except OSError as error:
            self._break(f"the connection to {self.peer} was lost: {error}")
        if self._broken is not None:
            raise NotSent(self._broken)
        if pending is not None:
            self._pending[correlation_id] = pending
        self._writer.write(frame)

    async def _receive(self) -> None:
        try:
            while True:
                size = frame_size(await self._reader.readexactly(SIZE_BYTES))
                if not 0 <= size <= MAX_RESPONSE_BYTES:
                    raise ProtocolError(f"a response of {size} bytes")
                self._answer(await self._reader.readexactly(size))
        except asyncio.IncompleteReadError:
            self._break(f"{self.peer} closed the connection")
        except OSError as error:
            self._break(f"the connection to {self.peer} was lost: {error}")
        except ProtocolError as error:
            self._break(f"{self.peer} does not speak Kafka's protocol: {error}")

    def _answer(self, frame: bytes) -> None:
        pending = self._pending.pop(decode_correlation_id(frame), None)
        if pending is None or pending.answer.done():
            return  # its caller gave up on it
        try:
            pending.answer.set_result(decode(pending.response, pending.version, frame, 4))
        except ProtocolError as error:
            pending.answer.set_exception(Unknown(f"the answer of {self.peer} cannot be read: {error}"))
            raise

    def _break(self, reason: str) -> None:
        if self._broken is not None:
            return
        self._broken = reason
        self._writer.transport.abort()
        pending, self._pending = self._pending, {}
        for call in pending.values():
            if not call.answer.done():
                call.answer.set_exception(Unknown(reason))
