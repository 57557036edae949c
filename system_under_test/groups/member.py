"""A member of a group: its request, its assignment, and its pending responses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from assay.system_under_test.groups.records import StoredMember
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.groups import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse

NO_GENERATION = -1
MAX_REBALANCE_TIMEOUT = 3600.0
"""Maximum seconds of the rebalance timeout that a member may request."""


@dataclass
class Member:
    """A member. Timeouts are in seconds, ``deadline`` is on the loop's clock.

    ``announced``: whether a stored generation has the member. Only then has it received its id.
    """

    member_id: str
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: dict[str, bytes]
    assignment: bytes = b""
    announced: bool = False
    inherited: bool = False
    """Whether the member was loaded from the offsets topic, which stores only the chosen protocol."""
    notified: bool = False
    """Whether the latest notice (to join again, or an assignment) was written to the member's connection."""
    deadline: float = 0.0
    timer: asyncio.TimerHandle | None = None
    joining: asyncio.Future[JoinGroupResponse] | None = None
    """The response that a JoinGroup request of the member waits for."""
    syncing: asyncio.Future[SyncGroupResponse] | None = None
    """The response that a SyncGroup request of the member waits for."""

    @classmethod
    def load(cls, stored: StoredMember, protocol: str) -> Member:
        """Restores a member from the record of a former coordinator, which had chosen ``protocol``."""
        return cls(
            stored.member_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout / 1000,
            stored.rebalance_timeout / 1000,
            {protocol: stored.subscription},
            stored.assignment,
            announced=True,
            inherited=True,
            notified=True,
        )

    def to_stored(self, protocol: str, assignment: bytes) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=int(self.rebalance_timeout * 1000),
            session_timeout=int(self.session_timeout * 1000),
            subscription=self.protocols.get(protocol, b""),
            assignment=assignment,
        )

    @property
    def waits(self) -> bool:
        """Whether a join or sync of the member is unanswered."""
        return any(asked is not None and not asked.done() for asked in (self.joining, self.syncing))

    def joins_unchanged(self, protocols: Mapping[str, bytes]) -> bool:
        """Returns whether the member joins with the same protocols as before, as far as those are known."""
        known = {name: data for name, data in protocols.items() if name in self.protocols or not self.inherited}
        return known == self.protocols

    def update(self, request: JoinGroupRequest, client_id: str, client_host: str) -> None:
        """Takes over protocols and timeouts of a repeated join."""
        self.client_id, self.client_host = client_id, client_host
        self.protocols, self.inherited = read_protocols(request), False
        self.session_timeout, self.rebalance_timeout = read_timeouts(request)

    def answer_join(self, response: JoinGroupResponse) -> None:
        if self.joining is not None and not self.joining.done():
            self.joining.set_result(response)
        self.joining = None

    def reject_join(self, code: ErrorCode) -> None:
        self.answer_join(build_join_error(self.member_id, code))

    def answer_sync(self, code: ErrorCode) -> None:
        if self.syncing is not None and not self.syncing.done():
            assignment = b"" if code else self.assignment
            self.syncing.set_result(SyncGroupResponse(error_code=code, assignment=assignment))
        self.syncing = None


def build_join_error(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code, generation_id=NO_GENERATION, protocol="", leader_id="", member_id=member_id, members=[]
    )


def read_protocols(request: JoinGroupRequest) -> dict[str, bytes]:
    """Returns the metadata of each protocol that the member supports, in order of preference."""
    return {protocol.name: protocol.metadata for protocol in request.protocols}


def read_timeouts(request: JoinGroupRequest) -> tuple[float, float]:
    """Returns the timeouts of a session and of a rebalance, in seconds."""
    session = request.session_timeout_ms / 1000
    rebalance = session if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms / 1000
    return session, min(rebalance, MAX_REBALANCE_TIMEOUT)
