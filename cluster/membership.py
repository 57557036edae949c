"""Protocols for systems whose servers leave the cluster and come back. Faults on membership use them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from assay.cluster.node import Cluster


@runtime_checkable
class SupportsHandover(Protocol):
    """A system whose processes hand over their leadership before they end, and log that they did."""

    def handed_over(self, line: Mapping[str, Any]) -> tuple[int, Mapping[str, str]] | None:
        """Returns how many keys a process led when it was asked to end, and the keys it still leads with the reasons.

        Returns None for every other line of the event log.
        """


class MembershipState(Protocol):
    """The servers that are members of the cluster, and which servers hold each key. Servers are given by index."""

    @property
    def members(self) -> Collection[int]: ...
    @property
    def replicas(self) -> Mapping[str, Sequence[int]]:
        """Replicas of every key that is not being moved, including the system's internal keys."""

    @property
    def moving(self) -> Mapping[str, Collection[int]]:
        """For each key that is being moved: all servers that hold, receive or give up a replica."""


@runtime_checkable
class SupportsMembership(Protocol):
    """A system whose servers can join and leave while it runs."""

    async def standing(self, cluster: Cluster) -> MembershipState | None:
        """Returns the membership as the system reports it now; None if it does not answer."""
