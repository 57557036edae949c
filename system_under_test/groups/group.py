"""A group: its members, their generation, and their assignments.

The states are Kafka's. A rebalance has these steps:

1. A change of the members makes the group *prepare*: all members must join again.
2. When all have joined, or their time is over, the generation rises by one. It is in the offsets topic before any
   member learns of it, so no generation is used twice, even if another broker becomes the coordinator.
3. The members *sync*: the group's leader assigns, and its assignment is stored.
4. The group is *stable* until the next change.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.kill_points import ASSIGNED, PARTLY_ASSIGNED, PARTLY_CALLED, PREPARING, KillPointLog
from assay.system_under_test.groups.member import NO_GENERATION, Member, build_join_error, read_protocols, read_timeouts
from assay.system_under_test.groups.records import VALUE_VERSION, CommittedOffsets, GroupRecord, GroupValue
from assay.system_under_test.groups.session_timers import SessionTimers
from assay.system_under_test.protocol import groups
from assay.system_under_test.protocol.errors import ErrorCode

Store = Callable[[GroupRecord], Awaitable[ErrorCode]]
"""Writes a record to the offsets topic. Returns an error code for the members if the write has or may have failed."""
Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


class GroupState(StrEnum):
    """States of a group, with their names in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    SYNCING = "AwaitingSync"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupError(Exception):
    """Raised to reject a request about a group; carries Kafka's error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass
class Group:
    """A group. Its coordinator calls :meth:`end` when it stops coordinating."""

    group_id: str
    store: Store
    events: EventLog
    spawn: Spawn
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    _highest_attempted: int = 0
    """The highest generation that may be in the offsets topic."""
    _storing_generation: bool = False
    """Whether the next generation is being written. A member that joins or leaves meanwhile needs another rebalance."""
    _changed: bool = False
    """Whether a member joined or left while the next generation was being written."""
    _assigning_generation: int = NO_GENERATION
    """The last generation whose assignment was stored, or is being stored. A repeated sync stores no second one."""
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self._sessions: SessionTimers[Member] = SessionTimers(self._on_session_expired)
        self._kill_points = KillPointLog(self.group_id, self.events)  # events at which a tester kills the coordinator

    # -- requests ------------------------------------------------------------------------------------------------

    def join(
        self, request: groups.JoinGroupRequest, client_id: str, client_host: str, new_id: str
    ) -> asyncio.Future[groups.JoinGroupResponse]:
        """Adds or updates a member. Returns the future response, which is done when the next generation is stored.

        A member that has only missed its response gets it at once. ``new_id`` is the id for a new member. Raises
        :class:`GroupError`: INCONSISTENT_GROUP_PROTOCOL or UNKNOWN_MEMBER_ID.
        """
        known = self.members.get(request.member_id)
        if request.member_id and known is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        protocols = read_protocols(request)
        if not self._is_compatible(request, protocols):
            raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        unchanged = known is not None and known.joins_unchanged(protocols)
        if known is None:
            member = Member(new_id, client_id, client_host, *read_timeouts(request), protocols)
            self.members[new_id] = member
            self.protocol_type = request.protocol_type
        else:
            member = known
            member.update(request, client_id, client_host)
        self._sessions.renew(member)
        future: asyncio.Future[groups.JoinGroupResponse] = asyncio.get_running_loop().create_future()
        if unchanged and (
            self.state is GroupState.SYNCING
            or (self.state is GroupState.STABLE and member.member_id != self.leader)  # a leader rejoins to assign again
        ):
            future.set_result(self._build_join_response(member))
            return future
        member.reject_join(ErrorCode.REBALANCE_IN_PROGRESS)  # in case a former connection still waits
        member.joining = future
        self.events.emit("group-joined", key=self.group_id, epoch=self.generation, owner=member.member_id)
        if self._storing_generation:
            self._changed = self._changed or not unchanged
        elif self.state is not GroupState.PREPARING:
            self._prepare("a member joins")
        if self._awaits_joins:
            self._kill_points.note_joined(member, self.members.values(), self.generation)
        self._end_joining_if_complete()
        return future

    def sync(self, request: groups.SyncGroupRequest) -> asyncio.Future[groups.SyncGroupResponse]:
        """Returns the future response, which is done when the leader's assignment is stored.

        Raises :class:`GroupError`: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or REBALANCE_IN_PROGRESS.
        """
        member = self._get_member(request.member_id, request.generation_id)
        if self.state is GroupState.PREPARING:
            raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._sessions.renew(member)
        future: asyncio.Future[groups.SyncGroupResponse] = asyncio.get_running_loop().create_future()
        if self.state is GroupState.STABLE:
            future.set_result(groups.SyncGroupResponse(error_code=ErrorCode.NONE, assignment=member.assignment))
            return future
        member.answer_sync(ErrorCode.REBALANCE_IN_PROGRESS)  # in case a former connection still waits
        member.syncing = future
        if member.member_id == self.leader and self._assigning_generation != self.generation:
            self._assigning_generation = self.generation
            assignments = {entry.member_id: entry.assignment for entry in request.assignments}
            self.spawn(self._store_assignment(self.generation, assignments), f"assignment of {self.group_id}")
        return future

    def heartbeat(self, member_id: str, generation: int) -> None:
        """Renews a session. Raises the errors of :meth:`sync`; REBALANCE_IN_PROGRESS: the member must join again."""
        self._sessions.renew(self._get_member(member_id, generation))
        if self.state is GroupState.PREPARING:
            raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)

    def note_rejoin_call_sent(self, member_id: str, generation: int) -> None:
        """Notes that the response was sent that makes a member of this generation join again."""
        if self._awaits_joins and generation == self.generation and member_id in self.members:
            self._kill_points.note_notified(self.members[member_id], self.members.values(), PARTLY_CALLED, generation)

    def note_assignment_sent(self, member_id: str, generation: int) -> None:
        """Notes that a member's assignment in this generation was sent."""
        if self.state is GroupState.STABLE and generation == self.generation and member_id in self.members:
            self._kill_points.note_notified(self.members[member_id], self.members.values(), PARTLY_ASSIGNED, generation)

    def leave(self, member_id: str) -> None:
        """Removes a member. Raises :class:`GroupError`: UNKNOWN_MEMBER_ID."""
        if member_id not in self.members:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        self._remove(self.members[member_id], "left")

    def check_commit(self, member_id: str, generation: int) -> None:
        """Raises the errors of :meth:`sync` unless a commit is allowed.

        A member may commit in its generation. While there are no members, any client may commit with a negative
        generation, even if the empty generation is still being stored.
        """
        if generation < 0 and not self.members and self.state is not GroupState.DEAD:
            return
        self._sessions.renew(self._get_member(member_id, generation))
        if self._storing_generation or self.state is GroupState.SYNCING:
            raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)

    # -- load and end --------------------------------------------------------------------------------------------

    def load(self, value: GroupValue) -> None:
        """Restores the group that a former coordinator stored. If nothing was assigned, all members must join again."""
        self.generation = self._highest_attempted = value.generation
        self.protocol_type, self.protocol, self.leader = value.protocol_type, value.protocol, value.leader
        for stored in value.members:
            member = self.members[stored.member_id] = Member.load(stored, value.protocol or "")
            self._sessions.renew(member)
        if any(member.assignment for member in self.members.values()):
            self.state = GroupState.STABLE
        elif self.members:
            self._prepare("nothing was assigned yet")

    def to_record(self, generation: int, assignments: Mapping[str, bytes]) -> GroupRecord:
        value = GroupValue(
            version=VALUE_VERSION,
            protocol_type=self.protocol_type,
            generation=generation,
            protocol=self.protocol,
            leader=self.leader,
            members=[
                member.to_stored(self.protocol or "", assignments.get(member.member_id, b""))
                for member in self.members.values()
            ],
        )
        return GroupRecord(self.group_id, value)

    def end(self, code: ErrorCode) -> None:
        """Ends the group: answers all waiting requests with ``code`` and removes the members."""
        self.state = GroupState.DEAD
        for member in self.members.values():
            member.reject_join(code)
            member.answer_sync(code)
            self._sessions.stop(member)
        self.members = {}
        self._stop_timer()

    @property
    def deletable(self) -> bool:
        """Whether the group has no members and no committed offsets."""
        return self.state is GroupState.EMPTY and not (self._storing_generation or self.members or self.offsets)

    # -- members ---------------------------------------------------------------------------------------------------

    def _get_member(self, member_id: str, generation: int) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            raise GroupError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def _is_compatible(self, request: groups.JoinGroupRequest, protocols: Mapping[str, bytes]) -> bool:
        others = [member for name, member in self.members.items() if name != request.member_id]
        if not protocols:
            return False
        if not others:
            return True
        common = set(protocols).intersection(*(member.protocols for member in others))
        return request.protocol_type == self.protocol_type and bool(common)

    def _on_session_expired(self, member: Member) -> None:
        self._remove(member, "its session is over")

    def _remove(self, member: Member, reason: str) -> None:
        del self.members[member.member_id]
        self._sessions.stop(member)
        member.reject_join(ErrorCode.UNKNOWN_MEMBER_ID)
        member.answer_sync(ErrorCode.UNKNOWN_MEMBER_ID)
        self.events.emit(
            "group-member-removed",
            key=self.group_id,
            epoch=self.generation,
            owner=member.member_id,
            detail={"reason": reason},
        )
        if self._storing_generation:
            self._changed = True
        elif self.state is not GroupState.PREPARING:
            self._prepare(reason)
        self._end_joining_if_complete()

    # -- the next generation -----------------------------------------------------------------------------------------

    @property
    def _awaits_joins(self) -> bool:
        return self.state is GroupState.PREPARING and not self._storing_generation

    def _prepare(self, reason: str) -> None:
        """Makes all members join again, within the longest rebalance timeout among them."""
        for member in self.members.values():
            member.answer_sync(ErrorCode.REBALANCE_IN_PROGRESS)
            member.notified = False
        self._kill_points.restart()
        self.state = GroupState.PREPARING
        self.events.emit(PREPARING, key=self.group_id, epoch=self.generation, detail={"reason": reason})
        self._start_timer(self._on_join_timeout)

    def _start_timer(self, on_timeout: Callable[[], None]) -> None:
        """Starts the timer with the longest rebalance timeout of the members."""
        seconds = max((member.rebalance_timeout for member in self.members.values()), default=0.0)
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_sync_timeout(self) -> None:
        """Starts a new rebalance, because the leader has not assigned in time."""
        if self.state is GroupState.SYNCING:
            self._prepare("nothing was assigned in time")
            self._end_joining_if_complete()

    def _on_join_timeout(self) -> None:
        """Removes the members that have not joined again in time."""
        for member in [member for member in self.members.values() if member.joining is None]:
            if member.member_id in self.members and not self._storing_generation:
                self._remove(member, "it did not join again")
        self._end_joining_if_complete()

    def _end_joining_if_complete(self) -> None:
        if not self._awaits_joins or any(member.joining is None for member in self.members.values()):
            return
        self._stop_timer()
        self._storing_generation, self._changed = True, False
        present = list(self.members.values())
        self.protocol = _choose_protocol(present)
        if self.leader not in self.members:
            self.leader = present[0].member_id if present else None
        self._highest_attempted = max(self._highest_attempted, self.generation) + 1
        self.spawn(self._store_generation(self._highest_attempted, present), f"generation of {self.group_id}")

    async def _store_generation(self, generation: int, present: Sequence[Member]) -> None:
        code = await self.store(self.to_record(generation, {}))
        self._storing_generation = False
        if self.state is GroupState.DEAD:
            return
        if code:
            self._reject_joins(code, present)
            return
        self.generation = generation
        names = [member.member_id for member in present]
        self.events.emit(
            "group-generation", key=self.group_id, epoch=generation, value=len(names), detail={"members": names}
        )
        self.state = GroupState.SYNCING if present else GroupState.EMPTY
        if present:
            self._start_timer(self._on_sync_timeout)
        for member in present:
            member.assignment, member.announced = b"", True
        for member in present:
            if self.members.get(member.member_id) is member:
                self._sessions.renew(member)
                member.answer_join(self._build_join_response(member))
        if self._changed:
            self._prepare("members came or went meanwhile")
            self._end_joining_if_complete()

    def _reject_joins(self, code: ErrorCode, present: Sequence[Member]) -> None:
        """Rejects the joins after a failed write, which may have taken effect. New members (not ``announced``) lose
        their ids."""
        for member in present:
            member.answer_join(build_join_error(member.member_id if member.announced else "", code))
            if not member.announced and self.members.pop(member.member_id, None) is not None:
                self._sessions.stop(member)
        if self.members:
            self._start_timer(self._on_join_timeout)
            self._end_joining_if_complete()
        else:
            self.state = GroupState.EMPTY

    def _build_join_response(self, member: Member) -> groups.JoinGroupResponse:
        protocol = self.protocol or ""
        members = []
        if member.member_id == self.leader:
            members = [
                groups.GroupMember(member_id=other.member_id, metadata=other.protocols.get(protocol, b""))
                for other in self.members.values()
                if other.announced  # not a member that joined too late for this generation
            ]
        return groups.JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=self.generation,
            protocol=protocol,
            leader_id=self.leader or "",
            member_id=member.member_id,
            members=members,
        )

    async def _store_assignment(self, generation: int, assignments: Mapping[str, bytes]) -> None:
        code = await self.store(self.to_record(generation, assignments))
        if self.state is not GroupState.SYNCING or generation != self.generation:
            return  # the next rebalance has already answered the waiting members
        if code:
            for member in self.members.values():
                member.answer_sync(code)
            self._prepare("the assignment could not be stored")
            self._end_joining_if_complete()
            return
        self.state = GroupState.STABLE
        self._stop_timer()
        self.events.emit(ASSIGNED, key=self.group_id, epoch=generation, value=len(self.members))
        for member in self.members.values():
            member.assignment, member.notified = assignments.get(member.member_id, b""), False
            self._sessions.renew(member)
            member.answer_sync(ErrorCode.NONE)


def _choose_protocol(present: Sequence[Member]) -> str | None:
    """Chooses the protocol that most members prefer among those that all of them support."""
    if not present:
        return None
    common = set(present[0].protocols).intersection(*(member.protocols for member in present))
    votes = Counter(next(name for name in member.protocols if name in common) for member in present)
    return votes.most_common(1)[0][0]
