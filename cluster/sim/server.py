"""A listening socket of the simulated network, with the interface of ``asyncio.Server``."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from assay.cluster.sim.host import ConnectionNetwork, SimHost
from assay.cluster.sim.process import Process
from assay.cluster.sim.transport import SimSocket, SimTransport


class SimServer(asyncio.AbstractServer):
    """A listening socket. It accepts connections in a copy of the context in which it was created, and so in the same
    process.

    While that process is stopped, new connections wait.
    """

    def __init__(
        self,
        network: ConnectionNetwork,
        host: SimHost,
        port: int,
        factory: Callable[[], Any],
        process: Process | None,
        *,
        local: bool,
    ) -> None:
        """``local``: it listens on the loopback address, which no other host can reach."""
        self.local = local
        self._network = network
        self._host = host
        self._port = port
        self._factory = factory
        self.process = process
        self._context: Context = copy_context()
        self._closed: asyncio.Future[None] | None = None
        self._connections: dict[SimTransport, None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        if process is not None:
            process.add_resource(self)

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        """Empty once closed."""
        address = "127.0.0.1" if self.local else self._host.address
        return (SimSocket((address, self._port)),) if self.is_serving() else ()

    def connection_context(self) -> Context:
        """Returns the context of a new connection."""
        return self._context.copy()

    def accept(self, transport: SimTransport, context: Context) -> None:
        """Passes a completed handshake to the accept loop, now or after the process's resume."""
        if self.process is not None and not self.process.running:
            self.process.call_after_resume(self.accept, transport, context)
        elif self.is_serving():
            context.run(self._accept, transport)
        else:
            transport.abort()

    def _accept(self, transport: SimTransport) -> None:
        self._connections[transport] = None
        transport.server = self
        transport.attach(self._factory())

    def detach(self, transport: SimTransport) -> None:
        """Removes an accepted connection once its protocol was notified of the end."""
        self._connections.pop(transport, None)
        self._wake()

    def is_serving(self) -> bool:
        return self._host.listeners.get(self._port) is self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = self._network.loop
        return loop

    def close(self) -> None:
        if self.process is not None and not self.process.running:
            self.process.call_after_resume(self.close)
            return
        self._shut()
        if self.process is not None:
            self.process.remove_resource(self)

    def on_process_death(self) -> None:
        self._shut()

    def _shut(self) -> None:
        if self.is_serving():
            del self._host.listeners[self._port]
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        self._wake()

    def _wake(self) -> None:
        if self.is_serving() or self._connections:
            return
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def start_serving(self) -> None:
        if not self.is_serving():
            raise OSError(errno.EBADF, f"server on port {self._port} of {self._host.name} is closed")

    async def serve_forever(self) -> None:
        await self.start_serving()
        self._closed = self._network.loop.create_future()
        try:
            await self._closed
        except asyncio.CancelledError:
            try:
                self.close()
                await self.wait_closed()
            finally:
                raise

    async def wait_closed(self) -> None:
        """Returns when the server is closed and all its connections have ended, as in asyncio from Python 3.12 on.

        In Python 3.11, asyncio does not wait for connections. A simulation must be equal on every Python, so this
        method always waits. In a dead process, which is being unwound, it does not wait.
        """
        if self.process is not None and self.process.dead:
            return
        if self.is_serving() or self._connections:
            future: asyncio.Future[None] = self._network.loop.create_future()
            self._waiting.append(future)
            await future

    def close_clients(self) -> None:
        """Closes the connections that the server has accepted."""
        for transport in list(self._connections):
            transport.close()

    def abort_clients(self) -> None:
        """Aborts the connections that the server has accepted."""
        for transport in list(self._connections):
            transport.abort()
