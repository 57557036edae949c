"""Group membership (keys 10 to 16). Version 1 of JoinGroup adds a separate timeout for rebalances (KIP-62)."""

from typing import Final

from assay.system_under_test.protocol.schema import Int16, Int32, Request, message, request, wire


@message
class GroupCoordinatorResponse:
    error_code: Int16
    coordinator_id: Int32 = -1
    """-1 if there is no coordinator. Then the port is -1, too, and the host is empty."""
    host: str = ""
    port: Int32 = -1


@request(key=10, versions=(0, 0))
class GroupCoordinatorRequest(Request[GroupCoordinatorResponse]):
    group_id: str


@message
class GroupProtocol:
    """An assignment strategy that a member supports, with the member's metadata for it."""

    name: str
    metadata: bytes


@message
class GroupMember:
    member_id: str
    metadata: bytes


@message
class JoinGroupResponse:
    error_code: Int16
    generation_id: Int32
    protocol: str
    leader_id: str
    member_id: str
    members: list[GroupMember]
    """All members, in the response to the group's leader, which computes the assignment; empty for other members."""


@request(key=11, versions=(0, 1))
class JoinGroupRequest(Request[JoinGroupResponse]):
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = wire(since=1, default=-1)
    member_id: str
    """Empty on the first join."""
    protocol_type: str
    protocols: list[GroupProtocol]


@message
class HeartbeatResponse:
    error_code: Int16


@request(key=12, versions=(0, 0))
class HeartbeatRequest(Request[HeartbeatResponse]):
    group_id: str
    generation_id: Int32
    member_id: str


@message
class LeaveGroupResponse:
    error_code: Int16


@request(key=13, versions=(0, 0))
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    group_id: str
    member_id: str


@message
class GroupAssignment:
    member_id: str
    assignment: bytes


@message
class SyncGroupResponse:
    error_code: Int16
    assignment: bytes


@request(key=14, versions=(0, 0))
class SyncGroupRequest(Request[SyncGroupResponse]):
    group_id: str
    generation_id: Int32
    member_id: str
    assignments: list[GroupAssignment]
    """The leader's assignments; empty from other members."""


@message
class DescribedMember:
    member_id: str
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@message
class DescribedGroup:
    error_code: Int16
    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: list[DescribedMember]


@message
class DescribeGroupsResponse:
    groups: list[DescribedGroup]


@request(key=15, versions=(0, 0))
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    group_ids: list[str]


@message
class ListedGroup:
    group_id: str
    protocol_type: str


@message
class ListGroupsResponse:
    error_code: Int16
    groups: list[ListedGroup]


@request(key=16, versions=(0, 0))
class ListGroupsRequest(Request[ListGroupsResponse]):
    """The request has no fields. It lists the groups that the receiving broker coordinates."""


PROTOCOL_TYPE: Final = "consumer"


@message
class Subscription:
    """A member's subscription. The coordinator forwards ``Subscription`` and ``Assignment`` without decoding them."""

    version: Int16 = 0
    topics: list[str]
    user_data: bytes = b""


@message
class AssignedTopic:
    topic: str
    partitions: list[Int32]


@message
class Assignment:
    version: Int16 = 0
    topics: list[AssignedTopic]
    user_data: bytes = b""
