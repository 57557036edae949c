"""How much any client may ask of a broker, and the memory that all large requests share."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from assay.system_under_test.config import MAX_BUFFERED_REQUEST_BYTES, BrokerConfig

FREE_REQUEST_BYTES = 64 * 1024
"""Requests up to this size do not count against the common budget.

What completes a large produce request are followers' small fetches: they must never wait behind it.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Defaults are 0.10.2's where it has the setting; see :meth:`configured`."""

    max_request_bytes: int = 100 * 1024 * 1024
    max_buffered_bytes: int = MAX_BUFFERED_REQUEST_BYTES
    """Of requests larger than ``FREE_REQUEST_BYTES`` being received or handled, over all connections (KIP-72)."""
    max_unsent_bytes: int = 256 * 1024 * 1024
    """Of responses that their peers have not taken, over all connections; beyond it the slowest peer is closed."""
    max_connections: int = 2_000
    max_connections_per_ip: int = 2**31 - 1
    busy_time: float = 1.0
    """Seconds of idleness after which a connection makes room for a new one when there are ``max_connections``."""
    stall_timeout: float = 5.0
    """Seconds for each further ``FREE_REQUEST_BYTES`` of a request that holds common memory (14 kB/s and more)."""
    idle_timeout: float = 600.0
    """Seconds without a complete request, or during which a response is not taken."""
    close_timeout: float = 5.0
    """Seconds for the peer to take what was written before its connection is closed."""

    @classmethod
    def configured(cls, config: BrokerConfig) -> Limits:
        """What may be set: ``socket.request.max.bytes``, ``queued.max.request.bytes``, ``max.connections`` (KIP-402),
        ``max.connections.per.ip``, ``connections.max.idle.ms``.
        """
        return cls(
            max_request_bytes=min(config.socket_request_max_bytes, config.queued_max_request_bytes),
            max_buffered_bytes=config.queued_max_request_bytes,
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            idle_timeout=config.connections_max_idle_ms / 1000,
        )

    def __post_init__(self) -> None:
        if self.max_buffered_bytes < self.max_request_bytes:
            raise ValueError(
                f"max_buffered_bytes ({self.max_buffered_bytes}) must hold one request of max_request_bytes "
                f"({self.max_request_bytes}), or that request would wait for ever"
            )


class ByteBudget:
    """``total`` bytes to give away; a single reservation must not be larger. First come, first served.

    A connection reserves a whole request once it knows its size, and reads no further before it has the reservation:
    so many half-received requests can never wait for each other (KIP-72).
    """

    def __init__(self, total: int) -> None:
        self.free = total
        """Bytes that are not reserved."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def reserve(self, size: int) -> None:
        """Returns once ``size`` bytes are reserved; cancelling gives back what was granted in between."""
        if not self._waiting and size <= self.free:
            self.free -= size
            return
        granted = asyncio.get_running_loop().create_future()
        entry = (size, granted)
        self._waiting.append(entry)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                self.release(size)
            elif entry in self._waiting:  # else a release has skipped it already
                self._waiting.remove(entry)
                self._grant()
            raise

    def release(self, size: int) -> None:
        """Gives a reservation back and wakes those for whom there is enough now."""
        self.free += size
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.free:
            size, granted = self._waiting.popleft()
            if not granted.cancelled():
                self.free -= size
                granted.set_result(None)
