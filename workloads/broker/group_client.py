"""Clients of consumer groups with a coordinator: of the present design, and of the draft design.

Each client has a member in every group that it polls. It also offers the operations of a client of logs.
"""

from collections.abc import Mapping
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.config import DEFAULT_FETCH_BYTES, DraftConfig
from assay.system_under_test.client.draft_consumer import DraftConsumer
from assay.system_under_test.client.group_consumer import GroupListener
from assay.system_under_test.client.membership import Position
from assay.workloads.broker.group_member import ASSIGNOR, CALL_SECONDS, GroupMember, get_topics
from assay.workloads.broker.group_operations import MEMBER_VERBS, MemberSession
from assay.workloads.broker.log_client import LogClient
from assay.workloads.broker.verbs import FETCH_BYTES

DRAFT_SESSION_SECONDS: Final = 1.2
"""Shorter than a call, because a join waits for lost members and must be answered within a call."""


class GroupClient(LogClient):
    """Client with one member per group. Operations without a key are executed by the members."""

    verbs = (*LogClient.verbs, *MEMBER_VERBS)
    session_type = MemberSession


class NumberedDraftConsumer(DraftConsumer):
    """Draft consumer whose commits have numbers in their metadata. A draft consumer commits by itself before it
    rejoins. These commits have no number, so this class leaves them out.
    """

    async def commit(self, metadata: str = "", *, offsets: Mapping[Partition, int | Position] | None = None) -> None:
        if metadata:
            await super().commit(metadata, offsets=offsets)


class DraftMember(GroupMember):
    """A member of the draft design, in which the coordinator assigns the partitions."""

    @staticmethod
    def make_consumer(endpoint: Endpoint, group: str, runtime: Any, listener: GroupListener) -> DraftConsumer:
        config = DraftConfig(
            strategy=endpoint.options.get(ASSIGNOR, "range"),
            session_timeout=DRAFT_SESSION_SECONDS,
            join_timeout=CALL_SECONDS,
            timeout=CALL_SECONDS,
            fetch_bytes=endpoint.options.get(FETCH_BYTES, DEFAULT_FETCH_BYTES),
        )
        return NumberedDraftConsumer(
            endpoint.all, group, get_topics(endpoint), config, runtime=runtime, listener=listener
        )


class DraftSession(MemberSession):
    """The members of a client in the draft design."""

    member_type = DraftMember


class DraftClient(GroupClient):
    """Client with one member of the draft design per group."""

    session_type = DraftSession
