"""The simulation's ZooKeeper keeps the promises of the seam."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

import pytest

from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.process import Process
from assay.cluster.sim.zookeeper.client import SimZooKeeper
from assay.cluster.sim.zookeeper.ensemble import Ensemble
from assay.cluster.sim.zookeeper.server import serve

from helpers.zookeeper_conformance import *  # noqa: F403
from helpers.zookeeper_conformance import LASTING

SERVERS = "198.18.0.3:2181"


class SimulatedZoo:
    def __init__(self) -> None:
        self._loop = SimLoop(seed=7)
        network = self._loop.network
        self._near = network.add_host("n1", "198.18.0.2")
        self._far = network.add_host("zk1", "198.18.0.3")
        self._client = Process(self._loop, self._near, "n1", "n1.1")
        self._ensemble = Ensemble(network, [self._far], self._loop.time)
        self._start()

    def _start(self) -> None:
        self._server = Process(self._loop, self._far, "zk1", "zk1.1")
        self._server.spawn(serve(self._ensemble), "server")

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            await self._client.spawn(test(), "test")
            self._client.kill()
            self._server.kill()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(main())

    def make(self, servers: str | None = None, timeout: float = LASTING) -> SimZooKeeper:
        return SimZooKeeper(servers or SERVERS, timeout, random.Random(1))

    async def client(self, timeout: float = LASTING) -> SimZooKeeper:
        zk = self.make(timeout=timeout)
        await zk.connect(5)
        return zk

    async def outsider(self) -> SimZooKeeper:
        zk = self.make()
        await self._loop.create_task(zk.connect(5), context=Context())
        return zk

    async def cut(self) -> None:
        self._loop.network.drop(self._near, self._far)
        self._loop.network.drop(self._far, self._near)

    async def down(self) -> None:
        self._server.kill()

    async def restore(self) -> None:
        if self._server.dead:
            self._start()
        self._loop.network.heal(self._near)
        self._loop.network.heal(self._far)


@pytest.fixture
def zoo() -> SimulatedZoo:
    return SimulatedZoo()
