"""What a system may let be seen of itself: at rest, at the instant of an acknowledgement, at each event of a log.

Protocols that a system satisfies in addition to ``System``, as it likes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from assay.cluster.node import Cluster

SeenAtRest = Mapping[str, Any]
"""One thing that was seen of a system at rest: a row of the history's data set ``looks``, column to value, with
``what`` it is; ``look``, ``time`` and ``ended`` are added. ``zxid`` distinguishes one life of it from another.
"""


@runtime_checkable
class SupportsSnapshots(Protocol):
    """A system that can be looked at once it is at rest: has everything that was begun come to its end?"""

    async def look(self, cluster: Cluster, runtime: Any) -> Sequence[SeenAtRest]:
        """Everything there is, or ``OSError``; ``runtime`` is a client's."""
        ...

    def unsettled(self, seen: Sequence[SeenAtRest], wall_ms: int) -> int:
        """How much of that has not come to its end; ``wall_ms``: milliseconds since 1970. 0 ends the looking."""
        ...


class Inspector(Protocol):
    """Sees what the servers have at this very instant, without asking them."""

    def acknowledged(self, key: str, position: int) -> Sequence[SeenAtRest]:
        """What contradicts that a send to a partition was acknowledged, up to this offset, just now."""

    def looked_at(self) -> Sequence[SeenAtRest]:
        """How much was, so that it is known that nothing was found rather than looked for."""


@runtime_checkable
class SupportsInspection(Protocol):
    """A system whose servers can be seen into."""

    def inspector(self, cluster: Cluster) -> Inspector | None:
        """None where the cluster's nodes cannot be seen into at an instant: anywhere but in the simulation."""


class Invariants(Protocol):
    """Looks at each event as it is written, and at whatever can be seen at that instant: does all hold that must?"""

    def event(self, node: str, line: str) -> Sequence[SeenAtRest]:
        """What does not, now that a node has written this line into its event log: rows with the name of the
        ``invariant``, a sentence (``claim``) and what it is about. It may neither change nor await anything.
        """

    def acknowledged(self, key: str, position: int, found: Sequence[SeenAtRest]) -> Sequence[SeenAtRest]:
        """The same, now that a client has learned that its send to a partition was acknowledged, up to this offset;
        ``found``: by the system's :class:`Inspector`.
        """

    def asserted(self) -> Mapping[str, int]:
        """How often each was looked at, by name."""


@runtime_checkable
class SupportsInvariants(Protocol):
    """A system that says what must hold at every instant."""

    def invariants(self, cluster: Cluster) -> Invariants | None:
        """Of one run. None where nothing can be seen at an instant: anywhere but in the simulation."""
