"""Memory shared by all large requests, granted as their bytes arrive.

Memory is reserved for bytes that have arrived, never for an announced size, so a sender holds only as much as it has
sent. But many half-received requests could fill the memory and wait for each other. The banker's algorithm (Dijkstra,
EWD 108) prevents that deadlock:

1. The sizes of all requests are known, so each has a known need: the bytes that have not arrived yet.
2. A state is safe if the requests can be ordered so that the need of each fits into the free memory plus the memory of
   all requests before it.
3. Memory is granted only if the state afterwards is safe. So some request can always be completed, and then returns
   its memory.

A request whose need fits into the free memory can be the first in such an order, so it never waits. Other requests may
have to wait, and are then served in the order of their age. While a request waits, each sender must deliver its next
piece within ``crowded_timeout``. Slower senders are closed, the slowest first, until no request waits.

A complete request returns its memory when its handler drops its bytes, at the latest with the answer. A produce request
with acks=all may wait for a minute, but drops its records when they are appended. Fetch and JoinGroup requests may also
wait, and keep their content until they are answered. Such a request exceeds 64 KiB only if it names thousands of
partitions, or has metadata that the group keeps anyway.

KIP-72 also limits the memory, but reserves whole requests, so a few slow senders can occupy all of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SHORTEST_DELAY = 0.001
"""Minimum seconds between two checks of the senders."""


class Share:
    """The memory of a request. ``close(reason)`` ends the request's connection."""

    def __init__(self, size: int, close: Callable[[str], None]) -> None:
        self.size = size
        """Bytes of the whole request."""
        self.held = 0
        """Reserved bytes, all of which have arrived."""
        self.receiving_since = math.inf
        """Loop time since which the broker waits for the sender's next piece; infinite if it does not wait."""
        self.close = close
        self.wanted = 0
        """Bytes of the waiting reservation, or 0."""
        self.granted: asyncio.Future[None] | None = None
        """Done when the waiting reservation has been granted."""

    @property
    def need(self) -> int:
        """Bytes that are not reserved yet."""
        return self.size - self.held


class RequestMemory:
    """Memory of ``total`` bytes, shared by requests. No request may be larger."""

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
        """Yields the share of a request of ``size`` bytes, and releases it in the end."""
        if size > self._total:
            raise ValueError(f"a request of {size} bytes does not fit into {self._total}")
        share = Share(size, close)
        self._shares[share] = None
        try:
            yield share
        finally:
            self.release(share)

    async def reserve(self, share: Share, count: int) -> None:
        """Reserves ``count`` more bytes, which have arrived. Waits if necessary.

        If the call is cancelled, the caller must release the share.

        Raises ``ConnectionAbortedError`` if the share was released because its sender was too slow.
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
        """Returns whether the state is safe after a grant. Tries the requests by ascending need."""
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
        """Grants waiting reservations, the oldest first.

        Behind a request that must wait, only requests whose need fits into the free memory are granted.
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
        """Frees the memory of the share. A second call does nothing."""
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
        """Schedules the next check for the time at which a sender may be too slow."""
        if self._timer is None and self._waiting:
            loop = asyncio.get_running_loop()
            due = min(each.receiving_since for each in self._shares) + self._crowded_timeout
            delay = min(max(due - loop.time(), _SHORTEST_DELAY), self._crowded_timeout)
            self._timer = loop.call_later(delay, self._close_slow)

    def _close_slow(self) -> None:
        timer, self._timer = self._timer, None
        now = asyncio.get_running_loop().time()
        if timer is not None and now - timer.when() > self._crowded_timeout / 2:
            self._watch()  # this check is late, so the broker may not have read pieces that have arrived
            return
        latest = now - self._crowded_timeout
        slow = [each for each in self._shares if each.receiving_since <= latest]
        for share in sorted(slow, key=lambda each: each.receiving_since):
            if not self._waiting:
                break
            self.release(share)
            share.close(
                f"it sends too slowly: {share.need} of the {share.size} bytes of its request are missing, the next "
                f"piece did not arrive within {self._crowded_timeout:g} s, and other requests wait for the memory"
            )
        self._watch()
