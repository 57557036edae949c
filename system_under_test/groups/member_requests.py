"""Requests of members: join, sync, heartbeat and leave."""

import random
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.groups.draft.coordinator import DraftCoordinator
from assay.system_under_test.groups.group import GroupError
from assay.system_under_test.groups.member import build_join_error
from assay.system_under_test.groups.terms import GroupTerms
from assay.system_under_test.network.handler import Context, Handler
from assay.system_under_test.protocol import groups
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import Request

LONGEST_CLIENT_ID: Final = 249
"""Limit on the characters of a client id in a member id, which is stored and sent to other members."""


class MemberRequests:
    """Handles requests of members. A group with members of the draft's design rejects members of this one."""

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
        }

    async def _join(self, request: groups.JoinGroupRequest, context: Context) -> groups.JoinGroupResponse:
        try:
            self._check_join(request)
            stored = self._terms.stored(request.group_id)
            if request.member_id and request.group_id not in stored.groups:
                raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
            if not request.member_id and self._draft.find_active_group(stored.index, request.group_id) is not None:
                raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            client_id = (context.client_id or "")[:LONGEST_CLIENT_ID]
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

    async def _sync(self, request: groups.SyncGroupRequest, context: Context) -> groups.SyncGroupResponse:
        try:
            if sum(len(given.assignment) for given in request.assignments) > self._config.topic.max_message_bytes:
                raise GroupError(ErrorCode.UNKNOWN)  # the assignment is too large to be stored
            answer = await self._terms.group(request.group_id).sync(request)
        except GroupError as error:
            answer = groups.SyncGroupResponse(error_code=error.code, assignment=b"")
        if answer.error_code == ErrorCode.NONE:
            context.after_response(partial(self._has_assignment, request))
        elif answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            context.after_response(partial(self._was_called, request))
        return answer

    async def _heartbeat(self, request: groups.HeartbeatRequest, context: Context) -> groups.HeartbeatResponse:
        try:
            self._terms.group(request.group_id).heartbeat(request.member_id, request.generation_id)
        except GroupError as error:
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                context.after_response(partial(self._was_called, request))
            return groups.HeartbeatResponse(error_code=error.code)
        return groups.HeartbeatResponse(error_code=ErrorCode.NONE)

    def _was_called(self, request: groups.SyncGroupRequest | groups.HeartbeatRequest) -> None:
        """Notes that the response that makes the member rejoin was written to its connection."""
        with suppress(GroupError):  # this broker is no longer the coordinator
            self._terms.group(request.group_id).was_called(request.member_id, request.generation_id)

    def _has_assignment(self, request: groups.SyncGroupRequest) -> None:
        with suppress(GroupError):
            self._terms.group(request.group_id).has_assignment(request.member_id, request.generation_id)

    async def _leave(self, request: groups.LeaveGroupRequest, _: Context) -> groups.LeaveGroupResponse:
        try:
            self._terms.group(request.group_id).leave(request.member_id)
        except GroupError as error:
            return groups.LeaveGroupResponse(error_code=error.code)
        return groups.LeaveGroupResponse(error_code=ErrorCode.NONE)
