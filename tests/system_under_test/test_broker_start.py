"""A start takes its time, for recovery or because the process was held; its ZooKeeper session may end during it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, SessionExpiredError

from assay.system_under_test import registrar
from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller.topic_settings import ConfigChanges
from assay.system_under_test.log.directory import CLEAN_MARKER
from assay.system_under_test.network.server import Server
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.replicas import Replicas

from helpers.sim_brokers import Brokers, brokers, simulate, until


async def serves(cluster: Brokers) -> None:
    """All three are in sync, which the leader says, and records are acknowledged."""
    await cluster.producer.send("orders", 0, [(None, b"x")])
    leader = await cluster.leader()

    def members() -> list[int]:
        changes = cluster.events(leader, "became-leader") + cluster.events(leader, "isr-change")
        newest: list[int] = max(changes, key=lambda event: (event["incarnation"], event["seq"]))["isr"]
        return newest

    await until(lambda: sorted(members()) == [1, 2, 3], "all in sync", 20)


@pytest.mark.parametrize("error", [SessionExpiredError, ConnectionLoss])
def test_a_session_that_ends_during_recovery_does_not_end_the_start(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            node = cluster.nodes[0]
            await node.kill()
            real, failures = registrar.register_broker, [error(), error(), error()]

            async def register(*arguments: Any, **more: Any) -> int:
                if failures:
                    raise failures.pop()
                return await real(*arguments, **more)

            monkeypatch.setattr(registrar, "register_broker", register)
            before = len(cluster.events(node, "registered"))
            await node.start()
            await until(lambda: len(cluster.events(node, "registered")) == before + 1, "registered in the end")
            await asyncio.sleep(5)
            await serves(cluster)
            assert failures == []

    simulate(check)


def test_a_session_that_ends_between_registration_and_service_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            node, once = cluster.nodes[0], []
            await node.kill()
            real = Server.start

            async def start(self: Any, *arguments: Any) -> None:
                await real(self, *arguments)
                if not once:
                    once.append(self)
                    await asyncio.sleep(12)

            monkeypatch.setattr(Server, "start", start)
            before = len(cluster.events(node, "registered"))
            await node.start()
            await until(lambda: len(cluster.events(node, "registered")) == before + 1, "the first registration")
            await node.drop_from(cluster.zookeepers)
            await asyncio.sleep(6)
            await node.accept_all()
            await serves(cluster)
            assert len(cluster.events(node, "registered")) == before + 2
            assert len(cluster.events(node, "session-lost")) == 1

    simulate(check)


def test_zookeeper_may_go_away_while_a_start_waits_for_its_former_life_to_end() -> None:
    """Without ZooKeeper no session ends: that time does not count against the registration that is in the way."""

    async def check() -> None:
        async with brokers() as cluster:
            node = cluster.nodes[0]
            before = len(cluster.events(node, "registered"))
            await node.kill()
            await node.start()
            await asyncio.sleep(0.5)
            for server in cluster.zookeepers:
                await server.kill()
            await asyncio.sleep(10)
            for server in cluster.zookeepers:
                await server.start()
            await until(lambda: len(cluster.events(node, "registered")) == before + 1, "registered in the end", 20)
            await serves(cluster)

    simulate(check)


@pytest.mark.parametrize(
    ("part", "step"),
    [
        *((registrar.Registrar, step) for step in ("prepare_zookeeper", "claim_directory", "set_strays_aside")),
        (ConfigChanges, "read_all"),
        (registrar.Registrar, "register"),
    ],
)
def test_zookeeper_may_fail_half_way_through_a_start_for_longer_than_a_start_waits_for_it_to_begin(
    monkeypatch: pytest.MonkeyPatch, part: type, step: str
) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            node, once = cluster.nodes[0], []
            before = len(cluster.events(node, "registered"))
            await node.terminate()
            real = getattr(part, step)

            async def failing(self: Any) -> Any:
                if not once:
                    once.append(step)
                    for server in cluster.zookeepers:
                        await server.kill()
                return await real(self)

            monkeypatch.setattr(part, step, failing)
            await node.start()
            await asyncio.sleep(40)
            assert once == [step]
            assert node.exit_code is None, "it waits"
            assert len(cluster.events(node, "registered")) == before
            for server in cluster.zookeepers:
                await server.start()
            await until(lambda: len(cluster.events(node, "registered")) > before, "registered in the end", 20)
            assert cluster.events(node, "registered")[-1]["detail"]["clean_since"] is not None, "its clean stop counts"
            await serves(cluster)

    simulate(check)


def test_a_broker_is_stopped_in_order_while_it_cannot_register_what_it_has_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its session was replaced, a log is damaged, and ZooKeeper does not answer: no clean life is left to note."""

    async def check() -> None:
        async with brokers() as cluster:
            node = cluster.nodes[0]
            tries = 0

            async def register(*_: Any, **__: Any) -> int:
                nonlocal tries
                tries += 1
                raise ConnectionLoss

            monkeypatch.setattr(registrar, "register_broker", register)
            monkeypatch.setattr(Replicas, "take_records_lost", lambda _: True)
            await node.drop_from(cluster.zookeepers)
            await asyncio.sleep(10)
            await node.accept_all()
            await until(lambda: tries > 1, "it tries to register again")
            await node.terminate()
            await until(lambda: node.exit_code is not None, "it has stopped", 60)
            assert node.exit_code == 0
            assert not any(path.endswith(CLEAN_MARKER) for path in node.disk.files())

    simulate(check)


def test_a_registration_never_lowers_the_controller_epoch_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new controller's request may be obeyed while the epoch of the one before is on its way from ZooKeeper."""

    async def check() -> None:
        async with brokers() as cluster:
            node = cluster.nodes[0]
            managers: dict[int, ReplicaManager] = {}
            real = registrar.read_epoch

            async def known_epoch(zookeeper: Any) -> int:
                known = await real(zookeeper)
                manager = managers[node.index]
                manager.accept_request("update-metadata", 2, known + 1, manager.broker_epoch)
                return known

            made = ReplicaManager.__init__

            def init(self: ReplicaManager, config: BrokerConfig, *arguments: Any) -> None:
                made(self, config, *arguments)
                managers[config.broker_id] = self

            monkeypatch.setattr(ReplicaManager, "__init__", init)
            await node.kill()
            monkeypatch.setattr(registrar, "read_epoch", known_epoch)
            await node.start()
            await until(lambda: len(cluster.events(node, "registered")) == 2, "it is registered", 30)
            obeyed = [event["controller_epoch"] for event in cluster.events(node, "request-obeyed")]
            assert managers[node.index].controller_epoch == max(obeyed)

    simulate(check)
