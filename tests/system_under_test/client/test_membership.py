"""Members of a group by the client library: they share, notice that others come, go and die, and a commit that fails
says what is known of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest

from assay.system_under_test.client.admin import Admin, NewTopic
from assay.system_under_test.client.config import MemberConfig
from assay.system_under_test.client.errors import Certainty, ReadFailed
from assay.system_under_test.client.membership import CommitFailed, JoinFailed, Membership, Position
from assay.system_under_test.client.metadata import ClusterView, Metadata, TopicView
from assay.system_under_test.deployment import Broker
from assay.system_under_test.protocol.errors import ErrorCode

from helpers.sim_brokers import Brokers, brokers, simulate, until

ORDERS = ("orders", 0)


def member(cluster: Brokers, group: str = "g", topics: Sequence[str] = ("orders",), **settings: Any) -> Membership:
    made = Membership(
        cluster.bootstrap,
        group,
        topics,
        MemberConfig(**({"session_timeout": 2.0, "rebalance_timeout": 3.0} | settings)),
        runtime=cluster.cluster.harness_runtime(),
    )
    cluster._open.append(made)
    return made


async def settle(*members: Membership) -> None:
    """Each joins again whenever it has to, until all have been in one generation for a while."""

    async def live(one: Membership) -> None:
        while True:
            if one.generation is None:
                await one.enter(20)
            await asyncio.sleep(0.05)

    async def together() -> bool:
        before = {one.generation for one in members}
        await asyncio.sleep(1.0)
        after = {one.generation for one in members}
        return before == after and None not in after and len({one.number for one in after if one is not None}) == 1

    lives = [asyncio.get_running_loop().create_task(live(one)) for one in members]
    try:
        await until(together, "one generation", 60)
    finally:
        for life in lives:
            life.cancel()


def owned(*members: Membership) -> list[tuple[str, int]]:
    found = []
    for one in members:
        assert one.generation is not None
        found += one.generation.partitions
    return sorted(found)


def test_members_share_the_partitions_while_others_come_go_and_fall_silent() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=4)) as cluster:
            everything = [("orders", index) for index in range(4)]
            one, two, three = (member(cluster) for _ in range(3))
            await settle(one)
            assert owned(one) == everything
            await settle(one, two, three)
            assert owned(one, two, three) == everything
            assert one.generation is not None
            assert two.generation is not None
            before = one.generation.number
            await two.leave()
            await settle(one, three)
            assert owned(one, three) == everything
            assert one.generation.number > before
            await three.close()  # it dies
            await until(lambda: one.generation is None, "the survivor learns of it", 10)
            await settle(one)
            assert owned(one) == everything

    simulate(check)


def test_new_partitions_and_a_topic_that_comes_into_being_are_shared() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            topics = ("orders", "returns")
            members = [member(cluster, topics=topics, metadata_age=0.5) for _ in range(2)]
            await settle(*members)
            assert owned(*members) == [("orders", 0), ("orders", 1)]
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            cluster._open.append(admin)

            async def shared(expected: list[tuple[str, int]]) -> None:
                before = [one.generation for one in members]
                await until(lambda: any(one.generation is None for one in members), "the leader notices", 10)
                await settle(*members)
                assert owned(*members) == expected
                assert all(one.generation not in before for one in members)

            grown = [("orders", index) for index in range(5)]
            assert (await admin.create_partitions("orders", 5)).outcome is Certainty.DONE
            await shared(grown)
            made = await admin.create_topics([NewTopic("returns", 2, 3)])
            assert made["returns"].outcome is Certainty.DONE
            await shared([*grown, ("returns", 0), ("returns", 1)])
            quiet = [one.generation for one in members]
            await asyncio.sleep(5)
            assert [one.generation for one in members] == quiet, "nothing is new, so no member joins again"

    simulate(check)


def test_a_commit_says_what_is_known_of_it() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            one, two = member(cluster), member(cluster)
            await settle(one)
            assert (await one.committed([ORDERS]))[ORDERS] == Position(-1)
            await one.commit({ORDERS: Position(5, "five")})
            assert (await two.committed([ORDERS]))[ORDERS] == Position(5, "five")
            former = one.generation
            await settle(one, two)
            with pytest.raises(CommitFailed) as refused:
                await one.commit({ORDERS: Position(6)}, former)
            assert (refused.value.outcome, refused.value.error) == (Certainty.NOT_DONE, ErrorCode.ILLEGAL_GENERATION)
            assert one.generation is not None, "a commit of another generation says nothing of this one"
            await one.commit({ORDERS: Position(7)})
            for node in cluster.nodes:
                await node.stop()
            with pytest.raises(CommitFailed) as unknown:
                await one.commit({ORDERS: Position(8)})
            assert unknown.value.outcome is Certainty.UNKNOWN
            with pytest.raises(ReadFailed):
                await two.committed([ORDERS])
            for node in cluster.nodes:
                await node.resume()

    simulate(check)


def test_one_that_cannot_become_a_member_in_time_gets_an_error() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            with pytest.raises(JoinFailed, match="INVALID_SESSION_TIMEOUT") as refused:
                await member(cluster, session_timeout=0.01).enter()
            assert refused.value.error is ErrorCode.INVALID_SESSION_TIMEOUT
            for node in cluster.nodes:
                await node.kill()
            with pytest.raises(JoinFailed, match="not a member in time"):
                await member(cluster, timeout=1.0).enter()

    simulate(check)


def test_it_goes_on_through_the_death_of_its_coordinator() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            one = member(cluster, session_timeout=6.0)
            await settle(one)
            await one.commit({ORDERS: Position(1)})
            before = one.generation
            coordinator = one._coordinator
            assert coordinator is not None
            await next(node for node in cluster.nodes if node.address == coordinator.host).kill()
            await asyncio.sleep(5)
            assert one.generation is before, "no member had to join again"
            assert (await one.committed([ORDERS]))[ORDERS] == Position(1)
            await one.commit({ORDERS: Position(2)})

    simulate(check)


def test_one_that_says_other_topics_and_does_not_join_with_them_falls_out_of_the_group() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            one, two = member(cluster), member(cluster)
            await settle(one)
            one.subscribe(("orders", "returns"))
            await asyncio.sleep(2.5)
            assert one.end_error is ErrorCode.REBALANCE_IN_PROGRESS
            await asyncio.sleep(5.0)  # its rebalance timeout is over, and then its session
            assert one.end_error is not ErrorCode.REBALANCE_IN_PROGRESS, "another may own it by now"
            await two.enter(0.5)
            assert owned(two) == [ORDERS]

    simulate(check)


class Starting:
    """Metadata of which the first answers come from a broker that has just been started, and knows no topic yet."""

    def __init__(self, metadata: Metadata, answers: float, error: ErrorCode) -> None:
        self._metadata = metadata
        self._left = answers
        self._error = error

    async def describe(self, topics: Sequence[str], deadline: float) -> ClusterView:
        view = await self._metadata.describe(topics, deadline)
        if self._left <= 0:
            return view
        self._left -= 1
        return dataclasses.replace(view, topics=dict.fromkeys(topics, TopicView(self._error, {})))


@pytest.mark.parametrize(
    ("answers", "error", "expected"),
    [
        (2, ErrorCode.LEADER_NOT_AVAILABLE, [ORDERS]),
        (math.inf, ErrorCode.LEADER_NOT_AVAILABLE, []),
        (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ],
    ids=["not known yet", "never known", "not there"],
)
def test_the_one_that_leads_asks_again_for_a_topic_that_is_not_known_yet(
    answers: float, error: ErrorCode, expected: list[tuple[str, int]]
) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            one = member(cluster)
            one._metadata = Starting(one._metadata, answers, error)  # type: ignore[assignment]
            await one.enter(5.0)
            assert owned(one) == expected

    simulate(check)
