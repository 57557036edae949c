"""What a caller of the asynchronous producer may hook into: one message, and each stage of its way through the queue.

The stages are those of Kafka's old asynchronous producer (``kafka.producer.async.CallbackHandler`` of 0.7). They are
plain calls on the event loop and have to be short: nothing else runs during one.
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
class Envelope:
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


Done = Callable[[Envelope, SendResult | ClientError], None]

BatchHandler = Callable[[Sequence[Envelope]], Awaitable[Sequence[Envelope]]]
"""What each batch goes through between the queue and the partitions. It may change envelopes, leave some out (they
fail), add some, and take its time: the next batch waits. What it raises fails the batch."""


async def pass_on(envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
    """The handler that changes nothing."""
    return envelopes


class Callbacks:
    """Does nothing at every stage: override what is needed.

    What raises where envelopes pass (``after_dequeue``, ``before_sending``) fails them; elsewhere it is logged. What
    ``before_enqueue`` raises, ``send`` raises.
    """

    def before_enqueue(self, envelope: Envelope) -> Envelope:
        """What is to be enqueued in its place."""
        return envelope

    def after_enqueue(self, envelope: Envelope, added: bool) -> None:
        """Not added where there was no room in time; then ``on_drop`` follows."""

    def after_dequeue(self, envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
        """What is to go on of a batch that left the queue."""
        return envelopes

    def before_sending(self, envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
        """What is to be sent of what came through the handler."""
        return envelopes

    def after_sending(self, envelope: Envelope, result: SendResult) -> None:
        """It was appended (with acks 0: written to a socket)."""

    def on_drop(self, envelope: Envelope, error: ClientError) -> None:
        """It was not appended (``SendFailed``), or that is not known (``SendUnknown``)."""

    def last_batch(self) -> Sequence[Envelope]:
        """What is still to be sent, after all else, when the producer is closed."""
        return ()

    def close(self) -> None:
        """Nothing follows."""
