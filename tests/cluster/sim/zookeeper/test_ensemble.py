"""Tests what the servers of a simulated ensemble share: a session is on one server at a time."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError

from assay.cluster.sim.host import SimHost
from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.process import Process
from assay.cluster.sim.zookeeper.client import SimZooKeeper
from assay.cluster.sim.zookeeper.ensemble import Ensemble
from assay.cluster.sim.zookeeper.server import serve

TIMEOUT = 2.0


class Three:
    """Three servers, and a client on a machine of its own; ``there`` is the server to which that speaks now."""

    def __init__(self, loop: SimLoop) -> None:
        hosts = [loop.network.add_host(f"zk{number}", f"198.18.0.{2 + number}") for number in (1, 2, 3)]
        self.near: SimHost = loop.network.add_host("n1", "198.18.0.2")
        self.network = loop.network
        self.ensemble = Ensemble(loop.network, hosts, loop.time)
        self.servers = [Process(loop, host, host.name, f"{host.name}.1") for host in hosts]
        for server in self.servers:
            server.spawn(serve(self.ensemble), "server")
        self.process = Process(loop, self.near, "n1", "n1.1")
        self.zk = SimZooKeeper(",".join(f"{host.address}:2181" for host in hosts), TIMEOUT, random.Random(1))

    @property
    def there(self) -> Process:
        (to,) = {one.peer.host for one in self.network.connections if one.host is self.near}
        return next(server for server in self.servers if server.host is to)


def simulate(test: Callable[[Three], Coroutine[Any, Any, None]]) -> None:
    loop = SimLoop(3)

    async def main() -> None:
        three = Three(loop)
        await asyncio.sleep(0.5)

        async def connected() -> None:
            await three.zk.connect(5)
            await test(three)

        await three.process.spawn(connected(), "test")
        three.process.kill()
        for server in three.servers:
            server.kill()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("moved", [True, False])
def test_what_a_server_reads_late_counts_only_as_long_as_the_session_is_with_it(moved: bool) -> None:
    """The real one rejects it with SessionMoved: a write that the client has given up would come out of nowhere."""

    async def test(three: Three) -> None:
        first = three.there
        first.stop()
        writing = asyncio.ensure_future(three.zk.create("/late"))
        if moved:
            with pytest.raises(ConnectionLoss):
                await writing
            await three.zk.create("/after")
            assert three.there is not first
        first.resume()
        await asyncio.sleep(1)
        if moved:
            with pytest.raises(NoNodeError):
                await three.zk.get("/late")
        else:
            assert await writing == "/late"
            assert await three.zk.get("/late")

    simulate(test)


def test_an_error_that_a_killed_process_does_not_take_is_not_reported() -> None:
    loop = SimLoop(3)
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))

    async def main() -> None:
        three = Three(loop)
        await asyncio.sleep(0.5)
        await three.process.spawn(three.zk.connect(5), "connect")
        three.there.stop()
        writing = three.process.spawn(three.zk.create("/late"), "test")
        await asyncio.sleep(0.1)
        three.zk._notify_listeners = lambda *_: three.process.kill()  # type: ignore[method-assign]  # right after it has failed
        three.there.kill()
        await asyncio.sleep(1)
        assert three.process.dead
        assert not writing.done() or writing.cancelled()
        for server in three.servers:
            server.kill()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    gc.collect()
    assert reported == []
