"""Writes the points of a rebalance at which some members have an answer and others have not, each of them once."""

from collections.abc import Collection

from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.member import Member
from assay.system_under_test.groups.points import PARTLY_JOINED


class PointLog:
    """Of one group."""

    def __init__(self, group_id: str, events: EventLog) -> None:
        self._group_id = group_id
        self._events = events
        self._written: set[str] = set()

    def restart(self) -> None:
        """A rebalance begins."""
        self._written.clear()

    def notified(self, member: Member, members: Collection[Member], event: str, generation: int) -> None:
        """The latest news was handed to the member's connection; ``event`` unless all of them have it."""
        if member.notified:
            return
        member.notified = True
        if not all(other.notified or other.joining is not None for other in members):
            self._write(event, member, generation)

    def joined(self, member: Member, members: Collection[Member], generation: int) -> None:
        """A member has joined again; the point counts while others have not."""
        if member.announced and any(other.joining is None for other in members):
            self._write(PARTLY_JOINED, member, generation)

    def _write(self, event: str, member: Member, generation: int) -> None:
        if event not in self._written:
            self._written.add(event)
            self._events.emit(event, key=self._group_id, epoch=generation, owner=member.member_id)
