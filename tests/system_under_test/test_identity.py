"""Broker ids that are generated: unique, greater than those that may be configured, and kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError, NoNodeError, OperationTimeoutError, SessionExpiredError

from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.disk import SimDisk
from assay.cluster.sim.node import SimNode
from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.deployment import CONFIG_FILE, Broker
from assay.system_under_test.identity import BrokerError, fill_in_id
from assay.system_under_test.log.directory import read_meta_properties

from helpers.sim_brokers import DATA, simulate, until


@dataclass(frozen=True)
class Unnamed(Broker):
    """Brokers whose configuration has no id."""

    reserved: int = 1000

    def files(self, node: Any, cluster: Any) -> Mapping[str, bytes]:
        config = json.loads(super().files(node, cluster)[CONFIG_FILE])
        del config["broker_id"]
        return {CONFIG_FILE: json.dumps(config | {"reserved_broker_max_id": self.reserved}).encode()}


def ids(node: SimNode) -> list[int]:
    """Under which each of its lives registered so far."""
    events = [json.loads(line) for line in node.log._lines]
    return [event["value"] for event in events if event["event"] == "registered"]


def kept(node: SimNode) -> int | None:
    found = read_meta_properties(node.disk.storage(), DATA)
    return found and found.broker_id


async def started(node: SimNode) -> int:
    lives = len(ids(node))
    await node.start()
    await until(lambda: len(ids(node)) > lives, f"{node.name} is registered")
    return ids(node)[-1]


@asynccontextmanager
async def nodes_of(brokers: int, system: Broker) -> AsyncIterator[list[SimNode]]:
    """None of the brokers is started; ZooKeeper is."""
    cluster = SimCluster(system, {"zookeeper": 1, "broker": brokers}, 1)
    try:
        await cluster.nodes[0].start()
        yield cluster.nodes[1:]
        assert not cluster.crashes
    finally:
        await cluster.close()


@pytest.mark.parametrize("reserved", [1000, 0, 7])
def test_brokers_without_an_id_get_one_each_above_the_reserved_ones(reserved: int) -> None:
    async def check() -> None:
        async with nodes_of(3, Unnamed(reserved=reserved)) as nodes:
            for node in nodes:  # all at once
                await node.start()
            await until(lambda: all(ids(node) for node in nodes), "all are registered")
            assert sorted(ids(node)[0] for node in nodes) == [reserved + 1, reserved + 2, reserved + 3]
            assert [kept(node) for node in nodes] == [ids(node)[0] for node in nodes]

    simulate(check)


def test_an_id_stays_with_its_data_directory() -> None:
    async def check() -> None:
        async with nodes_of(2, Unnamed()) as (first, second):
            assert await started(first) == 1001
            assert await started(second) == 1002
            await first.kill()
            assert await started(first) == 1001
            await first.kill()
            first.disk.remove(DATA)
            assert await started(first) == 1003

    simulate(check)


def test_a_generated_id_may_be_configured_later_if_it_is_no_longer_above_the_reserved_ones() -> None:
    async def check() -> None:
        async with nodes_of(1, Unnamed()) as (node,):
            assert await started(node) == 1001
            await node.kill()
            config = json.loads(await node.read_file(CONFIG_FILE))
            named = config | {"broker_id": 1001, "reserved_broker_max_id": 2000}
            await node.write_file(CONFIG_FILE, json.dumps(named).encode())
            assert await started(node) == 1001

    simulate(check)


class Losing:
    """A ZooKeeper whose first answers are lost; ``lost`` says of what."""

    def __init__(self, lost: Sequence[Exception]) -> None:
        self.lost = list(lost)
        self.versions = -1
        self.closed = False

    async def connect(self, _: float) -> None: ...

    async def close(self) -> None:
        self.closed = True

    async def create(self, path: str, *, makepath: bool) -> None:
        assert (path, makepath) == ("/brokers/seqid", True)
        self.versions = 0

    async def set(self, path: str, _: bytes) -> Any:
        assert path == "/brokers/seqid"
        if self.versions < 0:
            raise NoNodeError
        self.versions += 1
        if self.lost:
            raise self.lost.pop(0)
        return SimpleNamespace(version=self.versions)


@pytest.mark.parametrize("lost", [[], [ConnectionLoss()], [SessionExpiredError(), OperationTimeoutError()]], ids=str)
def test_an_id_whose_answer_was_lost_is_given_to_no_one(lost: list[Exception]) -> None:
    zookeeper = Losing(lost)
    runtime: Any = SimpleNamespace(storage=SimDisk(Random(1)).storage(), zookeeper=lambda *_: zookeeper)

    async def check() -> None:
        config = await fill_in_id(BrokerConfig("zk:2181", "h"), runtime)
        assert config.broker_id == 1001 + len(lost)
        assert zookeeper.closed

    simulate(check)


def test_any_other_answer_of_zookeeper_ends_the_start() -> None:
    runtime: Any = SimpleNamespace(
        storage=SimDisk(Random(1)).storage(), zookeeper=lambda *_: Losing([NoAuthError("not for you")])
    )

    async def check() -> None:
        with pytest.raises(BrokerError, match=r"zk:2181.*not for you"):
            await fill_in_id(BrokerConfig("zk:2181", "h"), runtime)

    simulate(check)


def test_a_damaged_note_of_the_id_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        async with nodes_of(1, Unnamed()) as (node,):
            await started(node)
            await node.kill()
            node.disk.write(f"{DATA}/meta.properties", b"version=0\n")
            await node.start()
            await until(lambda: node.exit_code is not None, "it gives up")
            assert node.exit_code == 1

    simulate(check)
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "no usable broker.id" in said[0]
