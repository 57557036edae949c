"""The memory that all large requests share, given out as their bytes arrive.

Memory is reserved for bytes that are here, never for a size that was announced: a sender holds what it has sent, and
no more. Many half-received requests could then fill the memory and wait for each other. The banker's algorithm
(Dijkstra, EWD 108) prevents that deadlock:

1. The sizes of all requests are known, so each has a known need: the bytes that are still to come.
2. A state is safe if the requests can be ordered so that the need of each fits into the free memory and the memory of
   those before it.
3. Memory is granted only if the state afterwards is safe. So some request can always be completed, and its end returns
   its memory to the others.

A request whose need fits into the free memory can be the first of such an order: it never waits. Other requests wait,
the oldest first. As long as one waits, each sender must bring its next piece within ``crowded_timeout``; the slowest
of those that do not are closed, and only as many as the waiting ones need. A small request therefore waits for no
longer than the last pieces of another one may take.

A whole request returns its memory as soon as its handler has dropped its bytes, at the latest when it is answered. A
produce request with acks=all, which may wait for a minute, drops its records once they are appended. Fetch and
JoinGroup requests may wait as well, but need what they say until they are answered. More than 64 KiB are thousands of
partitions of a fetch, or metadata that the group keeps anyway.

KIP-72 bounds the memory as well, but reserves whole requests: few slow senders can keep all of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SHORTEST_DELAY = 0.001
"""Seconds between two looks at the senders, at least."""


class Share:
    """The memory of one request. ``close`` ends its connection and takes the reason."""

    def __init__(self, size: int, close: Callable[[str], None]) -> None:
        self.size = size
        """Bytes of the whole request."""
        self.held = 0
        """Bytes that are reserved, all of which have arrived."""
        self.receiving_since = math.inf
        """The loop's time since which the sender owes a piece; infinite while it owes none."""
        self.close = close
        self.wanted = 0
        """Bytes of the reservation that waits, or 0."""
        self.granted: asyncio.Future[None] | None = None
        """Done when the waiting reservation has been granted."""

    @property
    def need(self) -> int:
        """Bytes that are not reserved yet."""
        return self.size - self.held


class RequestMemory:
    """``total`` bytes, shared by requests none of which may be larger."""

    def __init__(self, total: int, crowded_timeout: float) -> None:
        self.free = total
        """Bytes that are not reserved."""
        self._total = total
        self._crowded_timeout = crowded_timeout
        self._shares: dict[Share, None] = {}  # the oldest first
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def share(self, size: int, close: Callable[[str], None]) -> Iterator[Share]:
        """Yields the share of a request of ``size`` bytes, and takes back what it holds in the end."""
        if size > self._total:
            raise ValueError(f"a request of {size} bytes does not fit into {self._total}")
        share = Share(size, close)
        self._shares[share] = None
        try:
            yield share
        finally:
            self.release(share)

    async def reserve(self, share: Share, count: int) -> None:
        """Reserves ``count`` bytes more, which have arrived. Raises ``ConnectionAbortedError`` if the share was taken
        back because its sender was too slow. After a cancellation the share must end.
        """
        if share not in self._shares:
            raise ConnectionAbortedError("the memory of the request was taken back")
        if share.need <= self.free or (not self._waiting and self._is_safe_after(share, count)):
            self._grant(share, count)
            return
        share.wanted, share.granted = count, asyncio.get_running_loop().create_future()
        self._waiting += 1
        self._watch()
        await share.granted

    def _grant(self, share: Share, count: int) -> None:
        self.free -= count
        share.held += count

    def _is_safe_after(self, share: Share, count: int) -> bool:
        """Is the state safe once ``share`` has ``count`` bytes more? Requests in the order of their needs show it."""
        free = self.free - count
        if free < 0:
            return False
        needs = sorted(
            (each.need - count, each.held + count) if each is share else (each.need, each.held) for each in self._shares
        )
        largest = needs[-1][0]
        for need, held in needs:
            if free >= largest:
                break
            if need > free:
                return False
            free += held
        return True

    def _grant_waiting(self) -> None:
        """Grants what can be granted now. Requests behind one that must wait get memory only if they can be completed
        in what is free.
        """
        first = True
        for share in [each for each in self._shares if each.granted is not None] if self._waiting else ():
            if share.need <= self.free or (first and self._is_safe_after(share, share.wanted)):
                granted = self._stop_waiting(share)
                self._grant(share, share.wanted)
                if granted is not None and not granted.done():
                    granted.set_result(None)
            else:
                first = False

    def _stop_waiting(self, share: Share) -> asyncio.Future[None] | None:
        granted, share.granted = share.granted, None
        if granted is not None:
            self._waiting -= 1
        return granted

    def release(self, share: Share) -> None:
        """Takes back what the share holds. Does nothing the second time."""
        if share not in self._shares:
            return
        del self._shares[share]
        self._stop_waiting(share)
        self.free += share.held
        self._grant_waiting()
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        """Looks at the senders again as soon as one may be too slow."""
        if self._timer is None and self._waiting:
            loop = asyncio.get_running_loop()
            due = min(each.receiving_since for each in self._shares) + self._crowded_timeout
            delay = min(max(due - loop.time(), _SHORTEST_DELAY), self._crowded_timeout)
            self._timer = loop.call_later(delay, self._close_slow)

    def _close_slow(self) -> None:
        timer, self._timer = self._timer, None
        now = asyncio.get_running_loop().time()
        if timer is not None and now - timer.when() > self._crowded_timeout / 2:
            self._watch()  # the broker itself was late: pieces may be here that no one has read yet
            return
        latest = now - self._crowded_timeout
        slow = [each for each in self._shares if each.receiving_since <= latest]
        for share in sorted(slow, key=lambda each: each.receiving_since):
            if not self._waiting:
                break
            self.release(share)
            share.close(
                f"{share.need} bytes of a request of {share.size} do not arrive, the next of them not within "
                f"{self._crowded_timeout:g} s, and other requests wait for the memory"
            )
        self._watch()
