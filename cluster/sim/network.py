"""The simulated network: hosts with addresses, listening ports, and links that can be cut in each direction.

- A link is a pair of hosts in one direction. If it is cut, the receiving host drops and counts every packet, as with an
  ``iptables`` DROP rule in INPUT. ``transport`` describes the effects on a connection.
- Each message has its own random latency. So messages of different connections may overtake each other, but never
  messages in one direction of a connection.
- A rule can reject packets instead: the sender gets a reset, as from REJECT with tcp-reset. Resets pass such a rule.
- A rule can be restricted to a *flow*: one direction of the connections on one port, or every third packet of it.
- A *frozen* host neither sends nor receives packets, not even those of the harness. Its timers continue.

Code that belongs to no process (the harness) runs on its own host, ``outside``, which no rule affects.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Collection
from contextvars import copy_context
from typing import Any

from assay.cluster.node import Flow, Traffic
from assay.cluster.sim.host import FlowRule, Listener, PacketFate, SimHost
from assay.cluster.sim.packet_shaping import PacketShaper
from assay.cluster.sim.process import PROCESS, Process
from assay.cluster.sim.server import SimServer
from assay.cluster.sim.transport import KernelTimer, SimSender, SimSocket, SimTransport

LATENCY = (0.0001, 0.001)
"""Range of the seconds that a packet takes, uniformly distributed: a rack's network with busy kernels."""
SYN_RETRY = 1.0
"""Seconds until an unanswered connection request is repeated. They double each time (Linux: 1 s)."""
CONNECT_TIMEOUT = 15.0
"""Seconds until connecting fails with ETIMEDOUT (Linux: about two minutes)."""
OUTSIDE = "198.18.255.254"
"""Address of the harness's own host."""
ANY = frozenset({"", "0.0.0.0", "::"})
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Network:
    """All hosts of a simulation. ``random`` is the network's own random source."""

    def __init__(self, loop: Any, source: random.Random) -> None:
        self.loop = loop
        self.random = source
        self.outside = SimHost("harness", OUTSIDE)
        # Keeps connections alive, as a selector would. Otherwise idle ones would be garbage, and would be collected at
        # times that are not deterministic.
        self.connections: dict[SimTransport, None] = {}
        self._hosts: dict[str, SimHost] = {OUTSIDE: self.outside, "harness": self.outside}
        self._draw = source.random
        self._base, self._spread = LATENCY[0], LATENCY[1] - LATENCY[0]

    def add_host(self, name: str, address: str) -> SimHost:
        """Adds a host. Raises ``ValueError`` if the name or the address is taken."""
        if name in self._hosts or address in self._hosts:
            raise ValueError(f"host {name} or address {address} is taken")
        host = self._hosts[name] = self._hosts[address] = SimHost(name, address)
        return host

    def remove_host(self, host: SimHost) -> None:
        """Removes a host. Its processes must be dead."""
        self._hosts.pop(host.name, None)
        self._hosts.pop(host.address, None)

    def resolve(self, name: str) -> str:
        """Returns the address for a host's name or address. Raises ``OSError`` (EHOSTUNREACH)."""
        if name not in self._hosts:
            raise OSError(errno.EHOSTUNREACH, f"no host {name} in the simulated network")
        return self._hosts[name].address

    # Links

    def latency(self) -> float:
        """Returns the seconds that the next packet takes."""
        return self._base + self._spread * self._draw()

    def shape(self, source: SimHost, traffic: Traffic | None, peers: Collection[SimHost] | None = None) -> None:
        """Shapes packets from ``source`` to these peers, or to all, from now on."""
        source.shaping = None if traffic is None else PacketShaper(traffic, peers, self._draw)

    def drop(self, source: SimHost, target: SimHost) -> None:
        """Drops packets from ``source`` that arrive at ``target`` from now on. The outside is never cut off."""
        if source is not target and self.outside not in (source, target):
            target.rules.setdefault(source, 0)
            target.filtering = True

    def reject(self, source: SimHost, target: SimHost) -> None:
        """Does the same as ``drop``, but answers with a reset. An existing drop rule stays."""
        if source not in target.rules:
            self.drop(source, target)
            if source in target.rules:
                target.rejected[source] = None

    def add_flow_rule(self, source: SimHost, target: SimHost, flow: Flow, *, rejects: bool) -> None:
        """Does the same as ``drop`` or ``reject``, for packets of this flow only."""
        if source is not target and self.outside not in (source, target):
            target.flows.append(FlowRule(source, flow, rejects))
            target.filtering = True

    def heal(self, target: SimHost) -> None:
        """Removes all rules of a host, with their counters."""
        target.rules.clear()
        target.rejected.clear()
        target.flows.clear()
        target.filtering = target.frozen

    def freeze(self, host: SimHost) -> None:
        host.frozen = host.filtering = True

    def thaw(self, host: SimHost) -> None:
        host.frozen = False
        host.filtering = bool(host.rules or host.flows)

    def is_cut(self, source: SimHost, target: SimHost) -> bool:
        """Returns whether all packets of the link are lost or rejected. For resets see ``is_silenced``."""
        return source in target.rules or source.frozen or target.frozen

    def fate(self, source: SimHost, target: SimHost, ports: tuple[int, int]) -> PacketFate:
        """Returns the fate of a packet from ``source`` between these ports. A rule that matches counts the packet."""
        if self.is_cut(source, target):
            self.count(source, target)
            rejects = source in target.rejected and not (source.frozen or target.frozen)
            return PacketFate.REJECTED if rejects else PacketFate.LOST
        for rule in target.flows:
            if rule.matches(source, *ports) and rule.count_and_filter():
                return PacketFate.REJECTED if rule.rejects else PacketFate.LOST
        return PacketFate.PASSES

    def fate_of(self, sender: SimSender) -> PacketFate:
        """Returns the fate of a packet that this end of a connection sends now."""
        return self.fate(sender.host, sender.peer.host, sender.ports)

    def is_silenced(self, source: SimHost, target: SimHost, ports: tuple[int, int]) -> bool:
        """Returns whether not even a reset passes. A rule that rejects lets resets pass."""
        if self.is_cut(source, target):
            return source.frozen or target.frozen or source not in target.rejected
        return any(rule.matches(source, *ports) and not rule.rejects and rule.flow.every == 1 for rule in target.flows)

    def count(self, source: SimHost, target: SimHost) -> None:
        """Counts one more packet from ``source`` that ``target``'s rule dropped."""
        if source in target.rules:
            target.rules[source] += 1

    # Sockets

    def listen(self, factory: Callable[[], Any], address: str | None, port: int) -> SimServer:
        """Listens for the current process, on its host. Raises ``OSError`` (EADDRINUSE, EADDRNOTAVAIL)."""
        process, host = self._find_current_host()
        if address is not None and address not in ANY | LOOPBACK and self._hosts.get(address) is not host:
            raise OSError(errno.EADDRNOTAVAIL, f"cannot assign {address} on {host.name}")
        port = port or host.next_ephemeral_port()
        if port in host.listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} of {host.name} is in use")
        server = SimServer(self, host, port, factory, process, local=address in LOOPBACK)
        host.listeners[port] = server
        return server

    async def connect(self, factory: Callable[[], Any], address: str, port: int) -> tuple[SimTransport, Any]:
        """Connects for the current process.

        Raises ``ConnectionRefusedError``, ``OSError`` (ETIMEDOUT, EHOSTUNREACH).
        """
        process, host = self._find_current_host()
        target = host if address in LOOPBACK else self._hosts.get(address)
        if target is None:
            raise OSError(errno.EHOSTUNREACH, f"no route from {host.name} to {address}")
        transport = await _ConnectionAttempt(self, process, host, target, port, loopback=address in LOOPBACK).run()
        protocol = factory()
        transport.attach(protocol)
        return transport, protocol

    def _find_current_host(self) -> tuple[Process | None, SimHost]:
        """Returns the running process, and its host. Code of the harness has no process and runs outside."""
        process = PROCESS.get()
        return (None, self.outside) if process is None else (process, process.host)


class _ConnectionAttempt:
    """A connection request: SYN, SYN-ACK, and their repetitions while a link is cut."""

    def __init__(
        self, network: Network, process: Process | None, host: SimHost, target: SimHost, port: int, *, loopback: bool
    ) -> None:
        self._network = network
        self._loopback = loopback
        self._process = process
        self._host = host
        self._target = target
        self._port = port
        self._began = network.loop.time()
        self._retry = SYN_RETRY
        self._result: asyncio.Future[SimTransport] = network.loop.create_future()
        self._transport: SimTransport | None = None
        self._context = copy_context()

    async def run(self) -> SimTransport:
        if self._process is not None and not self._process.running:
            self._process.call_after_resume(self._send)  # the process was stopped in the step that connects
        else:
            self._send()
        try:
            return await self._result
        except asyncio.CancelledError:
            if self._transport is not None:
                self._transport.abort()
            raise
        finally:
            # A raised error refers to this frame, the frame to `self`, and `self` to the future that holds the error.
            # Without `del`, this cycle would keep the frame and all frames above it alive.
            del self

    def _after_latency(self, call: Callable[[], None]) -> None:
        # A timer of the kernel fires even while the process is stopped: packets still arrive then.
        self._network.loop.schedule(self._network.loop.time() + self._network.latency(), KernelTimer(call))

    def _send(self) -> None:
        self._after_latency(self._arrive)

    def _is_over(self) -> bool:
        return self._result.done() or (self._process is not None and self._process.dead)

    def _arrive(self) -> None:
        if self._is_over():
            return
        network, host, target = self._network, self._host, self._target
        fate = network.fate(host, target, (0, self._port))
        if fate is PacketFate.LOST or (
            fate is PacketFate.REJECTED and network.is_silenced(target, host, (self._port, 0))
        ):
            self._retry_later()
        elif fate is PacketFate.REJECTED:
            self._after_latency(self._refuse)
        elif network.fate(target, host, (self._port, 0)) is not PacketFate.PASSES:
            self._retry_later()  # the answer is lost; the half-open entry is not modelled
        elif (server := target.listeners.get(self._port)) is None or (server.local and not self._loopback):
            self._after_latency(self._refuse)
        else:
            self._establish(server)

    def _retry_later(self) -> None:
        loop = self._network.loop
        left = self._began + CONNECT_TIMEOUT - loop.time()
        if left > self._retry:
            wait, call = self._retry * (1.0 + 0.1 * self._network.random.random()), self._arrive
            self._retry *= 2
        else:
            wait, call = max(left, 0.0), self._time_out
        loop.schedule(loop.time() + wait, KernelTimer(call))

    def _refuse(self) -> None:
        place = f"{self._target.name}:{self._port}"
        self._fail(ConnectionRefusedError(errno.ECONNREFUSED, f"connection to {place} refused"))

    def _time_out(self) -> None:
        self._fail(OSError(errno.ETIMEDOUT, f"connecting to {self._target.name}:{self._port} timed out"))

    def _fail(self, error: OSError) -> None:
        if not self._is_over():
            self._result.set_exception(error)

    def _establish(self, server: Listener) -> None:
        network, loop = self._network, self._network.loop
        near_name = (self._host.address, self._host.next_ephemeral_port())
        far_name = (self._target.address, self._port)
        near = SimTransport(network, self._host, self._process, self._context, _extra_info(near_name, far_name))
        far_context = server.connection_context()
        far = SimTransport(network, self._target, server.process, far_context, _extra_info(far_name, near_name))
        near.peer, far.peer = far, near
        self._transport = near
        connected = loop.time() + network.latency()
        accepted = connected + network.latency()
        near.set_earliest_arrival(accepted)
        far.set_earliest_arrival(connected)
        loop.schedule(connected, KernelTimer(self._connect))
        loop.schedule(accepted, KernelTimer(server.accept, far, far_context))

    def _connect(self) -> None:
        if not self._is_over() and self._transport is not None:
            self._result.set_result(self._transport)


def _extra_info(own: tuple[str, int], peer: tuple[str, int]) -> dict[str, Any]:
    return {"sockname": own, "peername": peer, "socket": SimSocket(own)}
