"""Where a coordinator may die in the middle of a rebalance: events of its log, in their order."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

PREPARING: Final = "group-preparing"
PARTLY_CALLED: Final = "group-partly-called"
PARTLY_JOINED: Final = "group-partly-joined"
ASSIGNED: Final = "group-assigned"
PARTLY_ASSIGNED: Final = "group-partly-assigned"

FAILOVER_POINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        PREPARING: "a change was noticed",
        PARTLY_CALLED: "the answer that has a member join again was handed to one, and not yet to all",
        PARTLY_JOINED: "a member has joined again, and others have not",
        ASSIGNED: "generation and assignment are in the offsets topic, and no member has its part of it",
        PARTLY_ASSIGNED: "what it owns was handed to one member, and not yet to all",
    }
)
"""At each of them a coordinator is killed to see what its successor makes of it. Each occurs once in a rebalance."""
