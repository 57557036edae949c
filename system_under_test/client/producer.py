"""Appends messages to partitions, and says what is known when that goes wrong.

Per partition there is one queue and at most one request in flight, so order is kept; what is sent meanwhile waits and
goes out as one message set (a ``send`` is never split). With ``linger`` 0 a lone message leaves at once and batches
form only under load.

Only definite failures are tried again. After an answer that leaves open whether the set was appended, a repetition
could append it twice; that decision belongs to the caller, who gets ``SendUnknown``, or has taken it beforehand with
``repeat_unknown``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence

from assay.system_under_test.client.defective import queue_class
from assay.system_under_test.client.delivery import Delivery, SendResult
from assay.system_under_test.client.errors import SendFailed
from assay.system_under_test.client.metadata import Metadata
from assay.system_under_test.client.partitioner import Partitioner, hash_partitioner
from assay.system_under_test.client.pool import Pool
from assay.system_under_test.client.produce_queue import ProduceQueue
from assay.system_under_test.client.serializer import Serializer, as_bytes
from assay.system_under_test.runtime import Runtime

KeyValue = tuple[bytes | None, bytes | None]

ENTRY_OVERHEAD = 34
"""Bytes of a message of format 1 besides its key and value."""

__all__ = ["KeyValue", "Producer", "SendResult"]


class Producer:
    """``bootstrap`` is ``host:port,...`` of any brokers.

    ``acks``: -1, 1 or 0; with 0 nobody answers, and a result says no more than that the messages were written to a
    socket. ``timeout``: seconds from ``send`` to its outcome. ``retries``: how often a definite failure is tried again
    within that time; with ``repeat_unknown`` one whose outcome is unknown as well, ``request_timeout`` (seconds) after
    it was sent. ``linger``: seconds to wait for company. ``batch_size``: bytes of a message set to which no further
    ``send`` is added. ``key_serializer`` and ``value_serializer`` are for :meth:`send_keyed`; ``partitioner`` gets the
    serialized key. ``defects``: names of historic defects to be built in, for tests.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        runtime: Runtime,
        acks: int = -1,
        timeout: float = 5.0,
        retries: int = 10,
        repeat_unknown: bool = False,
        request_timeout: float = math.inf,
        linger: float = 0.0,
        batch_size: int = 16_384,
        key_serializer: Serializer = as_bytes,
        value_serializer: Serializer = as_bytes,
        partitioner: Partitioner = hash_partitioner,
        client_id: str = "assay-producer",
        defects: Collection[str] = (),
    ) -> None:
        self._runtime = runtime
        self._timeout = timeout
        self._linger = linger
        self._batch_size = batch_size
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._pool = Pool(client_id)
        self._metadata = Metadata(bootstrap, self._pool, runtime.random)
        self._delivery = Delivery(
            self._metadata, self._pool, acks, retries, repeat_unknown=repeat_unknown, request_timeout=request_timeout
        )
        self._queue_class = queue_class(defects)
        self._queues: dict[tuple[str, int], ProduceQueue] = {}
        self._closed = False

    async def send(self, topic: str, partition: int, values: Sequence[KeyValue]) -> SendResult:
        """Appends ``values`` (key, value) as neighbours, all or none.

        Raises ``SendFailed`` when they were certainly not appended, ``SendUnknown`` when they may have been. Cancelled,
        it leaves open which.
        """
        return await self.enqueue(topic, partition, values, asyncio.get_running_loop().time() + self._timeout)

    def enqueue(
        self, topic: str, partition: int, values: Sequence[KeyValue], deadline: float
    ) -> asyncio.Future[SendResult]:
        """As :meth:`send`, behind all that was enqueued before for this partition; the outcome comes by ``deadline``
        (loop time). Raises ``SendFailed`` at once when the producer is closed.
        """
        if self._closed:
            raise SendFailed("the producer was closed")
        if not values:
            raise ValueError("a message set needs at least one message")
        if not all(part is None or isinstance(part, bytes) for pair in values for part in pair):
            raise TypeError("keys and values are bytes, or None")  # else what is sent with it would fail, too
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queue_class(topic, partition, self._delivery, self._linger, self._batch_size)
            self._queues[topic, partition] = queue
        stamp = int(self._runtime.wall_clock() * 1000)
        size = sum(ENTRY_OVERHEAD + len(key or b"") + len(value or b"") for key, value in values)
        return queue.put([(key, value, stamp) for key, value in values], size, deadline)

    async def send_keyed(self, topic: str, key: object, value: object) -> SendResult:
        """Appends one message, serialized, to the partition that the partitioner chooses. Raises as :meth:`send`, and
        what a serializer raises.
        """
        message = self.serialized(topic, key, value)
        return await self.send(topic, await self.partition_for(topic, message[0]), [message])

    def serialized(self, topic: str, key: object, value: object) -> KeyValue:
        """Raises what a serializer raises."""
        return self._key_serializer(topic, key), self._value_serializer(topic, value)

    async def partition_for(self, topic: str, key: bytes | None, deadline: float | None = None) -> int:
        """Where a message with this key goes. Raises ``SendFailed`` when the topic cannot be looked up."""
        if deadline is None:
            deadline = asyncio.get_running_loop().time() + self._timeout
        count = await self._delivery.known_before_sending(self._metadata.partitions(topic, deadline))
        return self._partitioner(key, count, self._runtime.random)

    async def close(self) -> None:
        """At once: what waits in a queue fails definitely, what was sent and not answered is unknown."""
        self._closed = True
        for queue in self._queues.values():
            await queue.close()
        await self._pool.close()
