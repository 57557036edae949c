"""A broker cluster in the simulation, for tests of the broker: one line to have it, and what tests ask of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from assay.cluster.deploy import start_system
from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.node import SimNode
from assay.system_under_test.client.config import ProducerConfig
from assay.system_under_test.client.consumer import SimpleConsumer
from assay.system_under_test.client.sender import Sender
from assay.system_under_test.deployment import Broker
from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol.schema import Request
from assay.system_under_test.records import message_set
from assay.system_under_test.runtime import ZooKeeper

DATA = "var/lib/assay/data"


def simulate(test: Callable[[], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    loop = SimLoop(seed)
    try:
        loop.run_until_complete(test())
    finally:
        loop.close()


async def until(condition: Callable[[], Awaitable[bool] | bool], what: str, seconds: float = 20.0) -> None:
    """Waits in virtual time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        found = condition()
        if found if isinstance(found, bool) else await found:
            return
        assert loop.time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.05)


@dataclass
class Brokers:
    system: Broker
    cluster: SimCluster
    producer: Sender
    consumer: SimpleConsumer
    _open: list[Any] = field(default_factory=list)

    @property
    def nodes(self) -> list[SimNode]:
        return [node for node in self.cluster.nodes if node.role == "broker"]

    @property
    def zookeepers(self) -> list[SimNode]:
        return [node for node in self.cluster.nodes if node.role == "zookeeper"]

    @property
    def bootstrap(self) -> list[str]:
        return [f"{node.address}:9092" for node in self.nodes]

    def producer_with(self, **settings: Any) -> Sender:
        producer = Sender(self.bootstrap, ProducerConfig(**settings), runtime=self.cluster.harness_runtime())
        self._open.append(producer)
        return producer

    async def leader(self, key: str = "orders-0") -> SimNode:
        found = await self.system.find(self.cluster, "leader", key)
        assert found is not None, f"no broker leads {key}"
        return self.nodes[found.index - 1]

    async def controller(self) -> SimNode:
        found = await self.system.find(self.cluster, "controller")
        assert found is not None, "no broker is controller"
        return self.nodes[found.index - 1]

    def events(self, node: SimNode, name: str) -> list[dict[str, Any]]:
        """Returns the events of all incarnations so far."""
        found = [json.loads(line) for line in node.log._lines]
        return [event for event in found if event["event"] == name]

    def stored(self, node: SimNode, key: str) -> list[tuple[int, bytes | None]]:
        """(offset, value) of what is in the node's log files."""
        found: list[tuple[int, bytes | None]] = []
        for path in sorted(node.disk.files()):
            if path.lstrip("/").startswith(f"{DATA}/{key}/") and path.endswith(".log"):
                found += [(m.offset, m.value) for m in message_set.decode(node.disk.read(path))]
        return found

    def cut(self, one: SimNode, others: list[SimNode]) -> Coroutine[Any, Any, None]:
        async def both() -> None:
            await one.drop_from(others)
            for other in others:
                await other.drop_from([one])

        return both()

    async def heal(self) -> None:
        for node in self.cluster.nodes:
            await node.accept_all()


@asynccontextmanager
async def brokers(
    system: Broker | None = None, seed: int = 1, nodes: int = 3, zookeepers: int = 1, spares: int = 0
) -> AsyncIterator[Brokers]:
    system = system or Broker(partitions=1)
    cluster = SimCluster(system, {"zookeeper": zookeepers, "broker": nodes}, seed, spares)
    await cluster.start()
    runtime = cluster.harness_runtime()
    try:
        await start_system(system, cluster, 60, lambda _: None)
        bootstrap = [f"{node.address}:9092" for node in cluster.nodes if node.role == "broker"]
        made = Brokers(system, cluster, Sender(bootstrap, runtime=runtime), SimpleConsumer(bootstrap, runtime=runtime))
        try:
            yield made
        finally:
            for client in (made.producer, made.consumer, *made._open):
                await client.close()
        assert not cluster.crashes, cluster.crashes[0].traceback
    finally:
        await cluster.close()


async def zookeeper_of(cluster: Brokers) -> ZooKeeper:
    """A client of the first server, connected; to be closed."""
    client = cluster.cluster.harness_runtime().zookeeper(f"{cluster.zookeepers[0].address}:2181", 3.0)
    await client.connect(5)
    return client


async def call(node: SimNode, request: Request[Any], version: int = 0) -> Any:
    """Sends a request on a new connection."""
    connection = await Connection.open(node.address, 9092, 1.0)
    try:
        return await connection.call(request, version, 5.0)
    finally:
        await connection.close()
