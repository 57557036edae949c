"""Queue of a producer with ``producer.type=async``: a caller continues at once, and the outcome comes later.

1. Messages wait in one queue of limited length.
2. A batch leaves when it is full, or when its first message has waited for ``linger``.
3. The batch passes the handler. Each message is serialized, gets its partition, and joins that partition's queue
   (``produce_queue``), which keeps order, also through retries.

So many batches can be in progress at once. A partition without a leader does not delay others. The exception is a
message whose topic is unknown and whose partition the partitioner must choose.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from assay.system_under_test.client.callbacks import BatchHandler, Callbacks, Done, Envelope, PendingOutcome, pass_on
from assay.system_under_test.client.config import AsyncProducerConfig
from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError, SendFailed, SendUnknown
from assay.system_under_test.client.message_ledger import Ledger, OutcomeCollector, OutcomeSummary
from assay.system_under_test.client.sender import Sender
from assay.system_under_test.client.traits import CORRECT, ClientTraits
from assay.system_under_test.runtime import Runtime

_log = logging.getLogger("assay.client")


class QueuedSender:
    """Queue of a producer. Messages pass ``handler`` and the stages of ``callbacks`` on their way to the partitions."""

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
        sending = replace(config, linger=0.0)  # a message lingers in this queue, and not again in its partition's
        self._sender = Sender(bootstrap, sending, runtime=runtime, traits=traits)
        self._handler = handler
        self._callbacks = callbacks or Callbacks()
        self._room = asyncio.Semaphore(config.queue_size)
        self._seeking_room = 0
        self._no_one_seeks = asyncio.Event()
        self._ledger = Ledger(config.timeout, self._callbacks, self._room.release)
        self._waiting: deque[Envelope] = deque()
        self._company = asyncio.Event()
        """Set when a batch need not wait any longer, because it is full or a caller flushes."""
        self._flushing = 0
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    async def send(
        self, topic: str, key: Any, value: Any, *, partition: int | None = None, on_done: Done | None = None
    ) -> asyncio.Future[SendResult]:
        """Queues a message once there is room, and returns the future of its outcome. ``on_done`` is called with it.

        Messages of one caller to one partition are appended in the order of their ``send``. The outcome is a result,
        ``SendFailed`` or ``SendUnknown``; the caller may ignore it. A message whose future is cancelled in the queue is
        not sent.

        Raises ``SendFailed`` if there was no room in time, or if the producer is closed.
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
        """Calls :meth:`send` for each (topic, key, value) in turn, and raises nothing.

        A message without room in time gets ``SendFailed``, and the later ones are still tried. If cancelled, some may
        be in the queue.
        """
        outcomes = []
        for topic, key, value in messages:
            try:
                outcome = await self.send(topic, key, value, on_done=on_done)
            except SendFailed as error:
                outcome = asyncio.get_running_loop().create_future()
                outcome.set_exception(error)
                outcome.exception()  # marks it as retrieved, because the caller need not await it
            outcomes.append(outcome)
        return outcomes

    async def flush(self) -> OutcomeSummary:
        """Waits for the outcomes of all messages accepted so far, without lingering, and returns them."""
        audit = self._ledger.audit()
        try:
            await self._hurry(audit, None)
        finally:
            self._ledger.end(audit)
        return audit.account

    async def close(self, timeout: float | None = None) -> OutcomeSummary:
        """Accepts no more messages, waits up to ``timeout`` seconds for outcomes, and ends.

        With ``timeout`` None it waits until each message has timed out. Then queued messages fail, and unanswered ones
        are unknown. Returns the outcomes of all messages that had none at the call. If cancelled, it stops waiting.
        """
        if self._closed:
            return OutcomeSummary()
        last: Sequence[Envelope] = ()
        try:
            last = self._callbacks.last_batch()
        except Exception:  # noqa: BLE001 - the caller's own code may raise anything
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

    async def _end(self, audit: OutcomeCollector) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        while self._waiting:
            self._ledger.settle(self._waiting.popleft(), SendFailed("the producer was closed; not sent"))
        await self._sender.close()
        await audit.done.wait()
        if self._seeking_room:  # each caller that now finds room sees the end, and releases the room to the next
            self._no_one_seeks.clear()
            await self._no_one_seeks.wait()
        self._ledger.end(audit)
        self._ledger.call(self._callbacks.close)

    # -- into the queue --------------------------------------------------------------------------------------------

    async def _find_room(self) -> None:
        if not self._room.locked():
            await self._room.acquire()  # does not wait
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
        """Sends batches until the queue is empty."""
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
        """Passes a batch through all stages to the partitions' queues. A message that does not arrive there fails."""
        reason = "it was left out by a stage"
        there: set[PendingOutcome] = set()
        on_the_way = dict.fromkeys(envelope.ticket for envelope in batch)  # a dict, because outcomes keep this order
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
        except Exception as error:  # noqa: BLE001 - the caller's own code may raise anything
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
        except Exception as error:  # noqa: BLE001 - a serializer or the partitioner may raise anything
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

    async def _hurry(self, audit: OutcomeCollector, timeout: float | None) -> None:
        self._flushing += 1
        self._company.set()
        try:
            async with asyncio.timeout(timeout):
                await audit.done.wait()
        except TimeoutError:
            return
        finally:
            self._flushing -= 1
