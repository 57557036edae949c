"""Requests of the draft group protocol, with private API keys. In the draft the coordinator assigns the partitions.

Three of the draft's errors have their own names, and the codes of their successors in Kafka 0.10.2. Members commit and
fetch offsets by the public requests, with the draft's generation.
"""

from typing import Final

from assay.system_under_test.protocol import groups
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import Int16, Int32, Request, message, request

COORDINATOR_STARTUP_NOT_COMPLETE: Final = ErrorCode.GROUP_LOAD_IN_PROGRESS
ILLEGAL_GENERATION: Final = ErrorCode.ILLEGAL_GENERATION
UNKNOWN_CONSUMER: Final = ErrorCode.UNKNOWN_MEMBER_ID


@request(key=1030, versions=(0, 0))
class ConsumerMetadataRequest(Request[groups.GroupCoordinatorResponse]):
    """Asks for the group's coordinator."""

    group_id: str


@message
class DraftJoinGroupResponse:
    """After an error, ``generation_id`` is -1 and ``partitions_to_own`` is empty."""

    error_code: Int16
    generation_id: Int32
    consumer_id: str
    partitions_to_own: list[groups.AssignedTopic]


@request(key=1031, versions=(0, 0))
class DraftJoinGroupRequest(Request[DraftJoinGroupResponse]):
    group_id: str
    session_timeout_ms: Int32
    topics: list[str]
    consumer_id: str
    """Empty on the first join; the coordinator assigns an id."""
    strategy: str
    """``range`` or ``roundrobin``; all members of a group must use the same."""


@request(key=1032, versions=(0, 0))
class DraftHeartbeatRequest(Request[groups.HeartbeatResponse]):
    group_id: str
    generation_id: Int32
    consumer_id: str


@request(key=1033, versions=(0, 0))
class DraftLeaveGroupRequest(Request[groups.LeaveGroupResponse]):
    group_id: str
    consumer_id: str
