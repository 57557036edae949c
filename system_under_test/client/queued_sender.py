"""Queue of a producer with ``producer.type=async``: callers do not wait for the outcome of a message.

1. Messages wait in one queue of limited length.
2. A batch leaves when it is full, or when its first message has waited for ``linger``.
3. The batch passes the handler. Each message is serialized, gets its partition, and joins that partition's queue
   (``delivery``), which keeps the order even if it retries.
4. A ledger has all accepted messages. Each message gets exactly one outcome. Every caller that waits for the message
   gets this outcome.

So several batches can be in progress at once, and a partition without a leader does not delay other partitions. But if
a topic is unknown, the whole queue waits while the partitioner needs its number of partitions.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from assay.system_under_test.client.callbacks import (
    BatchHandler,
    Callbacks,
    Done,
    Envelope,
    Ticket,
    call_logged,
    pass_on,
    set_outcome,
)
from assay.system_under_test.client.config import AsyncProducerConfig
from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError, SendFailed, SendUnknown
from assay.system_under_test.client.sender import Sender
from assay.system_under_test.client.traits import CORRECT, ClientTraits
from assay.system_under_test.runtime import Runtime


@dataclass(slots=True)
class OutcomeSummary:
    """Outcomes of messages: the number appended, those certainly not appended, and those that may have been."""

    appended: int = 0
    failed: list[Envelope] = field(default_factory=list)
    unknown: list[Envelope] = field(default_factory=list)


@dataclass(slots=True)
class OutcomeCollector:
    """Collects the outcomes of the messages that a ``flush`` or ``close`` waits for."""

    tickets: set[Ticket]
    summary: OutcomeSummary = field(default_factory=OutcomeSummary)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def record(self, envelope: Envelope, outcome: SendResult | ClientError) -> None:
        if envelope.ticket not in self.tickets:
            return
        self.tickets.remove(envelope.ticket)
        if isinstance(outcome, SendResult):
            self.summary.appended += 1
        elif isinstance(outcome, SendUnknown):
            self.summary.unknown.append(envelope)
        else:
            self.summary.failed.append(envelope)
        if not self.tickets:
            self.done.set()


class Ledger:
    """The accepted messages. ``open`` has those without an outcome; ``timeout`` is each message's limit in seconds.

    ``release_slot`` is called when a message that counts against the queue's limit has its outcome.
    """

    def __init__(self, timeout: float, callbacks: Callbacks, release_slot: Callable[[], None]) -> None:
        self._timeout = timeout
        self._callbacks = callbacks
        self._release_slot = release_slot
        self.open: dict[Ticket, Envelope] = {}
        self._collectors: list[OutcomeCollector] = []

    def accept(self, envelope: Envelope, *, takes_slot: bool) -> Envelope:
        """Accepts a message, and returns its envelope with a ticket."""
        ticket = self._make_ticket(takes_slot)
        self.open[ticket] = envelope = replace(envelope, ticket=ticket)
        return envelope

    def _make_ticket(self, takes_slot: bool) -> Ticket:
        loop = asyncio.get_running_loop()
        return Ticket(loop.create_future(), loop.time() + self._timeout, takes_slot)

    def ensure_tickets(self, envelopes: Sequence[Envelope], batch: dict[Ticket | None, None]) -> list[Envelope]:
        """Ensures that each envelope has its own ticket, because the handler or a callback may add and copy some.

        ``batch`` has the tickets of the batch; new tickets are added to it.
        """
        seen: set[Ticket] = set()
        ticketed = []
        for envelope in envelopes:
            ticket = envelope.ticket
            if ticket is None or ticket in seen or ticket not in batch:
                ticket = self._make_ticket(takes_slot=False)
                envelope = replace(envelope, ticket=ticket)
                batch[ticket] = None
                for collector in self._collectors:
                    collector.tickets.add(ticket)
            self.open[ticket] = envelope
            seen.add(ticket)
            ticketed.append(envelope)
        return ticketed

    def resolve(self, envelope: Envelope, outcome: SendResult | ClientError) -> None:
        """Sets the outcome of a message. The callbacks are called before the future of ``send`` is done."""
        ticket = envelope.ticket
        assert ticket is not None
        del self.open[ticket]
        if ticket.takes_slot:
            self._release_slot()
        for collector in self._collectors:
            collector.record(envelope, outcome)
        self.report(envelope, outcome)
        if not ticket.result.done():
            set_outcome(ticket.result, outcome)

    def report(self, envelope: Envelope, outcome: SendResult | ClientError) -> None:
        """Calls the callbacks for an outcome."""
        if isinstance(outcome, SendResult):
            call_logged(self._callbacks.after_sending, envelope, outcome)
        else:
            call_logged(self._callbacks.on_drop, envelope, outcome)
        if envelope.on_done is not None:
            call_logged(envelope.on_done, envelope, outcome)

    def begin_collecting(self) -> OutcomeCollector:
        """Begins to collect the outcomes of all open messages, until :meth:`end_collecting`, which must be called."""
        collector = OutcomeCollector(set(self.open))
        if not collector.tickets:
            collector.done.set()
        self._collectors.append(collector)
        return collector

    def end_collecting(self, collector: OutcomeCollector) -> None:
        self._collectors.remove(collector)


_log = logging.getLogger("assay.client")


class QueuedSender:
    """Queue of a producer. After the queue, messages pass ``handler`` and the stages of ``callbacks``."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        config: AsyncProducerConfig | None = None,
        *,
        runtime: Runtime,
        handler: BatchHandler = pass_on,
        callbacks: Callbacks | None = None,
        traits: ClientTraits = CORRECT,
    ) -> None:
        self._config = config = config or AsyncProducerConfig()
        sender_config = replace(config, linger=0.0)  # a message lingers only in this queue, not in its partition's
        self._sender = Sender(bootstrap, sender_config, runtime=runtime, traits=traits)
        self._handler = handler
        self._callbacks = callbacks or Callbacks()
        self._slots = asyncio.Semaphore(config.queue_size)
        self._waiting_for_slot = 0
        self._no_one_waits = asyncio.Event()
        self._ledger = Ledger(config.timeout, self._callbacks, self._slots.release)
        self._waiting: deque[Envelope] = deque()
        self._batch_ready = asyncio.Event()
        """Set when a batch need not wait any longer, because it is full or a caller flushes."""
        self._flushing = 0
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    async def send(
        self, topic: str, key: Any, value: Any, *, partition: int | None = None, on_done: Done | None = None
    ) -> asyncio.Future[SendResult]:
        """Waits for room, queues a message, and returns its future outcome; see ``Producer.send``."""
        if self._closed:
            raise SendFailed("the producer was closed")
        envelope = self._callbacks.before_enqueue(Envelope(topic, value, key, partition, on_done))
        self._waiting_for_slot += 1
        try:
            await self._take_slot()
        except SendFailed as error:
            call_logged(self._callbacks.after_enqueue, envelope, False)
            self._ledger.report(envelope, error)
            raise
        finally:
            self._waiting_for_slot -= 1
            if not self._waiting_for_slot:
                self._no_one_waits.set()
        accepted = self._accept(envelope, takes_slot=True)
        call_logged(self._callbacks.after_enqueue, accepted, True)
        assert accepted.ticket is not None
        return accepted.ticket.result

    async def send_list(
        self, messages: Iterable[tuple[str, Any, Any]], *, on_done: Done | None = None
    ) -> list[asyncio.Future[SendResult]]:
        """Calls :meth:`send` for each (topic, key, value) in turn, and raises nothing; see ``Producer.send_list``."""
        outcomes = []
        for topic, key, value in messages:
            try:
                outcome = await self.send(topic, key, value, on_done=on_done)
            except SendFailed as error:
                outcome = set_outcome(asyncio.get_running_loop().create_future(), error)
            outcomes.append(outcome)
        return outcomes

    async def flush(self) -> OutcomeSummary:
        """Sends all messages accepted so far without lingering, and returns their outcomes."""
        collector = self._ledger.begin_collecting()
        try:
            await self._await_outcomes(collector, None)
        finally:
            self._ledger.end_collecting(collector)
        return collector.summary

    async def close(self, timeout: float | None = None) -> OutcomeSummary:
        """Accepts no more messages, waits up to ``timeout`` seconds for outcomes, and ends; see ``Producer.close``."""
        if self._closed:
            return OutcomeSummary()
        last: Sequence[Envelope] = ()
        try:
            last = self._callbacks.last_batch()
        except Exception:  # noqa: BLE001 - the caller's own code may raise anything
            _log.exception("a callback of the producer failed")
        self._closed = True
        for envelope in last:
            self._accept(envelope, takes_slot=False)
        collector = self._ledger.begin_collecting()
        try:
            await self._await_outcomes(collector, timeout)
        finally:
            await self._end(collector)
        return collector.summary

    async def _end(self, collector: OutcomeCollector) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        while self._waiting:
            self._ledger.resolve(self._waiting.popleft(), SendFailed("the producer was closed; not sent"))
        await self._sender.close()
        await collector.done.wait()
        if self._waiting_for_slot:  # each waiting caller now gets a slot, fails, and releases the slot for the next one
            self._no_one_waits.clear()
            await self._no_one_waits.wait()
        self._ledger.end_collecting(collector)
        call_logged(self._callbacks.close)

    # -- entering the queue ----------------------------------------------------------------------------------------

    async def _take_slot(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()  # does not wait
            return
        if self._config.enqueue_timeout != 0:
            try:
                async with asyncio.timeout(self._config.enqueue_timeout):
                    await self._slots.acquire()
            except TimeoutError:
                pass
            else:
                if not self._closed:
                    return
                self._slots.release()
                raise SendFailed("the producer was closed; not sent")
        raise SendFailed("the producer's queue is full; not sent")

    def _accept(self, envelope: Envelope, *, takes_slot: bool) -> Envelope:
        accepted = self._ledger.accept(envelope, takes_slot=takes_slot)
        self._waiting.append(accepted)
        if len(self._waiting) >= self._config.batch_count:
            self._batch_ready.set()
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work(), name="produce")
        return accepted

    # -- leaving the queue -----------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Sends batches until the queue is empty."""
        try:
            while self._waiting:
                await self._wait_for_batch()
                batch = [self._waiting.popleft() for _ in range(min(self._config.batch_count, len(self._waiting)))]
                await self._process_batch(batch)
        finally:
            self._worker = None

    async def _wait_for_batch(self) -> None:
        ticket = self._waiting[0].ticket
        assert ticket is not None
        left = ticket.deadline - self._config.timeout + self._config.linger - asyncio.get_running_loop().time()
        if left <= 0 or self._flushing or len(self._waiting) >= self._config.batch_count:
            return
        self._batch_ready.clear()
        try:
            async with asyncio.timeout(left):
                await self._batch_ready.wait()
        except TimeoutError:
            return

    async def _process_batch(self, batch: Sequence[Envelope]) -> None:
        """Passes a batch through all stages to the partitions' queues. A message that a stage leaves out fails."""
        reason = "it was left out by a stage"
        enqueued: set[Ticket] = set()
        tickets = dict.fromkeys(envelope.ticket for envelope in batch)  # a dict, because outcomes keep this order
        try:
            live = [envelope for envelope in batch if envelope.ticket is not None and not envelope.ticket.result.done()]
            live = self._ledger.ensure_tickets(self._callbacks.after_dequeue(live), tickets)
            live = self._ledger.ensure_tickets(await self._handler(live), tickets)
            live = self._ledger.ensure_tickets(self._callbacks.before_sending(live), tickets)
            for envelope in live:
                await self._enqueue(envelope)
                assert envelope.ticket is not None
                enqueued.add(envelope.ticket)
        except asyncio.CancelledError:
            reason = "the producer was closed"
            raise
        except Exception as error:  # noqa: BLE001 - the caller's own code may raise anything
            reason = f"a stage failed with {error!r}"
            _log.exception("a stage of the producer's queue failed")
        finally:
            for ticket in tickets:
                if ticket not in enqueued and ticket in self._ledger.open:
                    self._ledger.resolve(self._ledger.open[ticket], SendFailed(f"not sent: {reason}"))

    async def _enqueue(self, envelope: Envelope) -> None:
        ticket = envelope.ticket
        assert ticket is not None
        try:
            message = self._sender.serialize(envelope.topic, envelope.key, envelope.value)
            partition = envelope.partition
            if partition is None:
                partition = await self._sender.choose_partition(envelope.topic, message[0], ticket.deadline)
            outcome = self._sender.enqueue(envelope.topic, partition, [message], ticket.deadline)
        except SendFailed as error:
            self._ledger.resolve(envelope, error)
        except Exception as error:  # noqa: BLE001 - a serializer or the partitioner may raise anything
            self._ledger.resolve(envelope, SendFailed(f"not sent: {error!r}"))
        else:
            outcome.add_done_callback(partial(self._resolve_outcome, envelope))

    # -- outcomes --------------------------------------------------------------------------------------------------

    def _resolve_outcome(self, envelope: Envelope, outcome: asyncio.Future[SendResult]) -> None:
        error = outcome.exception()
        if error is None:
            self._ledger.resolve(envelope, outcome.result())
        elif isinstance(error, ClientError):
            self._ledger.resolve(envelope, error)
        else:
            self._ledger.resolve(envelope, SendUnknown(f"sending it failed with {error!r}"))

    async def _await_outcomes(self, collector: OutcomeCollector, timeout: float | None) -> None:
        self._flushing += 1
        self._batch_ready.set()
        try:
            async with asyncio.timeout(timeout):
                await collector.done.wait()
        except TimeoutError:
            return
        finally:
            self._flushing -= 1
