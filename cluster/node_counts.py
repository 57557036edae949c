"""How many nodes the roles of a system can have, as the system declares it."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

NodeCounts = Mapping[str, int | Sequence[int]]
"""Role to its number of nodes, or to the numbers that it can have, the usual one first."""


@runtime_checkable
class SupportsNodeCounts(Protocol):
    """A system that declares how many nodes its roles can have; one that has a single node needs no ``--nodes``."""

    @property
    def node_counts(self) -> NodeCounts:
        """A role that is left out can have any number."""
