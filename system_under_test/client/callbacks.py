"""The hooks of the asynchronous producer: a message, and each stage of its way through the queue.

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
    """The outcome of one accepted message, due by ``deadline`` (loop time)."""

    result: asyncio.Future[SendResult]
    deadline: float
    has_place: bool = False
    """Whether it counts for the bound of the queue; what stages add does not."""


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """A message on its way. One made by ``dataclasses.replace`` of another replaces it and keeps its ticket."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    """None: the partitioner chooses."""
    on_done: Done | None = None
    """Called once, with the outcome: a result, ``SendFailed`` or ``SendUnknown``."""
    ticket: Ticket | None = None
    """Set by the producer; a stage that adds an envelope leaves it out."""


Done = Callable[[Envelope, SendResult | ClientError], None]

BatchHandler = Callable[[Sequence[Envelope]], Awaitable[Sequence[Envelope]]]
"""Called with each batch between the queue and the partitions. It may change envelopes, leave some out (they
fail), add some, and take its time: the next batch waits. What it raises fails the batch."""


async def pass_on(envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
    """The handler that changes nothing."""
    return envelopes


class Callbacks:
    """Does nothing at every stage: override what is needed.

    An exception of ``after_dequeue`` or ``before_sending`` fails the envelopes; ``send`` raises one of
    ``before_enqueue``; all others are logged.
    """

    def before_enqueue(self, envelope: Envelope) -> Envelope:
        """Returns the envelope to enqueue in its place."""
        return envelope

    def after_enqueue(self, envelope: Envelope, added: bool) -> None:
        """Not added where there was no room in time; then ``on_drop`` follows."""

    def after_dequeue(self, envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
        """Returns the envelopes of a batch from the queue that go on."""
        return envelopes

    def before_sending(self, envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
        """Returns the envelopes to send of those that came from the handler."""
        return envelopes

    def after_sending(self, envelope: Envelope, result: SendResult) -> None:
        """It was appended (with acks 0: written to a socket)."""

    def on_drop(self, envelope: Envelope, error: ClientError) -> None:
        """It was not appended (``SendFailed``), or that is not known (``SendUnknown``)."""

    def last_batch(self) -> Sequence[Envelope]:
        """Returns the envelopes to send last when the producer is closed."""
        return ()

    def close(self) -> None:
        """No call follows."""
