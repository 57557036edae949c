"""What a caller of the asynchronous producer may hook into: one message, and each stage of its way through the queue.

The stages are those of Kafka's old asynchronous producer (``kafka.producer.async.CallbackHandler`` of 0.7). They are
plain calls on the event loop, and short, please: while one runs, nothing else does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """Of one accepted message: its outcome, due by ``deadline`` (loop time)."""

    result: asyncio.Future[SendResult]
    deadline: float
    has_place: bool = False
    """Whether it counts for the bound of the queue; what stages add does not."""


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A message on its way. One made by ``dataclasses.replace`` of another takes that one's place, ticket and all."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    """None: the partitioner chooses."""
    on_done: Done | None = None
    """Called once, with what is known in the end: a result, ``SendFailed`` or ``SendUnknown``."""
    ticket: Ticket | None = None
    """The producer's. One without, that a stage adds, is given one."""


Done = Callable[[Event, SendResult | ClientError], None]

EventHandler = Callable[[Sequence[Event]], Awaitable[Sequence[Event]]]
"""What each batch goes through between the queue and the partitions. It may change events, leave some out (they fail),
add some, and take its time: the next batch waits. What it raises fails the batch."""


async def pass_on(events: Sequence[Event]) -> Sequence[Event]:
    """The event handler that changes nothing."""
    return events


class Callbacks:
    """Does nothing at every stage: override what is needed.

    What raises where events pass (``after_dequeue``, ``before_sending``) fails them; elsewhere it is logged. What
    ``before_enqueue`` raises, ``send`` raises.
    """

    def before_enqueue(self, event: Event) -> Event:
        """What is to be enqueued in its place."""
        return event

    def after_enqueue(self, event: Event, added: bool) -> None:
        """Not added where there was no room in time; then ``on_drop`` follows."""

    def after_dequeue(self, events: Sequence[Event]) -> Sequence[Event]:
        """What is to go on of a batch that left the queue."""
        return events

    def before_sending(self, events: Sequence[Event]) -> Sequence[Event]:
        """What is to be sent of what came through the event handler."""
        return events

    def after_sending(self, event: Event, result: SendResult) -> None:
        """It was appended (with acks 0: written to a socket)."""

    def on_drop(self, event: Event, error: ClientError) -> None:
        """It was not appended (``SendFailed``), or nobody knows (``SendUnknown``)."""

    def last_batch(self) -> Sequence[Event]:
        """What is still to be sent, after all else, when the producer is closed."""
        return ()

    def close(self) -> None:
        """Nothing follows."""
