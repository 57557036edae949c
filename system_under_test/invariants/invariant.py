"""What an invariant is: something that looks at each event, and knows at once when something is as it must never be."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec


class Line(msgspec.Struct, frozen=True):
    """What invariants read of a line of an event log (``assay.system_under_test.events``)."""

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
class Broken:
    """An ``invariant`` that does not hold. ``claim`` is a sentence; ``node`` is the one at fault, as far as that is
    known.
    """

    invariant: str
    claim: str
    node: str
    key: str | None = None
    epoch: int | None = None
    position: int | None = None


class Invariant(Protocol):
    """Of one run. It sees the events of each node in their order, those of different nodes in the order of the world's
    time, but for those of a process that was stopped: they come when it goes on.
    """

    name: str
    looks: int
    """How often something was compared."""

    def event(self, node: str, line: Line) -> Iterator[Broken]:
        """What is broken now."""
