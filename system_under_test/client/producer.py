"""The producer: sends messages and says what is known after an error.

As in Kafka 0.8, ``producer.type`` decides when a send returns. With ``sync`` it returns when the outcome is known, and
raises an error. With ``async`` it returns as soon as the queue has the message, and the outcome comes later. Here the
type is that of the configuration: :class:`ProducerConfig` or :class:`AsyncProducerConfig`.

All send methods take the topic first, then the key (or the partition), then the value. ``sender`` keeps the order of
each partition, and ``queued_sender`` is the queue in front of it.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from assay.system_under_test.client.callbacks import BatchHandler, Callbacks, Done, Envelope, pass_on
from assay.system_under_test.client.config import AsyncProducerConfig, ProducerConfig
from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError, SendFailed, SendUnknown
from assay.system_under_test.client.message_ledger import Account
from assay.system_under_test.client.queued_sender import QueuedSender
from assay.system_under_test.client.sender import ENTRY_OVERHEAD, KeyValue, Sender, check_bytes, pack
from assay.system_under_test.client.traits import CORRECT, ClientTraits
from assay.system_under_test.runtime import Runtime

_log = logging.getLogger("assay.client")

_Numbered = tuple[int, KeyValue]
_Known = tuple[int, SendResult | ClientError]
"""With the message's place in a list."""

__all__ = ["ENTRY_OVERHEAD", "KeyValue", "Producer", "SendResult", "pack"]


class Producer:
    """``bootstrap`` is ``host:port,...`` of any brokers. ``handler`` and ``callbacks`` see the messages of the queue,
    so they need an :class:`AsyncProducerConfig`.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        config: ProducerConfig | None = None,
        *,
        runtime: Runtime,
        handler: BatchHandler = pass_on,
        callbacks: Callbacks | None = None,
        traits: ClientTraits = CORRECT,
    ) -> None:
        self._config = config = config or ProducerConfig()
        self._queued: QueuedSender | None = None
        if isinstance(config, AsyncProducerConfig):
            self._queued = QueuedSender(
                bootstrap, config, runtime=runtime, handler=handler, callbacks=callbacks, traits=traits
            )
        elif handler is not pass_on or callbacks is not None:
            raise ValueError("a handler and callbacks need a queue: producer.type=async, an AsyncProducerConfig")
        else:
            self._sender = Sender(bootstrap, config, runtime=runtime, traits=traits)

    async def send(
        self, topic: str, key: Any, value: Any, *, partition: int | None = None, on_done: Done | None = None
    ) -> asyncio.Future[SendResult]:
        """Appends one message, serialized, to ``partition``, or to the one that the partitioner chooses.

        ``sync``: returns a done future, and raises ``SendFailed``, ``SendUnknown`` and what a serializer raises.
        Cancelled, it leaves open whether the message was appended.

        ``async``: returns the outcome to come, as soon as there is room in the queue. The caller need not look at it.
        Messages of one caller to one partition keep their order. Cancelled in the queue, a message is not sent. Raises
        ``SendFailed`` if there was no room in time, or if the producer is closed.

        ``on_done`` is called once with the message and its outcome.
        """
        if self._queued is not None:
            return await self._queued.send(topic, key, value, partition=partition, on_done=on_done)
        envelope = Envelope(topic, value, key, partition, on_done)
        try:
            result = await self._send_now(envelope)
        except (SendFailed, SendUnknown) as error:
            _report(envelope, error)
            raise
        _report(envelope, result)
        return _done(result)

    async def send_list(
        self, messages: Iterable[tuple[str, Any, Any]], *, on_done: Done | None = None
    ) -> list[asyncio.Future[SendResult]]:
        """Appends each (topic, key, value), serialized, to the partition that the partitioner chooses.

        ``sync``: messages to one partition are appended as neighbours, all or none, in their order. Returns done
        futures. Errors are in the futures, because another partition may have another outcome. Raises what a
        serializer raises, before anything is sent. Cancelled, it leaves open what was appended.

        ``async``: as :meth:`send` of each in turn. A message that found no room in time has ``SendFailed`` for its
        outcome, and those after it are tried all the same. Nothing is raised. Cancelled, some may be in the queue.
        """
        if self._queued is not None:
            return await self._queued.send_list(messages, on_done=on_done)
        given = [Envelope(topic, value, key, None, on_done) for topic, key, value in messages]
        outcomes = []
        for envelope, known in zip(given, await self._send_all(given), strict=True):
            _report(envelope, known)
            outcomes.append(_done(known))
        return outcomes

    async def send_set(
        self, topic: str, partition: int, values: Sequence[KeyValue], *, timestamp: int | None = None
    ) -> SendResult:
        """Appends ``values`` (key, value; bytes) to one partition as neighbours, all or none, created at ``timestamp``
        (ms; None: now). For ``sync`` alone, because the messages of a queue are sent one by one.

        Raises ``SendFailed`` when they were certainly not appended, ``SendUnknown`` when they may have been. Cancelled,
        it leaves open which.
        """
        if self._queued is not None:
            raise ValueError("send_set needs producer.type=sync, a ProducerConfig")
        return await self._sender.send(topic, partition, values, timestamp=timestamp)

    async def flush(self) -> Account:
        """Waits for the outcomes of all messages that the queue has accepted, and returns them. Nothing lingers until
        then. With ``sync`` there are none.
        """
        return Account() if self._queued is None else await self._queued.flush()

    async def close(self, timeout: float | None = None) -> Account:
        """Accepts no more messages.

        ``sync``: ends at once. A message that waits in a partition's queue fails; one that was sent and not answered is
        unknown.

        ``async``: waits up to ``timeout`` seconds (None: until each has timed out) for outcomes. Messages that still
        wait then fail; those sent and not answered are unknown. Returns the outcomes of all that had none when it was
        called. When it is cancelled, it waits no longer.
        """
        if self._queued is not None:
            return await self._queued.close(timeout)
        await self._sender.close()
        return Account()

    # -- without a queue -------------------------------------------------------------------------------------------

    async def _send_now(self, envelope: Envelope) -> SendResult:
        deadline = asyncio.get_running_loop().time() + self._config.timeout
        message = self._sender.serialized(envelope.topic, envelope.key, envelope.value)
        partition = envelope.partition
        if partition is None:
            partition = await self._sender.partition_for(envelope.topic, message[0], deadline)
        return await self._sender.enqueue(envelope.topic, partition, [message], deadline)

    async def _send_all(self, envelopes: Sequence[Envelope]) -> list[SendResult | ClientError]:
        deadline = asyncio.get_running_loop().time() + self._config.timeout
        by_topic: dict[str, list[_Numbered]] = {}
        for number, envelope in enumerate(envelopes):
            message = self._sender.serialized(envelope.topic, envelope.key, envelope.value)
            by_topic.setdefault(envelope.topic, []).append((number, message))
            check_bytes([message])
        found = await asyncio.gather(*(self._to_topic(topic, each, deadline) for topic, each in by_topic.items()))
        return [outcome for _, outcome in sorted((one for some in found for one in some), key=itemgetter(0))]

    async def _to_topic(self, topic: str, messages: Sequence[_Numbered], deadline: float) -> list[_Known]:
        """Without the topic's partitions, or with a partitioner that fails, nothing of it is sent."""
        sets: dict[int, list[_Numbered]] = {}
        try:
            for number, message in messages:
                partition = await self._sender.partition_for(topic, message[0], deadline)
                sets.setdefault(partition, []).append((number, message))
        except Exception as error:  # noqa: BLE001 - the partitioner's
            failed = error if isinstance(error, SendFailed) else SendFailed(f"not sent: {error!r}")
            return [(number, failed) for number, _ in messages]
        found = await asyncio.gather(*(self._to_partition(topic, *one, deadline) for one in sets.items()))
        return [one for some in found for one in some]

    async def _to_partition(
        self, topic: str, partition: int, messages: Sequence[_Numbered], deadline: float
    ) -> list[_Known]:
        try:
            result = await self._sender.enqueue(topic, partition, [message for _, message in messages], deadline)
        except (SendFailed, SendUnknown) as error:
            return [(number, error) for number, _ in messages]
        return [
            (number, replace(result, base_offset=result.base_offset + place) if result.base_offset >= 0 else result)
            for place, (number, _) in enumerate(messages)
        ]


def _done(known: SendResult | ClientError) -> asyncio.Future[SendResult]:
    future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
    if isinstance(known, SendResult):
        future.set_result(known)
    else:
        future.set_exception(known)
        future.exception()  # the caller need not look at it
    return future


def _report(envelope: Envelope, known: SendResult | ClientError) -> None:
    if envelope.on_done is None:
        return
    try:
        envelope.on_done(envelope, known)
    except Exception:  # noqa: BLE001 - of the caller's own code
        _log.exception("a callback of the producer failed")
