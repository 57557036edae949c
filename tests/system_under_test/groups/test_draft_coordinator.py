"""The draft's requests on a cluster: who is refused and why, that both designs keep apart, and that a coordinator that
was replaced without knowing can do nothing any more.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from assay.system_under_test.deployment import Broker
from assay.system_under_test.network.connection import CallError
from assay.system_under_test.protocol.draft_groups import (
    ConsumerMetadataRequest,
    DraftHeartbeatRequest,
    DraftJoinGroupRequest,
    DraftJoinGroupResponse,
    DraftLeaveGroupRequest,
)
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.zookeeper import paths

from helpers.draft_client import PARTITIONS, Reader, check_ownership, coordinating, fill, quiet, read, said_by_brokers
from helpers.group_client import PATIENCE, RETRIED, Member, ask, coordinator
from helpers.sim_brokers import Brokers, brokers, simulate, until, zookeeper_of


async def call(cluster: Brokers, request: Any) -> Any:
    """The answer of a coordinator that is one, and ready."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while loop.time() < deadline:
        try:
            answer = await ask(await coordinator(cluster, request.group_id or "g"), request)
        except CallError:
            continue
        if answer.error_code not in RETRIED:
            return answer
        await asyncio.sleep(0.1)
    raise AssertionError(f"no broker answers {request}")


async def join(cluster: Brokers, **changes: Any) -> DraftJoinGroupResponse:
    settings: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 3000,
        "topics": ["orders"],
        "consumer_id": "",
        "strategy": "range",
    }
    answer: DraftJoinGroupResponse = await call(cluster, DraftJoinGroupRequest(**(settings | changes)))
    return answer


async def heartbeat(cluster: Brokers, consumer_id: str, generation: int, group: str = "g") -> ErrorCode:
    request = DraftHeartbeatRequest(group_id=group, generation_id=generation, consumer_id=consumer_id)
    return ErrorCode((await call(cluster, request)).error_code)


def test_one_consumer_joins_heartbeats_commits_and_leaves() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            address = await coordinator(cluster)
            for node in cluster.nodes:
                found = await ask(node.address, ConsumerMetadataRequest(group_id="g"))
                assert (found.error_code, found.host) == (0, address), "as in the later design"
            joined = await join(cluster)
            assert (joined.error_code, joined.generation_id) == (0, 1)
            assert [(topic.topic, topic.partitions) for topic in joined.partitions_to_own] == [("orders", [0, 1])]
            assert await heartbeat(cluster, joined.consumer_id, 1) == ErrorCode.NONE
            assert await heartbeat(cluster, joined.consumer_id, 0) == ErrorCode.ILLEGAL_GENERATION
            assert await heartbeat(cluster, "stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
            assert await heartbeat(cluster, "stranger", 1, "none") == ErrorCode.UNKNOWN_MEMBER_ID
            member = Member(cluster, member_id=joined.consumer_id, generation=1)
            assert await member.commit(7) == ErrorCode.NONE
            assert await member.commit(8, generation_id=0) == ErrorCode.ILLEGAL_GENERATION
            assert await member.commit(8, member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
            assert await member.commit(8, member_id="", generation_id=-1) == ErrorCode.UNKNOWN_MEMBER_ID
            assert await member.committed() == 7
            left = await call(cluster, DraftLeaveGroupRequest(group_id="g", consumer_id=joined.consumer_id))
            assert left.error_code == ErrorCode.NONE
            await until(lambda: len(said_by_brokers(cluster)) == 2, "a generation without members")
            assert await member.commit(8, member_id="", generation_id=-1) == ErrorCode.NONE
            again = await join(cluster)
            assert again.generation_id == 3

    simulate(check)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": ".."}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "a/b"}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 2**31 - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"topics": []}, ErrorCode.INVALID_TOPIC),
        ({"topics": ["../orders"]}, ErrorCode.INVALID_TOPIC),
        ({"topics": [f"t{number}" for number in range(1001)]}, ErrorCode.INVALID_TOPIC),
        ({"consumer_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"strategy": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_one_that_may_not_join_gets_the_reason_and_leaves_nothing_behind(
    changes: dict[str, Any], code: ErrorCode
) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            assert (await join(cluster, **changes)).error_code == code
            zookeeper = await zookeeper_of(cluster)
            assert await zookeeper.get_children(paths.DRAFT_GROUPS) == []
            await zookeeper.close()

    simulate(check)


def test_a_group_is_of_one_design_at_a_time() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            later = Member(cluster)
            await later.enter()
            assert (await join(cluster)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            await later.leave()
            joined = await join(cluster)
            assert joined.error_code == ErrorCode.NONE
            assert await Member(cluster).join() == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert await Member(cluster, group="another").join() == ErrorCode.NONE

    simulate(check)


def test_a_group_whose_znode_is_unreadable_cannot_be_joined_and_harms_no_other() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            await coordinator(cluster)
            await zookeeper.create(paths.draft_group("g"), b"nonsense")
            await (await coordinating(cluster)).kill()
            assert (await join(cluster)).error_code == ErrorCode.UNKNOWN
            assert (await zookeeper.get(paths.draft_group("g")))[0] == b"nonsense"
            await zookeeper.close()

    simulate(check)


def test_generations_and_owners_are_one_write_and_survive_every_broker() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            joined = await join(cluster, session_timeout_ms=60_000)
            zookeeper = await zookeeper_of(cluster)
            stored = json.loads((await zookeeper.get(paths.draft_group("g")))[0])
            assert stored["generation"] == joined.generation_id == 1
            assert stored["consumers"] == {joined.consumer_id: {"topics": ["orders"], "session_timeout_ms": 60_000}}
            assert stored["assignment"] == {joined.consumer_id: {"orders": [0, 1]}}
            await zookeeper.close()
            for node in cluster.nodes:
                await node.kill()
            for node in cluster.nodes:
                await node.start()
            assert await heartbeat(cluster, joined.consumer_id, 1) == ErrorCode.NONE

    simulate(check)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_coordinator_that_was_replaced_unawares_gives_out_nothing_more(seed: int) -> None:
    """It is cut off from all but the consumers, and a change comes during that time."""

    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS), seed=seed) as cluster:
            wanted = await fill(cluster, "first")
            readers = [Reader(cluster) for _ in range(2)]
            await quiet(*readers)
            zombie = await coordinating(cluster)
            others = [node for node in (*cluster.nodes, *cluster.zookeepers) if node is not zombie]
            before = len(said_by_brokers(cluster))
            await cluster.cut(zombie, others)
            readers.append(Reader(cluster))  # one more, whom the zombie may hear of
            await asyncio.sleep(8.0)
            given = len(cluster.events(zombie, "draft-generation"))
            await cluster.heal()
            wanted |= await fill(cluster, "second")
            await quiet(*readers)
            await until(lambda: read(*readers) >= wanted, "all is read", 60)
            assert len(said_by_brokers(cluster)) > before
            assert given <= before
            check_ownership(cluster, *readers)
            for reader in readers:
                await reader.stop()

    simulate(check, seed)
