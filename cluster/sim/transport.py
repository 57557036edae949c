"""One end of an in-memory TCP connection, with the kernel's share of the work.

A transport is also the queue of what it has sent and its peer has not received (``_flight``), and the event "the head
of that queue arrives": a write costs one entry in the loop's heap, and writes made at the same instant share one.

What is kept of TCP: bytes arrive in order, once; each message takes a latency of its own, so connections overtake each
other; a sender that is too far ahead of its receiver is told to pause; a closed end answers data with a reset; the
kernel of a stopped process goes on receiving; what a killed process had written still arrives, then a reset. A packet
that meets a cut link is dropped and counted, and sent again with exponential back-off, hence a healed link carries
data again only at the next retransmission. A cut link in the other direction starves the acknowledgements: data still
arrives up to the window, but the sender retransmits and, like one whose data cannot arrive, gives up with ``ETIMEDOUT``
after :data:`RETRANSMISSION_LIMIT` seconds.

Not modelled: bandwidth, splitting of one write into segments, slow start, keep-alive (an idle end never learns of a
dead peer).
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from assay.cluster.sim.process import Process

if TYPE_CHECKING:
    from assay.cluster.sim.network import Host, Network

SEND_BUFFER = 256 * 1024
"""Bytes that both kernels hold for a connection before asyncio's own buffer begins to fill."""
HIGH_WATER = 64 * 1024
WINDOW = 64 * 1024
"""Bytes that may be out without an acknowledgement."""
RTO_MINIMUM = 0.2
"""First retransmission, seconds (Linux TCP_RTO_MIN); doubles."""
RTO_MAXIMUM = 2.0
"""Linux allows 120 s; simulated runs last some 30 s and still have to see what comes after a heal."""
RETRANSMISSION_LIMIT = 15.0
"""Seconds (Linux: tcp_retries2, about 15 minutes by default; production brokers lower it)."""


class _Mark:
    """What travels in the flight and is not data."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


FIN = _Mark("FIN")
RESET = _Mark("RESET")


class Kernel:
    """A kernel's timer: runs whatever state the processes are in."""

    __slots__ = ("_args", "_call")

    def __init__(self, call: Callable[..., object], *args: Any) -> None:
        self._call = call
        self._args = args

    def _fire(self) -> None:
        self._call(*self._args)


class SimSocket:
    """What ``get_extra_info("socket")`` and ``server.sockets`` give: names, and options that do nothing."""

    def __init__(self, name: tuple[str, int], peer: tuple[str, int] | None = None) -> None:
        self._name = name
        self._peer = peer

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def getpeername(self) -> tuple[str, int]:
        if self._peer is None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return self._peer

    def setsockopt(self, *_: Any) -> None:
        """Accepted and ignored."""


class SimTransport(asyncio.Transport):
    """One end; ``peer`` is the other. Made in pairs by the network."""

    __slots__ = (
        "_arrived", "_close_asked", "_closing", "_context", "_eof_sent", "_flight", "_high", "_last_due", "_loop",
        "_lost", "_low", "_network", "_outstanding", "_process", "_protocol", "_reading", "_retrying", "_rto",
        "_stalled", "_tail_at", "_unacknowledged", "_unreachable_since", "_void", "_write_paused", "host", "peer",
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
        # sending
        self._flight: deque[list[bytes] | _Mark] = deque()
        self._tail_at = -1.0
        self._last_due = 0.0
        self._outstanding = 0
        self._high = SEND_BUFFER + HIGH_WATER
        self._low = SEND_BUFFER + HIGH_WATER // 4
        self._write_paused = False
        self._eof_sent = False
        # retransmission
        self._stalled = False
        self._void = 0
        self._retrying = False
        self._rto = RTO_MINIMUM
        self._unacknowledged = 0
        self._unreachable_since = -1.0
        # receiving
        self._arrived: deque[list[bytes] | _Mark] = deque()
        self._reading = True
        self._closing = False
        self._close_asked = False  # by the step in which the process stopped
        self._lost = False
        network.connections[self] = None
        if process is not None:
            process.own(self)

    def __repr__(self) -> str:
        return f"<SimTransport {self._extra.get('sockname')} -> {self._extra.get('peername')}>"

    # What the protocol calls

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing or self._close_asked

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return max(0, self._outstanding - SEND_BUFFER)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low - SEND_BUFFER, self._high - SEND_BUFFER

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not 0 <= low <= high:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._high, self._low = SEND_BUFFER + high, SEND_BUFFER + low
        self._pause_if_full()

    def write(self, data: Any) -> None:
        process = self._process
        if process is not None and not process.running:
            process.later(self.write, bytes(data))
            return
        if self._closing:
            return  # as of a real transport: closing sends the end, but what is written then is no error
        if self._eof_sent:
            raise RuntimeError("Cannot call write() after write_eof()")
        if type(data) is not bytes:
            data = bytes(data)
        if not data:
            return
        now = self._loop.time()
        self._outstanding += len(data)
        if self._tail_at == now and self._flight and type(tail := self._flight[-1]) is list:
            tail.append(data)
        else:
            self._tail_at = now
            self._send([data])
        if self._outstanding > self._high:
            self._pause_if_full()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if self._off_stage(self.write_eof) or self._closing or self._eof_sent:
            return
        self._eof_sent = True
        self._send(FIN)

    def close(self) -> None:
        self._close_asked = True
        if self._off_stage(self.close) or self._closing:
            return
        self._closing = True
        if not self._eof_sent:
            self._eof_sent = True
            self._send(FIN)
        self._loop.call_soon(self._lose, None, context=self._context)

    def abort(self) -> None:
        self._close_asked = True
        if self._off_stage(self.abort) or self._lost:
            return
        self._flight_ends()
        self._outstanding = 0
        self._send(RESET)
        self._loop.call_soon(self._lose, None, context=self._context)
        self._closing = True

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if self._off_stage(self.resume_reading):
            return
        self._reading = True
        if self._arrived:
            self._loop.run_soon(Kernel(self._drain))

    # The kernel of this end, as sender

    def _off_stage(self, call: Callable[[], None]) -> bool:
        """True when the process is not running; the call then happens after its resume, if ever."""
        process = self._process
        if process is None or process.running:
            return False
        process.later(call)
        return True

    def _send(self, item: list[bytes] | _Mark) -> None:
        self._flight.append(item)
        if self._stalled:
            return
        due = self._loop.time() + self._network.latency()
        if due < self._last_due:
            due = self._last_due
        self._last_due = due
        self._loop.schedule(due, self)

    def _pause_if_full(self) -> None:
        if self._outstanding > self._high and not self._write_paused and not self._closing:
            self._write_paused = True
            self._protocol.pause_writing()

    def _consumed(self, size: int) -> None:
        """The receiver took that much."""
        self._outstanding -= size
        if self._write_paused and self._outstanding <= self._low:
            self._write_paused = False
            if not self._lost:
                self._loop.call_soon(self._protocol.resume_writing, context=self._context)

    def _fire(self) -> None:
        """The head of the flight reaches the peer's machine, unless a cut link or the window is in the way."""
        peer = self.peer
        if self._void or self._unacknowledged or self.host.filtering or peer.host.filtering:
            if self._passes():
                self._deliver(self._flight.popleft())
            return
        item = self._flight.popleft()
        process = peer._process
        if (  # the usual case, in one step
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
        """Does the head of the flight reach the peer's machine? If not, all that follows from it has been done."""
        if self._void:  # a packet that was out when the connection stalled: it is sent again later
            self._void -= 1
            self._network.count(self.host, self.peer.host)
            return False
        host, other = self.host, self.peer.host
        network = self._network
        if network.cut(host, other):
            return self._cut_off(network.silenced(host, other))
        if network.cut(other, host):
            if network.silenced(other, host):
                return self._deliver_unacknowledged()
            network.count(other, host)  # the acknowledgement is rejected: the receiver's end is reset
            self.peer._send_back_reset()
        if self._unacknowledged:
            self._acknowledged()
        return True

    def _cut_off(self, silenced: bool) -> bool:
        """The link forth is cut. Only a reset may pass, where packets are rejected."""
        network, host, other = self._network, self.host, self.peer.host
        reset = self._flight[0] is RESET
        if reset and not silenced:
            return True
        network.count(host, other)
        if reset:  # never sent again: the peer learns nothing
            self._flight.popleft()
        elif silenced or network.silenced(other, host):
            self._stall()
        else:
            self._flight.popleft()
            self._send_back_reset()
        return False

    def _deliver_unacknowledged(self) -> bool:
        """The link back is cut: the packet arrives, if the window allows, but its acknowledgement does not."""
        head = self._flight[0]
        if head is RESET:
            return True
        size = 1 if isinstance(head, _Mark) else sum(map(len, head))
        refused = self.peer._lost
        if refused or (self._unacknowledged and self._unacknowledged + size > WINDOW):
            self._network.count(self.peer.host, self.host)
            self._stall()
            return False
        self._network.count(self.peer.host, self.host)
        self._unacknowledged += size
        self._retry_later()
        return True

    def _stall(self) -> None:
        self._stalled = True
        self._void += len(self._flight) - 1
        self._retry_later()

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
        network, host, other = self._network, self.host, self.peer.host
        forth, back = network.cut(host, other), network.cut(other, host)
        if not (forth or back):
            self._acknowledged()
            if self._stalled:
                self._stalled = False
                self._last_due = max(self._loop.time() + network.latency(), self._last_due)
                for _ in range(len(self._flight)):
                    self._loop.schedule(self._last_due, self)
            return
        if forth:
            network.count(host, other)
            if not (network.silenced(host, other) or network.silenced(other, host)):
                self._send_back_reset()
                return
        else:
            network.count(other, host)
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

    # The kernel of the peer, as receiver

    def _deliver(self, item: list[bytes] | _Mark) -> None:
        peer = self.peer
        if peer._lost:
            if item is not RESET:
                self._send_back_reset()
            return
        process = peer._process
        if peer._reading and not peer._arrived and peer._protocol is not None and (process is None or process.running):
            if isinstance(item, list):
                data = item[0] if len(item) == 1 else b"".join(item)
                self._outstanding -= len(data)
                if self._write_paused:
                    self._consumed(0)
                if not peer._closing:
                    peer._receive(data)
            else:
                peer._receive_mark(item)
            return
        if item is RESET and process is not None and process.running and peer._protocol is not None:
            peer._arrived.clear()
            peer._receive_mark(item)
            return
        peer._arrived.append(item)
        if process is not None and process.stopped and len(peer._arrived) == 1:
            process.hold_back(Kernel(peer._drain))

    def _receive(self, data: bytes) -> None:
        try:
            self._context.run(self._protocol.data_received, data)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - reported, and the connection ends, as asyncio does
            self._fatal(error)

    def _fatal(self, error: BaseException) -> None:
        self._loop.call_exception_handler(
            {"message": "Fatal error: protocol call failed.", "exception": error, "transport": self}
        )
        self._context.run(self.abort)

    def _receive_mark(self, mark: _Mark) -> None:
        if mark is RESET:
            self._fail(ConnectionResetError(errno.ECONNRESET, f"Connection reset by peer {self.peer.host.name}"))
        elif not self._closing:
            try:
                if not self._context.run(self._protocol.eof_received):
                    self._context.run(self.close)
            except Exception as error:  # noqa: BLE001 - as in _receive
                self._fatal(error)

    def _drain(self) -> None:
        """Hands over what arrived while the process was stopped, reading was paused or no protocol was there yet."""
        process = self._process
        if process is not None and not process.running:
            process.hold_back(Kernel(self._drain))
            return
        while self._arrived and self._reading and not self._lost:
            item = self._arrived.popleft()
            if type(item) is list:
                data = b"".join(item)
                self.peer._consumed(len(data))
                if not self._closing:
                    self._receive(data)
            elif isinstance(item, _Mark):
                self._receive_mark(item)

    def _send_back_reset(self) -> None:
        """Data came for an end that is closed, or for a machine that rejects them."""
        self._loop.schedule(self._loop.time() + self._network.latency(), Kernel(self._reset_arrives))

    def _reset_arrives(self) -> None:
        if self._network.silenced(self.peer.host, self.host):
            self._network.count(self.peer.host, self.host)
        elif not self._lost:
            self._flight_ends()
            if self._process is not None and self._process.stopped:
                self._process.hold_back(Kernel(self._receive_mark, RESET))
            elif self._protocol is not None:
                self._receive_mark(RESET)

    def _flight_ends(self) -> None:
        """Nothing that is still out matters any more."""
        if not self._stalled:
            self._void += len(self._flight)
        self._flight.clear()
        self._stalled = False
        self._unacknowledged = 0

    # The end of this end

    def _fail(self, error: OSError) -> None:
        if self._lost:
            return
        self._closing = True
        self._loop.call_soon(self._lose, error, context=self._context)

    def _lose(self, error: OSError | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._closing = True
        self._release()
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _release(self) -> None:
        self._network.connections.pop(self, None)
        if self._process is not None:
            self._process.disown(self)
        for item in self._arrived:  # the sender's buffer is not its receiver's business any more
            if type(item) is list:
                self.peer._consumed(sum(map(len, item)))
        self._arrived.clear()

    def process_died(self) -> None:
        """The kernel closes a killed process's socket: what it had written still goes out, then a reset."""
        if self._lost:
            return
        self._lost = True
        self._closing = True
        self._network.connections.pop(self, None)
        self._arrived.clear()
        self._send(RESET)

    # Set-up, by the network

    def attach(self, protocol: Any) -> None:
        """Runs in the process's context."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._arrived:
            self._loop.run_soon(Kernel(self._drain))

    def not_before(self, due: float) -> None:
        """What this end sends arrives no earlier than that."""
        self._last_due = due
