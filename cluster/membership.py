"""What a system says of servers that leave the cluster and come back, for the faults that have them do so."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from assay.cluster.node import Cluster


@runtime_checkable
class SupportsHandover(Protocol):
    """A system whose processes have others lead before they end, and say so."""

    def handed_over(self, line: Mapping[str, Any]) -> tuple[int, Mapping[str, str]] | None:
        """How many keys a process led when it was asked to end, and those that it still leads, each with the reason.

        None for every line of its event log but the one that says that it has done what it could.
        """


class MembershipState(Protocol):
    """The servers that are members of the cluster, and which of them have what; each by its index."""

    @property
    def members(self) -> Collection[int]: ...
    @property
    def replicas(self) -> Mapping[str, Sequence[int]]:
        """Of every key that does not move, also of those that the system keeps for itself."""

    @property
    def moving(self) -> Mapping[str, Collection[int]]:
        """Of every key that moves: all that have, get or give up a replica."""


@runtime_checkable
class SupportsMembership(Protocol):
    """A system whose servers come and go while it runs."""

    async def standing(self, cluster: Cluster) -> MembershipState | None:
        """As the system says at present; None when it does not say."""
