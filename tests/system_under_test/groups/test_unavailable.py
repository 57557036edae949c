"""Every question about a group is answered, in every version, with: no coordinator yet."""

from __future__ import annotations

from typing import Any

import pytest
from sim_brokers import brokers, simulate

from system_under_test.deployment import Broker
from system_under_test.groups.unavailable import HANDLERS
from system_under_test.network.connection import Connection
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.group_offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from system_under_test.protocol.groups import (
    DescribeGroupsRequest,
    GroupCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from system_under_test.protocol.schema import Request, request_info

COMMITTED = OffsetCommitTopic(topic="orders", partitions=[OffsetCommitPartition(partition=0, offset=5, metadata="m")])
REQUESTS: list[Request[Any]] = [
    GroupCoordinatorRequest(group_id="g"),
    JoinGroupRequest(group_id="g", session_timeout_ms=6000, member_id="", protocol_type="consumer", protocols=[]),
    HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
    LeaveGroupRequest(group_id="g", member_id="m"),
    SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]),
    DescribeGroupsRequest(group_ids=["g"]),
    ListGroupsRequest(),
    OffsetCommitRequest(group_id="g", topics=[COMMITTED]),
    OffsetFetchRequest(group_id="g", topics=[OffsetFetchTopic(topic="orders", partitions=[0])]),
]


def codes(response: Any) -> set[int]:
    """All error codes in a response, however deep."""
    found: set[int] = set()
    for name in getattr(response, "__dataclass_fields__", {}):
        value = getattr(response, name)
        if name == "error_code":
            found.add(value)
        for element in value if isinstance(value, list) else ():
            found |= codes(element)
    return found


def test_there_is_an_answer_to_all() -> None:
    assert {type(request) for request in REQUESTS} == set(HANDLERS)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_there_is_no_coordinator(request_: Request[Any]) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            connection = await Connection.open((await cluster.leader()).address, 9092, 1.0)
            info = request_info(type(request_))
            for version in range(info.min_version, info.max_version + 1):
                told = codes(await connection.call(request_, version, 5.0)) - {0}
                assert told == {ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE}
            await connection.close()

    simulate(check)
