"""Membership of groups: GroupCoordinator (key 10), JoinGroup, Heartbeat, LeaveGroup, SyncGroup, DescribeGroups and
ListGroups (11 to 16). Version 1 of JoinGroup has a time limit of its own for rebalances (KIP-62).
"""

from __future__ import annotations

from assay.system_under_test.protocol.schema import (
    BYTES,
    INT16,
    INT32,
    STRING,
    Request,
    array,
    message,
    request,
    wire,
)


@message
class GroupCoordinatorResponse:
    error_code: int = wire(INT16)
    coordinator_id: int = wire(INT32)
    """-1, like the port, and with an empty host, when there is none."""
    host: str = wire(STRING)
    port: int = wire(INT32)


@request(key=10, versions=(0, 0))
class GroupCoordinatorRequest(Request[GroupCoordinatorResponse]):
    group_id: str = wire(STRING)


@message
class GroupProtocol:
    """A way of assigning partitions that a member knows, with its metadata for it."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@message
class GroupMember:
    member_id: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@message
class JoinGroupResponse:
    error_code: int = wire(INT16)
    generation_id: int = wire(INT32)
    protocol: str = wire(STRING)
    leader_id: str = wire(STRING)
    member_id: str = wire(STRING)
    members: list[GroupMember] = wire(array(GroupMember))
    """For the leader, which assigns; the others get none."""


@request(key=11, versions=(0, 1))
class JoinGroupRequest(Request[JoinGroupResponse]):
    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, since=1, default=-1)
    member_id: str = wire(STRING)
    """Empty for one that is none yet."""
    protocol_type: str = wire(STRING)
    protocols: list[GroupProtocol] = wire(array(GroupProtocol))


@message
class HeartbeatResponse:
    error_code: int = wire(INT16)


@request(key=12, versions=(0, 0))
class HeartbeatRequest(Request[HeartbeatResponse]):
    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)


@message
class LeaveGroupResponse:
    error_code: int = wire(INT16)


@request(key=13, versions=(0, 0))
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@message
class GroupAssignment:
    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


@message
class SyncGroupResponse:
    error_code: int = wire(INT16)
    assignment: bytes = wire(BYTES)


@request(key=14, versions=(0, 0))
class SyncGroupRequest(Request[SyncGroupResponse]):
    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    assignments: list[GroupAssignment] = wire(array(GroupAssignment))
    """From the leader; the others give none."""


@message
class DescribedMember:
    member_id: str = wire(STRING)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    metadata: bytes = wire(BYTES)
    assignment: bytes = wire(BYTES)


@message
class DescribedGroup:
    error_code: int = wire(INT16)
    group_id: str = wire(STRING)
    state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol: str = wire(STRING)
    members: list[DescribedMember] = wire(array(DescribedMember))


@message
class DescribeGroupsResponse:
    groups: list[DescribedGroup] = wire(array(DescribedGroup))


@request(key=15, versions=(0, 0))
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    group_ids: list[str] = wire(array(STRING))


@message
class ListedGroup:
    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)


@message
class ListGroupsResponse:
    error_code: int = wire(INT16)
    groups: list[ListedGroup] = wire(array(ListedGroup))


@request(key=16, versions=(0, 0))
class ListGroupsRequest(Request[ListGroupsResponse]):
    """Has no fields: the groups of the broker that is asked."""
