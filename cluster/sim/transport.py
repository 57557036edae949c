"""An end of an in-memory TCP connection, including the work of the kernel.

A transport holds the queue of data that it has sent and its peer has not received (``_flight``). The transport itself
is the loop's event "the head of this queue arrives". So a write costs one entry in the loop's heap, and simultaneous
writes share it.

:class:`SimSender` is the sending side. It models these parts of TCP:

- Bytes arrive in order, once. Each message has its own latency, so messages of different connections overtake each
  other.
- A sender that is too far ahead of its receiver has to pause.
- A packet on a cut link is dropped, counted, and sent again with exponential back-off. So after a heal, data flow again
  only at the next retransmission.
- If the link in the other direction is cut, acknowledgements are lost. Data still arrive until the window is full, but
  the sender retransmits them.
- A sender without acknowledgements gives up with ``ETIMEDOUT`` after :data:`RETRANSMISSION_LIMIT` seconds.

The receiving side models these parts:

- A closed end answers data with a reset.
- The kernel of a stopped process still receives data.
- Data written before a kill or an abort still arrive, and then a reset.

Not modelled: bandwidth, segmentation of one write, slow start, keep-alive (an idle end never notices a dead peer).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from assay.cluster.sim.host import ConnectionNetwork, Listener, PacketFate, SimHost
from assay.cluster.sim.process import Process

SEND_BUFFER = 256 * 1024
"""Bytes that both kernels hold for a connection before asyncio's own buffer begins to fill."""
HIGH_WATER = 64 * 1024
"""Default number of bytes in asyncio's own buffer above which a writer must pause."""
WINDOW = 64 * 1024
"""Bytes that may be in flight without an acknowledgement."""
RTO_MINIMUM = 0.2
"""Seconds until the first retransmission (Linux: TCP_RTO_MIN). Each further one takes twice as long."""
RTO_MAXIMUM = 2.0
"""Maximum seconds between retransmissions (Linux: 120 s). Simulated runs of 30 s must see traffic after a heal."""
RETRANSMISSION_LIMIT = 15.0
"""Seconds after which a sender gives up (Linux: tcp_retries2, about 15 minutes; production brokers lower it)."""


class ControlPacket:
    """An item in flight that is not data."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


FIN = ControlPacket("FIN")
RESET = ControlPacket("RESET")


class KernelTimer:
    """A timer of the kernel. It fires in any state of the processes."""

    __slots__ = ("_args", "_call")

    def __init__(self, call: Callable[..., object], *args: Any) -> None:
        self._call = call
        self._args = args

    def _fire(self) -> None:
        self._call(*self._args)


class SimSender(asyncio.Transport):
    """Sending side of :class:`SimTransport`. ``peer`` is the other end of the connection."""

    __slots__ = (
        "_closing", "_context", "_eof_sent", "_flight", "_high", "_last_due", "_loop", "_lost", "_low", "_network",
        "_outstanding", "_process", "_protocol", "_retrying", "_rto", "_sends_once", "_stalled", "_tail_at",
        "_unacknowledged", "_unreachable_since", "_void_events", "_write_paused", "host", "peer",
    )  # fmt: skip

    peer: SimTransport

    def __init__(
        self,
        network: ConnectionNetwork,
        host: SimHost,
        process: Process | None,
        context: Context,
        extra: dict[str, Any],
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
        """Whether the connection has ended for this end's protocol, or its process is dead."""
        # sending
        self._flight: deque[list[bytes] | ControlPacket] = deque()
        self._tail_at = -1.0
        """Time of the latest write. A second write at this time joins the first in one item of the flight."""
        self._last_due = 0.0
        """Arrival time of the last item in flight."""
        self._outstanding = 0
        """Bytes that were sent and that the receiver has not read."""
        self._high = SEND_BUFFER + HIGH_WATER
        self._low = SEND_BUFFER + HIGH_WATER // 4
        self._write_paused = False
        self._eof_sent = False
        # retransmission
        self._sends_once = False
        """Whether lost packets are not sent again, because this end was aborted with ``SO_LINGER`` of 0 seconds."""
        self._stalled = False
        """Whether the flight waits for a retransmission."""
        self._void_events = 0
        """Number of scheduled arrivals to be skipped, because the flight stalled or was discarded."""
        self._retrying = False
        """Whether a retransmission is scheduled."""
        self._rto = RTO_MINIMUM
        self._unacknowledged = 0
        """Delivered bytes whose acknowledgements were lost."""
        self._unreachable_since = -1.0
        """Loop time since which no packet was acknowledged; -1 if the last packet was."""

    def _send(self, item: list[bytes] | ControlPacket) -> None:
        self._flight.append(item)
        if self._stalled:
            return
        now = self._loop.time()
        due = now + self._network.latency()
        if self.host.shaping is not None:
            size = 0 if isinstance(item, ControlPacket) else sum(map(len, item))
            due += self.host.shaping.delay_packet(self.peer.host, size, now)
        self._last_due = due = max(due, self._last_due)
        self._loop.schedule(due, self)

    def _pause_if_full(self) -> None:
        if self._outstanding > self._high and not self._write_paused and not self._closing:
            self._write_paused = True
            self._protocol.pause_writing()

    def _count_consumed(self, size: int) -> None:
        """Removes ``size`` bytes, which the receiver has read, from the send buffer."""
        self._outstanding -= size
        if self._write_paused and self._outstanding <= self._low:
            self._write_paused = False
            if not self._lost:
                self._loop.call_soon(self._protocol.resume_writing, context=self._context)

    def _fire(self) -> None:
        """Delivers the head of the flight to the peer's machine, unless a cut link or the window blocks it."""
        peer = self.peer
        if self._void_events or self._unacknowledged or self.host.filtering or peer.host.filtering:
            if self._transmit_head():
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
                self._count_consumed(0)  # resumes the writer if there is room again
            peer._receive(data)
        else:
            self._deliver(item)

    def _transmit_head(self) -> bool:
        """Sends the head of the flight. Returns whether it reaches the peer's machine.

        If it does not, the method has already scheduled its retransmission, or ended the connection.
        """
        network = self._network
        if self._void_events:  # in flight when the connection stalled: it is sent again later
            self._void_events -= 1
            network.count(self.host, self.peer.host)
            return False
        if self._flight[0] is RESET:
            return self._transmit_reset()
        forth = network.fate_of(self)
        if forth is not PacketFate.PASSES:
            if forth is PacketFate.LOST or self.peer.is_silenced:
                self._stall()
            else:
                self._halt()  # packets behind it are out of order, so the receiver never sees them
                self._send_back_reset()
            return False
        back = network.fate_of(self.peer)
        if back is PacketFate.LOST:
            return self._deliver_unacknowledged()
        if back is PacketFate.REJECTED:  # the acknowledgement is rejected: the receiver's end is reset
            self.peer._send_back_reset()
        if self._unacknowledged:
            self._clear_unacknowledged()
        return True

    @property
    def ports(self) -> tuple[int, int]:
        """Ports of this end and of the peer."""
        return self._extra["sockname"][1], self._extra["peername"][1]

    @property
    def is_silenced(self) -> bool:
        """Whether not even a reset from this end arrives."""
        return self._network.is_silenced(self.host, self.peer.host, self.ports)

    def _transmit_reset(self) -> bool:
        """Returns whether the reset at the head arrives. A lost reset is not sent again, so the peer never gets it."""
        if not self.is_silenced:
            return True
        self._network.fate_of(self)
        self._flight.popleft()
        return False

    def _deliver_unacknowledged(self) -> bool:
        """Delivers a packet whose acknowledgement is lost, because the link back is cut. The window limits this."""
        head = self._flight[0]
        size = 1 if isinstance(head, ControlPacket) else sum(map(len, head))
        is_closed = self.peer._lost  # the peer would answer with a reset, which is lost, too
        if is_closed or (self._unacknowledged and self._unacknowledged + size > WINDOW):
            self._stall()
            return False
        self._unacknowledged += size
        self._retry_later()
        return True

    def _stall(self) -> None:
        """Stops the flight, and schedules its retransmission."""
        self._halt()
        if self._stalled:
            self._retry_later()

    def _halt(self) -> None:
        """Stops the flight: the head was not received, so everything behind it must be sent again."""
        self._void_events += len(self._flight) - 1
        if self._sends_once:
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
        self._loop.schedule(self._loop.time() + wait, KernelTimer(self._retransmit))

    def _retransmit(self) -> None:
        self._retrying = False
        if not (self._stalled or self._unacknowledged):
            return
        network = self._network
        forth = network.fate_of(self)
        if forth is PacketFate.PASSES and network.fate_of(self.peer) is PacketFate.PASSES:
            self._clear_unacknowledged()
            if self._stalled:
                self._stalled = False
                self._last_due = max(self._loop.time() + network.latency(), self._last_due)
                for _ in range(len(self._flight)):
                    self._loop.schedule(self._last_due, self)
            return
        if forth is PacketFate.REJECTED and not self.peer.is_silenced:
            self._send_back_reset()
            return
        if self._loop.time() - self._unreachable_since >= RETRANSMISSION_LIMIT:
            self._time_out()
        else:
            self._retry_later()

    def _clear_unacknowledged(self) -> None:
        self._unacknowledged = 0
        self._unreachable_since = -1.0

    def _time_out(self) -> None:
        self._discard_flight()
        self._fail(OSError(errno.ETIMEDOUT, f"Connection timed out: no acknowledgement from {self.peer.host.name}"))

    def _send_back_reset(self) -> None:
        """Answers data for a closed end, or for a machine that rejects them, with a reset."""
        self._loop.schedule(self._loop.time() + self._network.latency(), KernelTimer(self._handle_reset_answer))

    def _handle_reset_answer(self) -> None:
        """Handles the arrival of a reset that answers this end's data."""
        if self.peer.is_silenced:
            self._network.fate_of(self.peer)
            if self._stalled:
                self._retry_later()
        elif self._lost:
            if self._stalled and not self._retrying:  # this closed end waits for nothing else
                self._discard_flight()
        else:
            self._discard_flight()
            if self._process is not None and self._process.stopped:
                self._process.hold_back(KernelTimer(self._receive_control, RESET))
            elif self._protocol is not None:
                self._receive_control(RESET)

    def _discard_flight(self) -> None:
        """Discards everything in flight."""
        if not self._stalled:
            self._void_events += len(self._flight)
        self._flight.clear()
        self._stalled = False
        self._unacknowledged = 0

    def _drop_unbuffered(self) -> None:
        """Discards data that asyncio has not given to the kernel yet."""
        while self._outstanding > SEND_BUFFER and self._flight and isinstance(item := self._flight[-1], list):
            self._outstanding -= len(item.pop())
            if not item:
                self._flight.pop()
                self._void_events += not self._stalled

    def set_earliest_arrival(self, due: float) -> None:
        """Delays all data that this end sends: they arrive at ``due`` or later."""
        self._last_due = due

    def _deliver(self, item: list[bytes] | ControlPacket) -> None:
        """Handles the arrival at the peer's machine."""
        raise NotImplementedError

    def _receive_control(self, packet: ControlPacket) -> None:
        """Handles an end or a reset from the peer."""
        raise NotImplementedError

    def _fail(self, error: OSError) -> None:
        """Ends the connection with an error."""
        raise NotImplementedError


class SimSocket:
    """Socket that ``get_extra_info("socket")`` and ``server.sockets`` return, with its name and its options.

    Options have no effect, except ``SO_LINGER`` of 0 seconds: then an abort drops data that the kernel has not sent.
    """

    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name
        self.drops_unsent = False

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """Sets ``SO_LINGER``. Other options are accepted and ignored."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            self.drops_unsent = value == struct.pack("ii", 1, 0)


class SimTransport(SimSender):
    """An end of a connection. ``peer`` is the other end. The network creates both together."""

    __slots__ = ("_arrived", "_close_requested", "_reading", "server")

    def __init__(
        self,
        network: ConnectionNetwork,
        host: SimHost,
        process: Process | None,
        context: Context,
        extra: dict[str, Any],
    ) -> None:
        super().__init__(network, host, process, context, extra)
        self._arrived: deque[list[bytes] | ControlPacket] = deque()
        self._reading = True
        self._close_requested = False  # possibly by a step that had stopped its process
        self.server: Listener | None = None  # the server that accepted it
        network.connections[self] = None
        if process is not None:
            process.add_resource(self)

    def __repr__(self) -> str:
        return f"<SimTransport {self._extra.get('sockname')} -> {self._extra.get('peername')}>"

    # Interface for the protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing or self._close_requested

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
            process.call_after_resume(self.write, bytes(data))
            return
        if self._closing:
            return  # as with a real transport, a write after close is no error
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
        if self._defer_if_stopped(self.write_eof) or self._closing or self._eof_sent:
            return
        self._eof_sent = True
        self._send(FIN)

    def close(self) -> None:
        self._close_requested = True
        if self._defer_if_stopped(self.close) or self._closing:
            return
        self._closing = True
        if not self._eof_sent:
            self._eof_sent = True
            self._send(FIN)
        self._loop.call_soon(self._lose, None, context=self._context)

    def abort(self) -> None:
        """Closes like asyncio: the kernel still sends its data, however late, and then a reset.

        With ``SO_LINGER`` of 0 seconds, nothing is sent again.
        """
        self._close_requested = True
        if self._defer_if_stopped(self.abort) or self._lost:
            return
        self._drop_unbuffered()
        self._sends_once = self._extra["socket"].drops_unsent
        if self._sends_once and self._stalled:
            self._discard_flight()
        self._send(RESET)
        self._loop.call_soon(self._lose, None, context=self._context)
        self._closing = True

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if self._defer_if_stopped(self.resume_reading):
            return
        self._reading = True
        if self._arrived:
            self._loop.run_soon(KernelTimer(self._drain))

    def _defer_if_stopped(self, call: Callable[[], None]) -> bool:
        """Returns True if the process is not running. Then the call is queued until the resume."""
        process = self._process
        if process is None or process.running:
            return False
        process.call_after_resume(call)
        return True

    # The kernel of the peer, as receiver

    def _deliver(self, item: list[bytes] | ControlPacket) -> None:
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
                    self._count_consumed(0)
                if not peer._closing:
                    peer._receive(data)
            else:
                peer._receive_control(item)
            return
        if item is RESET and process is not None and process.running and peer._protocol is not None:
            peer._arrived.clear()
            peer._receive_control(item)
            return
        peer._arrived.append(item)
        if process is not None and process.stopped and len(peer._arrived) == 1:
            process.hold_back(KernelTimer(peer._drain))

    def _receive(self, data: bytes) -> None:
        try:
            self._context.run(self._protocol.data_received, data)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - reported, and the connection ends, as in asyncio
            self._fatal(error)

    def _fatal(self, error: BaseException) -> None:
        self._loop.call_exception_handler(
            {"message": "Fatal error: protocol call failed.", "exception": error, "transport": self}
        )
        self._context.run(self.abort)

    def _receive_control(self, packet: ControlPacket) -> None:
        if packet is RESET:
            self._fail(ConnectionResetError(errno.ECONNRESET, f"Connection reset by peer {self.peer.host.name}"))
        elif not self._closing:
            try:
                if not self._context.run(self._protocol.eof_received):
                    self._context.run(self.close)
            except Exception as error:  # noqa: BLE001 - as in _receive
                self._fatal(error)

    def _drain(self) -> None:
        """Hands over data that arrived while the process was stopped, reading was paused or there was no protocol."""
        process = self._process
        if process is not None and not process.running:
            process.hold_back(KernelTimer(self._drain))
            return
        while self._arrived and self._reading and not self._lost:
            item = self._arrived.popleft()
            if type(item) is list:
                data = b"".join(item)
                self.peer._count_consumed(len(data))
                if not self._closing:
                    self._receive(data)
            elif isinstance(item, ControlPacket):
                self._receive_control(item)

    # Closing

    def _fail(self, error: OSError) -> None:
        if self._lost:
            return
        self._closing = True
        self._loop.call_soon(self._lose, error, context=self._context)

    def _lose(self, error: OSError | None) -> None:
        """Ends the connection for the protocol, once."""
        if self._lost:
            return
        self._lost = True
        self._closing = True
        self._release()
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)
        finally:
            if self.server is not None:
                self.server.detach(self)

    def _release(self) -> None:
        self._network.connections.pop(self, None)
        if self._process is not None:
            self._process.remove_resource(self)
        for item in self._arrived:  # frees the sender's buffer
            if type(item) is list:
                self.peer._count_consumed(sum(map(len, item)))
        self._arrived.clear()

    def on_process_death(self) -> None:
        """Closes a killed process's socket as the kernel does: it still sends written data, and then a reset."""
        if self._lost:
            return
        self._lost = True
        self._closing = True
        self._network.connections.pop(self, None)
        self._arrived.clear()
        self._send(RESET)

    # Set-up, by the network

    def attach(self, protocol: Any) -> None:
        """Sets the protocol. Runs in the process's context."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._arrived:
            self._loop.run_soon(KernelTimer(self._drain))
