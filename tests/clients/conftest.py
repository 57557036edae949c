"""A cluster of three brokers in Docker, and other people's clients, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.cluster.deploy import start_system
from assay.cluster.docker import DockerCluster
from assay.cluster.doctor import docker_available
from assay.cluster.node import by_role
from assay.harness.run.system_on_network import SystemOnNetwork
from assay.system_under_test.broker_rpc import ask_metadata
from assay.system_under_test.deployment import BROKER, EVENT_LOG, PORT, Broker

from helpers.other_clients import CLIENTS

HERE = Path(__file__).parent
INSTALLED = Path(sys.prefix) / "clients"
PATIENCE = 120.0


@dataclass
class Live:
    """The cluster; its nodes are asked to do things on its own loop, in its own thread."""

    cluster: DockerCluster
    loop: asyncio.AbstractEventLoop

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{node.address}:{PORT}" for node in by_role(self.cluster, BROKER))

    def driver(self, adapter: str, package: Path | None = None) -> Driver:
        return Driver(adapter, self.bootstrap, package)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Returns those of this name, of all brokers, by broker and in each one's order."""
        lines: list[bytes] = []
        for node in by_role(self.cluster, BROKER):
            reading = node.read_file(EVENT_LOG)
            lines += asyncio.run_coroutine_threadsafe(reading, self.loop).result(PATIENCE).splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def known_everywhere(self, topic: str, partitions: int) -> bool:
        """Whether every broker knows a leader of each partition. A client asks another broker each time, and one that
        has not yet been sent a new topic says rightly that there is none.
        """
        return all(self._led(node.address, topic) == set(range(partitions)) for node in by_role(self.cluster, BROKER))

    def _led(self, address: str, name: str) -> set[int]:
        """The topic's partitions that have a leader, as this broker knows them."""
        answer = asyncio.run_coroutine_threadsafe(ask_metadata(address, PORT), self.loop).result(PATIENCE)
        topics = [] if answer is None else [topic for topic in answer.topics if topic.topic == name]
        return {part.partition for topic in topics for part in topic.partitions if part.leader > 0}

    def do(self, action: str, broker: int) -> None:
        """``kill`` or ``start`` one broker."""
        node = next(node for node in by_role(self.cluster, BROKER) if node.index == broker)
        asyncio.run_coroutine_threadsafe(getattr(node, action)(), self.loop).result(PATIENCE)


class Driver:
    """A client in its process: ``driver.read(topic="t", ...)`` calls its adapter there."""

    def __init__(self, adapter: str, bootstrap: str, package: Path | None) -> None:
        environment = {**os.environ, "PYTHONPATH": "" if package is None else str(package)}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "drivers" / "serve.py"), adapter, bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def begin(self, name: str, **arguments: Any) -> None:
        """Has it called; ``end`` waits for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()

    def end(self) -> Any:
        line = self._answers.get(timeout=PATIENCE)
        assert line, "the client's process ended"
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["value"]

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.begin(name, **arguments)
            return self.end()

        return call

    def kill(self) -> None:
        """Ends it without a word to anybody, with what it has started."""
        os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join()
        self._process.stdout.close()


@pytest.fixture(scope="package")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    if not docker_available():
        pytest.skip("no Docker engine answers, or no node image can be made; `assay doctor` says what is missing")
    system = Broker(partitions=0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    on_network = SystemOnNetwork(system, None)
    cluster = DockerCluster(
        on_network,
        {"zookeeper": 1, "broker": 3},
        run_id="test-clients",
        seed=1,
        state_dir=tmp_path_factory.mktemp("state"),
    )

    async def start() -> None:
        await cluster.start()
        if cluster.worker_command is not None:
            pytest.skip("this machine does not reach the engine's networks, and the clients of others run here")
        await start_system(system, cluster, 90, lambda line: None)

    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE)
        yield Live(cluster, loop)
    finally:
        asyncio.run_coroutine_threadsafe(cluster.close(), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass
class Kind:
    """A client of others, of which a test may have several."""

    name: str
    adapter: str
    package: Path | None
    live: Live

    def start(self) -> Driver:
        return self.live.driver(self.adapter, self.package)


@pytest.fixture(params=list(CLIENTS), scope="module")
def kind(request: pytest.FixtureRequest, live: Live) -> Kind:
    adapter, folder = CLIENTS[request.param]
    package = None if folder is None else INSTALLED / folder
    if (adapter == "kcat" and shutil.which("kcat") is None) or (package is not None and not package.is_dir()):
        pytest.skip(f"{request.param} is not installed; `make clients` does it")
    return Kind(request.param, adapter, package, live)


@pytest.fixture(scope="module")
def client(kind: Kind) -> Iterator[Driver]:
    driver = kind.start()
    try:
        yield driver
    finally:
        driver.close()
