"""What a broker answers about groups while no broker coordinates any: GROUP_COORDINATOR_NOT_AVAILABLE (15), which
clients take for "not yet" and ask again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from system_under_test.network.handler import Context, Handler
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.group_offsets import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)
from system_under_test.protocol.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    GroupCoordinatorRequest,
    GroupCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from system_under_test.protocol.schema import Request

CODE: Final = ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE


async def coordinator(request: GroupCoordinatorRequest, _: Context) -> GroupCoordinatorResponse:
    return GroupCoordinatorResponse(error_code=CODE, coordinator_id=-1, host="", port=-1)


async def join(request: JoinGroupRequest, _: Context) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=CODE, generation_id=-1, protocol="", leader_id="", member_id=request.member_id, members=[]
    )


async def heartbeat(request: HeartbeatRequest, _: Context) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=CODE)


async def leave(request: LeaveGroupRequest, _: Context) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=CODE)


async def sync(request: SyncGroupRequest, _: Context) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=CODE, assignment=b"")


async def describe(request: DescribeGroupsRequest, _: Context) -> DescribeGroupsResponse:
    groups = [
        DescribedGroup(error_code=CODE, group_id=name, state="", protocol_type="", protocol="", members=[])
        for name in dict.fromkeys(request.group_ids)
    ]
    return DescribeGroupsResponse(groups=groups)


async def list_groups(request: ListGroupsRequest, _: Context) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=CODE, groups=[])


async def commit(request: OffsetCommitRequest, _: Context) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitTopicResponse(
                topic=topic.topic,
                partitions=[
                    OffsetCommitPartitionResponse(partition=wanted.partition, error_code=CODE)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def fetch(request: OffsetFetchRequest, _: Context) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        topics=[
            OffsetFetchTopicResponse(
                topic=topic.topic,
                partitions=[
                    OffsetFetchPartitionResponse(partition=partition, offset=-1, metadata="", error_code=CODE)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics or ()
        ],
        error_code=CODE,
    )


HANDLERS: Final[Mapping[type[Request[Any]], Handler]] = {
    GroupCoordinatorRequest: coordinator,
    JoinGroupRequest: join,
    HeartbeatRequest: heartbeat,
    LeaveGroupRequest: leave,
    SyncGroupRequest: sync,
    DescribeGroupsRequest: describe,
    ListGroupsRequest: list_groups,
    OffsetCommitRequest: commit,
    OffsetFetchRequest: fetch,
}
