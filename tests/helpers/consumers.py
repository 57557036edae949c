"""Consumers of the old design, each on a host of its own that can be cut off, slept or killed alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.process import Process
from assay.system_under_test.client.admin import Admin, NewTopic
from assay.system_under_test.client.errors import ReadFailed
from assay.system_under_test.client.traits import select_client_traits
from assay.system_under_test.client.zookeeper_groups.config import ConnectorConfig
from assay.system_under_test.client.zookeeper_groups.connector import (
    ChangeKind,
    Claim,
    ConsumerConnector,
    OwnershipChange,
)
from assay.system_under_test.client.zookeeper_groups.streams import MessageStream
from assay.system_under_test.client.zookeeper_groups.subscription import TopicFilter

from helpers.sim_brokers import Brokers

Partition = tuple[str, int]


class Consumer:
    """A member that reads all that its streams give, until it is stopped. ``changes`` has each with its loop time."""

    def __init__(self, cluster: Brokers, name: str, defects: Sequence[str] = (), **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self._cluster = cluster
        self._loop = loop
        self._defects = defects
        address = f"198.18.{ord(name[0])}.{ord(name[-1])}"
        self._host = loop.network.add_host(name, address)
        self.process = Process(loop, self._host, name, f"{name}.1")
        own = {"consumer_id": name, "group": "g", "session_timeout": 2.0, "reset": "smallest"}
        self.settings = own | {"bootstrap": cluster.bootstrap} | settings
        self.changes: list[tuple[float, OwnershipChange]] = []
        self.received: list[tuple[float, str, int, int, bytes | None]] = []
        self.claims: list[Claim] = []
        self.connector: ConsumerConnector
        cluster._open.append(self)

    @property
    def values(self) -> Counter[bytes | None]:
        return Counter(value for *_, value in self.received)

    @property
    def owned(self) -> list[Partition]:
        return sorted(self.connector.owned)

    def kinds(self) -> list[ChangeKind]:
        return [change.kind for _, change in self.changes]

    async def start(self, topics: dict[str, int] | None = None, wanted: TopicFilter | None = None) -> None:
        """In its own process; reads with one task for each stream."""

        async def begin() -> None:
            self.connector = ConsumerConnector(
                ConnectorConfig(
                    zookeeper=",".join(f"{node.address}:2181" for node in self._cluster.zookeepers),
                    **self.settings,
                ),
                runtime=self._cluster.cluster.harness_runtime(),
                on_change=lambda change: self.changes.append((self._loop.time(), change)),
                on_claim=self.claims.append,
                traits=select_client_traits(self._defects),
            )
            if wanted is not None:
                streams = await self.connector.create_streams_by_filter(wanted)
            else:
                by_topic = await self.connector.create_streams(topics or {"orders": 1})
                streams = [stream for some in by_topic.values() for stream in some]
            for stream in streams:
                self.process.spawn(self._read(stream), "reader")

        await self.process.spawn(begin(), "begin")

    async def call(self, coroutine: Any) -> Any:
        """From its own host."""
        return await self.process.spawn(coroutine, "call")

    async def cut_from(self, nodes: Sequence[Any]) -> None:
        for node in nodes:
            self._loop.network.drop(self._host, node.host)
            self._loop.network.drop(node.host, self._host)

    async def heal(self) -> None:
        for host in (self._host, *(node.host for node in self._cluster.cluster.nodes)):
            self._loop.network.heal(host)

    async def shutdown(self) -> None:
        await self.call(self.connector.shutdown())

    async def close(self) -> None:
        self.process.kill()

    async def _read(self, stream: MessageStream) -> None:
        while not stream.closed:
            try:
                chunks = await stream.receive(0.5)
            except ReadFailed:
                continue
            for chunk in chunks:
                for message in chunk.messages:
                    line = (self._loop.time(), chunk.topic, chunk.partition, message.offset, message.value)
                    self.received.append(line)


async def make_topic(cluster: Brokers, name: str, partitions: int) -> None:
    admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
    await admin.create_topics([NewTopic(name, partitions, 1)])
    await admin.close()


async def fill(cluster: Brokers, word: str, partitions: int, count: int = 5, topic: str = "orders") -> set[bytes]:
    values = set()
    for partition in range(partitions):
        records = [(None, f"{word}-{partition}-{number}".encode()) for number in range(count)]
        await cluster.producer.send(topic, partition, records)
        values |= {value for _, value in records}
    return values
