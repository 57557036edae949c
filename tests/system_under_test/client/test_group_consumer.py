"""Consumers of a group read everything once while nobody dies, and what is committed is not read again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sim_brokers import Brokers, brokers, simulate, until

from system_under_test.client.errors import Outcome
from system_under_test.client.group_consumer import GroupConsumer, Received
from system_under_test.client.membership import CommitFailed
from system_under_test.deployment import Broker

PARTITIONS = 4


def consumer(cluster: Brokers, **settings: Any) -> GroupConsumer:
    made = GroupConsumer(
        cluster.bootstrap,
        "g",
        ["orders"],
        runtime=cluster.cluster.harness_runtime(),
        **({"session_timeout": 2.0, "rebalance_timeout": 3.0} | settings),
    )
    cluster._open.append(made)
    return made


async def fill(cluster: Brokers, word: str, count: int = 20) -> set[bytes]:
    values = set()
    for partition in range(PARTITIONS):
        records = [(None, f"{word}-{partition}-{number}".encode()) for number in range(count)]
        await cluster.producer.send("orders", partition, records)
        values |= {value for _, value in records}
    return values


class Reader:
    """Polls and commits until it is stopped."""

    def __init__(self, one: GroupConsumer) -> None:
        self.consumer = one
        self.records: list[Received] = []
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        while True:
            self.records += await self.consumer.poll(0.5)
            try:
                await self.consumer.commit()
            except CommitFailed:
                continue

    @property
    def values(self) -> set[bytes | None]:
        return {record.value for record in self.records}

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def test_members_read_everything_and_the_next_ones_read_on() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            first = await fill(cluster, "first")
            one, two = Reader(consumer(cluster)), Reader(consumer(cluster))
            await until(lambda: one.values | two.values >= first, "all is read", 30)
            await until(
                lambda: (
                    all(r.consumer.generation is not None and r.consumer.generation.partitions for r in (one, two))
                    and one.consumer.generation is not None
                    and two.consumer.generation is not None
                    and one.consumer.generation.number == two.consumer.generation.number
                ),
                "both own something",
                30,
            )
            second = await fill(cluster, "second")
            await until(lambda: one.values | two.values >= second, "and what comes later", 30)
            for reader in (one, two):
                offsets: dict[int, int] = {}
                for record in reader.records:
                    assert record.offset >= offsets.get(record.partition, 0) or record.value in first
                    offsets[record.partition] = record.offset
            await asyncio.sleep(1.0)
            await one.stop()
            await two.stop()
            await one.consumer.close()
            await two.consumer.close(leave=False)
            third = await fill(cluster, "third")
            three = Reader(consumer(cluster))
            await until(lambda: three.values >= third, "the next one reads on", 30)
            assert three.values == third
            await three.stop()

    simulate(check)


def test_it_tells_what_it_gets_and_loses_and_may_seek() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            everything = await fill(cluster, "x", 3)
            told: list[tuple[str, int]] = []
            one = consumer(
                cluster,
                on_assigned=lambda partitions: told.append(("assigned", len(partitions))),
                on_revoked=lambda partitions: told.append(("revoked", len(partitions))),
            )
            found: list[Received] = []
            while len(found) < len(everything):
                found += await one.poll(1.0)
            assert told == [("assigned", PARTITIONS)]
            assert [record.offset for record in found if record.partition == 1] == [0, 1, 2]
            one.seek(("orders", 1), 1)
            assert [record.offset for record in await one.poll(1.0)] == [1, 2]
            assert one.position(("orders", 1)) == 3
            one.seek(("orders", 1), 99)  # beyond the end: starts anew where it was told to
            assert await one.poll(0.0) == []
            assert [record.offset for record in await one.poll(1.0)] == [0, 1, 2]
            with pytest.raises(KeyError):
                one.seek(("orders", 9), 0)
            await one.close()
            assert told == [("assigned", PARTITIONS), ("revoked", PARTITIONS)]

    simulate(check)


def test_one_that_was_silent_past_its_session_commits_nothing_more() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            await fill(cluster, "x", 3)
            one, two = consumer(cluster), consumer(cluster)
            while len(await one.poll(1.0)) < PARTITIONS:
                pass
            await one.commit("first")
            one.fall_silent(3.0)
            await asyncio.sleep(1.0)
            await two.poll(0.0)  # waits for the other's session
            assert two.generation is not None
            assert len(two.generation.partitions) == PARTITIONS
            assert {two.found(partition).metadata for partition in two.generation.partitions} == {"first"}
            await asyncio.sleep(1.0)
            with pytest.raises(CommitFailed) as refused:
                await one.commit("late")
            assert refused.value.outcome is Outcome.NOT_DONE
            await one.poll(0.0)
            assert one.generation is not None
            assert one.generation.number > two.generation.number

    simulate(check)


def test_latest_begins_at_the_end() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            await fill(cluster, "old")
            one = consumer(cluster, reset="latest")
            assert await one.poll(0.5) == []
            new = await fill(cluster, "new", 1)
            found = set()
            while found != new:
                found |= {record.value for record in await one.poll(1.0)}
            with pytest.raises(ValueError, match="earliest or latest"):
                consumer(cluster, reset="middle")

    simulate(check)
