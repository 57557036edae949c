"""Listener: accepts connections up to a limit and serves each in one task.

``asyncio.start_server`` makes the task of a connection. Requests have no tasks of their own.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping

from assay.system_under_test.network.accepted import AcceptedConnection, Outbox
from assay.system_under_test.network.handler import Handler, RequestContext
from assay.system_under_test.network.limits import Limits
from assay.system_under_test.network.memory import RequestMemory
from assay.system_under_test.protocol import api

logger = logging.getLogger("assay.network")

_READ_AHEAD = 64 * 1024
"""Buffer limit of a stream reader, in bytes. The reader stops reading from its socket at up to twice this."""


class Server:
    """Serves requests with ``handlers`` (by API key) and decodes them by ``apis``.

    The server itself answers ApiVersions, with the announced APIs that have a handler. As in 0.10.2, a request without
    a handler or in an unsupported version closes its connection with a log line.
    """

    def __init__(
        self, handlers: Mapping[int, Handler], apis: Mapping[int, api.Api], limits: Limits | None = None
    ) -> None:
        missing = sorted(set(handlers) - set(apis))
        if missing:
            raise ValueError(f"no API is known for the handlers with keys {missing}")
        self._apis = apis
        self._handlers = {api.API_VERSIONS_KEY: self._answer_api_versions, **handlers}
        self._limits = limits or Limits()
        self._memory = RequestMemory(self._limits.max_buffered_bytes, self._limits.crowded_timeout)
        self._outbox = Outbox(self._limits.max_unsent_bytes)
        # A dict, because its order makes closing deterministic.
        self._accepted: dict[asyncio.Task[None], AcceptedConnection] = {}
        self._per_host = Counter[str]()
        self._server: asyncio.Server | None = None
        self._closing = False

    @property
    def port(self) -> int:
        """The port on which the server listens, after ``start`` (whose port may be 0)."""
        if self._server is None:
            raise RuntimeError("the server has not been started")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """The number of connections being served."""
        return len(self._accepted)

    async def start(self, host: str, port: int) -> None:
        """Starts to listen. Raises ``OSError`` if the address is not available."""
        self._closing = False
        self._server = await asyncio.start_server(self._accept, host, port, limit=_READ_AHEAD, backlog=512)

    async def close(self) -> None:
        """Stops listening and ends all connections at once, including running handlers."""
        self._closing = True  # rejects connections that were just accepted, whose tasks are not listed yet
        if self._server is not None:
            self._server.close()
        tasks = list(self._accepted)
        for task in tasks:
            task.cancel()
        for task in tasks:
            await asyncio.wait([task])
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None
        await asyncio.sleep(0)  # aborted transports close their sockets in the loop's next round

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        accepted = AcceptedConnection(
            reader, writer, self._handlers, self._apis, self._limits, self._memory, self._outbox
        )
        try:
            refusal = self._find_refusal_reason(accepted)
            if refusal is not None:
                logger.warning("refusing %s: %s", accepted.peer, refusal)
                accepted.reject()
                return
            self._accepted[task] = accepted
            self._per_host[accepted.host] += 1
            try:
                await accepted.run()
            finally:
                self._per_host[accepted.host] -= 1
                if not self._per_host[accepted.host]:
                    del self._per_host[accepted.host]
        except asyncio.CancelledError:
            # Nothing awaits this task. If it ended as cancelled, asyncio of Python 3.11 would report an error.
            logger.debug("the connection of %s was cancelled", accepted.peer)
        finally:
            self._accepted.pop(task, None)

    def _find_refusal_reason(self, accepted: AcceptedConnection) -> str | None:
        """Returns why another connection is refused, or None."""
        limits = self._limits
        if self._closing:
            return "the broker is closing"
        if self._per_host[accepted.host] >= limits.max_connections_per_ip:
            return f"its address has reached its limit of {limits.max_connections_per_ip} connections"
        if len(self._accepted) >= limits.max_connections and not self._make_room():
            return f"{limits.max_connections} connections are open"
        return None

    def _make_room(self) -> bool:
        """Closes the connection that has been idle longest, if it was idle for at least ``evictable_after``.

        Without this, a client could open all connections, leave them idle and lock other clients out.
        """
        idlest = min(self._accepted.values(), key=lambda accepted: accepted.waiting_since)
        if asyncio.get_running_loop().time() - idlest.waiting_since < self._limits.evictable_after:
            return False
        idlest.drop("idle, and a new one needs its place")
        return True

    async def _answer_api_versions(
        self, request: api.ApiVersionsRequest, context: RequestContext
    ) -> api.ApiVersionsResponse:
        return api.build_api_versions_response(self._apis[key] for key in self._handlers)
