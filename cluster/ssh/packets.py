"""Shapes the packets that a node sends: delay, loss, duplication, reordering, rate limit.

Kernels of containers often lack ``netem``. Instead, a rule passes each outgoing packet to this program (``NFQUEUE``),
which releases the packet when it is due. If the program ends, held packets go out at once, and further packets pass as
without the rule (``--queue-bypass``). SSH passes on machines that are reached through the network.

The format of messages is that of ``linux/netfilter/nfnetlink_queue.h``. The kernel splits large segments and fills in
checksums before it queues a packet, so the counts are those of packets on the wire.

This module runs on the node, by :func:`command`, with the standard library alone and as root.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import random
import select
import shlex
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

CHAIN = "ASSAY-PACKETS"
SIX = "ip6tables"
NEIGHBOURS = tuple(f"-p icmpv6 --icmpv6-type {kind}" for kind in (135, 136))
"""Matches IPv6's neighbour discovery. Copied from :mod:`assay.cluster.ssh.firewall`, which is not on the node."""
QUEUE = 4745
"""Number of the kernel's queue from which this program takes packets."""
MARK = 0x4745
"""Mark of duplicates, so that they are not queued again."""
FOLDER = "/run/assay"
PID, COUNTS = f"{FOLDER}/packets.pid", f"{FOLDER}/packets.json"
LONGEST_WAIT = 1.0
"""Maximum seconds that a rate limit delays a packet. A packet that would wait longer is lost, as in a full router."""

NETLINK_NETFILTER, SUBSYSTEM = 12, 3 << 8
PACKET, VERDICT, CONFIG = 0, 1, 2
ACK = 4
DROP, ACCEPT = 0, 1
"""Numbers of the protocol: subsystem, types of messages, a flag, and verdicts."""

_REMOVE_RULES = (
    f"for tables in iptables ip6tables; do while $tables -w -D OUTPUT -j {CHAIN} 2>/dev/null; do :; done; "
    f"$tables -w -F {CHAIN} 2>/dev/null; $tables -w -X {CHAIN} 2>/dev/null; done"
)
UNSHAPE = (
    "sh",
    "-c",
    f"{_REMOVE_RULES}; pid=$(cat {PID} 2>/dev/null); "
    f'ours() {{ [ -n "$pid" ] && grep -q {CHAIN} /proc/$pid/cmdline 2>/dev/null; }}; '
    f'ours && kill "$pid"; tries=0; while ours && [ $tries -lt 500 ]; do tries=$((tries + 1)); sleep 0.01; done; '
    f"rm -f {PID} {COUNTS}",
)
"""Command that ends the shaping. Idempotent. It removes the rules first, so that no further packet is queued."""
READ = f"cat {COUNTS} 2>/dev/null || echo '{{}}'"
"""Command that prints the counts as JSON."""


def command(
    traffic: Mapping[str, float],
    addresses: Sequence[str] | None,
    spared: Sequence[int] = (),
    tables: str = "iptables",
) -> str:
    """Returns the command that shapes packets to these addresses, or to all with None.

    If the kernel cannot shape packets, the command fails and changes nothing.

    - ``spared``: TCP ports, on either side, that are not shaped: SSH's ports, because this node may be a jump host
    - ``tables``: ``ip6tables`` if the node and its peers have IPv6 addresses
    """
    destinations = [f"-d {address} " for address in addresses] if addresses is not None else [""]
    exempt = [f"-m mark --mark {MARK}", "-o lo"]
    exempt += [f"-p tcp --{side} {port}" for port in spared for side in ("sport", "dport")]
    if tables == SIX:
        exempt += NEIGHBOURS
    rules = [f"{tables} -w -N {CHAIN}", *(f"{tables} -w -A {CHAIN} {what} -j RETURN" for what in exempt)]
    rules += [f"{tables} -w -A {CHAIN} {where}-j NFQUEUE --queue-num {QUEUE} --queue-bypass" for where in destinations]
    run = shlex.join(["python3", "-c", Path(__file__).read_text(), json.dumps(dict(traffic))])
    undo = shlex.join(UNSHAPE)
    return f"""{undo}
mkdir -p {FOLDER}
setsid {run} </dev/null >/dev/null 2>{FOLDER}/packets.err &
tries=0
until [ -s {PID} ]; do
  tries=$((tries + 1))
  [ $tries -gt 500 ] && {{ cat {FOLDER}/packets.err >&2; {undo}; exit 22; }}
  sleep 0.01
done
{" && ".join(rules)} && {tables} -w -I OUTPUT 1 -j {CHAIN} || {{ {undo}; exit 23; }}
"""


def trial_command(tables: str) -> str:
    """Returns the command that tests whether shaping works on the node. It queues no packet and removes its rules."""
    nowhere = "2001:db8::1" if tables == SIX else "192.0.2.1"
    return command({}, [nowhere], tables=tables) + shlex.join(UNSHAPE)


class PacketQueue:
    """The kernel's queue of packets. This program reads packets from it and returns verdicts."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self.socket.bind((0, 0))
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        self._configure(1, struct.pack(">BxH", 1, 0))  # NFQA_CFG_CMD: bind
        self._configure(2, struct.pack(">IB", 0xFFFF, 2))  # NFQA_CFG_PARAMS: whole packets
        self._configure(3, struct.pack(">I", 8192))  # NFQA_CFG_QUEUE_MAXLEN
        self.socket.setblocking(False)

    def _configure(self, kind: int, value: bytes) -> None:
        self._send(CONFIG, kind, value, ACK)
        answer = self.socket.recv(65536)
        (code,) = struct.unpack_from("=i", answer, 16)
        if code:
            raise OSError(-code, f"the kernel has no queue for packets (nfnetlink_queue): {os.strerror(-code)}")

    def _send(self, message: int, kind: int, value: bytes, flags: int = 0) -> None:
        attribute = struct.pack("=HH", 4 + len(value), kind) + value
        attribute += b"\0" * (-len(attribute) % 4)
        body = struct.pack(">BBH", 0, 0, QUEUE) + attribute
        self.socket.send(struct.pack("=IHHII", 16 + len(body), SUBSYSTEM | message, 1 | flags, 0, 0) + body)

    def verdict(self, packet: int, what: int) -> None:
        self._send(VERDICT, 2, struct.pack(">II", what, packet))

    def packets(self) -> Iterator[tuple[int, bytes]]:
        """Yields number and bytes of the waiting packets. The bytes begin with the IP header."""
        while True:
            try:
                data = self.socket.recv(1 << 17)
            except BlockingIOError:
                return
            except OSError:
                continue  # ENOBUFS: the kernel had to drop some
            at = 0
            while at + 20 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind == SUBSYSTEM | PACKET:
                    parts = _attributes(data[at + 20 : at + length])
                    yield struct.unpack_from(">I", parts[1])[0], parts.get(10, b"")  # NFQA_PACKET_HDR, NFQA_PAYLOAD
                at += max(length + 3 & ~3, 16)


def _attributes(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        found[kind & 0x7FFF] = data[at + 4 : at + length]
        at += max(length + 3 & ~3, 4)
    return found


class Shaper:
    """Decides when each packet is sent. ``traffic``: the fields of :class:`assay.cluster.node.Traffic`."""

    def __init__(self, traffic: Mapping[str, float], draw: random.Random) -> None:
        self._traffic = traffic
        self._draw = draw.random
        self._last: dict[bytes, float] = {}
        """By connection, the time at which its last packet is sent."""
        self._free_at = 0.0
        """Time at which the rate limit lets the next packet go."""
        self.counts = {"seen": 0, "late": 0, "lost": 0, "doubled": 0}

    def due(self, packet: bytes, now: float) -> tuple[float, bool] | None:
        """Returns the time at which the packet is sent, and whether it is sent twice; None if the packet is lost.

        Each effect hits the first packet that it can, so that its count soon proves it.
        """
        traffic, counts = self._traffic, self.counts
        counts["seen"] += 1
        if self._draw_hit("loss", "lost"):
            counts["lost"] += 1
            return None
        due = now
        if self._draw_hit("late", "late") and traffic.get("delay"):
            due += traffic["delay"] * (0.5 + 0.5 * self._draw())
        if rate := traffic.get("rate"):
            self._free_at = max(self._free_at, now) + len(packet) / rate
            if self._free_at - now > LONGEST_WAIT:
                self._free_at -= len(packet) / rate
                counts["lost"] += 1
                return None
            due += self._free_at - now
        counts["late"] += due > now
        if not traffic.get("overtaking"):
            connection = packet[8:44] if packet[0] >> 4 == 6 else packet[12:24]  # both addresses and both ports
            due = self._last[connection] = max(due, self._last.get(connection, 0.0))
        doubled = self._draw_hit("copies", "doubled")
        counts["doubled"] += doubled
        return due, doubled

    def _draw_hit(self, share: str, effect: str) -> bool:
        """Draws whether an effect hits a packet, with the probability in the field ``share`` of the traffic."""
        probability = self._traffic.get(share, 0.0)
        return probability > 0 and (not self.counts[effect] or self._draw() < probability)


def _open_raw_socket(family: int) -> socket.socket:
    """Returns a socket for packets that include their headers."""
    raw_socket = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)
    raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
    return raw_socket


def main(traffic: str) -> int:
    queue, shaper = PacketQueue(), Shaper(json.loads(traffic), random.Random())
    raw_sockets = {4: _open_raw_socket(socket.AF_INET)}
    held: list[tuple[float, int, int, bytes]] = []  # heap of (time, order, packet's number, bytes of a duplicate)
    order = itertools.count()
    end_signals: list[int] = []
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGTERM, lambda number, frame: end_signals.append(number))
    with open(PID, "w") as file:
        file.write(str(os.getpid()))
    last_written = -1
    while True:
        now = time.monotonic()
        while held and (end_signals or held[0][0] <= now):
            _, _, packet, copy = heapq.heappop(held)
            queue.verdict(packet, ACCEPT)
            if copy:
                version = copy[0] >> 4
                with contextlib.suppress(OSError):
                    if version == 6 and version not in raw_sockets:
                        raw_sockets[version] = _open_raw_socket(socket.AF_INET6)
                    destination = copy[24:40] if version == 6 else copy[16:20]
                    raw_sockets[version].sendto(copy, (socket.inet_ntop(raw_sockets[version].family, destination), 0))
        if last_written != shaper.counts["seen"]:
            last_written = shaper.counts["seen"]
            with open(COUNTS + ".new", "w") as file:
                json.dump(shaper.counts, file)
            os.replace(COUNTS + ".new", COUNTS)
        if end_signals:
            return 0
        select.select([queue.socket, wake], [], [], max(0.0, held[0][0] - now) if held else None)
        for packet, data in queue.packets():
            now = time.monotonic()
            found = shaper.due(data, now)
            if found is None:
                queue.verdict(packet, DROP)
            else:
                heapq.heappush(held, (found[0], next(order), packet, data if found[1] else b""))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
