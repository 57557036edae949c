"""A producer that takes a message and lets its caller go on: the outcome comes later.

Messages wait in one queue of bounded length. What is there when a batch is full, or its first message has waited for
``linger``, goes through the event handler, is serialized, gets its partition, and joins the queue of that partition
(``produce_queue``), where order is kept, through retries as well. So many batches are under way at a time, and a
partition that nobody leads holds up no other, unless its topic is yet unknown and the partitioner needs to know it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from assay.system_under_test.client.callbacks import Callbacks, Done, Event, EventHandler, Ticket, pass_on
from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError, SendFailed, SendUnknown
from assay.system_under_test.client.partitioner import Partitioner, hash_partitioner
from assay.system_under_test.client.producer import Producer
from assay.system_under_test.client.serializer import Serializer, as_bytes
from assay.system_under_test.runtime import Runtime

_log = logging.getLogger("assay.client")


@dataclass(slots=True)
class Account:
    """What is known of messages: how many were appended, which certainly were not, and which may have been."""

    appended: int = 0
    failed: list[Event] = field(default_factory=list)
    unknown: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class _Audit:
    """Of the messages that somebody waits for."""

    tickets: set[Ticket]
    account: Account = field(default_factory=Account)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self, event: Event, known: SendResult | ClientError) -> None:
        if event.ticket not in self.tickets:
            return
        self.tickets.remove(event.ticket)
        if isinstance(known, SendResult):
            self.account.appended += 1
        elif isinstance(known, SendUnknown):
            self.account.unknown.append(event)
        else:
            self.account.failed.append(event)
        if not self.tickets:
            self.done.set()


class AsyncProducer:
    """Settings that are not here are those of :class:`~assay.system_under_test.client.producer.Producer`.

    ``queue_size``: how many messages may be accepted and without outcome. ``enqueue_timeout``: seconds that ``send``
    waits for room before it drops its message (0: not at all; None: as long as it takes). ``batch_count``: messages
    that are taken out of the queue at once. ``linger``: seconds that the first of them waits for company.
    ``timeout``: seconds from being accepted to the outcome.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        runtime: Runtime,
        acks: int = -1,
        timeout: float = 30.0,
        retries: int = 1_000,
        repeat_unknown: bool = False,
        request_timeout: float = math.inf,
        queue_size: int = 10_000,
        enqueue_timeout: float | None = None,
        batch_count: int = 200,
        batch_size: int = 16_384,
        linger: float = 0.005,
        key_serializer: Serializer = as_bytes,
        value_serializer: Serializer = as_bytes,
        partitioner: Partitioner = hash_partitioner,
        handler: EventHandler = pass_on,
        callbacks: Callbacks | None = None,
        client_id: str = "assay-producer",
        defects: Collection[str] = (),
    ) -> None:
        if queue_size < 1 or batch_count < 1:
            raise ValueError("a queue, and a batch, need room for one message at least")
        self._producer = Producer(
            bootstrap,
            runtime=runtime,
            acks=acks,
            timeout=timeout,
            retries=retries,
            repeat_unknown=repeat_unknown,
            request_timeout=request_timeout,
            batch_size=batch_size,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            client_id=client_id,
            defects=defects,
        )
        self._timeout = timeout
        self._enqueue_timeout = enqueue_timeout
        self._batch_count = batch_count
        self._linger = linger
        self._handler = handler
        self._callbacks = callbacks or Callbacks()
        self._room = asyncio.Semaphore(queue_size)
        self._waiting: deque[Event] = deque()
        self._open: dict[Ticket, Event] = {}
        """All that were accepted and have no outcome."""
        self._company = asyncio.Event()
        """Set while a batch need not wait any longer: it is full, or somebody flushes."""
        self._flushing = 0
        self._worker: asyncio.Task[None] | None = None
        self._audits: list[_Audit] = []
        self._closed = False

    async def send(
        self, topic: str, value: Any, key: Any = None, *, partition: int | None = None, on_done: Done | None = None
    ) -> asyncio.Future[SendResult]:
        """The outcome to come, as soon as there is room for the message. ``on_done`` is called with it, once.

        Messages of one caller that go to one partition are appended in the order of their ``send``. The outcome is a
        result, ``SendFailed`` or ``SendUnknown``; nobody has to look at it. Cancelled while it waits in the queue, a
        message is not sent.

        Raises ``SendFailed`` when there was no room in time, or the producer is closed.
        """
        if self._closed:
            raise SendFailed("the producer was closed")
        event = self._callbacks.before_enqueue(Event(topic, value, key, partition, on_done))
        try:
            await self._find_room()
        except SendFailed as error:
            self._heard(self._callbacks.after_enqueue, event, False)
            self._tell(event, error)
            raise
        ticket = self._accept(event, has_place=True)
        self._heard(self._callbacks.after_enqueue, self._open[ticket], True)
        return ticket.result

    async def flush(self) -> Account:
        """Waits for the outcome of all that was accepted so far, and tells what it is. Nothing lingers meanwhile."""
        audit = self._audit()
        try:
            await self._hurry(audit, None)
        finally:
            self._audits.remove(audit)
        return audit.account

    async def close(self, timeout: float | None = None) -> Account:
        """Takes no more, waits up to ``timeout`` seconds (None: until each has had its time) for outcomes, and ends.

        What still waits then fails, and what was sent and not answered is unknown. Tells what became of all that had no
        outcome when it was called. Cancelled, it waits no longer.
        """
        if self._closed:
            return Account()
        last = self._callbacks.last_batch()
        self._closed = True
        for event in last:
            self._accept(event, has_place=False)
        audit = self._audit()
        try:
            await self._hurry(audit, timeout)
        finally:
            await self._end()
        await audit.done.wait()
        self._audits.remove(audit)
        self._heard(self._callbacks.close)
        return audit.account

    async def _end(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        while self._waiting:
            self._settle(self._waiting.popleft(), SendFailed("the producer was closed; not sent"))
        await self._producer.close()

    # -- into the queue --------------------------------------------------------------------------------------------

    async def _find_room(self) -> None:
        if not self._room.locked():
            await self._room.acquire()  # at once
            return
        if self._enqueue_timeout != 0:
            try:
                async with asyncio.timeout(self._enqueue_timeout):
                    await self._room.acquire()
            except TimeoutError:
                pass
            else:
                if not self._closed:
                    return
                self._room.release()
                raise SendFailed("the producer was closed; not sent")
        raise SendFailed("the producer's queue is full; not sent")

    def _accept(self, event: Event, *, has_place: bool) -> Ticket:
        loop = asyncio.get_running_loop()
        ticket = self._ticket(has_place)
        self._waiting.append(self._issue(event, ticket))
        if len(self._waiting) >= self._batch_count:
            self._company.set()
        if self._worker is None:
            self._worker = loop.create_task(self._work(), name="produce")
        return ticket

    def _ticket(self, has_place: bool) -> Ticket:
        loop = asyncio.get_running_loop()
        return Ticket(loop.create_future(), loop.time() + self._timeout, has_place)

    def _issue(self, event: Event, ticket: Ticket) -> Event:
        self._open[ticket] = event = replace(event, ticket=ticket)
        return event

    # -- out of it -------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Until the queue is empty."""
        try:
            while self._waiting:
                await self._wait_for_company()
                batch = [self._waiting.popleft() for _ in range(min(self._batch_count, len(self._waiting)))]
                await self._pass(batch)
        finally:
            self._worker = None

    async def _wait_for_company(self) -> None:
        ticket = self._waiting[0].ticket
        assert ticket is not None
        left = ticket.deadline - self._timeout + self._linger - asyncio.get_running_loop().time()
        if left <= 0 or self._flushing or len(self._waiting) >= self._batch_count:
            return
        self._company.clear()
        try:
            async with asyncio.timeout(left):
                await self._company.wait()
        except TimeoutError:
            return

    async def _pass(self, batch: Sequence[Event]) -> None:
        """Through all stages up to the partitions' queues. What does not get there fails."""
        reason = "it was left out on the way"
        there: set[Ticket] = set()
        on_the_way = dict.fromkeys(event.ticket for event in batch)  # in their order, which outcomes keep
        try:
            live = [event for event in batch if event.ticket is not None and not event.ticket.result.done()]
            live = self._with_tickets(self._callbacks.after_dequeue(live), on_the_way)
            live = self._with_tickets(await self._handler(live), on_the_way)
            live = self._with_tickets(self._callbacks.before_sending(live), on_the_way)
            for event in live:
                await self._hand_over(event)
                assert event.ticket is not None
                there.add(event.ticket)
        except asyncio.CancelledError:
            reason = "the producer was closed"
            raise
        except Exception as error:  # noqa: BLE001 - of the caller's own code
            reason = f"a stage failed with {error!r}"
            _log.exception("a stage of the producer's queue failed")
        finally:
            for ticket in on_the_way:
                if ticket not in there and ticket in self._open:
                    self._settle(self._open[ticket], SendFailed(f"not sent: {reason}"))

    def _with_tickets(self, events: Sequence[Event], known: dict[Ticket | None, None]) -> list[Event]:
        """Every event with a ticket of its own: a stage may have added some, or made two of one."""
        seen: set[Ticket] = set()
        found = []
        for event in events:
            ticket = event.ticket
            if ticket is None or ticket in seen or ticket not in known:
                ticket = self._ticket(has_place=False)
                event = replace(event, ticket=ticket)
                known[ticket] = None
                for audit in self._audits:
                    audit.tickets.add(ticket)
            self._open[ticket] = event
            seen.add(ticket)
            found.append(event)
        return found

    async def _hand_over(self, event: Event) -> None:
        ticket = event.ticket
        assert ticket is not None
        try:
            message = self._producer.serialized(event.topic, event.key, event.value)
            partition = event.partition
            if partition is None:
                partition = await self._producer.partition_for(event.topic, message[0], ticket.deadline)
            outcome = self._producer.enqueue(event.topic, partition, [message], ticket.deadline)
        except SendFailed as error:
            self._settle(event, error)
        except Exception as error:  # noqa: BLE001 - a serializer's, or the partitioner's
            self._settle(event, SendFailed(f"not sent: {error!r}"))
        else:
            outcome.add_done_callback(partial(self._arrived, event))

    # -- outcomes --------------------------------------------------------------------------------------------------

    def _arrived(self, event: Event, outcome: asyncio.Future[SendResult]) -> None:
        error = outcome.exception()
        if error is None:
            self._settle(event, outcome.result())
        elif isinstance(error, ClientError):
            self._settle(event, error)
        else:
            self._settle(event, SendUnknown(f"sending it failed with {error!r}"))

    def _settle(self, event: Event, known: SendResult | ClientError) -> None:
        """Once for each ticket; the caller's callbacks hear of it before whoever waits for the outcome."""
        ticket = event.ticket
        assert ticket is not None
        del self._open[ticket]
        if ticket.has_place:
            self._room.release()
        for audit in self._audits:
            audit.enter(event, known)
        self._tell(event, known)
        if ticket.result.done():
            return
        if isinstance(known, SendResult):
            ticket.result.set_result(known)
        else:
            ticket.result.set_exception(known)
            ticket.result.exception()  # nobody has to look

    def _tell(self, event: Event, known: SendResult | ClientError) -> None:
        if isinstance(known, SendResult):
            self._heard(self._callbacks.after_sending, event, known)
        else:
            self._heard(self._callbacks.on_drop, event, known)
        if event.on_done is not None:
            self._heard(event.on_done, event, known)

    def _heard(self, callback: Callable[..., None], *told: Any) -> None:
        try:
            callback(*told)
        except Exception:  # noqa: BLE001 - of the caller's own code
            _log.exception("a callback of the producer failed")

    def _audit(self) -> _Audit:
        audit = _Audit(set(self._open))
        if not audit.tickets:
            audit.done.set()
        self._audits.append(audit)
        return audit

    async def _hurry(self, audit: _Audit, timeout: float | None) -> None:
        self._flushing += 1
        self._company.set()
        try:
            async with asyncio.timeout(timeout):
                await audit.done.wait()
        except TimeoutError:
            return
        finally:
            self._flushing -= 1
