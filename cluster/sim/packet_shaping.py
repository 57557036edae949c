"""Shapes the packets of a simulated host (:class:`assay.cluster.node.Traffic`).

A connection is TCP, so its bytes always arrive once and in order:

- A lost packet arrives when it is retransmitted, and later packets of its connection after it.
- A packet that others overtake arrives late. A reader cannot distinguish that from reordering.
- A duplicate is invisible and is only counted.
"""

from collections.abc import Callable, Collection

from assay.cluster.node import Traffic

HEADER = 66
"""Bytes of headers per packet: Ethernet, IP and TCP with timestamps."""
RETRANSMISSION = 0.2
"""Seconds until a lost packet is sent again (Linux: TCP_RTO_MIN). They double with each loss of the packet."""
MAX_LOSSES = 5
"""Maximum number of losses of one packet."""
LONGEST_WAIT = 1.0
"""Maximum seconds that a packet queues under a rate limit.

A real queue of that length would be full and slow the sender down.
"""


class PacketShaper:
    """Shapes the packets that one host sends. ``peers``: the hosts to which it sends them; None for all."""

    __slots__ = ("_draw", "_free_at", "_traffic", "counts", "peers")

    def __init__(self, traffic: Traffic, peers: Collection[object] | None, draw: Callable[[], float]) -> None:
        self._traffic = traffic
        self._draw = draw
        self._free_at = 0.0  # when the rate limit lets the next packet go
        self.peers = peers
        self.counts = {"late": 0, "lost": 0, "doubled": 0}

    def delay_packet(self, target: object, size: int, now: float) -> float:
        """Returns the additional delay in seconds of the next packet to ``target``. ``size``: bytes of its content."""
        traffic, counts, draw = self._traffic, self.counts, self._draw
        if self.peers is not None and target not in self.peers:
            return 0.0
        delay = 0.0
        if traffic.delay and self._draw_hit(traffic.late, "late"):
            delay += traffic.delay * (0.5 + 0.5 * draw())
        if traffic.rate:
            self._free_at = max(self._free_at, now) + (size + HEADER) / traffic.rate
            delay += min(self._free_at - now, LONGEST_WAIT)
        counts["late"] += delay > 0
        if traffic.loss and self._draw_hit(traffic.loss, "lost"):
            wait, times = RETRANSMISSION, 1
            while times < MAX_LOSSES and draw() < traffic.loss:
                wait, times = wait + RETRANSMISSION * 2**times, times + 1
            counts["lost"] += times
            delay += wait
        counts["doubled"] += traffic.copies > 0 and self._draw_hit(traffic.copies, "doubled")
        return delay

    def _draw_hit(self, share: float, effect: str) -> bool:
        """Draws whether a packet has this effect. The first packet always has it, so that the effect occurs."""
        return share >= 1.0 or not self.counts[effect] or self._draw() < share
