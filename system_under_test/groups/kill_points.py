"""Kill points: the events of a rebalance, in order, at which a tester may kill the coordinator."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.member import Member

PREPARING: Final = "group-preparing"
PARTLY_CALLED: Final = "group-partly-called"
PARTLY_JOINED: Final = "group-partly-joined"
ASSIGNED: Final = "group-assigned"
PARTLY_ASSIGNED: Final = "group-partly-assigned"

FAILOVER_POINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        PREPARING: "a change was noticed",
        PARTLY_CALLED: "one member has been asked to join again, and not yet all",
        PARTLY_JOINED: "a member has joined again, and others have not",
        ASSIGNED: "generation and assignment are in the offsets topic, and no member knows its share yet",
        PARTLY_ASSIGNED: "one member has received its share, and not yet all",
    }
)
"""Events at which a coordinator is killed, to test its successor. Each occurs once in a rebalance."""

DRAFT_FAILOVER_POINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "draft-change": "a change was noticed",
        "draft-notified": "one consumer has been asked to stop",
        "draft-joined": "a consumer has joined again, and others have not",
        "draft-generation": "generation and assignment are in ZooKeeper, and no consumer knows its share yet",
        "draft-answered": "one consumer has received its share, and not yet all",
    }
)
"""Kill points of the draft. The second, the third and the fifth may occur several times in a rebalance."""


class KillPointLog:
    """Emits the kill points of one group, each once in a rebalance."""

    def __init__(self, group_id: str, events: EventLog) -> None:
        self._group_id = group_id
        self._events = events
        self._emitted: set[str] = set()

    def restart(self) -> None:
        """Begins a rebalance."""
        self._emitted.clear()

    def note_notified(self, member: Member, members: Collection[Member], event: str, generation: int) -> None:
        """Notes that a member was notified of a rebalance or of its assignment.

        Emits ``event`` unless all members were notified or have joined again.
        """
        if member.notified:
            return
        member.notified = True
        if not all(other.notified or other.joining is not None for other in members):
            self._emit(event, member, generation)

    def note_joined(self, member: Member, members: Collection[Member], generation: int) -> None:
        """Notes that a member has joined. Emits an event if the member joined again, and not all members have yet.

        A member joins again if a stored generation has it (``announced``).
        """
        if member.announced and any(other.joining is None for other in members):
            self._emit(PARTLY_JOINED, member, generation)

    def _emit(self, event: str, member: Member, generation: int) -> None:
        if event not in self._emitted:
            self._emitted.add(event)
            self._events.emit(event, key=self._group_id, epoch=generation, owner=member.member_id)
