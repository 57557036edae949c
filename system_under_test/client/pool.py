"""Broker addresses, and a pool of shared connections, at most one to each broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from assay.system_under_test.client.connection import Connection, NotSent
from assay.system_under_test.config import join_host_port

DEFAULT_PORT = 9092
ADDRESS = re.compile(r"(?:\[([^\[\]]*:[^\[\]]*)\]|([^\[\]:]+))(?::(\d+))?", re.ASCII)
"""An IPv6 address in brackets, or another host, and an optional port."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)


class KnownBrokers:
    """Bootstrap addresses. A component that finds more brokers replaces ``addresses``."""

    def __init__(self, addresses: Iterable[Address] = ()) -> None:
        self.addresses = list(addresses)

    @classmethod
    def of(cls, bootstrap: Bootstrap) -> KnownBrokers:
        """Parses addresses. Raises ``ValueError`` like :func:`parse_addresses`."""
        return bootstrap if isinstance(bootstrap, KnownBrokers) else cls(parse_addresses(bootstrap))


Bootstrap = str | Sequence[str] | KnownBrokers
"""``"host:port,host:port"`` of any brokers, a list of ``"host:port"``, or a shared :class:`KnownBrokers`."""


def parse_addresses(bootstrap: str | Sequence[str]) -> list[Address]:
    """Parses ``"host:port,host:port"`` or a list of ``"host:port"``, with IPv6 addresses in brackets.

    Raises ``ValueError`` that names the invalid address.
    """
    parts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = [_parse(part.strip()) for part in parts if part.strip()]
    if not addresses:
        raise ValueError("at least one broker's address is needed, as host:port")
    return addresses


def _parse(text: str) -> Address:
    found = ADDRESS.fullmatch(text)
    port = int(found[3] or DEFAULT_PORT) if found else 0
    if found is None or not 0 < port < 65536:
        raise ValueError(f"{text!r} is not an address; write host:port, and an IPv6 address as [::1]:9092")
    return Address(found[1] or found[2], port)


class ClientClosed(NotSent):
    """The pool was closed and opens no more connections."""


class Pool:
    """Opens a connection on first use, and again when it is no longer usable."""

    def __init__(
        self, client_id: str = "assay", connect_timeout: float = 2.0, *, abort_on_timeout: bool = False
    ) -> None:
        """Creates a pool.

        With ``abort_on_timeout``, a call that times out or is cancelled ends its connection and discards unsent data,
        so the request cannot arrive later.
        """
        self._client_id = client_id
        self._abort_on_timeout = abort_on_timeout
        self._connect_timeout = connect_timeout
        self._connections: dict[Address, Connection] = {}
        self._retired: list[Connection] = []
        self._opening: dict[Address, asyncio.Lock] = {}
        self._closed = False

    async def get(self, address: Address, timeout: float) -> Connection:
        """Returns a usable connection within ``timeout`` seconds. Raises ``NotSent``, or ``ClientClosed`` if closed."""
        known = self._connections.get(address)
        if known is not None and known.usable:
            return known
        lock = self._opening.setdefault(address, asyncio.Lock())
        try:
            async with asyncio.timeout(timeout), lock:
                return await self._open(address)
        except TimeoutError as error:
            raise NotSent(f"no connection to {address} within {timeout:.3g} s") from error

    async def _open(self, address: Address) -> Connection:
        known = self._connections.get(address)
        if known is not None:
            if known.usable:
                return known
            # The old connection closes itself when its pending calls have ended.
            self._retired = [old for old in self._retired if not old.finished] + [self._connections.pop(address)]
        if self._closed:
            raise ClientClosed(f"no connection to {address}: the client was closed")
        connection = await Connection.open(
            address.host, address.port, self._connect_timeout, self._client_id, abort_on_timeout=self._abort_on_timeout
        )
        if self._closed:
            await connection.close()
            raise ClientClosed(f"no connection to {address}: the client was closed")
        self._connections[address] = connection
        return connection

    async def close(self) -> None:
        """Closes all connections; pending calls raise ``UnknownOutcome``."""
        self._closed = True
        connections = [*self._connections.values(), *self._retired]
        self._connections, self._retired = {}, []
        for connection in connections:
            await connection.close()
