"""A real broker process on loopback with a real ZooKeeper server, for tests of what the simulation has not: memory and
the machine's own sockets.
"""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.cluster.zookeeper import JARS, is_serving, render_configuration, server_command
from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from assay.system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from assay.system_under_test.protocol.topics import CreatableTopic, CreateTopicsRequest
from assay.system_under_test.records import message_set

MB = 1024 * 1024
TOPIC = "orders"
"""Made at the start, of one partition; its first message is one zero byte."""


@dataclass
class Process:
    """The broker; ``log`` is what it says; ``zookeeper`` is its server's address."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    zookeeper: str

    def memory(self) -> int:
        """Resident bytes now."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def lines(self, *words: str) -> int:
        """How many lines have all these words."""
        return sum(all(word in line for word in words) for line in self.log.read_text().splitlines())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _as_in_a_login_shell() -> None:
    """1,024 open files at first, which are not enough for the connections that there may be."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def skip_without_zookeeper() -> None:
    """Skips the test on a machine without a ZooKeeper server, and says what is missing."""
    missing = [jar for jar in JARS.split(":") if not Path(jar).exists()]
    missing += ["java"] if shutil.which("java") is None else []
    if missing:
        pytest.skip(
            f"needs a ZooKeeper server, and there is no {', '.join(missing)}: `make zookeeper`, or as root "
            "`apt-get install default-jre-headless libzookeeper-java libslf4j-java`"
        )


@contextmanager
def running_broker(folder: Path) -> Iterator[Process]:
    """A broker with its topic. Skips the test where it cannot be had; fails it when the broker ended or erred."""
    skip_without_zookeeper()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4_000:
        pytest.skip(f"needs 4,000 open files, {hard} are allowed: ulimit -Hn 4000")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4_000), hard))
    zookeeper_port, port = free_port(), free_port()
    (folder / "zoo.cfg").write_text(
        render_configuration(
            {1: "127.0.0.1"},
            data=str(folder / "zookeeper"),
            port=zookeeper_port,
            extra={"clientPortAddress": "127.0.0.1"},
        )
    )
    config = {
        "broker_id": 1,
        "zookeeper": f"127.0.0.1:{zookeeper_port}",
        "host": "127.0.0.1",
        "port": port,
        "data_dir": str(folder / "data"),
    }
    (folder / "broker.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "assay.system_under_test", "broker", "--config", str(folder / "broker.json")]
    with (folder / "zookeeper.log").open("wb") as said, (folder / "broker.log").open("wb") as log:
        zookeeper = subprocess.Popen(
            server_command(config=str(folder / "zoo.cfg")), stdout=said, stderr=said, cwd=folder
        )
        try:
            asyncio.run(until(lambda: is_serving("127.0.0.1", zookeeper_port), "ZooKeeper serves", 30))
            broker = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_as_in_a_login_shell)
            try:
                made = Process(broker, port, folder / "broker.log", f"127.0.0.1:{zookeeper_port}")
                asyncio.run(until(lambda: _create_topic(port), "the broker has its topic", 30))
                yield made
                assert broker.poll() is None, made.log.read_text()[-2_000:]
                assert made.lines("Traceback") == 0, made.log.read_text()[-2_000:]
            finally:
                broker.kill()
                broker.wait()
        finally:
            zookeeper.kill()
            zookeeper.wait()


async def until(condition: Callable[[], Coroutine[None, None, bool]], what: str, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await condition():  # noqa: ASYNC110 (what is waited for is another process)
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"not within {seconds} s: {what}")


async def _create_topic(port: int) -> bool:
    try:
        connection = await Connection.open("127.0.0.1", port, 1.0)
    except CallError:
        return False
    try:
        topic = CreatableTopic(topic=TOPIC, num_partitions=1, replication_factor=1)
        await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=2_000), 1, 5.0)
        return (await connection.call(produce(bytes(1)), 2, 5.0)).topics[0].partitions[0].error_code == 0
    finally:
        await connection.close()


def produce(value: bytes) -> ProduceRequest:
    """A message made now: retention looks at its age."""
    part = ProducePartition(partition=0, records=message_set.build([(None, value, int(time.time() * 1000))]))
    return ProduceRequest(acks=-1, timeout_ms=1_000, topics=[ProduceTopic(topic=TOPIC, partitions=[part])])


def fetch(offset: int) -> FetchRequest:
    part = FetchPartition(partition=0, offset=offset, max_bytes=2**31 - 1)
    topics = [FetchTopic(topic=TOPIC, partitions=[part])]
    return FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=2**31 - 1, topics=topics)
