"""The interface of an invariant, which gets each event and reports violations at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec


class EventLine(msgspec.Struct, frozen=True):
    """The fields of a line of an event log (``assay.system_under_test.events``) that invariants read."""

    event: str
    broker: int
    incarnation: int
    time: float = 0.0
    key: str | None = None
    topic_zxid: int | None = None
    epoch: int | None = None
    controller_epoch: int | None = None
    value: int | None = None
    position: int | None = None
    high_watermark: int | None = None
    isr: Sequence[int] | None = None
    unclean: bool | None = None
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class InvariantViolation:
    """A violation of ``invariant``. ``claim`` is a sentence; ``node`` is the node at fault, as far as known."""

    invariant: str
    claim: str
    node: str
    key: str | None = None
    epoch: int | None = None
    position: int | None = None


class Invariant(Protocol):
    """An invariant of one run. It gets the events of all nodes in the order of simulated time.

    But events of a paused process arrive only when the process continues.
    """

    name: str
    checks: int
    """How often the invariant was checked."""

    def event(self, node: str, line: EventLine) -> Iterator[InvariantViolation]:
        """Returns the violations that this event shows."""
