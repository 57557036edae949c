"""What befalls the packets of a simulated host that are shaped (:class:`assay.cluster.node.Traffic`).

A connection is TCP: bytes arrive in order and once, whatever befalls its packets. So a packet that is lost arrives
when it has been sent again, and all that follows on its connection behind it; one that was overtaken arrives late,
which is the same to a reader; and of one that came twice nothing shows, it is counted only.
"""

from collections.abc import Callable, Collection

from assay.cluster.node import Traffic

HEADER = 66
"""Bytes of a packet that are not content: Ethernet, IP and TCP with time stamps."""
RETRANSMISSION = 0.2
"""Seconds until a lost packet is sent again (Linux: TCP_RTO_MIN); doubles."""
TRIES = 5
"""How often one packet is lost at most."""
LONGEST_WAIT = 1.0
"""Seconds that a packet waits for those before it under a rate; a real queue of that length would be full, and the
sender slow down."""


class Shaping:
    """What one host has in force. ``peers``: the hosts to which it applies, None for all."""

    __slots__ = ("_draw", "_free", "_traffic", "counts", "peers")

    def __init__(self, traffic: Traffic, peers: Collection[object] | None, draw: Callable[[], float]) -> None:
        self._traffic = traffic
        self._draw = draw
        self._free = 0.0
        self.peers = peers
        self.counts = {"late": 0, "lost": 0, "doubled": 0}

    def hold(self, target: object, size: int, now: float) -> float:
        """Seconds that the next packet, with so many bytes of content to ``target``, takes more."""
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
        """The first always, so that there is one."""
        return share >= 1.0 or not self.counts[counted] or self._draw() < share
