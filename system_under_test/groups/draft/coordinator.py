"""Coordinator of groups of the earlier draft of the protocol, in which the coordinator assigns the partitions.

See docs/broker/groups.md. The coordinator of a draft group is the broker that would coordinate a group of that name in
Kafka's final design. Both designs share the stored offsets.

While a group has members of one design, members of the other design cannot join it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from assay.system_under_test.assignors import group_by_topic
from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.draft.group import NO_GENERATION, DraftGroup, DraftState, JoinResult
from assay.system_under_test.groups.draft.term import DraftTerm
from assay.system_under_test.groups.group import GroupError
from assay.system_under_test.groups.stored_groups import StoredGroups
from assay.system_under_test.network.handler import Handler, RequestContext
from assay.system_under_test.protocol import draft_groups, groups
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.groups import AssignedTopic
from assay.system_under_test.protocol.schema import Request
from assay.system_under_test.protocol.topics import is_topic_name
from assay.system_under_test.runtime import Runtime, ZooKeeper
from assay.system_under_test.tasks import BackgroundTasks

MAX_CLIENT_ID: Final = 100
"""Maximum number of characters of a client id in a consumer id."""
MAX_JOIN_WAIT: Final = 60.0
"""Maximum seconds for which a join waits for other consumers or for ZooKeeper."""
MAX_TOPICS: Final = 1000
"""Maximum number of topics of one consumer."""

FindCoordinator = Callable[[groups.GroupCoordinatorRequest, RequestContext], Awaitable[groups.GroupCoordinatorResponse]]


@dataclass(eq=False)
class DraftCoordinator:
    """The draft's coordinator on one broker.

    A *term* is the time in which the broker leads one partition of the offsets topic, and so coordinates its groups.

    ``get_stored_groups`` returns the stored groups of Kafka's final design. They are those of the offsets topic's
    partition to which a group id belongs. It raises :class:`GroupError`: GROUP_LOAD_IN_PROGRESS,
    GROUP_COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR_FOR_GROUP.

    ``find_coordinator`` answers the final design's request for a group's coordinator.
    """

    config: BrokerConfig
    runtime: Runtime
    zookeeper: ZooKeeper
    events: EventLog
    background: BackgroundTasks
    get_stored_groups: Callable[[str], StoredGroups]
    find_coordinator: FindCoordinator
    _terms: dict[int, DraftTerm] = field(default_factory=dict)
    """The current terms, by partition of the offsets topic."""

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {
            draft_groups.ConsumerMetadataRequest: self._find_coordinator,
            draft_groups.DraftJoinGroupRequest: self._join,
            draft_groups.DraftHeartbeatRequest: self._heartbeat,
            draft_groups.DraftLeaveGroupRequest: self._leave,
        }

    # -- terms -----------------------------------------------------------------------------------------------------

    def lead(self, index: int, epoch: int, topic_czxid: int = 0) -> DraftTerm:
        """Creates a term of this broker. The caller must call the term's ``begin``, and later :meth:`end`."""
        self._terms[index] = DraftTerm(index, epoch, self.zookeeper, self.events, self.background.spawn, topic_czxid)
        return self._terms[index]

    def update_partition_count(self, partitions: int) -> None:
        """Restarts the terms if the offsets topic has a new number of partitions."""
        for term in list(self._terms.values()):
            term.update_partition_count(partitions)

    def end(self, term: DraftTerm) -> None:
        term.end()
        if self._terms.get(term.index) is term:
            del self._terms[term.index]

    def find_active_group(self, index: int, group_id: str) -> DraftGroup | None:
        """Returns the group if it has consumers of this design, else None.

        Raises :class:`GroupError`: GROUP_LOAD_IN_PROGRESS or NOT_COORDINATOR_FOR_GROUP.
        """
        group = self._get_term(index).groups.get(group_id)
        return None if group is None or group.empty else group

    async def delete_empty_groups(self, stored: StoredGroups) -> None:
        """Deletes groups without consumers and without stored offsets."""
        term = self._terms.get(stored.index)
        if term is None:
            return
        for group in list(term.groups.values()):
            ended = group.state is DraftState.DEAD  # the term is over, and the group belongs to the successor
            if not ended and group.empty and group.group_id not in stored.groups:
                await term.delete(group)

    def _get_term(self, index: int) -> DraftTerm:
        term = self._terms.get(index)
        if term is None:
            raise GroupError(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        term.require_serving()
        return term

    def _get_group(self, group_id: str) -> DraftGroup:
        """Returns the group for a consumer's request.

        Raises :class:`GroupError`: UNKNOWN_CONSUMER, or an error of ``get_stored_groups``.
        """
        group = self._get_term(self.get_stored_groups(group_id).index).groups.get(group_id)
        if group is None:
            raise GroupError(draft_groups.UNKNOWN_CONSUMER)
        return group

    # -- requests --------------------------------------------------------------------------------------------------

    async def _find_coordinator(
        self, request: draft_groups.ConsumerMetadataRequest, context: RequestContext
    ) -> groups.GroupCoordinatorResponse:
        return await self.find_coordinator(groups.GroupCoordinatorRequest(group_id=request.group_id), context)

    async def _join(
        self, request: draft_groups.DraftJoinGroupRequest, context: RequestContext
    ) -> draft_groups.DraftJoinGroupResponse:
        try:
            self._check_join(request)
            stored = self.get_stored_groups(request.group_id)
            term = self._get_term(stored.index)
            final_group = stored.groups.get(request.group_id)
            if final_group is not None and final_group.members:
                raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            known = term.groups.get(request.group_id)
            if request.consumer_id and known is None:
                raise GroupError(draft_groups.UNKNOWN_CONSUMER)
            joined = await self._await_join(term, known or term.make_group(request.group_id), request, context)
        except GroupError as error:
            return draft_groups.DraftJoinGroupResponse(
                error_code=error.code,
                generation_id=NO_GENERATION,
                consumer_id=request.consumer_id,
                partitions_to_own=[],
            )
        context.after_response(joined.on_response_written)
        return draft_groups.DraftJoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=joined.generation,
            consumer_id=joined.consumer_id,
            partitions_to_own=[
                AssignedTopic(topic=topic, partitions=indexes)
                for topic, indexes in group_by_topic(joined.partitions).items()
            ],
        )

    async def _await_join(
        self, term: DraftTerm, group: DraftGroup, request: draft_groups.DraftJoinGroupRequest, context: RequestContext
    ) -> JoinResult:
        new_id = f"{(context.client_id or '')[:MAX_CLIENT_ID]}-{self.runtime.random.getrandbits(128):032x}"
        future = group.join(
            request.consumer_id, new_id, request.topics, request.strategy, request.session_timeout_ms / 1000
        )
        term.groups.setdefault(group.group_id, group)  # after join, so that a rejected first join creates no group
        try:
            async with asyncio.timeout(MAX_JOIN_WAIT):
                return await future
        except TimeoutError as error:  # the timeout has cancelled the future, so the consumer does not count as joining
            raise GroupError(ErrorCode.REQUEST_TIMED_OUT) from error

    def _check_join(self, request: draft_groups.DraftJoinGroupRequest) -> None:
        if not is_topic_name(request.group_id):  # the id becomes the name of a znode
            raise GroupError(ErrorCode.INVALID_GROUP_ID)
        config = self.config
        limits = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not limits[0] <= request.session_timeout_ms <= limits[1]:
            raise GroupError(ErrorCode.INVALID_SESSION_TIMEOUT)
        if not 0 < len(request.topics) <= MAX_TOPICS or not all(is_topic_name(topic) for topic in request.topics):
            raise GroupError(ErrorCode.INVALID_TOPIC)

    async def _heartbeat(
        self, request: draft_groups.DraftHeartbeatRequest, context: RequestContext
    ) -> groups.HeartbeatResponse:
        try:
            on_response_written = self._get_group(request.group_id).heartbeat(
                request.consumer_id, request.generation_id
            )
        except GroupError as error:
            return groups.HeartbeatResponse(error_code=error.code)
        if on_response_written is not None:  # the consumer must join again
            context.after_response(on_response_written)
            return groups.HeartbeatResponse(error_code=draft_groups.ILLEGAL_GENERATION)
        return groups.HeartbeatResponse(error_code=ErrorCode.NONE)

    async def _leave(
        self, request: draft_groups.DraftLeaveGroupRequest, _: RequestContext
    ) -> groups.LeaveGroupResponse:
        try:
            self._get_group(request.group_id).leave(request.consumer_id)
        except GroupError as error:
            return groups.LeaveGroupResponse(error_code=error.code)
        return groups.LeaveGroupResponse(error_code=ErrorCode.NONE)
