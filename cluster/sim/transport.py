"""An end of an in-memory TCP connection, with the kernel's share of the work.

A transport is also the queue of data that it has sent and its peer has not received (``_flight``), and the event "the
head of that queue arrives". So a write costs one entry in the loop's heap, and simultaneous writes share one.

:mod:`assay.cluster.sim.sender` is the sending side. The receiving side models these parts of TCP: a closed end
answers data with a reset. The kernel of a stopped process still receives. Data written before a kill or an abort still
arrive, then a reset.

Not modelled: bandwidth, segmentation of one write, slow start, keep-alive (an idle end never notices a dead peer).
"""

from __future__ import annotations

import errno
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from assay.cluster.sim.process import Process
from assay.cluster.sim.sender import FIN, HIGH_WATER, RESET, SEND_BUFFER, Kernel, Mark, Sender

if TYPE_CHECKING:
    from assay.cluster.sim.network import Host, Network
    from assay.cluster.sim.server import SimServer


class SimSocket:
    """Socket of ``get_extra_info("socket")`` and ``server.sockets``: its name and its options.

    Options have no effect, except ``SO_LINGER`` of 0 seconds: then closing drops what the kernel has not sent.
    """

    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name
        self.drops = False

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """Sets ``SO_LINGER``. Other options are accepted and ignored."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            self.drops = value == struct.pack("ii", 1, 0)


class SimTransport(Sender):
    """An end of a connection; ``peer`` is the other. The network creates them in pairs."""

    __slots__ = ("_arrived", "_close_asked", "_reading", "server")

    def __init__(
        self, network: Network, host: Host, process: Process | None, context: Context, extra: dict[str, Any]
    ) -> None:
        super().__init__(network, host, process, context, extra)
        self._arrived: deque[list[bytes] | Mark] = deque()
        self._reading = True
        self._close_asked = False  # by the step that stopped the process
        self.server: SimServer | None = None  # the server that accepted it
        network.connections[self] = None
        if process is not None:
            process.own(self)

    def __repr__(self) -> str:
        return f"<SimTransport {self._extra.get('sockname')} -> {self._extra.get('peername')}>"

    # Interface for the protocol

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
        """Closes like asyncio: data in the kernel still go out, however late, then a reset.

        With ``SO_LINGER`` of 0 nothing is sent again.
        """
        self._close_asked = True
        if self._off_stage(self.abort) or self._lost:
            return
        self._drop_unbuffered()
        self._gives_up = self._extra["socket"].drops
        if self._gives_up and self._stalled:
            self._flight_ends()
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

    def _off_stage(self, call: Callable[[], None]) -> bool:
        """Returns True if the process is not running. The call then happens after its resume, if ever."""
        process = self._process
        if process is None or process.running:
            return False
        process.later(call)
        return True

    # The kernel of the peer, as receiver

    def _deliver(self, item: list[bytes] | Mark) -> None:
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
        except BaseException as error:  # noqa: BLE001 - reported, and the connection ends, as in asyncio
            self._fatal(error)

    def _fatal(self, error: BaseException) -> None:
        self._loop.call_exception_handler(
            {"message": "Fatal error: protocol call failed.", "exception": error, "transport": self}
        )
        self._context.run(self.abort)

    def _receive_mark(self, mark: Mark) -> None:
        if mark is RESET:
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
            process.hold_back(Kernel(self._drain))
            return
        while self._arrived and self._reading and not self._lost:
            item = self._arrived.popleft()
            if type(item) is list:
                data = b"".join(item)
                self.peer._consumed(len(data))
                if not self._closing:
                    self._receive(data)
            elif isinstance(item, Mark):
                self._receive_mark(item)

    # Closing

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
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)
        finally:
            if self.server is not None:
                self.server.detach(self)

    def _release(self) -> None:
        self._network.connections.pop(self, None)
        if self._process is not None:
            self._process.disown(self)
        for item in self._arrived:  # their bytes no longer count against the sender's buffer
            if type(item) is list:
                self.peer._consumed(sum(map(len, item)))
        self._arrived.clear()

    def process_died(self) -> None:
        """Closes a killed process's socket as the kernel does: written data still go out, then a reset."""
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
            self._loop.run_soon(Kernel(self._drain))
