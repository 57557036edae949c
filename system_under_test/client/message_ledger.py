"""Ledger of the messages that a producer has accepted. Each message gets one outcome, for each waiting caller."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.system_under_test.client.callbacks import Callbacks, Envelope, PendingOutcome
from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError, SendUnknown

_log = logging.getLogger("assay.client")


@dataclass(slots=True)
class OutcomeSummary:
    """Outcomes of messages: the number appended, those certainly not appended, and those that may have been."""

    appended: int = 0
    failed: list[Envelope] = field(default_factory=list)
    unknown: list[Envelope] = field(default_factory=list)


@dataclass(slots=True)
class OutcomeCollector:
    """Collects the outcomes of the messages that a ``flush`` or ``close`` waits for."""

    tickets: set[PendingOutcome]
    account: OutcomeSummary = field(default_factory=OutcomeSummary)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self, envelope: Envelope, known: SendResult | ClientError) -> None:
        if envelope.ticket not in self.tickets:
            return
        self.tickets.remove(envelope.ticket)
        if isinstance(known, SendResult):
            self.account.appended += 1
        elif isinstance(known, SendUnknown):
            self.account.unknown.append(envelope)
        else:
            self.account.failed.append(envelope)
        if not self.tickets:
            self.done.set()


class Ledger:
    """``open`` holds accepted messages without an outcome. ``timeout`` is in seconds, for each message.

    ``settled`` is called when a message that counts against the queue's limit has its outcome.
    """

    def __init__(self, timeout: float, callbacks: Callbacks, settled: Callable[[], None]) -> None:
        self._timeout = timeout
        self._callbacks = callbacks
        self._settled = settled
        self.open: dict[PendingOutcome, Envelope] = {}
        self._audits: list[OutcomeCollector] = []

    def accept(self, envelope: Envelope, *, has_place: bool) -> Envelope:
        """Returns the envelope with its ticket."""
        ticket = self._ticket(has_place)
        self.open[ticket] = envelope = replace(envelope, ticket=ticket)
        return envelope

    def _ticket(self, has_place: bool) -> PendingOutcome:
        loop = asyncio.get_running_loop()
        return PendingOutcome(loop.create_future(), loop.time() + self._timeout, has_place)

    def with_tickets(self, envelopes: Sequence[Envelope], known: dict[PendingOutcome | None, None]) -> list[Envelope]:
        """Gives every envelope a ticket of its own, because a stage may have added or duplicated envelopes.

        New tickets are added to ``known``.
        """
        seen: set[PendingOutcome] = set()
        found = []
        for envelope in envelopes:
            ticket = envelope.ticket
            if ticket is None or ticket in seen or ticket not in known:
                ticket = self._ticket(has_place=False)
                envelope = replace(envelope, ticket=ticket)
                known[ticket] = None
                for audit in self._audits:
                    audit.tickets.add(ticket)
            self.open[ticket] = envelope
            seen.add(ticket)
            found.append(envelope)
        return found

    def settle(self, envelope: Envelope, known: SendResult | ClientError) -> None:
        """Settles a ticket, once. The callbacks are called before the future of ``send`` is done."""
        ticket = envelope.ticket
        assert ticket is not None
        del self.open[ticket]
        if ticket.has_place:
            self._settled()
        for audit in self._audits:
            audit.enter(envelope, known)
        self.report(envelope, known)
        if ticket.result.done():
            return
        if isinstance(known, SendResult):
            ticket.result.set_result(known)
        else:
            ticket.result.set_exception(known)
            ticket.result.exception()  # marks it as retrieved, because the caller need not await the future

    def report(self, envelope: Envelope, known: SendResult | ClientError) -> None:
        """Calls the callbacks for an outcome."""
        if isinstance(known, SendResult):
            self.call(self._callbacks.after_sending, envelope, known)
        else:
            self.call(self._callbacks.on_drop, envelope, known)
        if envelope.on_done is not None:
            self.call(envelope.on_done, envelope, known)

    def call(self, callback: Callable[..., None], *arguments: Any) -> None:
        try:
            callback(*arguments)
        except Exception:  # noqa: BLE001 - the caller's own code may raise anything
            _log.exception("a callback of the producer failed")

    def audit(self) -> OutcomeCollector:
        """Begins an audit of all open messages; :meth:`end` must end it."""
        audit = OutcomeCollector(set(self.open))
        if not audit.tickets:
            audit.done.set()
        self._audits.append(audit)
        return audit

    def end(self, audit: OutcomeCollector) -> None:
        self._audits.remove(audit)
