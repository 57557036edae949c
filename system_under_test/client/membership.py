"""Membership of one consumer group: finding its coordinator, joining, heartbeats, and offsets.

Each call ends within ``timeout``. A member learns from a heartbeat, or from any other answer, that it must join again;
until it does its generation is over. The one that leads also looks at its group's topics now and then: when there are
more partitions than it has assigned, its own generation is over for it, and its joining again has the others follow.
A commit says what is known of it: done, certainly not done, or unknown.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from system_under_test.client.addresses import Address, parse_addresses
from system_under_test.client.assignors import ASSIGNORS, Partition
from system_under_test.client.connection import CallError, NotSent
from system_under_test.client.errors import OFFSET_COMMIT_NOT_DONE, ClientError, Outcome, ReadFailed, outcome
from system_under_test.client.metadata import BACK_OFF, Metadata
from system_under_test.client.pool import Pool
from system_under_test.protocol.compiler import decode, encode_bytes
from system_under_test.protocol.consumer import PROTOCOL_TYPE, AssignedTopic, Assignment, Subscription
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.group_offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from system_under_test.protocol.groups import (
    GroupAssignment,
    GroupCoordinatorRequest,
    GroupProtocol,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from system_under_test.protocol.schema import ProtocolError
from system_under_test.runtime import Runtime

_log = logging.getLogger("assay.client")

COMMIT_VERSION: Final = 2
FETCH_VERSION: Final = 1
ATTEMPT: Final = 1.0
"""Seconds that one broker has to say who coordinates, or what partitions there are."""
METADATA_AGE: Final = 5.0
"""Seconds after which the member that leads looks at the topics again (``metadata.max.age.ms``, there 5 minutes)."""
STALE_COORDINATOR: Final = frozenset(
    {ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR_FOR_GROUP, ErrorCode.GROUP_LOAD_IN_PROGRESS}
)
OVER: Final = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS})
"""The generation is, for this member."""


@dataclass(frozen=True, slots=True)
class Position:
    """A committed offset; -1 where none is."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Generation:
    """What a member is part of, and what it owns there."""

    number: int
    member_id: str
    partitions: tuple[Partition, ...]


class CommitFailed(ClientError):
    """``outcome`` says whether the offsets are certainly not committed, or whether nobody knows.

    ``partitions`` says it of each: some may be committed although others are not, and ``outcome`` is unknown then.
    """

    def __init__(
        self,
        message: str,
        known: Outcome,
        partitions: Mapping[Partition, Outcome],
        *,
        error: ErrorCode | None = None,
        node: int | None = None,
    ) -> None:
        super().__init__(message, error=error, node=node)
        self.outcome = known
        self.partitions = partitions


class JoinFailed(ClientError):
    """Not a member within the time; whatever was asked of the coordinator may have happened, and lapses by itself."""


class Membership:
    """Of one member; ``session_timeout`` and ``rebalance_timeout`` in seconds. One call at a time, besides heartbeats.

    The member that leads the group looks every ``metadata_age`` seconds whether there are more partitions, and then has
    the group join again.

    Without ``enter`` it may commit and fetch as one who is no member.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        group: str,
        *,
        runtime: Runtime,
        topics: Sequence[str] = (),
        assignors: Sequence[str] = ("range",),
        session_timeout: float = 6.0,
        rebalance_timeout: float = 10.0,
        timeout: float = 5.0,
        retention: float | None = None,
        metadata_age: float = METADATA_AGE,
        client_id: str = "assay-member",
    ) -> None:
        """``retention``: seconds for which its commits are kept while the group has no members; None: the brokers'."""
        self.group = group
        self.topics = tuple(topics)
        self.generation: Generation | None = None
        """None where it has to join, or never did."""
        self.ended: ErrorCode | None = None
        """Why the generation is over: after REBALANCE_IN_PROGRESS nobody else owns anything of it before the member has
        joined again or its time for that is over; after anything else others may already."""
        self._assignors = tuple(assignors)
        self._session_timeout = session_timeout
        self._rebalance_timeout = rebalance_timeout
        self._timeout = timeout
        self._retention_ms = -1 if retention is None else int(retention * 1000)
        self._member_id = ""
        self._bootstrap = parse_addresses(bootstrap)
        self._random = runtime.random
        self._pool = Pool(client_id)
        # Heartbeats have a connection of their own: a broker answers one request after the other, and a join may wait.
        self._pulse = Pool(f"{client_id}-heartbeat")
        self._metadata = Metadata(bootstrap, self._pool, runtime.random)
        self._coordinator: Address | None = None
        self._metadata_age = metadata_age
        self._assigned_from: Mapping[str, int] = {}
        """How many partitions of each of the group's topics there were to assign, if this member leads."""
        self._tasks: list[asyncio.Task[None]] = []
        self._silent_until = -math.inf

    # -- membership ------------------------------------------------------------------------------------------------

    async def enter(self, timeout: float | None = None) -> Generation:
        """Joins the group, again if need be, and learns what it owns. Raises :class:`JoinFailed`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._timeout if timeout is None else timeout)
        await self._stop_beating()
        self.generation = None
        while True:
            joined = await self._join(deadline)
            assignments = await self._assigned(joined, deadline)
            request = SyncGroupRequest(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=assignments,
            )
            answer = await self._until(request, 0, deadline)
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                self.generation = Generation(joined.generation_id, joined.member_id, _partitions(answer.assignment))
                self._tasks = [loop.create_task(self._beat(self.generation))]
                if assignments:
                    self._tasks.append(loop.create_task(self._watch(self.generation)))
                return self.generation
            self._over(code)
            if code not in OVER:
                raise JoinFailed(f"group {self.group}: the coordinator answered {code.name}", error=code)

    async def leave(self) -> None:
        """Whatever becomes of it: one who says nothing more is taken out in the end."""
        await self._stop_beating()
        self.generation = None
        member_id, self._member_id = self._member_id, ""
        if member_id:
            try:
                await self._ask(LeaveGroupRequest(group_id=self.group, member_id=member_id), 0, self._timeout)
            except CallError as error:
                _log.info("group %s: leaving: %s", self.group, error)

    def fall_silent(self, seconds: float) -> None:
        """No heartbeats for so long: what a process is like that was stopped, to its group."""
        self._silent_until = asyncio.get_running_loop().time() + seconds

    async def close(self) -> None:
        """Without a word to the group."""
        await self._stop_beating()
        await self._pool.close()
        await self._pulse.close()

    async def _join(self, deadline: float) -> JoinGroupResponse:
        subscription = encode_bytes(Subscription(topics=list(self.topics)), 0)
        while True:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=int(self._session_timeout * 1000),
                rebalance_timeout_ms=int(self._rebalance_timeout * 1000),
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[GroupProtocol(name=name, metadata=subscription) for name in self._assignors],
            )
            answer: JoinGroupResponse = await self._until(request, 1, deadline)
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                self._member_id = answer.member_id
                return answer
            self._over(code)
            if code not in OVER:
                raise JoinFailed(f"group {self.group}: the coordinator answered {code.name}", error=code)

    async def _assigned(self, joined: JoinGroupResponse, deadline: float) -> list[GroupAssignment]:
        """What each member gets, if this one leads."""
        if joined.leader_id != joined.member_id:
            return []
        try:
            topics = {m.member_id: decode(Subscription, 0, m.metadata).topics for m in joined.members}
            counts = await self._count({topic for wanted in topics.values() for topic in wanted}, deadline)
        except (ProtocolError, ReadFailed) as error:
            raise JoinFailed(f"group {self.group}: leading it: {error}") from error
        self._assigned_from = counts
        given = ASSIGNORS[joined.protocol](topics, counts)
        return [
            GroupAssignment(member_id=member, assignment=_encoded(partitions)) for member, partitions in given.items()
        ]

    async def _count(self, topics: Collection[str], deadline: float) -> Mapping[str, int]:
        """How many partitions each has now; 0 for what is no topic yet. Raises ``ReadFailed``."""
        wanted = sorted(topics)
        found = (await self._metadata.describe(wanted, deadline)).topics if wanted else {}
        return {topic: len(found[topic].partitions) if topic in found else 0 for topic in wanted}

    async def _watch(self, generation: Generation) -> None:
        """Until there is more to assign than was. Fewer partitions are none to share: a broker may not know all yet."""
        loop = asyncio.get_running_loop()
        while self.generation is generation:
            await asyncio.sleep(self._metadata_age)
            known = self._assigned_from
            try:
                now = await self._count(known, loop.time() + ATTEMPT)
            except ReadFailed as error:
                _log.info("group %s: its topics: %s", self.group, error)
                continue
            if self.generation is generation and any(now[topic] > known[topic] for topic in known):
                _log.info("group %s: there are partitions to share: %s", self.group, now)
                self._over(ErrorCode.REBALANCE_IN_PROGRESS)

    async def _until(self, request: Any, version: int, deadline: float) -> Any:
        """An answer of a coordinator that is one. Raises :class:`JoinFailed` when there is none in time."""
        loop = asyncio.get_running_loop()
        last: object = "nobody coordinates"
        while (left := deadline - loop.time()) > 0:
            try:
                answer = await self._ask(request, version, left)
            except CallError as error:
                last = error
            else:
                code = ErrorCode.of(answer.error_code)
                if code not in STALE_COORDINATOR:
                    return answer
                self._coordinator, last = None, code.name
            await asyncio.sleep(BACK_OFF)
        raise JoinFailed(f"group {self.group}: not a member in time: {last}")

    async def _beat(self, generation: Generation) -> None:
        """Until the generation is over, or so long without an answer that it must be by now."""
        loop = asyncio.get_running_loop()
        heard = loop.time()
        request = HeartbeatRequest(group_id=self.group, generation_id=generation.number, member_id=generation.member_id)
        while self.generation is generation:
            await asyncio.sleep(self._session_timeout / 4)
            if loop.time() < self._silent_until:
                continue
            try:
                code = ErrorCode.of((await self._ask(request, 0, self._session_timeout / 3, self._pulse)).error_code)
            except CallError:
                code = ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
            if self.generation is not generation:
                return
            if code is ErrorCode.NONE:
                heard = loop.time()
            elif code in STALE_COORDINATOR:
                self._coordinator = None
            if code in OVER or loop.time() - heard > self._session_timeout:
                self._over(code)

    async def _stop_beating(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def subscribe(self, topics: Sequence[str]) -> None:
        """From the next time on that it enters, which it has to."""
        self.topics = tuple(topics)
        if self.generation is not None:
            self._over(ErrorCode.REBALANCE_IN_PROGRESS)

    def _over(self, code: ErrorCode) -> None:
        self.generation = None
        self.ended = code
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    # -- offsets ---------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[Partition, Position], generation: Generation | None = None) -> None:
        """In this generation, which is the present one unless told otherwise; without any, as one who is no member.

        Raises :class:`CommitFailed`. Sent once: after an unknown outcome it is for the caller to decide.
        """
        under = self.generation if generation is None else generation
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id=-1 if under is None else under.number,
            member_id="" if under is None else under.member_id,
            retention_time_ms=self._retention_ms,
            topics=[
                OffsetCommitTopic(
                    topic=topic,
                    partitions=[
                        OffsetCommitPartition(partition=index, offset=position.offset, metadata=position.metadata)
                        for (name, index), position in offsets.items()
                        if name == topic
                    ],
                )
                for topic in dict.fromkeys(topic for topic, _ in offsets)
            ],
        )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        while True:
            try:
                answer = await self._ask(request, COMMIT_VERSION, deadline - loop.time())
                break
            except NotSent as error:
                if loop.time() + BACK_OFF >= deadline:
                    raise self._commit_failed(error, dict.fromkeys(offsets, Outcome.NOT_DONE)) from error
                await asyncio.sleep(BACK_OFF)
            except CallError as error:
                raise self._commit_failed(error, dict.fromkeys(offsets, Outcome.UNKNOWN)) from error
        told = {
            (topic.topic, part.partition): ErrorCode.of(part.error_code)
            for topic in answer.topics
            for part in topic.partitions
        }
        codes = set(told.values())
        if codes & STALE_COORDINATOR:
            self._coordinator = None
        if under is self.generation:
            for code in sorted(codes & OVER):
                self._over(code)
        known = {
            partition: outcome(told[partition], OFFSET_COMMIT_NOT_DONE) if partition in told else Outcome.UNKNOWN
            for partition in offsets
        }
        bad = sorted(codes - {ErrorCode.NONE})
        if bad or Outcome.UNKNOWN in known.values():
            what = ", ".join(code.name for code in bad) or "not of all partitions"
            raise self._commit_failed(f"answered {what}", known, bad[0] if bad else None)

    def _commit_failed(
        self, what: object, known: Mapping[Partition, Outcome], error: ErrorCode | None = None
    ) -> CommitFailed:
        alike = set(known.values()) == {Outcome.NOT_DONE}
        whole = Outcome.NOT_DONE if alike else Outcome.UNKNOWN
        return CommitFailed(f"group {self.group}: {what}", whole, known, error=error)

    async def committed(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        """What is committed for each. Raises ``ReadFailed``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        request = OffsetFetchRequest(
            group_id=self.group,
            topics=[
                OffsetFetchTopic(topic=topic, partitions=[index for name, index in partitions if name == topic])
                for topic in dict.fromkeys(topic for topic, _ in partitions)
            ],
        )
        while True:
            problem: ErrorCode | None = None
            said: object = None
            try:
                answer = await self._ask(request, FETCH_VERSION, deadline - loop.time())
                parts = {(topic.topic, part.partition): part for topic in answer.topics for part in topic.partitions}
                bad = sorted({part.error_code for part in parts.values() if part.error_code})
                if not bad and parts.keys() == set(partitions):
                    return {key: Position(part.offset, part.metadata or "") for key, part in parts.items()}
                problem = ErrorCode.of(bad[0]) if bad else ErrorCode.UNKNOWN
                said = problem.name
            except CallError as error:
                said = error
            self._coordinator = None
            if loop.time() + BACK_OFF >= deadline or (problem is not None and problem not in STALE_COORDINATOR):
                raise ReadFailed(f"group {self.group}: offsets: {said}", error=problem)
            await asyncio.sleep(BACK_OFF)

    # -- the coordinator -------------------------------------------------------------------------------------------

    async def _ask(self, request: Any, version: int, left: float, pool: Pool | None = None) -> Any:
        """Raises ``CallError``; then the coordinator is looked for again."""
        deadline = asyncio.get_running_loop().time() + left
        address = await self._find(deadline)
        try:
            connection = await (pool or self._pool).get(address, _left(deadline))
            return await connection.call(request, version, _left(deadline))
        except CallError:
            self._coordinator = None
            raise

    async def _find(self, deadline: float) -> Address:
        """Raises ``NotSent``."""
        if self._coordinator is not None:
            return self._coordinator
        addresses = list(self._bootstrap)
        self._random.shuffle(addresses)
        for address in addresses:
            left = min(ATTEMPT, _left(deadline))
            try:
                connection = await self._pool.get(address, left)
                found = await connection.call(GroupCoordinatorRequest(group_id=self.group), 0, left)
            except CallError:
                continue
            if found.error_code == ErrorCode.NONE:
                self._coordinator = Address(found.host, found.port)
                return self._coordinator
        raise NotSent(f"no broker knows a coordinator of group {self.group}")


def _left(deadline: float) -> float:
    return max(0.0, deadline - asyncio.get_running_loop().time())


def _encoded(partitions: Sequence[Partition]) -> bytes:
    topics = [
        AssignedTopic(topic=topic, partitions=[index for name, index in partitions if name == topic])
        for topic in dict.fromkeys(topic for topic, _ in partitions)
    ]
    return encode_bytes(Assignment(topics=topics), 0)


def _partitions(assignment: bytes) -> tuple[Partition, ...]:
    """An assignment that makes no sense, or is empty, is none."""
    try:
        found = decode(Assignment, 0, assignment) if assignment else Assignment(topics=[])
    except ProtocolError:
        return ()
    return tuple((topic.topic, index) for topic in found.topics for index in topic.partitions)
