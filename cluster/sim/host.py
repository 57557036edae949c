"""Hosts of the simulated network, and protocols that break the import cycle of hosts, connections and network."""

from __future__ import annotations

import enum
import random
from collections.abc import MutableMapping
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Protocol

from assay.cluster.node import Flow
from assay.cluster.sim.packet_shaping import PacketShaper
from assay.cluster.sim.process import Process

EPHEMERAL_PORT = 32768
"""The first ephemeral port."""


class PacketFate(enum.Enum):
    """Outcome of sending a packet."""

    PASSES = 0
    LOST = 1
    REJECTED = 2


@dataclass(slots=True, eq=False)
class FlowRule:
    """Drops or rejects every n-th packet of a flow.

    ``seen``: number of packets so far. ``count``: number of packets that did not pass.
    """

    source: SimHost
    flow: Flow
    rejects: bool
    seen: int = 0
    count: int = 0

    def matches(self, source: SimHost, from_port: int, to_port: int) -> bool:
        return source is self.source and self.flow.port == (from_port if self.flow.from_server else to_port)

    def count_and_filter(self) -> bool:
        """Counts the next packet of the flow. Returns True if it does not pass."""
        self.seen += 1
        if self.seen % self.flow.every:
            return False
        self.count += 1
        return True


@dataclass(slots=True, eq=False, repr=False)
class SimHost:
    """A machine in the simulated network.

    - ``rules``: hosts whose packets this host drops or rejects, with the number of these packets
    - ``rejected``: the hosts of ``rules`` whose packets it rejects, so that they are answered with a reset
    - ``flows``: rules that drop or reject only some packets of a peer
    - ``filtering``: whether the host is frozen or has any rule
    - ``shaping``: delays and losses of the packets that the host sends
    - ``listeners``: servers by port
    """

    name: str
    address: str
    rules: dict[SimHost, int] = field(default_factory=dict)
    rejected: dict[SimHost, None] = field(default_factory=dict)
    flows: list[FlowRule] = field(default_factory=list)
    frozen: bool = False
    filtering: bool = False
    shaping: PacketShaper | None = None
    listeners: dict[int, Listener] = field(default_factory=dict)
    _last_port: int = EPHEMERAL_PORT

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.address}>"

    def next_ephemeral_port(self) -> int:
        while True:
            self._last_port = max(self._last_port % 65535 + 1, EPHEMERAL_PORT)
            if self._last_port not in self.listeners:
                return self._last_port


class Listener(Protocol):
    """A listening socket."""

    local: bool
    """Whether it listens on the loopback address, which no other host can reach."""
    process: Process | None

    def connection_context(self) -> Context: ...

    def accept(self, transport: Any, context: Context) -> None: ...

    def detach(self, transport: Any) -> None: ...


class ConnectionNetwork(Protocol):
    """The part of the network that connections use."""

    random: random.Random
    loop: Any

    @property
    def connections(self) -> MutableMapping[Any, None]: ...

    def latency(self) -> float: ...

    def fate_of(self, sender: Any) -> PacketFate: ...

    def is_silenced(self, source: SimHost, target: SimHost, ports: tuple[int, int]) -> bool:
        """Returns whether not even a reset passes from ``source`` to ``target``."""

    def count(self, source: SimHost, target: SimHost) -> None:
        """Counts one more packet that a rule has dropped."""
