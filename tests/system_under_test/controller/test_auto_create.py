"""Topics that are made because a client asked for them, where the configuration says so, and only there."""

from __future__ import annotations

import asyncio

from assay.system_under_test.deployment import Broker
from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.metadata import MetadataRequest, MetadataTopic

from helpers.sim_brokers import Brokers, brokers, simulate, until


async def asked(cluster: Brokers, name: str, node: int = 0) -> MetadataTopic:
    connection = await Connection.open(cluster.nodes[node].address, 9092, 1.0)
    try:
        response = await connection.call(MetadataRequest(topics=[name]), 2, 5.0)
    finally:
        await connection.close()
    return response.topics[0]


async def existing(cluster: Brokers) -> list[str]:
    connection = await Connection.open(cluster.nodes[0].address, 9092, 1.0)
    try:
        return [topic.topic for topic in (await connection.call(MetadataRequest(topics=None), 2, 5.0)).topics]
    finally:
        await connection.close()


def test_a_topic_that_is_asked_for_is_made_once() -> None:
    async def check() -> None:
        async with brokers(Broker(auto_create_topics=True)) as cluster:
            first = await asyncio.gather(*(asked(cluster, "fresh", node) for node in range(3)))
            assert {topic.error_code for topic in first} == {ErrorCode.LEADER_NOT_AVAILABLE}

            async def led() -> bool:
                found = await asked(cluster, "fresh")
                return found.error_code == ErrorCode.NONE and found.partitions[0].leader > 0

            await until(led, "the topic has a leader")
            assert len((await asked(cluster, "fresh")).partitions) == 1
            assert sorted(await existing(cluster)) == ["fresh", "orders"]

    simulate(check)


def test_what_cannot_be_a_name_is_no_topic() -> None:
    async def check() -> None:
        async with brokers(Broker(auto_create_topics=True)) as cluster:
            assert (await asked(cluster, "no/name")).error_code == ErrorCode.INVALID_TOPIC
            assert (await asked(cluster, "orders")).error_code == ErrorCode.NONE
            assert await existing(cluster) == ["orders"]

    simulate(check)


def test_nothing_is_made_unless_the_configuration_says_so() -> None:
    async def check() -> None:
        async with brokers(Broker()) as cluster:
            assert (await asked(cluster, "fresh")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await asyncio.sleep(1)
            assert await existing(cluster) == ["orders"]

    simulate(check)
