"""Memory for large requests, shared by all connections.

A connection reserves a whole request once it knows its size, and reads no further before it has the reservation: so
many half-received requests can never wait for each other (KIP-72). First come, first served.
"""

import asyncio
from collections import deque


class ByteBudget:
    """``total`` bytes to give away; a single reservation must not be larger."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def free(self) -> int:
        """Bytes that are not reserved."""
        return self._free

    async def reserve(self, size: int) -> None:
        """Returns once ``size`` bytes are reserved; cancelling gives back what was granted in between."""
        if not self._waiting and size <= self._free:
            self._free -= size
            return
        granted = asyncio.get_running_loop().create_future()
        entry = (size, granted)
        self._waiting.append(entry)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                self.release(size)
            elif entry in self._waiting:  # else a release has skipped it already
                self._waiting.remove(entry)
                self._grant()
            raise

    def release(self, size: int) -> None:
        """Gives a reservation back and wakes those for whom there is enough now."""
        self._free += size
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            size, granted = self._waiting.popleft()
            if not granted.cancelled():
                self._free -= size
                granted.set_result(None)
