"""Protocol for systems that declare how many nodes each role can have."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

NodeCounts = Mapping[str, int | Sequence[int]]
"""Maps each role to its number of nodes, or to the allowed numbers with the default first."""


@runtime_checkable
class SupportsNodeCounts(Protocol):
    """A system that declares the node counts of its roles. A system with a single node then needs no ``--nodes``."""

    @property
    def node_counts(self) -> NodeCounts:
        """Allowed node counts. A role that is left out can have any number."""
