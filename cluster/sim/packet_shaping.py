"""Shapes the packets of a simulated host (:class:`assay.cluster.node.Traffic`).

A connection is TCP, so its bytes always arrive once and in order:

- A lost packet arrives after its retransmission, and everything behind it on its connection later still.
- An overtaken packet arrives late, which a reader cannot tell from reordering.
- A duplicate is invisible and is only counted.
"""

from collections.abc import Callable, Collection

from assay.cluster.node import Traffic

HEADER = 66
"""Bytes of headers per packet: Ethernet, IP and TCP with timestamps."""
RETRANSMISSION = 0.2
"""Seconds until a lost packet is sent again (Linux: TCP_RTO_MIN); doubles."""
TRIES = 5
"""Maximum number of losses of one packet."""
LONGEST_WAIT = 1.0
"""Maximum seconds that a packet queues under a rate limit.

A real queue of that length would be full and slow the sender down.
"""


class PacketShaper:
    """Shaping in force on one host. ``peers``: the hosts it applies to, None for all."""

    __slots__ = ("_draw", "_free", "_traffic", "counts", "peers")

    def __init__(self, traffic: Traffic, peers: Collection[object] | None, draw: Callable[[], float]) -> None:
        self._traffic = traffic
        self._draw = draw
        self._free = 0.0
        self.peers = peers
        self.counts = {"late": 0, "lost": 0, "doubled": 0}

    def hold(self, target: object, size: int, now: float) -> float:
        """Returns the additional delay in seconds of the next packet to ``target``. ``size``: bytes of its content."""
        given, counts, draw = self._traffic, self.counts, self._draw
        if self.peers is not None and target not in self.peers:
            return 0.0
        held = 0.0
        if given.delay and self._hit(given.late, "late"):
            held += given.delay * (0.5 + 0.5 * draw())
        if given.rate:
            self._free = max(self._free, now) + (size + HEADER) / given.rate
            held += min(self._free - now, LONGEST_WAIT)
        counts["late"] += held > 0
        if given.loss and self._hit(given.loss, "lost"):
            wait, times = RETRANSMISSION, 1
            while times < TRIES and draw() < given.loss:
                wait, times = wait + RETRANSMISSION * 2**times, times + 1
            counts["lost"] += times
            held += wait
        counts["doubled"] += given.copies > 0 and self._hit(given.copies, "doubled")
        return held

    def _hit(self, share: float, counted: str) -> bool:
        """Draws whether a packet is affected. The first one always is, so that there is one."""
        return share >= 1.0 or not self.counts[counted] or self._draw() < share
