"""The sending side of a simulated connection's kernel: packets in flight, cut links, retransmission.

It models these parts of TCP:

- Bytes arrive in order, once. Each message has its own latency, so connections overtake each other.
- A sender that is too far ahead of its receiver has to pause.
- A packet that meets a cut link is dropped, counted, and sent again with exponential back-off. So a healed link carries
  data again only at the next retransmission.
- A cut link in the other direction loses the acknowledgements. Data still arrive up to the window, but the sender
  retransmits.
- A sender without acknowledgements gives up with ``ETIMEDOUT`` after :data:`RETRANSMISSION_LIMIT` seconds.
"""

from __future__ import annotations

import asyncio
import enum
import errno
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from assay.cluster.sim.process import Process

if TYPE_CHECKING:
    from assay.cluster.sim.network import Host, Network
    from assay.cluster.sim.transport import SimTransport

SEND_BUFFER = 256 * 1024
"""Bytes that both kernels hold for a connection before asyncio's own buffer begins to fill."""
HIGH_WATER = 64 * 1024
WINDOW = 64 * 1024
"""Bytes that may be in flight without an acknowledgement."""
RTO_MINIMUM = 0.2
"""First retransmission, seconds (Linux TCP_RTO_MIN); doubles."""
RTO_MAXIMUM = 2.0
"""Linux allows 120 s. Simulated runs last some 30 s and must still see traffic after a heal."""
RETRANSMISSION_LIMIT = 15.0
"""Seconds (Linux: tcp_retries2, about 15 minutes by default; production brokers lower it)."""


class Fate(enum.Enum):
    """Outcome of sending a packet."""

    PASSES = 0
    LOST = 1
    REJECTED = 2


class Mark:
    """An item in flight that is not data."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


FIN = Mark("FIN")
RESET = Mark("RESET")


class Kernel:
    """A kernel timer. It fires in any state of the processes."""

    __slots__ = ("_args", "_call")

    def __init__(self, call: Callable[..., object], *args: Any) -> None:
        self._call = call
        self._args = args

    def _fire(self) -> None:
        self._call(*self._args)


class Sender(asyncio.Transport):
    """Base of :class:`assay.cluster.sim.transport.SimTransport`; ``peer`` is the other end."""

    __slots__ = (
        "_closing", "_context", "_eof_sent", "_flight", "_gives_up", "_high", "_last_due", "_loop", "_lost", "_low",
        "_network",
        "_outstanding", "_process", "_protocol", "_retrying", "_rto", "_stalled", "_tail_at", "_unacknowledged",
        "_unreachable_since", "_void", "_write_paused", "host", "peer",
    )  # fmt: skip

    peer: SimTransport

    def __init__(
        self, network: Network, host: Host, process: Process | None, context: Context, extra: dict[str, Any]
    ) -> None:
        self._extra: dict[str, Any] = extra
        self._network = network
        self._loop: Any = network.loop
        self.host = host
        self._process = process
        self._context = context
        self._protocol: Any = None
        self._closing = False
        self._lost = False
        # sending
        self._flight: deque[list[bytes] | Mark] = deque()
        self._tail_at = -1.0
        self._last_due = 0.0
        self._outstanding = 0
        self._high = SEND_BUFFER + HIGH_WATER
        self._low = SEND_BUFFER + HIGH_WATER // 4
        self._write_paused = False
        self._eof_sent = False
        # retransmission
        self._gives_up = False
        """Whether it was aborted without retransmissions."""
        self._stalled = False
        self._void = 0
        self._retrying = False
        self._rto = RTO_MINIMUM
        self._unacknowledged = 0
        self._unreachable_since = -1.0

    def _send(self, item: list[bytes] | Mark) -> None:
        self._flight.append(item)
        if self._stalled:
            return
        now = self._loop.time()
        due = now + self._network.latency()
        if self.host.shaping is not None:
            size = 0 if isinstance(item, Mark) else sum(map(len, item))
            due += self.host.shaping.hold(self.peer.host, size, now)
        self._last_due = due = max(due, self._last_due)
        self._loop.schedule(due, self)

    def _pause_if_full(self) -> None:
        if self._outstanding > self._high and not self._write_paused and not self._closing:
            self._write_paused = True
            self._protocol.pause_writing()

    def _consumed(self, size: int) -> None:
        """Reports that the receiver took ``size`` bytes."""
        self._outstanding -= size
        if self._write_paused and self._outstanding <= self._low:
            self._write_paused = False
            if not self._lost:
                self._loop.call_soon(self._protocol.resume_writing, context=self._context)

    def _fire(self) -> None:
        """Delivers the head of the flight to the peer's machine, unless a cut link or the window blocks it."""
        peer = self.peer
        if self._void or self._unacknowledged or self.host.filtering or peer.host.filtering:
            if self._passes():
                self._deliver(self._flight.popleft())
            return
        item = self._flight.popleft()
        process = peer._process
        if (  # common case in one step
            type(item) is list
            and peer._reading
            and not peer._closing
            and not peer._arrived
            and peer._protocol is not None
            and (process is None or process.running)
        ):
            data = item[0] if len(item) == 1 else b"".join(item)
            self._outstanding -= len(data)
            if self._write_paused:
                self._consumed(0)
            peer._receive(data)
        else:
            self._deliver(item)

    def _passes(self) -> bool:
        """Returns whether the head of the flight reaches the peer's machine.

        If not, it has handled all consequences.
        """
        network = self._network
        if self._void:  # in flight when the connection stalled: it is sent again later
            self._void -= 1
            network.count(self.host, self.peer.host)
            return False
        if self._flight[0] is RESET:
            return self._reset_passes()
        forth = network.fate_of(self)
        if forth is not Fate.PASSES:
            if forth is Fate.LOST or self.peer.silenced:
                self._stall()
            else:
                self._halt()  # packets behind it are out of order, and their reader never sees them
                self._send_back_reset()
            return False
        back = network.fate_of(self.peer)
        if back is Fate.LOST:
            return self._deliver_unacknowledged()
        if back is Fate.REJECTED:  # the acknowledgement is rejected: the receiver's end is reset
            self.peer._send_back_reset()
        if self._unacknowledged:
            self._acknowledged()
        return True

    @property
    def ports(self) -> tuple[int, int]:
        """Ports of this end and of the peer."""
        return self._extra["sockname"][1], self._extra["peername"][1]

    @property
    def silenced(self) -> bool:
        """Whether not even a reset from this end arrives."""
        return self._network.silenced(self.host, self.peer.host, self.ports)

    def _reset_passes(self) -> bool:
        """Returns whether a reset arrives. A lost reset is never sent again: the peer learns nothing."""
        if not self.silenced:
            return True
        self._network.fate_of(self)
        self._flight.popleft()
        return False

    def _deliver_unacknowledged(self) -> bool:
        """Delivers a packet, if the window allows, while the link back is cut and loses its acknowledgement."""
        head = self._flight[0]
        size = 1 if isinstance(head, Mark) else sum(map(len, head))
        rejected = self.peer._lost
        if rejected or (self._unacknowledged and self._unacknowledged + size > WINDOW):
            self._stall()
            return False
        self._unacknowledged += size
        self._retry_later()
        return True

    def _stall(self) -> None:
        self._halt()
        if self._stalled:
            self._retry_later()

    def _halt(self) -> None:
        """Stops the flight: the head was not received, so everything behind it must be sent again."""
        self._void += len(self._flight) - 1
        if self._gives_up:
            self._flight.clear()
        else:
            self._stalled = True

    def _retry_later(self) -> None:
        if self._retrying:
            return
        self._retrying = True
        if self._unreachable_since < 0:
            self._unreachable_since = self._loop.time()
            self._rto = RTO_MINIMUM
        wait = self._rto * (1.0 + 0.2 * self._network.random.random())
        self._rto = min(2 * self._rto, RTO_MAXIMUM)
        self._loop.schedule(self._loop.time() + wait, Kernel(self._retransmit))

    def _retransmit(self) -> None:
        self._retrying = False
        if not (self._stalled or self._unacknowledged):
            return
        network = self._network
        forth = network.fate_of(self)
        if forth is Fate.PASSES and network.fate_of(self.peer) is Fate.PASSES:
            self._acknowledged()
            if self._stalled:
                self._stalled = False
                self._last_due = max(self._loop.time() + network.latency(), self._last_due)
                for _ in range(len(self._flight)):
                    self._loop.schedule(self._last_due, self)
            return
        if forth is Fate.REJECTED and not self.peer.silenced:
            self._send_back_reset()
            return
        if self._loop.time() - self._unreachable_since >= RETRANSMISSION_LIMIT:
            self._time_out()
        else:
            self._retry_later()

    def _acknowledged(self) -> None:
        self._unacknowledged = 0
        self._unreachable_since = -1.0

    def _time_out(self) -> None:
        self._flight_ends()
        self._fail(OSError(errno.ETIMEDOUT, f"Connection timed out: no acknowledgement from {self.peer.host.name}"))

    def _send_back_reset(self) -> None:
        """Answers data for a closed end, or for a machine that rejects them, with a reset."""
        self._loop.schedule(self._loop.time() + self._network.latency(), Kernel(self._reset_arrives))

    def _reset_arrives(self) -> None:
        if self.peer.silenced:
            self._network.fate_of(self.peer)
            if self._stalled:
                self._retry_later()
        elif self._lost:
            if self._stalled and not self._retrying:  # it waits for nothing else
                self._flight_ends()
        else:
            self._flight_ends()
            if self._process is not None and self._process.stopped:
                self._process.hold_back(Kernel(self._receive_mark, RESET))
            elif self._protocol is not None:
                self._receive_mark(RESET)

    def _flight_ends(self) -> None:
        """Discards everything in flight."""
        if not self._stalled:
            self._void += len(self._flight)
        self._flight.clear()
        self._stalled = False
        self._unacknowledged = 0

    def _drop_unbuffered(self) -> None:
        """Discards what asyncio has not given to the kernel yet."""
        while self._outstanding > SEND_BUFFER and self._flight and isinstance(item := self._flight[-1], list):
            self._outstanding -= len(item.pop())
            if not item:
                self._flight.pop()
                self._void += not self._stalled

    def not_before(self, due: float) -> None:
        """Makes everything that this end sends arrive no earlier than ``due``."""
        self._last_due = due

    def _deliver(self, item: list[bytes] | Mark) -> None:
        """Handles the arrival at the peer's machine."""
        raise NotImplementedError

    def _receive_mark(self, mark: Mark) -> None:
        """Handles an end or a reset from the peer."""
        raise NotImplementedError

    def _fail(self, error: OSError) -> None:
        """Ends the connection with an error."""
        raise NotImplementedError
