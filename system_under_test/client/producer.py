"""Producer: sends messages, and reports after an error whether they may have been appended.

As in Kafka 0.8, ``producer.type`` decides when a send returns. Here the class of the configuration selects the type:

- ``sync`` (:class:`ProducerConfig`): returns when the outcome is known, and raises errors
- ``async`` (:class:`AsyncProducerConfig`): returns when the queue has the message; the outcome comes later

All send methods take the topic first, then the key (or the partition), then the value. ``sender`` keeps the order
within each partition. ``queued_sender`` has the queue for ``async``.
"""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from assay.system_under_test.client.callbacks import (
    BatchHandler,
    Callbacks,
    Done,
    Envelope,
    call_logged,
    pass_on,
    set_outcome,
)
from assay.system_under_test.client.config import AsyncProducerConfig, ProducerConfig
from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError, SendFailed, SendUnknown
from assay.system_under_test.client.queued_sender import OutcomeSummary, QueuedSender
from assay.system_under_test.client.sender import ENTRY_OVERHEAD, KeyValue, Sender, check_bytes, pack
from assay.system_under_test.client.traits import CORRECT, ClientTraits
from assay.system_under_test.runtime import Runtime

_NumberedMessage = tuple[int, KeyValue]
_NumberedOutcome = tuple[int, SendResult | ClientError]
"""A message or an outcome, with the message's index in a list."""

__all__ = ["ENTRY_OVERHEAD", "KeyValue", "Producer", "SendResult", "pack"]


class Producer:
    """Producer. ``bootstrap`` is ``host:port,...`` of any brokers.

    ``handler`` and ``callbacks`` get the messages of the queue, so they need an :class:`AsyncProducerConfig`.
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
        """Serializes one message, and appends it to ``partition``; None: the partitioner chooses.

        ``sync``: returns a done future. Raises ``SendFailed``, ``SendUnknown`` and a serializer's errors. If cancelled,
        the outcome is unknown.

        ``async``: waits until there is room in the queue, and returns a future, which the caller may ignore. Messages
        of one caller to one partition keep their order. A message in the queue is not sent if its future is cancelled.
        Raises ``SendFailed`` if there was no room in time, or if the producer is closed.

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
        return set_outcome(asyncio.get_running_loop().create_future(), result)

    async def send_list(
        self, messages: Iterable[tuple[str, Any, Any]], *, on_done: Done | None = None
    ) -> list[asyncio.Future[SendResult]]:
        """Serializes each (topic, key, value), and appends it to the partition that the partitioner chooses.

        ``sync``: messages to one partition are appended adjacently and in order, all or none. Returns done futures with
        the results or errors, because partitions can have different outcomes. Raises a serializer's errors before
        anything is sent. If cancelled, any of the messages may have been appended.

        ``async``: calls :meth:`send` for each in turn and raises nothing. A message without room in time gets
        ``SendFailed``, and the later ones are still tried. If cancelled, some messages may be in the queue.
        """
        if self._queued is not None:
            return await self._queued.send_list(messages, on_done=on_done)
        envelopes = [Envelope(topic, value, key, None, on_done) for topic, key, value in messages]
        futures = []
        for envelope, outcome in zip(envelopes, await self._send_messages(envelopes), strict=True):
            _report(envelope, outcome)
            futures.append(set_outcome(asyncio.get_running_loop().create_future(), outcome))
        return futures

    async def send_set(
        self, topic: str, partition: int, values: Sequence[KeyValue], *, timestamp: int | None = None
    ) -> SendResult:
        """Appends messages (key, value; bytes) to one partition adjacently, all or none.

        ``timestamp`` is their create time in ms; None means now. This method needs ``sync``, because the queue sends
        messages one by one. Raises ``SendFailed`` if the messages were certainly not appended, ``SendUnknown`` if they
        may have been. If cancelled, the outcome is unknown.
        """
        if self._queued is not None:
            raise ValueError("send_set needs producer.type=sync, a ProducerConfig")
        return await self._sender.send(topic, partition, values, timestamp=timestamp)

    async def flush(self) -> OutcomeSummary:
        """Sends all queued messages without lingering, and returns their outcomes; none for ``sync``."""
        return OutcomeSummary() if self._queued is None else await self._queued.flush()

    async def close(self, timeout: float | None = None) -> OutcomeSummary:
        """Closes the producer, which then accepts no more messages.

        ``sync``: does not wait. Messages in a partition's queue fail; the outcomes of unanswered ones are unknown.

        ``async``: waits up to ``timeout`` seconds for outcomes (None: until each message has timed out). Then queued
        messages fail, and the outcomes of unanswered ones are unknown. Returns the outcomes of all messages that had
        none before the call. If cancelled, it stops waiting.
        """
        if self._queued is not None:
            return await self._queued.close(timeout)
        await self._sender.close()
        return OutcomeSummary()

    # -- without a queue -------------------------------------------------------------------------------------------

    async def _send_now(self, envelope: Envelope) -> SendResult:
        deadline = asyncio.get_running_loop().time() + self._config.timeout
        message = self._sender.serialize(envelope.topic, envelope.key, envelope.value)
        partition = envelope.partition
        if partition is None:
            partition = await self._sender.choose_partition(envelope.topic, message[0], deadline)
        return await self._sender.enqueue(envelope.topic, partition, [message], deadline)

    async def _send_messages(self, envelopes: Sequence[Envelope]) -> list[SendResult | ClientError]:
        deadline = asyncio.get_running_loop().time() + self._config.timeout
        by_topic: dict[str, list[_NumberedMessage]] = {}
        for number, envelope in enumerate(envelopes):
            message = self._sender.serialize(envelope.topic, envelope.key, envelope.value)
            by_topic.setdefault(envelope.topic, []).append((number, message))
            check_bytes([message])
        sends = (self._send_to_topic(topic, numbered, deadline) for topic, numbered in by_topic.items())
        outcomes = itertools.chain.from_iterable(await asyncio.gather(*sends))
        return [outcome for _, outcome in sorted(outcomes, key=itemgetter(0))]

    async def _send_to_topic(
        self, topic: str, messages: Sequence[_NumberedMessage], deadline: float
    ) -> list[_NumberedOutcome]:
        """Sends one topic's messages. Sends none of them if the partitions are unknown or the partitioner fails."""
        sets: dict[int, list[_NumberedMessage]] = {}
        try:
            for number, message in messages:
                partition = await self._sender.choose_partition(topic, message[0], deadline)
                sets.setdefault(partition, []).append((number, message))
        except Exception as error:  # noqa: BLE001 - the partitioner may raise anything
            failed = error if isinstance(error, SendFailed) else SendFailed(f"not sent: {error!r}")
            return [(number, failed) for number, _ in messages]
        sends = (self._send_to_partition(topic, *message_set, deadline) for message_set in sets.items())
        return list(itertools.chain.from_iterable(await asyncio.gather(*sends)))

    async def _send_to_partition(
        self, topic: str, partition: int, messages: Sequence[_NumberedMessage], deadline: float
    ) -> list[_NumberedOutcome]:
        try:
            result = await self._sender.enqueue(topic, partition, [message for _, message in messages], deadline)
        except (SendFailed, SendUnknown) as error:
            return [(number, error) for number, _ in messages]
        return [
            (number, replace(result, base_offset=result.base_offset + index) if result.base_offset >= 0 else result)
            for index, (number, _) in enumerate(messages)
        ]


def _report(envelope: Envelope, outcome: SendResult | ClientError) -> None:
    if envelope.on_done is not None:
        call_logged(envelope.on_done, envelope, outcome)
