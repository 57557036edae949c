"""Optional protocols by which a system shows its state: at rest, at an acknowledgement, and at each logged event."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from assay.cluster.node import Cluster

SeenAtRest = Mapping[str, Any]
"""An observation of a system at rest: a row of the history's data set ``looks``, column to value.

``what`` names the observed object. ``look``, ``time`` and ``ended`` are added. ``zxid`` distinguishes two incarnations.
"""


@runtime_checkable
class SupportsSnapshots(Protocol):
    """A system whose state can be read at rest, to see whether everything that was begun has come to its end."""

    async def look(self, cluster: Cluster, runtime: Any) -> Sequence[SeenAtRest]:
        """Returns the complete state, or raises ``OSError``. ``runtime`` is a client's runtime."""
        ...

    def unsettled(self, seen: Sequence[SeenAtRest], wall_ms: int) -> int:
        """Returns how many of the rows have not come to their end; 0 ends the looks.

        ``wall_ms``: milliseconds since 1970.
        """
        ...


class Inspector(Protocol):
    """Reads the servers' state at this very instant, without requests to them."""

    def acknowledged(self, key: str, position: int) -> Sequence[SeenAtRest]:
        """Returns everything that contradicts the acknowledgement of a send, up to this offset, that just happened."""

    def looked_at(self) -> Sequence[SeenAtRest]:
        """Returns how much was examined, so that "nothing found" can be told apart from "nothing examined"."""


@runtime_checkable
class SupportsInspection(Protocol):
    """A system whose servers can be inspected at an instant."""

    def inspector(self, cluster: Cluster) -> Inspector | None:
        """Returns None if the cluster's nodes cannot be inspected at an instant. Only simulated nodes can."""


class Invariants(Protocol):
    """Checks the system's invariants at each event, on everything that is visible at that instant."""

    def event(self, node: str, line: str) -> Sequence[SeenAtRest]:
        """Returns the invariants violated now that ``node`` has written ``line`` into its event log.

        Each row has the name of the ``invariant``, a sentence (``claim``) and its subject. The method may neither
        change nor await anything.
        """

    def acknowledged(self, key: str, position: int, found: Sequence[SeenAtRest]) -> Sequence[SeenAtRest]:
        """Returns the invariants violated now that a client has received an acknowledgement up to this offset.

        ``found``: the rows of the system's :class:`Inspector`.
        """

    def asserted(self) -> Mapping[str, int]:
        """Returns how often each invariant was checked, by name."""


@runtime_checkable
class SupportsInvariants(Protocol):
    """A system that declares what must hold at every instant."""

    def invariants(self, cluster: Cluster) -> Invariants | None:
        """Returns the invariants of one run; None outside the simulation, because only there state is visible at an
        instant.
        """
