"""Purgatory: requests that wait for a partition. Producers wait for the high watermark, readers for new records.

A waiting producer is an entry in a heap, not a task. A change of role or epoch first completes all producers' waits
with NOT_LEADER_FOR_PARTITION (``Partition.end_term``). Otherwise a replica that lost and regained leadership could
acknowledge another leader's records at the same offsets.
"""

import asyncio
import heapq

from assay.system_under_test.protocol.errors import ErrorCode

MAX_WAIT = 60.0
"""Maximum seconds that a request may wait. Its client may be gone, and its connection counts against a limit."""
MIN_CLEAN_UP = 64
"""With fewer waiting producers, expired ones are not removed."""


def to_wait_seconds(milliseconds: int) -> float:
    """Returns the seconds for a time limit from the wire, which may be negative or weeks."""
    return min(max(0, milliseconds) / 1000, MAX_WAIT)


class WaitingProducers:
    """The producers that wait for one partition, ordered by the offset that the high watermark must reach."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[ErrorCode]]] = []
        self._count = 0
        self._clean_up_at = MIN_CLEAN_UP

    def add(self, required: int) -> asyncio.Future[ErrorCode]:
        """Returns a future that gets NONE when the high watermark reaches ``required``, or an error by ``fail``."""
        if len(self._heap) >= self._clean_up_at:
            self._remove_expired()
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._heap, (required, self._count, future))
        return future

    def _remove_expired(self) -> None:
        """Removes expired producers. Called each time the heap has doubled.

        Otherwise they would stay until the high watermark reaches their offset, which may never happen.
        """
        self._heap = [entry for entry in self._heap if not entry[2].done()]
        heapq.heapify(self._heap)
        self._clean_up_at = max(MIN_CLEAN_UP, 2 * len(self._heap))

    def __len__(self) -> int:
        """Returns the number of producers, including expired ones."""
        return len(self._heap)

    def advance(self, high_watermark: int) -> None:
        heap = self._heap
        while heap and (heap[0][0] <= high_watermark or heap[0][2].done()):
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        waiting, self._heap = self._heap, []
        for _, _, future in sorted(waiting):
            if not future.done():
                future.set_result(error)


class WaitingReaders:
    """The readers that wait for one partition. Each waits for the next change and then reads again."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    def add(self, future: asyncio.Future[None]) -> None:
        self._waiting[future] = None

    def discard(self, future: asyncio.Future[None]) -> None:
        self._waiting.pop(future, None)

    def wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for future in waiting:
                if not future.done():
                    future.set_result(None)


def expire(future: asyncio.Future[ErrorCode]) -> None:
    """Ends a producer's wait when its request times out. Its records are appended, and may still be committed."""
    if not future.done():
        future.set_result(ErrorCode.REQUEST_TIMED_OUT)


def wake(future: asyncio.Future[None]) -> None:
    """Ends a reader's wait."""
    if not future.done():
        future.set_result(None)
