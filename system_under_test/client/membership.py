"""Membership of one consumer group: joins, heartbeats and offsets.

- Each call ends within ``timeout``, except for a join, which waits for other members.
- The response to a heartbeat, or to any other request, tells a member to join again. Its generation is then over.
- The group's leader also checks the topics at intervals. If there are more partitions than it has assigned, it joins
  again, which makes the other members join again, too.
- The outcome of a commit is done, certainly not done, or unknown.
"""

import asyncio
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from assay.system_under_test.assignors import group_by_topic
from assay.system_under_test.client.assignors import ASSIGNORS, Partition
from assay.system_under_test.client.config import MemberConfig
from assay.system_under_test.client.connection import CallError
from assay.system_under_test.client.coordinated import (
    ATTEMPT_TIMEOUT,
    GENERATION_OVER_ERRORS,
    STALE_COORDINATOR,
    CommitFailed,
    CoordinatorClient,
    Generation,
    JoinFailed,
    Position,
)
from assay.system_under_test.client.errors import ReadFailed
from assay.system_under_test.client.metadata import BACK_OFF, Metadata
from assay.system_under_test.client.pool import Bootstrap
from assay.system_under_test.protocol import groups
from assay.system_under_test.protocol.compiler import decode, encode_bytes
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.groups import PROTOCOL_TYPE, AssignedTopic, Assignment, Subscription
from assay.system_under_test.protocol.schema import ProtocolError
from assay.system_under_test.runtime import Runtime

_log = logging.getLogger("assay.client")

__all__ = ["CommitFailed", "Generation", "JoinFailed", "Membership", "Position"]


JOIN_TIMEOUT_FACTOR: Final = 1.25
"""Time limit of a join as a multiple of the rebalance timeout. Other members may join until the rebalance timeout, and
then the generation must be stored. If a new member gave up before that, it would join again under a new id, and no
member would read the partitions that the first id gets."""


class Membership(CoordinatorClient):
    """A member. Only one call at a time is allowed; heartbeats run in the background.

    If the member leads the group, it checks every ``metadata_age`` seconds whether there are more partitions, and then
    starts a rebalance. Without ``enter``, commits and fetches are those of a client without membership.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        group: str,
        topics: Sequence[str] = (),
        config: MemberConfig | None = None,
        *,
        runtime: Runtime,
    ) -> None:
        config = config or MemberConfig()
        super().__init__(
            bootstrap,
            group,
            runtime=runtime,
            timeout=config.timeout,
            client_id=config.client_id,
            retention=config.retention,
            abort_on_timeout=config.abort_on_timeout,
            repeat_unknown=config.repeat_unknown,
        )
        self.topics = tuple(topics)
        self._assignors = tuple(config.assignors)
        self._session_timeout = config.session_timeout
        self._rebalance_timeout = config.rebalance_timeout
        self._member_id = ""
        self._metadata = Metadata(bootstrap, self._pool, runtime.random)
        self._metadata_age = config.metadata_age
        self._assigned_counts: Mapping[str, int] = {}
        """The number of partitions of each topic at the last assignment, if this member leads."""

    # -- membership ------------------------------------------------------------------------------------------------

    async def enter(self, timeout: float | None = None) -> Generation:
        """Joins the group, repeatedly if necessary, and returns the generation. Raises :class:`JoinFailed`."""
        loop = asyncio.get_running_loop()
        default_timeout = max(self._timeout, self._rebalance_timeout * JOIN_TIMEOUT_FACTOR)
        deadline = loop.time() + (default_timeout if timeout is None else timeout)
        await self._stop_heartbeats()
        self.generation = None
        while True:
            joined = await self._join(deadline)
            assignments = await self._compute_assignments(joined, deadline)
            request = groups.SyncGroupRequest(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=assignments,
            )
            answer = await self._ask_until_answered(request, 0, deadline)
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                self.generation = Generation(
                    joined.generation_id, joined.member_id, _decode_assignment(answer.assignment)
                )
                self._tasks = [loop.create_task(self._send_heartbeats(self.generation))]
                if assignments:
                    self._tasks.append(loop.create_task(self._watch_topics(self.generation)))
                return self.generation
            self._end_generation(code)
            if code not in GENERATION_OVER_ERRORS:
                raise JoinFailed(f"group {self.group}: the coordinator answered {code.name}", error=code)

    async def leave(self) -> None:
        """Leaves the group. A failure is only logged, because the session of a silent member expires anyway."""
        await self._stop_heartbeats()
        self.generation = None
        member_id, self._member_id = self._member_id, ""
        if member_id:
            await self._send_leave(groups.LeaveGroupRequest(group_id=self.group, member_id=member_id))

    async def _join(self, deadline: float) -> groups.JoinGroupResponse:
        subscription = encode_bytes(Subscription(topics=list(self.topics)), 0)
        while True:
            request = groups.JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=int(self._session_timeout * 1000),
                rebalance_timeout_ms=int(self._rebalance_timeout * 1000),
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[groups.GroupProtocol(name=name, metadata=subscription) for name in self._assignors],
            )
            answer: groups.JoinGroupResponse = await self._ask_until_answered(request, 1, deadline)
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                self._member_id = answer.member_id
                return answer
            self._end_generation(code)
            if code not in GENERATION_OVER_ERRORS:
                raise JoinFailed(f"group {self.group}: the coordinator answered {code.name}", error=code)

    async def _compute_assignments(
        self, joined: groups.JoinGroupResponse, deadline: float
    ) -> list[groups.GroupAssignment]:
        """Computes the assignments of all members if this member leads the group; else returns an empty list."""
        if joined.leader_id != joined.member_id:
            return []
        try:
            topics = {m.member_id: decode(Subscription, 0, m.metadata).topics for m in joined.members}
            counts = await self._count_partitions({topic for wanted in topics.values() for topic in wanted}, deadline)
        except (ProtocolError, ReadFailed) as error:
            raise JoinFailed(f"group {self.group}: assigning partitions: {error}") from error
        self._assigned_counts = counts
        return [
            groups.GroupAssignment(member_id=member, assignment=_encode_assignment(partitions))
            for member, partitions in ASSIGNORS[joined.protocol](topics, counts).items()
        ]

    async def _count_partitions(self, topics: Collection[str], deadline: float) -> Mapping[str, int]:
        """Returns the number of partitions of each topic; 0 for a topic that does not exist yet. Raises ``ReadFailed``.

        A broker that has just started knows no topics, and answers LEADER_NOT_AVAILABLE. Then the request is repeated
        for up to ``ATTEMPT_TIMEOUT``.
        """
        wanted = sorted(topics)
        if not wanted:
            return {}
        loop = asyncio.get_running_loop()
        wait_limit = min(loop.time() + ATTEMPT_TIMEOUT, deadline)
        while True:
            found = (await self._metadata.describe(wanted, deadline)).topics
            known = all(view.partitions or view.error is not ErrorCode.LEADER_NOT_AVAILABLE for view in found.values())
            if known or loop.time() + BACK_OFF >= wait_limit:
                return {topic: len(found[topic].partitions) if topic in found else 0 for topic in wanted}
            await asyncio.sleep(BACK_OFF)

    async def _watch_topics(self, generation: Generation) -> None:
        """Starts a rebalance if there are more partitions. Ignores fewer, because a broker may not know all of them."""
        loop = asyncio.get_running_loop()
        while self.generation is generation:
            await asyncio.sleep(self._metadata_age)
            known = self._assigned_counts
            try:
                now = await self._count_partitions(known, loop.time() + ATTEMPT_TIMEOUT)
            except ReadFailed as error:
                _log.info("group %s: looking up its topics: %s", self.group, error)
                continue
            if self.generation is generation and any(now[topic] > known[topic] for topic in known):
                _log.info("group %s: there are new partitions to assign: %s", self.group, now)
                self._end_generation(ErrorCode.REBALANCE_IN_PROGRESS)

    async def _ask_until_answered(self, request: Any, version: int, deadline: float) -> Any:
        """Returns the response of the current coordinator. Raises :class:`JoinFailed` if there is none in time."""
        loop = asyncio.get_running_loop()
        problem: object = "no broker coordinates it"
        while (left := deadline - loop.time()) > 0:
            try:
                answer = await self._ask(request, version, left)
            except CallError as error:
                problem = error
            else:
                code = ErrorCode.of(answer.error_code)
                if code not in STALE_COORDINATOR:
                    return answer
                self._coordinator, problem = None, code.name
            await asyncio.sleep(BACK_OFF)
        raise JoinFailed(f"group {self.group}: not a member in time: {problem}")

    async def _send_heartbeats(self, generation: Generation) -> None:
        """Sends heartbeats until another member may own this member's partitions.

        This is so after one session timeout without a response. A rebalance does not end the heartbeats, because the
        work before the member joins again may take longer than its session.
        """
        loop = asyncio.get_running_loop()
        last_answer = loop.time()
        rejoin_deadline = math.inf
        request = groups.HeartbeatRequest(
            group_id=self.group, generation_id=generation.number, member_id=generation.member_id
        )
        while self._may_be_member(generation):
            await asyncio.sleep(self._session_timeout / 4)
            if self.generation is None:  # this member has ended its generation, perhaps unknown to the coordinator
                rejoin_deadline = min(rejoin_deadline, loop.time() + self._rebalance_timeout)
            if loop.time() >= rejoin_deadline:
                self._end_generation(ErrorCode.REQUEST_TIMED_OUT)
                return
            if loop.time() < self._heartbeats_paused_until:
                continue
            try:
                code = ErrorCode.of(
                    (await self._ask(request, 0, self._session_timeout / 3, self._heartbeat_pool)).error_code
                )
            except CallError:
                code = ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
            if not self._may_be_member(generation):
                return
            if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                last_answer = loop.time()
            elif code in STALE_COORDINATOR:
                self._coordinator = None
            if code in GENERATION_OVER_ERRORS or loop.time() - last_answer > self._session_timeout:
                self._end_generation(code)

    def _may_be_member(self, generation: Generation) -> bool:
        """Returns whether the member is in this generation, or may still join again after it."""
        if self.generation is not None:
            return self.generation is generation
        return self.end_error is ErrorCode.REBALANCE_IN_PROGRESS

    def subscribe(self, topics: Sequence[str]) -> None:
        """Changes the topics; the member must join again."""
        self.topics = tuple(topics)
        if self.generation is not None:
            self._end_generation(ErrorCode.REBALANCE_IN_PROGRESS)

    def _end_generation(self, code: ErrorCode) -> None:
        super()._end_generation(code)
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""


def _encode_assignment(partitions: Sequence[Partition]) -> bytes:
    topics = [AssignedTopic(topic=topic, partitions=indexes) for topic, indexes in group_by_topic(partitions).items()]
    return encode_bytes(Assignment(topics=topics), 0)


def _decode_assignment(assignment: bytes) -> tuple[Partition, ...]:
    """Decodes an assignment. An invalid one counts as empty."""
    try:
        found = decode(Assignment, 0, assignment) if assignment else Assignment(topics=[])
    except ProtocolError:
        return ()
    return tuple((topic.topic, index) for topic in found.topics for index in topic.partitions)
