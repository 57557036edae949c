"""Responses that their peers have not taken yet, over all connections, and who is closed when they become too many.

A response is read from disk whole before it is sent, so each peer that takes nothing holds one in memory. If the
others had to wait for that memory, such a peer could stop them all. So no client waits for it, and the peer that has
kept a response for longest is closed.
"""

from collections.abc import Callable


class Outbox:
    """``total`` bytes; the oldest are dropped beyond it, but never the newest alone."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._unsent = 0
        self._held: dict[Callable[[], None], int] = {}  # oldest first

    @property
    def unsent(self) -> int:
        """Bytes that are being sent."""
        return self._unsent

    def hold(self, drop: Callable[[], None], size: int) -> None:
        """``size`` bytes more are being sent by the connection that ``drop`` ends."""
        self._held[drop] = self._held.get(drop, 0) + size
        self._unsent += size
        while self._unsent > self._total and len(self._held) > 1:
            oldest = next(iter(self._held))
            self.sent(oldest)
            oldest()

    def sent(self, drop: Callable[[], None]) -> None:
        """All of it was taken, or its connection is over."""
        self._unsent -= self._held.pop(drop, 0)
