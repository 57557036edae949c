"""The queue of a producer with ``producer.type=async``: a caller goes on at once, and the outcome comes later.

Messages wait in one queue of bounded length. What is there when a batch is full, or its first message has waited for
``linger``, goes through the handler, is serialized, gets its partition, and joins the queue of that partition
(``produce_queue``), where order is kept, through retries as well. So many batches are under way at a time, and a
partition without a leader holds up no other, unless its topic is yet unknown and the partitioner needs to know it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from assay.system_under_test.client.callbacks import BatchHandler, Callbacks, Done, Envelope, Ticket, pass_on
from assay.system_under_test.client.config import AsyncProducerConfig
from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError, SendFailed, SendUnknown
from assay.system_under_test.client.message_ledger import Account, Audit, Ledger
from assay.system_under_test.client.sender import Sender
from assay.system_under_test.client.traits import CORRECT, ClientTraits
from assay.system_under_test.runtime import Runtime

_log = logging.getLogger("assay.client")


class QueuedSender:
    """Messages pass ``handler`` on their way from the queue to the partitions, and the stages of ``callbacks``."""

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
        sending = replace(config, linger=0.0)  # a message lingers in our queue, and not again in its partition's
        self._sender = Sender(bootstrap, sending, runtime=runtime, traits=traits)
        self._handler = handler
        self._callbacks = callbacks or Callbacks()
        self._room = asyncio.Semaphore(config.queue_size)
        self._seeking_room = 0
        self._no_one_seeks = asyncio.Event()
        self._ledger = Ledger(config.timeout, self._callbacks, self._room.release)
        self._waiting: deque[Envelope] = deque()
        self._company = asyncio.Event()
        """Set while a batch need not wait any longer: it is full, or a caller flushes."""
        self._flushing = 0
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    async def send(
        self, topic: str, key: Any, value: Any, *, partition: int | None = None, on_done: Done | None = None
    ) -> asyncio.Future[SendResult]:
        """The outcome to come, as soon as there is room for the message. ``on_done`` is called with it, once.

        Messages of one caller that go to one partition are appended in the order of their ``send``. The outcome is a
        result, ``SendFailed`` or ``SendUnknown``; the caller need not look at it. Cancelled while it waits in the
        queue, a message is not sent.

        Raises ``SendFailed`` when there was no room in time, or the producer is closed.
        """
        if self._closed:
            raise SendFailed("the producer was closed")
        envelope = self._callbacks.before_enqueue(Envelope(topic, value, key, partition, on_done))
        self._seeking_room += 1
        try:
            await self._find_room()
        except SendFailed as error:
            self._ledger.call(self._callbacks.after_enqueue, envelope, False)
            self._ledger.report(envelope, error)
            raise
        finally:
            self._seeking_room -= 1
            if not self._seeking_room:
                self._no_one_seeks.set()
        accepted = self._accept(envelope, has_place=True)
        self._ledger.call(self._callbacks.after_enqueue, accepted, True)
        assert accepted.ticket is not None
        return accepted.ticket.result

    async def send_list(
        self, messages: Iterable[tuple[str, Any, Any]], *, on_done: Done | None = None
    ) -> list[asyncio.Future[SendResult]]:
        """As :meth:`send` of each (topic, key, value) in turn. One that found no room in time has ``SendFailed`` for
        its outcome, and those after it are tried all the same; nothing is raised. Cancelled, some may be in the queue.
        """
        outcomes = []
        for topic, key, value in messages:
            try:
                outcome = await self.send(topic, key, value, on_done=on_done)
            except SendFailed as error:
                outcome = asyncio.get_running_loop().create_future()
                outcome.set_exception(error)
                outcome.exception()  # the caller need not look at it
            outcomes.append(outcome)
        return outcomes

    async def flush(self) -> Account:
        """Waits for the outcomes of all messages accepted so far, and returns them. Nothing lingers until then."""
        audit = self._ledger.audit()
        try:
            await self._hurry(audit, None)
        finally:
            self._ledger.end(audit)
        return audit.account

    async def close(self, timeout: float | None = None) -> Account:
        """Accepts no more messages, waits up to ``timeout`` seconds (None: until each has timed out) for outcomes, and
        ends.

        Messages that still wait then fail; those sent and not answered are unknown. Returns the outcomes of all that
        had none when it was called. When it is cancelled, it waits no longer.
        """
        if self._closed:
            return Account()
        last: Sequence[Envelope] = ()
        try:
            last = self._callbacks.last_batch()
        except Exception:  # noqa: BLE001 - of the caller's own code
            _log.exception("a callback of the producer failed")
        self._closed = True
        for envelope in last:
            self._accept(envelope, has_place=False)
        audit = self._ledger.audit()
        try:
            await self._hurry(audit, timeout)
        finally:
            await self._end(audit)
        return audit.account

    async def _end(self, audit: Audit) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        while self._waiting:
            self._ledger.settle(self._waiting.popleft(), SendFailed("the producer was closed; not sent"))
        await self._sender.close()
        await audit.done.wait()
        if self._seeking_room:  # each that finds some now finds the end as well, and lets the next one in
            self._no_one_seeks.clear()
            await self._no_one_seeks.wait()
        self._ledger.end(audit)
        self._ledger.call(self._callbacks.close)

    # -- into the queue --------------------------------------------------------------------------------------------

    async def _find_room(self) -> None:
        if not self._room.locked():
            await self._room.acquire()  # at once
            return
        if self._config.enqueue_timeout != 0:
            try:
                async with asyncio.timeout(self._config.enqueue_timeout):
                    await self._room.acquire()
            except TimeoutError:
                pass
            else:
                if not self._closed:
                    return
                self._room.release()
                raise SendFailed("the producer was closed; not sent")
        raise SendFailed("the producer's queue is full; not sent")

    def _accept(self, envelope: Envelope, *, has_place: bool) -> Envelope:
        accepted = self._ledger.accept(envelope, has_place=has_place)
        self._waiting.append(accepted)
        if len(self._waiting) >= self._config.batch_count:
            self._company.set()
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work(), name="produce")
        return accepted

    # -- out of it -------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Until the queue is empty."""
        try:
            while self._waiting:
                await self._wait_for_company()
                batch = [self._waiting.popleft() for _ in range(min(self._config.batch_count, len(self._waiting)))]
                await self._pass(batch)
        finally:
            self._worker = None

    async def _wait_for_company(self) -> None:
        ticket = self._waiting[0].ticket
        assert ticket is not None
        left = ticket.deadline - self._config.timeout + self._config.linger - asyncio.get_running_loop().time()
        if left <= 0 or self._flushing or len(self._waiting) >= self._config.batch_count:
            return
        self._company.clear()
        try:
            async with asyncio.timeout(left):
                await self._company.wait()
        except TimeoutError:
            return

    async def _pass(self, batch: Sequence[Envelope]) -> None:
        """Passes a batch through all stages to the partitions' queues. A message that does not get there fails."""
        reason = "it was left out on the way"
        there: set[Ticket] = set()
        on_the_way = dict.fromkeys(envelope.ticket for envelope in batch)  # in their order, which outcomes keep
        try:
            live = [envelope for envelope in batch if envelope.ticket is not None and not envelope.ticket.result.done()]
            live = self._ledger.with_tickets(self._callbacks.after_dequeue(live), on_the_way)
            live = self._ledger.with_tickets(await self._handler(live), on_the_way)
            live = self._ledger.with_tickets(self._callbacks.before_sending(live), on_the_way)
            for envelope in live:
                await self._hand_over(envelope)
                assert envelope.ticket is not None
                there.add(envelope.ticket)
        except asyncio.CancelledError:
            reason = "the producer was closed"
            raise
        except Exception as error:  # noqa: BLE001 - of the caller's own code
            reason = f"a stage failed with {error!r}"
            _log.exception("a stage of the producer's queue failed")
        finally:
            for ticket in on_the_way:
                if ticket not in there and ticket in self._ledger.open:
                    self._ledger.settle(self._ledger.open[ticket], SendFailed(f"not sent: {reason}"))

    async def _hand_over(self, envelope: Envelope) -> None:
        ticket = envelope.ticket
        assert ticket is not None
        try:
            message = self._sender.serialized(envelope.topic, envelope.key, envelope.value)
            partition = envelope.partition
            if partition is None:
                partition = await self._sender.partition_for(envelope.topic, message[0], ticket.deadline)
            outcome = self._sender.enqueue(envelope.topic, partition, [message], ticket.deadline)
        except SendFailed as error:
            self._ledger.settle(envelope, error)
        except Exception as error:  # noqa: BLE001 - a serializer's, or the partitioner's
            self._ledger.settle(envelope, SendFailed(f"not sent: {error!r}"))
        else:
            outcome.add_done_callback(partial(self._arrived, envelope))

    # -- outcomes --------------------------------------------------------------------------------------------------

    def _arrived(self, envelope: Envelope, outcome: asyncio.Future[SendResult]) -> None:
        error = outcome.exception()
        if error is None:
            self._ledger.settle(envelope, outcome.result())
        elif isinstance(error, ClientError):
            self._ledger.settle(envelope, error)
        else:
            self._ledger.settle(envelope, SendUnknown(f"sending it failed with {error!r}"))

    async def _hurry(self, audit: Audit, timeout: float | None) -> None:
        self._flushing += 1
        self._company.set()
        try:
            async with asyncio.timeout(timeout):
                await audit.done.wait()
        except TimeoutError:
            return
        finally:
            self._flushing -= 1
