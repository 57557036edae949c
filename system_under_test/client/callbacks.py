"""Hooks of the asynchronous producer: an envelope for each message, and callbacks for each stage of the queue.

The stages are those of Kafka's old asynchronous producer (``kafka.producer.async.CallbackHandler`` of 0.7). Callbacks
run on the event loop and must be short, because nothing else runs meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError

_log = logging.getLogger("assay.client")


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """The identity of one accepted message, with its future outcome, which is due by ``deadline`` (loop time)."""

    result: asyncio.Future[SendResult]
    deadline: float
    takes_slot: bool = False
    """Whether the message counts against the queue's limit. Messages that stages add do not count."""


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """A message in the queue. A stage may replace an envelope by a copy (``dataclasses.replace``) with its ticket."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    """None lets the partitioner choose."""
    on_done: Done | None = None
    """Called once with the outcome: a result, ``SendFailed`` or ``SendUnknown``."""
    ticket: Ticket | None = None
    """Set by the producer. A stage that adds an envelope must leave it None."""


Done = Callable[[Envelope, SendResult | ClientError], None]


def call_logged(callback: Callable[..., None], *arguments: Any) -> None:
    """Calls a callback of the application, and logs the exception that it may raise."""
    try:
        callback(*arguments)
    except Exception:  # noqa: BLE001 - the caller's own code may raise anything
        _log.exception("a callback of the producer failed")


def set_outcome(future: asyncio.Future[SendResult], outcome: SendResult | ClientError) -> asyncio.Future[SendResult]:
    """Sets the result or the error of a future that the caller of ``send`` need not await. Returns the future."""
    if isinstance(outcome, SendResult):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)
        future.exception()  # marks it as retrieved
    return future


BatchHandler = Callable[[Sequence[Envelope]], Awaitable[Sequence[Envelope]]]
"""Called with each batch between the queue and the partitions. It may change, add or remove envelopes; removed ones
fail. The next batch waits for the handler. An exception fails the batch."""


async def pass_on(envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
    """Returns the batch unchanged."""
    return envelopes


class Callbacks:
    """Callbacks that do nothing. Override those that you need.

    ``send`` raises an exception from ``before_enqueue``. An exception from ``after_dequeue`` or ``before_sending``
    fails the envelopes. All others are logged.
    """

    def before_enqueue(self, envelope: Envelope) -> Envelope:
        """Returns the envelope to enqueue in its place."""
        return envelope

    def after_enqueue(self, envelope: Envelope, added: bool) -> None:
        """Called after enqueueing. If there was no room in time, ``added`` is False and ``on_drop`` follows."""

    def after_dequeue(self, envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
        """Returns the envelopes of a dequeued batch that are passed on."""
        return envelopes

    def before_sending(self, envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
        """Returns the envelopes to send, among those from the handler."""
        return envelopes

    def after_sending(self, envelope: Envelope, result: SendResult) -> None:
        """Called when the message was appended (with acks 0: written to a socket)."""

    def on_drop(self, envelope: Envelope, error: ClientError) -> None:
        """Called when the message was not appended (``SendFailed``), or its outcome is unknown (``SendUnknown``)."""

    def last_batch(self) -> Sequence[Envelope]:
        """Returns envelopes to send last when the producer is closed."""
        return ()

    def close(self) -> None:
        """Called last, when the producer is closed."""
