"""An accepted connection: reads requests and sends responses in order, one at a time.

As in Kafka, a connection's next request waits until the previous one is answered. This keeps responses in order and
memory bounded:

- While a handler runs, the stream reader buffers at most twice its limit and then stops reading from the socket.
- While the peer does not read a response, the broker handles no further request of the connection.

Each connection has one timer against idle peers, which compares time stamps when it fires. A timer per request would
cost more than the rest of this module.

``ReadAhead`` reads large pieces of the stream and returns exact numbers of bytes. A read usually gets the size and the
body of a small request, and often the following requests, too.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from assay.system_under_test.network.handler import CloseConnection, Handler, RequestContext
from assay.system_under_test.network.limits import FREE_REQUEST_BYTES, Limits
from assay.system_under_test.network.memory import RequestMemory, Share
from assay.system_under_test.protocol.api import API_VERSIONS_KEY, Api, build_api_versions_response
from assay.system_under_test.protocol.compiler import decode
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.header import (
    SIZE_BYTES,
    decode_request_header,
    encode_response,
    peek_request_header,
    read_frame_size,
)
from assay.system_under_test.protocol.schema import ProtocolError

PIECE_BYTES = 64 * 1024
"""Bytes requested from the stream at once. Little more is ever buffered."""


class ReadAhead:
    """Buffered reader, which must be the only reader of ``stream``."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._data = b""
        self._position = 0

    @property
    def has_buffered(self) -> bool:
        """Whether there are buffered bytes."""
        return self._position < len(self._data)

    async def read_exactly(self, size: int) -> bytes:
        """Returns the next ``size`` bytes. Raises ``OSError``, or ``IncompleteReadError`` if the stream ends too early.

        A cancelled call loses its bytes, so the stream is unusable afterwards.
        """
        position = self._position
        end = position + size
        data = self._data
        if end > len(data):
            data = data[position:]
            self._data, self._position = b"", 0
            if len(data) + PIECE_BYTES > size:  # the usual case: one more read is enough
                data += await self._stream.read(PIECE_BYTES)
            if len(data) < size:
                data = await self._read_rest(data, size)
            self._data = data
            position, end = 0, size
        self._position = end
        return data[position:end]

    async def _read_rest(self, data: bytes, size: int) -> bytes:
        pieces, have = [data], len(data)
        while have < size:
            piece = await self._stream.read(PIECE_BYTES)
            if not piece:
                raise asyncio.IncompleteReadError(b"".join(pieces), size)
            pieces.append(piece)
            have += len(piece)
        return b"".join(pieces)


class Outbox:
    """Limits the bytes of unsent responses of all connections to ``total``, by dropping connections.

    A response is in memory until the peer has read it. If other clients had to wait for that memory, one peer could
    block them all. So beyond ``total``, the connection with the oldest unsent response is closed, unless it is the only
    one.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self.unsent = 0
        """Bytes that are being sent."""
        self._unsent_by_connection: dict[Callable[[], None], int] = {}
        """By the callback that closes the connection; the connection with the oldest response first."""

    def add(self, drop: Callable[[], None], size: int) -> None:
        """Adds ``size`` bytes that a connection is sending; ``drop`` closes that connection."""
        self._unsent_by_connection[drop] = self._unsent_by_connection.get(drop, 0) + size
        self.unsent += size
        while self.unsent > self._total and len(self._unsent_by_connection) > 1:
            oldest = next(iter(self._unsent_by_connection))
            self.release(oldest)
            oldest()

    def release(self, drop: Callable[[], None]) -> None:
        """Releases the connection's bytes, because the peer has taken them or the connection has ended."""
        self.unsent -= self._unsent_by_connection.pop(drop, 0)


logger = logging.getLogger("assay.network")

_TURN_SECONDS = 0.005
"""Maximum time for which buffered requests of one connection may delay the other connections."""


class AcceptedConnection:
    """An accepted connection, served until either side ends it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handlers: Mapping[int, Handler],
        apis: Mapping[int, Api],
        limits: Limits,
        memory: RequestMemory,
        outbox: Outbox,
    ) -> None:
        self._reader = ReadAhead(reader)
        self._writer = writer
        self._handlers = handlers
        self._apis = apis
        self._limits = limits
        self._memory = memory
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        self.waiting_since = self._loop.time()
        """Loop time since which the broker waits for the peer to send or read; infinite while the broker works."""
        self._idle_timer = self._loop.call_later(limits.idle_timeout, self._check_idle)
        self._dropped = False
        self._turn_ends = 0.0
        self._after_response: list[Callable[[], None]] = []
        address = writer.get_extra_info("peername")
        self.host = str(address[0]) if isinstance(address, tuple) else str(address)
        self.peer = f"{self.host}:{address[1]}" if isinstance(address, tuple) else self.host

    async def run(self) -> None:
        """Serves requests until the connection ends. Errors are logged, not raised."""
        clean = lost = False
        try:
            await self._serve()
            clean = True
        except (ProtocolError, CloseConnection) as error:
            logger.warning("closing the connection of %s: %s", self.peer, error)
            clean = True
        except asyncio.IncompleteReadError as error:
            if not self._dropped:
                logger.info("%s went away after %d bytes of a request", self.peer, len(error.partial))
        except OSError as error:
            lost = True
            if not self._dropped:
                logger.info("lost the connection of %s: %s", self.peer, error)
        except Exception:
            logger.exception("closing the connection of %s: its request failed unexpectedly", self.peer)
        finally:
            self._idle_timer.cancel()
            if not clean:
                self._writer.transport.abort()
        if clean:
            await self._close()
        elif lost:
            with suppress(OSError):  # asyncio raises the error here again, and logs it if this is not called
                await self._writer.wait_closed()

    def reject(self) -> None:
        """Aborts the connection before its first request."""
        self._idle_timer.cancel()
        self._writer.transport.abort()

    def drop(self, reason: str) -> None:
        """Aborts the connection at once and logs the reason."""
        if not self._dropped:
            self._dropped = True
            self.waiting_since = math.inf
            logger.info("closing the connection of %s: %s", self.peer, reason)
            self._writer.transport.abort()

    async def _serve(self) -> None:
        reader = self._reader
        while True:
            now = self.waiting_since = self._loop.time()
            if not reader.has_buffered:
                self._turn_ends = now + _TURN_SECONDS  # the read below waits, so other connections get their turn
            elif now >= self._turn_ends:
                await asyncio.sleep(0)  # otherwise a thousand small buffered requests would block the event loop
                self._turn_ends = now + _TURN_SECONDS
            try:
                prefix = await reader.read_exactly(SIZE_BYTES)
            except asyncio.IncompleteReadError as error:
                if not error.partial:
                    return
                raise
            size = read_frame_size(prefix)
            if not 0 <= size <= self._limits.max_request_bytes:
                raise ProtocolError(f"request of {size} bytes; the limit is {self._limits.max_request_bytes}")
            if size <= FREE_REQUEST_BYTES:
                await self._handle(await reader.read_exactly(size))
            else:
                await self._handle_large(size)

    async def _handle_large(self, size: int) -> None:
        """Handles a large request. Its memory is held until the handler has returned or has released it.

        The memory is reserved as bytes arrive, not by the announced size.
        """
        first = await self._reader.read_exactly(FREE_REQUEST_BYTES)
        with self._memory.share(size, self.drop) as share:
            await self._handle(await self._receive(share, first), partial(self._memory.release, share))

    async def _receive(self, share: Share, piece: bytes) -> bytes:
        """Receives the rest of the request that begins with ``piece``. Each piece reserves memory when it arrives."""
        pieces = []
        while True:
            self.waiting_since = math.inf
            await self._memory.reserve(share, len(piece))
            pieces.append(piece)
            if not share.need:
                return b"".join(pieces)
            self.waiting_since = share.receiving_since = self._loop.time()
            try:
                async with asyncio.timeout(self._limits.stall_timeout):
                    piece = await self._reader.read_exactly(min(share.need, FREE_REQUEST_BYTES))
            except TimeoutError as error:
                raise CloseConnection(
                    f"it sends too slowly: {share.need} of the {share.size} bytes of its request are missing, and "
                    f"the next piece did not arrive within {self._limits.stall_timeout:g} s"
                ) from error
            share.receiving_since = math.inf

    async def _handle(self, frame: bytes, release: Callable[[], None] | None = None) -> None:
        """Answers one request. ``release`` gives back its shared memory; None for a small request, which uses none."""
        header = peek_request_header(frame)
        api = self._apis.get(header.api_key)
        handler = self._handlers.get(header.api_key)
        if header.api_key == API_VERSIONS_KEY and api is not None and not api.supports_version(header.api_version):
            # A client cannot know the supported versions before this request. The response is in version 0, without
            # reading the request's body (KIP-35), and lists the supported versions of ApiVersions (KIP-511). Without
            # this list, a client counts down to version 0 and may halve its timeout at each step.
            await self._send(
                build_api_versions_response([api], ErrorCode.UNSUPPORTED_VERSION), 0, header.correlation_id
            )
            return
        if api is None or handler is None:
            raise CloseConnection(f"unknown request key {header.api_key} (v{header.api_version})")
        if not api.supports_version(header.api_version):
            raise CloseConnection(
                f"{api.name} v{header.api_version} is not supported, only {api.min_version} to {api.max_version}"
            )
        key, version, correlation_id, client_id, body = decode_request_header(frame)
        request = decode(api.request, version, frame, body)
        del frame  # otherwise a waiting handler would keep a copy of the request's bytes in memory
        self.waiting_since = math.inf
        after = self._after_response
        context = RequestContext(key, version, correlation_id, client_id, self.peer, after.append)
        response = await handler(request, context if release is None else context._replace(release=release))
        if response is not None:
            await self._send(response, version, correlation_id)
            for callback in after:
                callback()
        if after:
            after.clear()

    async def _send(self, response: object, version: int, correlation_id: int) -> None:
        self.waiting_since = self._loop.time()
        writer = self._writer
        chunks = encode_response(response, version, correlation_id)
        try:
            for chunk in chunks:
                if isinstance(chunk, bytes):
                    self._outbox.add(self._drop_response, len(chunk))
                    writer.write(chunk)
                else:
                    self._outbox.add(self._drop_response, chunk.size)  # a range of a log file, sent from the disk
                    await chunk.send(writer)
            if writer.transport.get_write_buffer_size() or writer.is_closing():
                await writer.drain()
        finally:
            self._outbox.release(self._drop_response)

    def _drop_response(self) -> None:
        self.drop("it does not take its response, and others need the memory")

    def _check_idle(self) -> None:
        deadline = self.waiting_since + self._limits.idle_timeout
        now = self._loop.time()
        if now >= deadline:
            self.drop(f"idle for {self._limits.idle_timeout:.0f} s")
            return
        delay = self._limits.idle_timeout if math.isinf(deadline) else deadline - now
        self._idle_timer = self._loop.call_later(delay, self._check_idle)

    async def _close(self) -> None:
        """Closes the connection after the peer has read all written bytes, or after ``close_timeout``."""
        self._writer.close()
        try:
            async with asyncio.timeout(self._limits.close_timeout):
                await self._writer.wait_closed()
        except TimeoutError:
            logger.info("%s does not take its last response", self.peer)
            self._writer.transport.abort()
        except asyncio.CancelledError:
            self._writer.transport.abort()
            raise
        except OSError as error:  # the transport has ended; aborting it may fail in Python 3.11
            logger.debug("closing the connection of %s: %s", self.peer, error)
