"""What a system says of servers that leave the cluster, for the faults that have them leave."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class HandingOver(Protocol):
    """A system whose processes have others lead before they end, and say so."""

    def handed_over(self, line: Mapping[str, Any]) -> tuple[int, Mapping[str, str]] | None:
        """How many keys a process led when it was asked to end, and those that it still leads, each with the reason.

        None for every line of its event log but the one that says that it has done what it could.
        """
