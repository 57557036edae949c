"""Members of groups as tests need them: each request by itself, to whichever broker coordinates."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.group_offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from assay.system_under_test.protocol.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    GroupAssignment,
    GroupCoordinatorRequest,
    GroupProtocol,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)

from helpers.sim_brokers import Brokers, until

RETRIED = (14, 15, 16)
PATIENCE = 30.0


async def ask(address: str, request: Any, version: int = 0, seconds: float = 20.0) -> Any:
    connection = await Connection.open(address, 9092, 1.0)
    try:
        return await connection.call(request, version, seconds)
    finally:
        await connection.close()


async def coordinator(cluster: Brokers, group: str = "g") -> str:
    """Its address, once there is one that all live brokers name."""
    found: list[str] = []

    async def agreed() -> bool:
        answers = []
        for node in cluster.nodes:
            try:
                answers.append(await ask(node.address, GroupCoordinatorRequest(group_id=group), 0, 1.0))
            except CallError:
                continue
        found[:] = {answer.host for answer in answers if answer.error_code == 0}
        return len(found) == 1 and all(answer.error_code == 0 for answer in answers)

    await until(agreed, "the brokers agree on a coordinator", PATIENCE)
    return found[0]


@dataclass
class Member:
    """``join`` and ``sync`` leave their state here. Each call goes to the coordinator that is known now."""

    cluster: Brokers
    group: str = "g"
    session_timeout_ms: int = 6000
    rebalance_timeout_ms: int = 10_000
    protocols: dict[str, bytes] = field(default_factory=lambda: {"range": b"topics"})
    member_id: str = ""
    generation: int = -1
    leader: bool = False
    members: list[str] = field(default_factory=list)
    protocol: str = ""
    assignment: bytes = b""

    async def call(self, request: Any, version: int = 0) -> Any:
        """Until a coordinator answers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while True:
            try:
                answer = await ask(await coordinator(self.cluster, self.group), request, version)
                if getattr(answer, "error_code", 0) not in RETRIED:
                    return answer
            except CallError:
                pass
            assert loop.time() < deadline, f"no broker answers {request}"
            await asyncio.sleep(0.1)

    async def join(self) -> ErrorCode:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[GroupProtocol(name=name, metadata=data) for name, data in self.protocols.items()],
        )
        answer: JoinGroupResponse = await self.call(request, 1)
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation, self.protocol = answer.member_id, answer.generation_id, answer.protocol
            self.leader = answer.leader_id == answer.member_id
            self.members = [member.member_id for member in answer.members]
        return ErrorCode(answer.error_code)

    async def sync(self, **assignments: bytes) -> ErrorCode:
        given = [GroupAssignment(member_id=name, assignment=data) for name, data in assignments.items()]
        if self.leader and not given:
            given = [GroupAssignment(member_id=name, assignment=name.encode()) for name in self.members]
        request = SyncGroupRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id, assignments=given
        )
        answer = await self.call(request)
        self.assignment = answer.assignment
        return ErrorCode(answer.error_code)

    async def enter(self) -> None:
        """Joins and syncs until it is in, as clients do."""
        while True:
            code = await self.join()
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            elif code == ErrorCode.NONE:
                code = await self.sync()
                if code == ErrorCode.NONE:
                    return
                if code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""

    async def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        return ErrorCode((await self.call(request)).error_code)

    async def leave(self) -> ErrorCode:
        request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
        return ErrorCode((await self.call(request)).error_code)

    async def commit(self, offset: int, partition: int = 0, topic: str = "orders", **changes: Any) -> ErrorCode:
        settings = {"generation_id": self.generation, "member_id": self.member_id, "retention_time_ms": -1} | changes
        metadata = settings.pop("metadata", "m")
        version = settings.pop("version", 2)
        wanted = OffsetCommitPartition(partition=partition, offset=offset, metadata=metadata)
        request = OffsetCommitRequest(
            group_id=self.group, topics=[OffsetCommitTopic(topic=topic, partitions=[wanted])], **settings
        )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while True:
            answer = await self.call(request, version)
            code = ErrorCode(answer.topics[0].partitions[0].error_code)
            if code not in RETRIED or loop.time() > deadline:
                return code
            await asyncio.sleep(0.1)

    async def committed(self, partition: int = 0, topic: str = "orders", version: int = 1) -> int:
        request = OffsetFetchRequest(
            group_id=self.group, topics=[OffsetFetchTopic(topic=topic, partitions=[partition])]
        )
        while True:
            answer = (await self.call(request, version)).topics[0].partitions[0]
            if answer.error_code not in RETRIED:
                assert answer.error_code in (0, 3), ErrorCode(answer.error_code)
                return int(answer.offset)
            await asyncio.sleep(0.1)

    async def described(self) -> DescribedGroup:
        answer = await self.call(DescribeGroupsRequest(group_ids=[self.group]))
        found: DescribedGroup = answer.groups[0]
        return found


async def all_in(*members: Member) -> None:
    await asyncio.gather(*(member.enter() for member in members))
    while len({member.generation for member in members}) > 1:
        behind = [member for member in members if await member.heartbeat() != ErrorCode.NONE]
        await asyncio.gather(*(member.enter() for member in behind))


async def listed(cluster: Brokers) -> list[str]:
    names = []
    for node in cluster.nodes:
        names += [group.group_id for group in (await ask(node.address, ListGroupsRequest())).groups]
    return sorted(names)
