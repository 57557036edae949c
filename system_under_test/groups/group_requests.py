"""Requests about groups: join, sync, heartbeat and leave by members, list and describe by admin tools."""

import random
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.groups.draft.coordinator import DraftCoordinator
from assay.system_under_test.groups.group import GroupError, GroupState
from assay.system_under_test.groups.member import build_join_error
from assay.system_under_test.groups.terms import GroupTerms
from assay.system_under_test.network.handler import Handler, RequestContext
from assay.system_under_test.protocol import groups
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import Request

MAX_CLIENT_ID: Final = 249
"""Maximum number of characters of a client id in a member id, which is stored and sent to other members."""


class GroupRequests:
    """Handles requests about groups of Kafka's final design. A group with draft members rejects other members.

    Admin tools cannot list and describe draft groups, because the draft has no such requests.
    """

    def __init__(self, config: BrokerConfig, rng: random.Random, terms: GroupTerms, draft: DraftCoordinator) -> None:
        self._config = config
        self._random = rng
        self._terms = terms
        self._draft = draft

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {
            groups.JoinGroupRequest: self._join,
            groups.HeartbeatRequest: self._heartbeat,
            groups.LeaveGroupRequest: self._leave,
            groups.SyncGroupRequest: self._sync,
            groups.DescribeGroupsRequest: self._describe,
            groups.ListGroupsRequest: self._list,
        }

    async def _join(self, request: groups.JoinGroupRequest, context: RequestContext) -> groups.JoinGroupResponse:
        try:
            self._check_join(request)
            stored = self._terms.get_stored_groups(request.group_id)
            if request.member_id and request.group_id not in stored.groups:
                raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
            if not request.member_id and self._draft.find_active_group(stored.index, request.group_id) is not None:
                raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            client_id = (context.client_id or "")[:MAX_CLIENT_ID]
            new_id = f"{client_id}-{self._random.getrandbits(128):032x}"
            host = context.peer.rpartition(":")[0]
            return await stored.join(request, client_id, f"/{host}", new_id)
        except GroupError as error:
            return build_join_error(request.member_id, error.code)

    def _check_join(self, request: groups.JoinGroupRequest) -> None:
        if not request.group_id:
            raise GroupError(ErrorCode.INVALID_GROUP_ID)
        config = self._config
        limits = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not limits[0] <= request.session_timeout_ms <= limits[1]:
            raise GroupError(ErrorCode.INVALID_SESSION_TIMEOUT)

    async def _sync(self, request: groups.SyncGroupRequest, context: RequestContext) -> groups.SyncGroupResponse:
        try:
            if sum(len(given.assignment) for given in request.assignments) > self._config.topic.max_message_bytes:
                raise GroupError(ErrorCode.UNKNOWN)  # the assignment is too large to be stored
            answer = await self._terms.get_group(request.group_id).sync(request)
        except GroupError as error:
            answer = groups.SyncGroupResponse(error_code=error.code, assignment=b"")
        if answer.error_code == ErrorCode.NONE:
            context.after_response(partial(self._note_assignment_sent, request))
        elif answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            context.after_response(partial(self._note_rejoin_call_sent, request))
        return answer

    async def _heartbeat(self, request: groups.HeartbeatRequest, context: RequestContext) -> groups.HeartbeatResponse:
        try:
            self._terms.get_group(request.group_id).heartbeat(request.member_id, request.generation_id)
        except GroupError as error:
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                context.after_response(partial(self._note_rejoin_call_sent, request))
            return groups.HeartbeatResponse(error_code=error.code)
        return groups.HeartbeatResponse(error_code=ErrorCode.NONE)

    def _note_rejoin_call_sent(self, request: groups.SyncGroupRequest | groups.HeartbeatRequest) -> None:
        """Notes that the response was sent that makes the member join again."""
        with suppress(GroupError):  # this broker is no longer the coordinator
            self._terms.get_group(request.group_id).note_rejoin_call_sent(request.member_id, request.generation_id)

    def _note_assignment_sent(self, request: groups.SyncGroupRequest) -> None:
        with suppress(GroupError):
            self._terms.get_group(request.group_id).note_assignment_sent(request.member_id, request.generation_id)

    async def _leave(self, request: groups.LeaveGroupRequest, _: RequestContext) -> groups.LeaveGroupResponse:
        try:
            self._terms.get_group(request.group_id).leave(request.member_id)
        except GroupError as error:
            return groups.LeaveGroupResponse(error_code=error.code)
        return groups.LeaveGroupResponse(error_code=ErrorCode.NONE)

    # -- admin tools -----------------------------------------------------------------------------------------------

    async def _describe(
        self, request: groups.DescribeGroupsRequest, _: RequestContext
    ) -> groups.DescribeGroupsResponse:
        return groups.DescribeGroupsResponse(
            groups=[self._describe_group(name) for name in dict.fromkeys(request.group_ids)]
        )

    def _describe_group(self, group_id: str) -> groups.DescribedGroup:
        answer = groups.DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            state=GroupState.DEAD,
            protocol_type="",
            protocol="",
            members=[],
        )
        try:
            group = self._terms.get_stored_groups(group_id).groups.get(group_id)
        except GroupError as error:
            answer.error_code, answer.state = error.code, ""
            return answer
        if group is None:
            return answer
        answer.state, answer.protocol_type = group.state, group.protocol_type
        if group.state is GroupState.STABLE:
            answer.protocol = group.protocol or ""
        answer.members = [
            groups.DescribedMember(
                member_id=member.member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.protocols.get(answer.protocol, b""),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ]
        return answer

    async def _list(self, _: groups.ListGroupsRequest, __: RequestContext) -> groups.ListGroupsResponse:
        loading = any(not stored.ready for stored in self._terms)
        listed = [
            groups.ListedGroup(group_id=group.group_id, protocol_type=group.protocol_type)
            for stored in self._terms
            for group in stored.groups.values()
        ]
        code = ErrorCode.GROUP_LOAD_IN_PROGRESS if loading else ErrorCode.NONE
        return groups.ListGroupsResponse(error_code=code, groups=listed)
