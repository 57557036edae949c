"""Throttles of replication: a replica that is out of sync copies at a rate, one that is in sync everything."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from assay.system_under_test.config import ConfigError, TopicConfig
from assay.system_under_test.deployment import Broker
from assay.system_under_test.replication.throttle import (
    FOLLOWER_RATE,
    LEADER_RATE,
    UNLIMITED,
    WINDOW_SECONDS,
    Throttle,
    Throttles,
    lists_replica,
)

from helpers.sim_brokers import Brokers, brokers, simulate, until, zookeeper_of

RATE = 3_000
"""Bytes a second."""
MESSAGE = b"x" * 1_000
COUNT = 100


@pytest.mark.parametrize(
    ("replicas", "partition", "broker", "expected"),
    [
        ("*", 3, 1, True),
        ("", 0, 1, False),
        ("0:1,3:1", 3, 1, True),
        ("0:1, 3:1", 3, 1, True),
        ("0:1,3:2", 3, 1, False),
        ("13:1", 3, 1, False),
    ],
)
def test_which_replicas_are_named(replicas: str, partition: int, broker: int, expected: bool) -> None:
    name = "leader.replication.throttled.replicas"
    assert TopicConfig().override({name: replicas}).leader_replication_throttled_replicas == replicas
    assert lists_replica(replicas, partition, broker) is expected


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("text", ["1", "0:1,", "0:a", "**", "0:1:2", "0:\u00b2"])
def test_what_names_no_replicas_is_refused(side: str, text: str) -> None:
    with pytest.raises(ConfigError, match="partition:broker"):
        TopicConfig().override({f"{side}.replication.throttled.replicas": text})


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    async def check() -> None:
        throttle = Throttle()
        throttle.limit = 10
        throttle.record(60)
        throttle.record(40)
        assert not throttle.exceeded
        await asyncio.sleep(5)
        throttle.record(1)
        assert throttle.exceeded
        await asyncio.sleep(WINDOW_SECONDS - 5)
        assert not throttle.exceeded

    simulate(check)


def test_a_rate_that_makes_no_sense_limits_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        throttles = Throttles()
        throttles.configure({LEADER_RATE: "5", FOLLOWER_RATE: "fast"})
        assert (throttles.leader.limit, throttles.follower.limit) == (5, UNLIMITED)
        assert "'fast'" in caplog.text
        throttles.configure({})
        assert throttles.leader.limit == UNLIMITED

    simulate(check)


async def limit(cluster: Brokers, zookeeper: Any, rate: str) -> None:
    """As kafka-configs.sh does it."""
    for node in cluster.nodes:
        path, data = f"/config/brokers/{node.index}", {"version": 1, "config": {rate: str(RATE)}}
        if await zookeeper.exists(path) is None:
            await zookeeper.create(path, json.dumps(data).encode(), makepath=True)
        else:
            await zookeeper.set(path, json.dumps(data).encode())
        change = {"version": 2, "entity_path": f"brokers/{node.index}"}
        await zookeeper.create("/config/changes/config_change_", json.dumps(change).encode(), sequence=True)
    await asyncio.sleep(1)


async def seconds_to_catch_up(replicas: str, rate: str) -> float:
    """Returns the seconds in which a follower that missed ``COUNT`` messages catches up."""
    system = Broker(partitions=1, replica_fetch_max_bytes=len(MESSAGE) * 2).with_setting(replicas, "*")
    async with brokers(system) as cluster:
        zookeeper = await zookeeper_of(cluster)
        await limit(cluster, zookeeper, rate)
        leader = await cluster.leader("orders-0")
        missing = next(node for node in cluster.nodes if node is not leader)
        await missing.kill()

        async def in_sync() -> int:
            return len(json.loads((await zookeeper.get("/brokers/topics/orders/partitions/0/state"))[0])["isr"])

        async def left() -> bool:
            return await in_sync() == 2

        async def back() -> bool:
            return await in_sync() == 3

        await until(left, "it is out of sync, and no term of the leader ends during a send")
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(COUNT):
            await cluster.producer.send("orders", 0, [(None, MESSAGE)])
        assert loop.time() - began < 10, "the other follower is in sync, and is not held up"

        await missing.start()
        began = loop.time()
        await until(back, "it has caught up", 200)
        await zookeeper.close()
        return loop.time() - began


@pytest.mark.slow
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_catches_up_at_the_rate_and_another_at_once(side: str) -> None:
    other = {"leader": "follower", "follower": "leader"}[side]

    async def check() -> None:
        replicas = f"{side}.replication.throttled.replicas"
        slow = await seconds_to_catch_up(replicas, f"{side}.replication.throttled.rate")
        fast = await seconds_to_catch_up(replicas, f"{other}.replication.throttled.rate")
        assert fast < 8
        assert COUNT * len(MESSAGE) / RATE - WINDOW_SECONDS - 2 < slow < 3 * COUNT * len(MESSAGE) / RATE

    simulate(check)
