"""Scene for tests of reassignments: a partition on three of four brokers, clients that write to it, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kazoo.exceptions import ConnectionLoss, KazooException, OperationTimeoutError, SessionExpiredError

from assay.cluster.sim.node import SimNode
from assay.system_under_test.client.admin import Admin, NewTopic
from assay.system_under_test.client.errors import Certainty, ReadFailed, SendFailed, SendUnknown
from assay.system_under_test.deployment import Broker
from assay.system_under_test.runtime import ZooKeeper

from helpers.sim_brokers import DATA, Brokers, brokers, until, zookeeper_of

T = TypeVar("T")
TOPIC, KEY = "moved", "moved-0"
REASSIGN = "/admin/reassign_partitions"
PREFERRED = "/admin/preferred_replica_election"


@dataclass
class Moving:
    cluster: Brokers
    zookeeper: ZooKeeper
    admin: Admin
    sent: dict[int, bytes] = field(default_factory=dict)
    """Acknowledged messages, by offset."""

    async def json(self, path: str) -> Any:
        """Its content, whatever happens to ZooKeeper meanwhile."""
        return json.loads(await self._persistently(lambda: self._content(path)))

    async def _content(self, path: str) -> bytes:
        return (await self.zookeeper.get(path))[0]

    async def _persistently(self, read: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await read()
            except (ConnectionLoss, SessionExpiredError, OperationTimeoutError):
                await asyncio.sleep(0.05)

    async def assignment(self, topic: str = TOPIC) -> list[int]:
        return list((await self.json(f"/brokers/topics/{topic}"))["partitions"]["0"])

    async def state(self, topic: str = TOPIC) -> Any:
        return await self.json(f"/brokers/topics/{topic}/partitions/0/state")

    async def ask(self, replicas: Sequence[int], topic: str = TOPIC) -> None:
        """As kafka-reassign-partitions.sh does it."""
        await self.write(REASSIGN, [{"topic": topic, "partition": 0, "replicas": list(replicas)}])

    async def write(self, path: str, partitions: list[Any]) -> None:
        await self.zookeeper.create(path, json.dumps({"version": 1, "partitions": partitions}).encode())

    async def ask_anyhow(self, replicas: Sequence[int]) -> None:
        """Over what is under way, too, and again until it is known to be written."""
        while True:
            try:
                if await self.gone():
                    await self.ask(replicas)
                else:
                    entry = {"topic": TOPIC, "partition": 0, "replicas": list(replicas)}
                    await self.zookeeper.set(REASSIGN, json.dumps({"version": 1, "partitions": [entry]}).encode())
                return
            except KazooException:
                await asyncio.sleep(0.05)

    async def gone(self, path: str = REASSIGN) -> bool:
        return await self._persistently(lambda: self.zookeeper.exists(path)) is None

    async def moved(self, replicas: Sequence[int], seconds: float = 40.0, topic: str = TOPIC) -> None:
        """The entry is gone, all are where they should be, and no one else has files."""
        await until(self.gone, "the reassignment has ended", seconds)
        assert await self.assignment(topic) == list(replicas)
        await until(lambda: self._settled(replicas, topic), f"{replicas} are in sync and lead", seconds)
        assert self.having(topic) == sorted(replicas)

    async def _settled(self, replicas: Sequence[int], topic: str) -> bool:
        state = await self.state(topic)
        return sorted(state["isr"]) == sorted(replicas) and state["leader"] in replicas

    def having(self, topic: str = TOPIC) -> list[int]:
        """Who has files of the partition."""
        return [
            node.index
            for node in self.cluster.nodes
            if any(path.lstrip("/").startswith(f"{DATA}/{topic}-0") for path in node.disk.files())
        ]

    def node(self, broker: int) -> SimNode:
        return self.cluster.nodes[broker - 1]

    async def held_back(self, broker: int) -> None:
        """It lives, and copies nothing: cut off from the other brokers, not from ZooKeeper, and not the controller."""
        node = self.node(broker)
        while await self.cluster.controller() is node:
            await self.zookeeper.delete("/controller")
            await asyncio.sleep(1)
        await self.cluster.cut(node, [other for other in self.cluster.nodes if other is not node])

    async def send_for_ever(self) -> None:
        producer = self.cluster.producer_with(acks=-1, timeout=2.0)
        number = 0
        while True:
            value = f"value-{number}".encode()
            number += 1
            with contextlib.suppress(SendFailed, SendUnknown):
                self.sent[(await producer.send(TOPIC, 0, [(None, value)])).base_offset] = value
            await asyncio.sleep(0.01)

    async def read_all(self) -> dict[int, bytes | None]:
        found: dict[int, bytes | None] = {}
        while not self.sent or max(self.sent) not in found:
            try:
                result = await self.cluster.consumer.fetch(TOPIC, 0, max(found, default=-1) + 1)
            except ReadFailed:
                continue
            found.update((message.offset, message.value) for message in result.messages)
        return found

    def events(self, name: str) -> list[dict[str, Any]]:
        found = [event for node in self.cluster.nodes for event in self.cluster.events(node, name)]
        return [event for event in found if event["key"] == KEY]


@asynccontextmanager
async def moving(seed: int = 1, replicas: Sequence[int] = (1, 2, 3)) -> AsyncIterator[Moving]:
    """The partition, on ``replicas``, of four brokers."""
    async with brokers(Broker(partitions=1), seed=seed, nodes=4) as cluster:
        zookeeper = await zookeeper_of(cluster)
        admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
        made = await admin.create_topics(
            [NewTopic(TOPIC, assignment={0: list(replicas)}, configs={"min.insync.replicas": "2"})]
        )
        assert made[TOPIC].outcome is Certainty.DONE
        test = Moving(cluster, zookeeper, admin)
        await until(lambda: test.having() == sorted(replicas), "all have made theirs")
        try:
            yield test
        finally:
            await admin.close()
            await zookeeper.close()


@asynccontextmanager
async def load(test: Moving) -> AsyncIterator[None]:
    """Clients write; at the end everything acknowledged is still there, where it was."""
    writers = [asyncio.ensure_future(test.send_for_ever()) for _ in range(2)]
    await until(lambda: len(test.sent) > 5, "records are acknowledged")
    try:
        yield
        reached = len(test.sent)
        await until(lambda: len(test.sent) > reached, "records are acknowledged again")
    finally:
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
    async with asyncio.timeout(60):  # for ever, where the last record is lost
        found = await test.read_all()
    lost = {offset: value for offset, value in test.sent.items() if found.get(offset) != value}
    assert not lost, f"acknowledged, and lost: {lost}"
