"""Limits on the memory, the connections and the time that clients may use of a broker."""

from __future__ import annotations

from dataclasses import dataclass

from assay.system_under_test.config import MAX_BUFFERED_REQUEST_BYTES, BrokerConfig

FREE_REQUEST_BYTES = 64 * 1024
"""Requests up to this size do not count against the shared memory. Larger ones are received in pieces of this size.

A follower's fetch is a small request, and must never wait behind a large produce request that waits for the follower.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits. If Kafka 0.10.2 has such a setting, its default is the default here; see :meth:`from_config`."""

    max_request_bytes: int = 100 * 1024 * 1024
    max_buffered_bytes: int = MAX_BUFFERED_REQUEST_BYTES
    """Bytes of requests above ``FREE_REQUEST_BYTES`` that are being received or handled, over all connections."""
    max_unsent_bytes: int = 256 * 1024 * 1024
    """Bytes of responses that peers have not read, over all connections.

    Beyond it the peer with the oldest response is disconnected.
    """
    max_connections: int = 2_000
    max_connections_per_ip: int = 2**31 - 1
    evictable_after: float = 1.0
    """Seconds for which a connection must be idle to be closed for a new one at ``max_connections``."""
    stall_timeout: float = 5.0
    """Seconds for each further ``FREE_REQUEST_BYTES`` of a request that holds shared memory (at least 13 kB/s)."""
    crowded_timeout: float = 0.5
    """Replaces ``stall_timeout`` while other requests wait for the shared memory (at least 131 kB/s)."""
    idle_timeout: float = 600.0
    """Seconds without a complete request, or with an unread response, after which a connection is closed."""
    close_timeout: float = 5.0
    """Seconds for the peer to read the last response before its connection is closed."""

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Limits:
        """Returns the default limits, except those that the broker's configuration sets:

        - ``socket.request.max.bytes``
        - ``queued.max.request.bytes``
        - ``max.connections`` (KIP-402)
        - ``max.connections.per.ip``
        - ``connections.max.idle.ms``
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
                f"({self.max_request_bytes}), or that request would wait forever"
            )
