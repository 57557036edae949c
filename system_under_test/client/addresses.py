"""Addresses of brokers, as people write them."""

from collections.abc import Sequence
from typing import NamedTuple

DEFAULT_PORT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_addresses(bootstrap: str | Sequence[str]) -> list[Address]:
    """``"host:port,host:port"``, or a list of ``"host:port"``. Raises ``ValueError`` that names the bad one."""
    parts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = [_parse(part.strip()) for part in parts if part.strip()]
    if not addresses:
        raise ValueError("at least one broker's address is needed, as host:port")
    return addresses


def _parse(text: str) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator:
        return Address(text, DEFAULT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not an address; write host:port")
    return Address(host, int(port))
