"""A follower that is behind on many partitions copies them in several answers, none of which is too large."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.deployment import Broker
from assay.system_under_test.network import connection
from assay.system_under_test.protocol import internal
from assay.system_under_test.replication.fetcher import LeaderFetcher
from assay.system_under_test.replication.throttle import Throttle

from helpers.sim_brokers import Brokers, brokers, simulate, until

PARTITIONS = 30
MESSAGE = b"x" * 10_000


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal, "MAX_REPLICA_RESPONSE_BYTES", 100_000, raising=False)
    monkeypatch.setattr(connection, "MAX_RESPONSE_BYTES", 300_000)


async def fill(cluster: Brokers) -> None:
    producer = cluster.producer_with(acks=1)
    for partition in range(PARTITIONS):
        for _ in range(3):
            await producer.send("orders", partition, [(None, MESSAGE)])


def count(cluster: Brokers, partition: int) -> int:
    """Returns how many messages the third broker has."""
    return len(cluster.stored(cluster.nodes[2], f"orders-{partition}"))


def test_a_follower_that_is_behind_on_many_partitions_catches_up() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            await cluster.nodes[2].kill()
            await asyncio.sleep(8)  # until others lead its partitions
            await fill(cluster)
            await cluster.nodes[2].start()
            await until(lambda: all(count(cluster, one) == 3 for one in range(PARTITIONS)), "a copy of all", 60)

    simulate(check)


@pytest.mark.parametrize(("size", "order"), [(60_000, ["c-0", "a-0", "b-0"]), (40_000, ["a-0", "b-0", "c-0"])])
def test_the_partitions_without_records_come_first_after_a_full_answer(size: int, order: list[str]) -> None:
    async def check() -> None:
        leader = internal.LiveBroker(broker_id=1, host="h", port=1, broker_epoch=1)
        fetcher = LeaderFetcher(leader, BrokerConfig(zookeeper="z:1", host="h"), lambda: 1, Throttle())
        for topic in "abc":
            fetcher.add(cast("Any", SimpleNamespace(replica=SimpleNamespace(key=f"{topic}-0"))))
        fetcher._rotate(
            internal.ReplicaFetchResponse(
                error_code=0,
                partitions=[
                    internal.ReplicaFetchedPartition(
                        topic=topic, partition=0, error_code=0, log_start=0, records=bytes(0 if topic == "c" else size)
                    )
                    for topic in "abc"
                ],
            )
        )
        assert list(fetcher._followed) == order

    asyncio.run(check())
