"""Queue of one partition of a producer: pending sends, batches, and the outcome of each send."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from assay.system_under_test.client.delivery import Delivery, DeliveryState, SendResult
from assay.system_under_test.client.errors import ClientError, SendFailed, SendUnknown
from assay.system_under_test.records.message_set import Record

_log = logging.getLogger("assay.client")


@dataclass(slots=True, eq=False)
class PendingSend:
    """Records that one caller appends, and their outcome."""

    records: list[Record]
    size: int
    deadline: float
    result: asyncio.Future[SendResult] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass
class ProduceQueue:
    """Pending sends for one partition. A task empties the queue and ends.

    The task sends one message set and waits for its outcome, including retries, before the next. So nothing overtakes a
    set that must be sent again (KAFKA-3197). ``pack`` builds a message set from records.
    """

    topic: str
    partition: int
    delivery: Delivery
    linger: float
    batch_size: int
    pack: Callable[[list[Record]], bytes]
    _waiting: deque[PendingSend] = field(default_factory=deque)
    _worker: asyncio.Task[None] | None = None

    def put(self, records: list[Record], size: int, deadline: float) -> asyncio.Future[SendResult]:
        """Queues records and returns their outcome, which comes by ``deadline`` (loop time) and may be an error."""
        entry = PendingSend(records, size, deadline)
        self._waiting.append(entry)
        if self._worker is None:
            name = f"produce {self.topic}-{self.partition}"
            self._worker = asyncio.get_running_loop().create_task(self._work(), name=name)
        return entry.result

    async def close(self) -> None:
        """Fails the pending sends without waiting for any outcome."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        while self._waiting:
            self._settle([self._waiting.popleft()], SendFailed("the producer was closed; not sent"))

    async def _work(self) -> None:
        try:
            if self.linger:
                await asyncio.sleep(self.linger)
            while self._waiting:
                await self._send_batch(self._take())
        finally:
            self._worker = None

    def _take(self) -> list[PendingSend]:
        """Takes the sends of one message set, and drops those that were cancelled or timed out in the queue."""
        now = asyncio.get_running_loop().time()
        batch: list[PendingSend] = []
        size = 0
        while self._waiting and (not batch or size + self._waiting[0].size <= self.batch_size):
            entry = self._waiting.popleft()
            if entry.deadline <= now:
                self._settle([entry], SendFailed(f"{self.topic}-{self.partition}: not sent in time"))
            elif not entry.result.done():
                batch.append(entry)
                size += entry.size
        return batch

    async def _send_batch(self, batch: list[PendingSend]) -> None:
        if not batch:
            return
        way = DeliveryState()
        try:
            records = self.pack([record for entry in batch for record in entry.records])
            deadline = min(entry.deadline for entry in batch)
            result = await self.delivery.deliver(self.topic, self.partition, records, deadline, way)
        except asyncio.CancelledError:
            unknown = SendUnknown("the producer was closed before the answer came")
            self._settle(batch, unknown if way.in_doubt else SendFailed("the producer was closed; not sent"))
            raise
        except Exception as error:  # noqa: BLE001 - later sends must continue
            if not isinstance(error, ClientError):
                _log.exception("%s-%s: sending failed", self.topic, self.partition)
            self._settle(batch, error)
        else:
            offset = result.base_offset
            for entry in batch:
                if not entry.result.done():
                    entry.result.set_result(SendResult(offset, result.node))
                offset += len(entry.records) if result.base_offset >= 0 else 0

    @staticmethod
    def _settle(batch: list[PendingSend], error: Exception) -> None:
        for entry in batch:
            if not entry.result.done():
                entry.result.set_exception(error)
