"""Requests of admin tools: lists and describes groups."""

from collections.abc import Mapping
from typing import Any

from assay.system_under_test.groups.group import GroupError, GroupState
from assay.system_under_test.groups.terms import GroupTerms
from assay.system_under_test.network.handler import Context, Handler
from assay.system_under_test.protocol import groups as messages
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import Request


class DescriptionRequests:
    """Describes groups of Kafka's design. The draft has no such requests."""

    def __init__(self, terms: GroupTerms) -> None:
        self._terms = terms

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {messages.DescribeGroupsRequest: self._describe, messages.ListGroupsRequest: self._list}

    async def _describe(self, request: messages.DescribeGroupsRequest, _: Context) -> messages.DescribeGroupsResponse:
        return messages.DescribeGroupsResponse(
            groups=[self._described(name) for name in dict.fromkeys(request.group_ids)]
        )

    def _described(self, group_id: str) -> messages.DescribedGroup:
        answer = messages.DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            state=GroupState.DEAD,
            protocol_type="",
            protocol="",
            members=[],
        )
        try:
            group = self._terms.stored(group_id).groups.get(group_id)
        except GroupError as error:
            answer.error_code, answer.state = error.code, ""
            return answer
        if group is None:
            return answer
        answer.state, answer.protocol_type = group.state, group.protocol_type
        if group.state is GroupState.STABLE:
            answer.protocol = group.protocol or ""
        answer.members = [
            messages.DescribedMember(
                member_id=member.member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.protocols.get(answer.protocol, b""),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ]
        return answer

    async def _list(self, _: messages.ListGroupsRequest, __: Context) -> messages.ListGroupsResponse:
        loading = any(not stored.ready for stored in self._terms)
        groups = [
            messages.ListedGroup(group_id=group.group_id, protocol_type=group.protocol_type)
            for stored in self._terms
            for group in stored.groups.values()
        ]
        code = ErrorCode.GROUP_LOAD_IN_PROGRESS if loading else ErrorCode.NONE
        return messages.ListGroupsResponse(error_code=code, groups=groups)
