"""Appends messages to partitions, and reports after an error whether they may have been appended.

- Each partition has one queue and at most one request in flight, which keeps the order.
- Messages that arrive during a request are sent after it, as one message set. The messages of a ``send`` stay together.
- With ``linger`` 0, a single message is sent at once, and batches form only under load.
- Only definite failures are retried. After an unknown outcome, a retry could append the set twice. So the caller
  decides after ``SendUnknown``, or beforehand with ``repeat_unknown``.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from assay.system_under_test.client.config import ProducerConfig
from assay.system_under_test.client.delivery import Delivery, ProduceQueue, SendResult
from assay.system_under_test.client.errors import SendFailed
from assay.system_under_test.client.metadata import Metadata
from assay.system_under_test.client.pool import Pool
from assay.system_under_test.client.traits import CORRECT, ClientTraits
from assay.system_under_test.records import message_set
from assay.system_under_test.runtime import Runtime

KeyValue = tuple[bytes | None, bytes | None]

ENTRY_OVERHEAD = 34
"""Bytes of a message of format 1 without its key and value."""

pack = message_set.pack
"""Builds a message set, for callers that write their own requests."""


class Sender:
    """The part of a producer that sends to partitions. ``bootstrap`` is ``host:port,...`` of any brokers."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        config: ProducerConfig | None = None,
        *,
        runtime: Runtime,
        traits: ClientTraits = CORRECT,
    ) -> None:
        self._config = config = config or ProducerConfig()
        self._runtime = runtime
        self._traits = traits
        self._pool = Pool(config.client_id)
        self._metadata = Metadata(bootstrap, self._pool, runtime.random)
        self._delivery = Delivery(self._metadata, self._pool, config)
        self._queues: dict[tuple[str, int], ProduceQueue] = {}
        self._closed = False

    async def send(
        self, topic: str, partition: int, values: Sequence[KeyValue], *, timestamp: int | None = None
    ) -> SendResult:
        """Appends messages (key, value) adjacently, all or none. ``timestamp``: their create time (ms; None: now).

        Raises ``SendFailed`` if they were certainly not appended, ``SendUnknown`` if they may have been. If cancelled,
        the outcome is unknown.
        """
        deadline = asyncio.get_running_loop().time() + self._config.timeout
        return await self.enqueue(topic, partition, values, deadline, timestamp)

    def enqueue(
        self, topic: str, partition: int, values: Sequence[KeyValue], deadline: float, timestamp: int | None = None
    ) -> asyncio.Future[SendResult]:
        """Queues ``values`` like :meth:`send`, after everything queued before for this partition.

        The outcome comes by ``deadline`` (loop time). Raises ``SendFailed`` at once if the producer is closed.
        """
        if self._closed:
            raise SendFailed("the producer was closed")
        if not values:
            raise ValueError("a message set needs at least one message")
        check_bytes(values)
        created = int(self._runtime.wall_clock() * 1000) if timestamp is None else timestamp
        if not isinstance(created, int) or not -(2**63) <= created < 2**63:
            raise ValueError(f"a timestamp must be a number of milliseconds, not {timestamp!r}")
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._traits.queue(
                topic,
                partition,
                self._delivery,
                self._config.linger,
                self._config.batch_size,
                partial(message_set.pack, magic=self._config.message_format, codec_number=self._config.codec),
            )
            self._queues[topic, partition] = queue
        size = sum(ENTRY_OVERHEAD + len(key or b"") + len(value or b"") for key, value in values)
        return queue.put([(key, value, created) for key, value in values], size, deadline)

    def serialize(self, topic: str, key: object, value: object) -> KeyValue:
        """Serializes key and value. Raises a serializer's errors."""
        return self._config.key_serializer(topic, key), self._config.value_serializer(topic, value)

    async def choose_partition(self, topic: str, key: bytes | None, deadline: float | None = None) -> int:
        """Returns the partition of a message with this key. Raises ``SendFailed`` if the topic cannot be looked up."""
        if deadline is None:
            deadline = asyncio.get_running_loop().time() + self._config.timeout
        count = await self._delivery.await_lookup(self._metadata.partitions(topic, deadline))
        return self._config.partitioner(key, count, self._runtime.random)

    async def close(self) -> None:
        """Closes the sender at once. Queued messages fail definitely; the outcomes of unanswered ones are unknown."""
        self._closed = True
        for queue in self._queues.values():
            await queue.close()
        await self._pool.close()


def check_bytes(values: Sequence[KeyValue]) -> None:
    """Raises ``TypeError`` for a key or value that is not bytes, which would fail the whole message set."""
    if not all(part is None or isinstance(part, bytes) for pair in values for part in pair):
        raise TypeError("keys and values must be bytes or None")
