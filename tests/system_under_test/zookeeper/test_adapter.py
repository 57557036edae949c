"""kazoo behind the seam, against a real ZooKeeper server, keeps the same promises; and it leaves no thread behind."""

from __future__ import annotations

import asyncio
import functools
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from assay.cluster.zookeeper import is_serving, render_configuration, server_command
from assay.system_under_test.zookeeper.adapter import KazooZooKeeper

from helpers.broker_process import skip_without_zookeeper
from helpers.zookeeper_conformance import *  # noqa: F403
from helpers.zookeeper_conformance import LASTING, Events

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    skip_without_zookeeper()
    folder = tmp_path_factory.mktemp("zookeeper")
    port = free_port()
    config = folder / "zoo.cfg"
    extra = {"clientPortAddress": "127.0.0.1"}
    config.write_text(render_configuration({1: "127.0.0.1"}, data=str(folder / "data"), port=port, extra=extra))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(server_command(config=str(config)), stdout=log, stderr=log, cwd=folder)
    try:
        serving = asyncio.run(until_serving(port, process))
        assert serving, f"ZooKeeper did not start within 30 s:\n{(folder / 'log').read_text()}"
        yield "127.0.0.1", port
    finally:
        process.kill()
        process.wait()


async def until_serving(port: int, process: subprocess.Popen[bytes]) -> bool:
    try:
        async with asyncio.timeout(30):
            while not await is_serving("127.0.0.1", port):
                if process.poll() is not None:
                    return False
                await asyncio.sleep(0.1)
    except TimeoutError:
        return False
    return True


class Link:
    """A forwarder between a client and the server that can fall silent or refuse."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # it was accepted in the turn in which the link went down
            writer.transport.abort()
            return
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._writers.add(far_writer)
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            self._tasks.discard(asyncio.current_task())  # type: ignore[arg-type]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # the other end is closed below
        finally:
            writer.close()

    def cut(self) -> None:
        self._open.clear()

    async def down(self) -> None:
        closing, self._server = self._server, None
        if closing is not None:
            closing.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        if closing is not None:
            await closing.wait_closed()  # from Python 3.12 on it waits for the connections, too

    async def restore(self) -> None:
        if not self._open.is_set():
            await self.down()
            self._open.set()
        if self._server is None:
            await self.start()

    async def close(self) -> None:
        await self.down()
        self._open.set()
        tasks = [task for task in self._tasks if not task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=5)


class RealZoo:
    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._link: Link

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            self._link = Link(self._server)
            await self._link.start()
            try:
                await test()
            finally:
                await self._link.close()

        threads = set(threading.enumerate())
        asyncio.run(main())
        left = [thread for thread in set(threading.enumerate()) - threads if "asyncio" not in thread.name]
        assert left == []

    def make(self, servers: str | None = None, timeout: float = LASTING) -> KazooZooKeeper:
        return KazooZooKeeper(servers or f"127.0.0.1:{self._link.port}", timeout)

    async def client(self, timeout: float = LASTING) -> KazooZooKeeper:
        zk = self.make(timeout=timeout)
        await zk.connect(10)
        return zk

    async def outsider(self) -> KazooZooKeeper:
        zk = self.make(f"{self._server[0]}:{self._server[1]}")
        await zk.connect(10)
        return zk

    async def cut(self) -> None:
        self._link.cut()

    async def down(self) -> None:
        await self._link.down()

    async def restore(self) -> None:
        await self._link.restore()


@pytest.fixture
def zoo(server: tuple[str, int]) -> RealZoo:
    return RealZoo(server)


def test_results_and_watch_events_keep_the_order_in_which_they_were_read(zoo: RealZoo) -> None:
    """A result that was read before a watch event is delivered before it, too."""

    async def main() -> None:
        zk = await zoo.client()
        root = await zk.create("/order-", sequence=True)
        for _ in range(100):
            order: list[str] = []
            fired = Events()

            def note(event: Any, order: list[str], fired: Events) -> None:
                order.append("watch")
                fired(event)

            async def read(order: list[str]) -> None:
                await zk.exists(root)
                order.append("read")

            await zk.get(root, functools.partial(note, order=order, fired=fired))
            reading = asyncio.ensure_future(read(order))
            await asyncio.sleep(0)
            await zk.set(root, b"")
            await fired.until(1)
            await reading
            assert order == ["read", "watch"]
        await zk.close()

    zoo.run(main)
