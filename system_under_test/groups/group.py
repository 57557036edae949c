"""One group: its members, their generation, and what each of them was assigned.

The states are Kafka's. A change of the members makes the group *prepare*: everybody is told to join again, and when all
have, or their time is up, the generation rises by one. It is in the offsets topic before any member hears of it, so
that no generation is ever given twice, whoever coordinates. Then the members *sync*: the one that leads assigns, its
assignment is stored, and the group is *stable* until the next change.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.points import ASSIGNED, PARTLY_ASSIGNED, PARTLY_CALLED, PARTLY_JOINED, PREPARING
from assay.system_under_test.groups.records import VALUE, GroupRecord, GroupValue, OffsetValue, StoredMember
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.groups import (
    GroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

NO_GENERATION = -1
LONGEST_REBALANCE = 3600.0
"""Seconds for which a member may have the others wait, whatever it says."""

Store = Callable[[GroupRecord], Awaitable[ErrorCode]]
"""Puts a record into the offsets topic; what members are to be told when that failed, or may have."""
Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


class GroupState(StrEnum):
    """By the names that DescribeGroups gives them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    SYNCING = "AwaitingSync"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupError(Exception):
    """A request about a group is refused; carries Kafka's error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass
class Member:
    """Timeouts in seconds; ``deadline`` on the loop's clock. ``announced``: it was told its id."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: dict[str, bytes]
    assignment: bytes = b""
    announced: bool = False
    inherited: bool = False
    """Loaded: of its protocols only the one that was chosen is known."""
    heard: bool = False
    """What there is to be told now, to join again or what it owns, was handed to its connection."""
    deadline: float = 0.0
    timer: asyncio.TimerHandle | None = None
    joining: asyncio.Future[JoinGroupResponse] | None = None
    syncing: asyncio.Future[SyncGroupResponse] | None = None

    @property
    def waits(self) -> bool:
        """Is somebody there who has asked and is not answered yet?"""
        return any(asked is not None and not asked.done() for asked in (self.joining, self.syncing))

    def same(self, protocols: Mapping[str, bytes]) -> bool:
        """Does it join as it did before, as far as that is known?"""
        known = {name: data for name, data in protocols.items() if name in self.protocols or not self.inherited}
        return known == self.protocols

    def answer_join(self, response: JoinGroupResponse) -> None:
        if self.joining is not None and not self.joining.done():
            self.joining.set_result(response)
        self.joining = None

    def answer_sync(self, code: ErrorCode) -> None:
        if self.syncing is not None and not self.syncing.done():
            assignment = b"" if code else self.assignment
            self.syncing.set_result(SyncGroupResponse(error_code=code, assignment=assignment))
        self.syncing = None


@dataclass
class Group:
    """``offsets`` are those committed, by topic and partition.

    A coordinator's: it ends with :meth:`end` when the coordinator does.
    """

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
    offsets: dict[tuple[str, int], OffsetValue] = field(default_factory=dict)
    pending: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Commits of each that were appended, and of which nobody knows yet what became."""
    _attempted: int = 0
    """The highest generation that may be in the offsets topic."""
    _electing: bool = False
    """The next generation is being written: whoever comes or goes meanwhile has missed it."""
    _changed: bool = False
    _assigning: int = NO_GENERATION
    _limit: asyncio.TimerHandle | None = None
    _noted: set[str] = field(default_factory=set)
    """Events that a rebalance has once, and has had."""

    # -- requests ------------------------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, client_id: str, client_host: str, new_id: str
    ) -> asyncio.Future[JoinGroupResponse]:
        """Answered once the next generation is stored, or at once to a member that has only missed its answer.

        ``new_id`` is for one who is no member yet. Raises :class:`GroupError`: 23, 25.
        """
        known = self.members.get(request.member_id)
        if request.member_id and known is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        if not self._compatible(request, protocols):
            raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        session = request.session_timeout_ms / 1000
        rebalance = session if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms / 1000
        rebalance = min(rebalance, LONGEST_REBALANCE)
        unchanged = known is not None and known.same(protocols)
        if known is None:
            member = Member(new_id, client_id, client_host, session, rebalance, protocols)
            self.members[new_id] = member
            self.protocol_type = request.protocol_type
        else:
            member = known
            member.client_id, member.client_host, member.protocols = client_id, client_host, protocols
            member.inherited = False
            member.session_timeout, member.rebalance_timeout = session, rebalance
        self._hear(member)
        future: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
        if unchanged and (
            self.state is GroupState.SYNCING
            or (self.state is GroupState.STABLE and member.member_id != self.leader)  # a leader wants to assign anew
        ):
            future.set_result(self._joined(member))
            return future
        member.answer_join(_refused(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))  # to a former connection
        member.joining = future
        self.events.emit("group-joined", key=self.group_id, epoch=self.generation, owner=member.member_id)
        if self._electing:
            self._changed = self._changed or not unchanged
        elif self.state is not GroupState.PREPARING:
            self._prepare("a member joins")
        self._note_joined(member)
        self._elect_if_complete()
        return future

    def sync(self, request: SyncGroupRequest) -> asyncio.Future[SyncGroupResponse]:
        """Answered once the leader's assignment is stored. Raises :class:`GroupError`: 22, 25, 27."""
        member = self._member(request.member_id, request.generation_id)
        if self.state is GroupState.PREPARING:
            raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._hear(member)
        future: asyncio.Future[SyncGroupResponse] = asyncio.get_running_loop().create_future()
        if self.state is GroupState.STABLE:
            future.set_result(SyncGroupResponse(error_code=ErrorCode.NONE, assignment=member.assignment))
            return future
        member.answer_sync(ErrorCode.REBALANCE_IN_PROGRESS)  # to a former connection
        member.syncing = future
        if member.member_id == self.leader and self._assigning != self.generation:
            self._assigning = self.generation
            assignments = {given.member_id: given.assignment for given in request.assignments}
            self.spawn(self._assign(self.generation, assignments), f"assignment of {self.group_id}")
        return future

    def heartbeat(self, member_id: str, generation: int) -> None:
        """Raises :class:`GroupError`: 22, 25, and 27 to have the member join again."""
        self._hear(self._member(member_id, generation))
        if self.state is GroupState.PREPARING:
            raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)

    def was_called(self, member_id: str, generation: int) -> None:
        """A member of this generation was handed the answer that has it join again."""
        if self.state is GroupState.PREPARING and not self._electing and generation == self.generation:
            self._note_heard(member_id, PARTLY_CALLED)

    def has_assignment(self, member_id: str, generation: int) -> None:
        """A member of this generation was handed what it owns."""
        if self.state is GroupState.STABLE and generation == self.generation:
            self._note_heard(member_id, PARTLY_ASSIGNED)

    def leave(self, member_id: str) -> None:
        """Raises :class:`GroupError`: 25."""
        if member_id not in self.members:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        self._remove(self.members[member_id], "left")

    def may_commit(self, member_id: str, generation: int) -> None:
        """A commit is a member's, of this generation, or anybody's while there are none: also while that the last has
        left is still being stored.

        Raises :class:`GroupError`: 22, 25, 27.
        """
        if generation < 0 and not self.members and self.state is not GroupState.DEAD:
            return
        self._hear(self._member(member_id, generation))
        if self._electing or self.state is GroupState.SYNCING:
            raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)

    # -- life ----------------------------------------------------------------------------------------------------

    def load(self, value: GroupValue) -> None:
        """As the former coordinator left it. Members that were not assigned anything yet are to join again."""
        self.generation = self._attempted = value.generation
        self.protocol_type, self.protocol, self.leader = value.protocol_type, value.protocol, value.leader
        for stored in value.members:
            member = Member(
                stored.member_id,
                stored.client_id,
                stored.client_host,
                stored.session_timeout / 1000,
                stored.rebalance_timeout / 1000,
                {value.protocol or "": stored.subscription},
                stored.assignment,
                announced=True,
                inherited=True,
                heard=True,
            )
            self.members[member.member_id] = member
            self._hear(member)
        if any(member.assignment for member in self.members.values()):
            self.state = GroupState.STABLE
        elif self.members:
            self._prepare("nothing was assigned yet")

    def record(self, generation: int, assignments: Mapping[str, bytes]) -> GroupRecord:
        members = [
            StoredMember(
                member_id=member.member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=int(member.rebalance_timeout * 1000),
                session_timeout=int(member.session_timeout * 1000),
                subscription=member.protocols.get(self.protocol or "", b""),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        ]
        value = GroupValue(
            version=VALUE,
            protocol_type=self.protocol_type,
            generation=generation,
            protocol=self.protocol,
            leader=self.leader,
            members=members,
        )
        return GroupRecord(self.group_id, value)

    def end(self, code: ErrorCode) -> None:
        """Nobody is answered by this group any more, except now."""
        self.state = GroupState.DEAD
        for member in self.members.values():
            member.answer_join(_refused(member.member_id, code))
            member.answer_sync(code)
            _cancel(member.timer)
        self.members = {}
        _cancel(self._limit)

    @property
    def deletable(self) -> bool:
        """No members, and nothing that anybody committed."""
        busy = self._electing or self.members or self.offsets or any(self.pending.values())
        return self.state is GroupState.EMPTY and not busy

    # -- members ---------------------------------------------------------------------------------------------------

    def _member(self, member_id: str, generation: int) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            raise GroupError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def _compatible(self, request: JoinGroupRequest, protocols: Mapping[str, bytes]) -> bool:
        others = [member for name, member in self.members.items() if name != request.member_id]
        if not protocols:
            return False
        if not others:
            return True
        common = set(protocols).intersection(*(member.protocols for member in others))
        return request.protocol_type == self.protocol_type and bool(common)

    def _hear(self, member: Member) -> None:
        """It lives: its session begins anew."""
        loop = asyncio.get_running_loop()
        member.deadline = loop.time() + member.session_timeout
        if member.timer is not None and member.timer.when() > member.deadline:  # its session is shorter now
            member.timer.cancel()
            member.timer = None
        if member.timer is None:
            member.timer = loop.call_at(member.deadline, self._look_after, member)

    def _look_after(self, member: Member) -> None:
        """One timer for each member, moved on when it fires, not at each heartbeat."""
        member.timer = None
        if self.members.get(member.member_id) is not member:
            return
        loop = asyncio.get_running_loop()
        if member.waits:
            self._hear(member)  # for us
        elif loop.time() < member.deadline:
            member.timer = loop.call_at(member.deadline, self._look_after, member)
        else:
            self._remove(member, "its session is over")

    def _remove(self, member: Member, reason: str) -> None:
        del self.members[member.member_id]
        _cancel(member.timer)
        member.answer_join(_refused(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
        member.answer_sync(ErrorCode.UNKNOWN_MEMBER_ID)
        self.events.emit(
            "group-member-removed", key=self.group_id, epoch=self.generation, owner=member.member_id, reason=reason
        )
        if self._electing:
            self._changed = True
        elif self.state is not GroupState.PREPARING:
            self._prepare(reason)
        self._elect_if_complete()

    # -- amid the members' answers -----------------------------------------------------------------------------------

    def _note_heard(self, member_id: str, event: str) -> None:
        member = self.members.get(member_id)
        if member is None or member.heard:
            return
        member.heard = True
        if not all(other.heard or other.joining is not None for other in self.members.values()):
            self._note(event, member_id)

    def _note_joined(self, member: Member) -> None:
        """A member has joined again, and others have not."""
        waiting = self.state is GroupState.PREPARING and not self._electing
        if waiting and member.announced and any(other.joining is None for other in self.members.values()):
            self._note(PARTLY_JOINED, member.member_id)

    def _note(self, event: str, member_id: str) -> None:
        if event not in self._noted:
            self._noted.add(event)
            self.events.emit(event, key=self.group_id, epoch=self.generation, owner=member_id)

    # -- the next generation -----------------------------------------------------------------------------------------

    def _prepare(self, reason: str) -> None:
        """Everybody is to join again, within the longest time that one of them may take."""
        for member in self.members.values():
            member.answer_sync(ErrorCode.REBALANCE_IN_PROGRESS)
            member.heard = False
        self._noted.clear()
        self.state = GroupState.PREPARING
        self.events.emit(PREPARING, key=self.group_id, epoch=self.generation, reason=reason)
        self._await_joins()

    def _await_joins(self) -> None:
        self._limit_waiting(self._give_up_waiting)

    def _limit_waiting(self, then: Callable[[], None]) -> None:
        longest = max((member.rebalance_timeout for member in self.members.values()), default=0.0)
        _cancel(self._limit)
        self._limit = asyncio.get_running_loop().call_later(longest, then)

    def _give_up_syncing(self) -> None:
        """The leader lives, but does not assign."""
        if self.state is GroupState.SYNCING:
            self._prepare("nothing was assigned in time")
            self._elect_if_complete()

    def _give_up_waiting(self) -> None:
        for member in [member for member in self.members.values() if member.joining is None]:
            if member.member_id in self.members and not self._electing:
                self._remove(member, "it did not join again")
        self._elect_if_complete()

    def _elect_if_complete(self) -> None:
        if self.state is not GroupState.PREPARING or self._electing:
            return
        if any(member.joining is None for member in self.members.values()):
            return
        _cancel(self._limit)
        self._electing, self._changed = True, False
        present = list(self.members.values())
        self.protocol = self._chosen(present)
        if self.leader not in self.members:
            self.leader = present[0].member_id if present else None
        self._attempted = max(self._attempted, self.generation) + 1
        self.spawn(self._elect(self._attempted, present), f"generation of {self.group_id}")

    def _chosen(self, present: Sequence[Member]) -> str | None:
        """The protocol that most members like best among those that all of them know."""
        if not present:
            return None
        common = set(present[0].protocols).intersection(*(member.protocols for member in present))
        votes = Counter(next(name for name in member.protocols if name in common) for member in present)
        return votes.most_common(1)[0][0]

    async def _elect(self, generation: int, present: Sequence[Member]) -> None:
        code = await self.store(self.record(generation, {}))
        self._electing = False
        if self.state is GroupState.DEAD:
            return
        if code:
            self._not_elected(code, present)
            return
        self.generation = generation
        names = [member.member_id for member in present]
        self.events.emit("group-generation", key=self.group_id, epoch=generation, value=len(names), members=names)
        self.state = GroupState.SYNCING if present else GroupState.EMPTY
        if present:
            self._limit_waiting(self._give_up_syncing)
        for member in present:
            member.assignment, member.announced = b"", True
        for member in present:
            if self.members.get(member.member_id) is member:
                self._hear(member)
                member.answer_join(self._joined(member))
        if self._changed:
            self._prepare("members came or went meanwhile")
            self._elect_if_complete()

    def _not_elected(self, code: ErrorCode, present: Sequence[Member]) -> None:
        """The generation may be in the offsets topic or not. Whoever was never told an id joins as somebody else."""
        for member in present:
            member.answer_join(_refused(member.member_id if member.announced else "", code))
            if not member.announced and self.members.pop(member.member_id, None) is not None:
                _cancel(member.timer)
        if self.members:
            self._await_joins()
            self._elect_if_complete()
        else:
            self.state = GroupState.EMPTY

    def _joined(self, member: Member) -> JoinGroupResponse:
        protocol = self.protocol or ""
        members = []
        if member.member_id == self.leader:
            members = [
                GroupMember(member_id=other.member_id, metadata=other.protocols.get(protocol, b""))
                for other in self.members.values()
                if other.announced  # whoever came too late for this generation is not in it
            ]
        return JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=self.generation,
            protocol=protocol,
            leader_id=self.leader or "",
            member_id=member.member_id,
            members=members,
        )

    async def _assign(self, generation: int, assignments: Mapping[str, bytes]) -> None:
        code = await self.store(self.record(generation, assignments))
        if self.state is not GroupState.SYNCING or generation != self.generation:
            return  # whoever waited was told when the group began to prepare
        if code:
            for member in self.members.values():
                member.answer_sync(code)
            self._prepare("the assignment could not be stored")
            self._elect_if_complete()
            return
        self.state = GroupState.STABLE
        _cancel(self._limit)
        self.events.emit(ASSIGNED, key=self.group_id, epoch=generation, value=len(self.members))
        for member in self.members.values():
            member.assignment, member.heard = assignments.get(member.member_id, b""), False
            self._hear(member)
            member.answer_sync(ErrorCode.NONE)


def _refused(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code, generation_id=NO_GENERATION, protocol="", leader_id="", member_id=member_id, members=[]
    )


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
