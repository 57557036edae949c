"""Addresses of brokers, as people write them, and at most one connection to each, shared by all who call it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from assay.system_under_test.client.connection import Connection, NotSent

DEFAULT_PORT = 9092
ADDRESS = re.compile(r"(?:\[([^\[\]]*:[^\[\]]*)\]|([^\[\]:]+))(?::(\d+))?", re.ASCII)
"""An IPv6 address, or another host, and its port."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class KnownBrokers:
    """Where brokers are reached to begin with. Who finds out more replaces ``addresses``."""

    def __init__(self, addresses: Iterable[Address] = ()) -> None:
        self.addresses = list(addresses)

    @classmethod
    def of(cls, bootstrap: Bootstrap) -> KnownBrokers:
        """Raises ``ValueError`` as :func:`parse_addresses`."""
        return bootstrap if isinstance(bootstrap, KnownBrokers) else cls(parse_addresses(bootstrap))


Bootstrap = str | Sequence[str] | KnownBrokers
"""``"host:port,host:port"`` of any brokers, a list of ``"host:port"``, or those that someone keeps."""


def parse_addresses(bootstrap: str | Sequence[str]) -> list[Address]:
    """``"host:port,host:port"``, or a list of ``"host:port"``, with an IPv6 address in brackets. Raises ``ValueError``
    that names the bad one.
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
    """There is no connection any more, and will be none."""


class Pool:
    """Opens connections when they are first needed, and again as soon as one is no longer usable."""

    def __init__(self, client_id: str = "assay", connect_timeout: float = 2.0, *, takes_back: bool = False) -> None:
        """``takes_back``: as of a :class:`Connection`."""
        self._client_id = client_id
        self._takes_back = takes_back
        self._connect_timeout = connect_timeout
        self._connections: dict[Address, Connection] = {}
        self._retired: list[Connection] = []
        self._opening: dict[Address, asyncio.Lock] = {}
        self._closed = False

    async def get(self, address: Address, timeout: float) -> Connection:
        """A usable connection within ``timeout`` seconds. Raises ``NotSent``, after ``close`` ``ClientClosed``."""
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
            # It closes itself when the calls that still wait on it have ended.
            self._retired = [old for old in self._retired if not old.finished] + [self._connections.pop(address)]
        if self._closed:
            raise ClientClosed(f"no connection to {address}: the client was closed")
        connection = await Connection.open(
            address.host, address.port, self._connect_timeout, self._client_id, takes_back=self._takes_back
        )
        if self._closed:
            await connection.close()
            raise ClientClosed(f"no connection to {address}: the client was closed")
        self._connections[address] = connection
        return connection

    async def close(self) -> None:
        """Closes all; calls still waiting for an answer raise ``Unknown``."""
        self._closed = True
        connections = [*self._connections.values(), *self._retired]
        self._connections, self._retired = {}, []
        for connection in connections:
            await connection.close()
