"""A live broker stays in the cluster, also if someone deletes its registration; an old form of one counts as well."""

from __future__ import annotations

import asyncio
import json

import pytest

from assay.cluster.node import ProcessState
from assay.cluster.sim.node import SimNode
from assay.system_under_test.client.admin import Admin
from assay.system_under_test.deployment import Broker
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths

from helpers.sim_brokers import Brokers, brokers, simulate, until, zookeeper_of

SESSION = 3.0
"""Seconds of a broker's session, by default."""


async def one_of(cluster: Brokers, role: str) -> SimNode:
    controller = await cluster.controller()
    return controller if role == "controller" else next(node for node in cluster.nodes if node is not controller)


async def remove(zookeeper: ZooKeeper, path: str, how: str) -> None:
    if how == "deleted":
        await zookeeper.delete(path)
    else:
        await zookeeper.set(path, b"nonsense")


@pytest.mark.parametrize("role", ["controller", "other"])
@pytest.mark.parametrize("how", ["deleted", "overwritten"])
def test_a_broker_whose_registration_is_removed_by_hand_registers_again_within_a_session_timeout(
    how: str, role: str
) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=3)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            node = await one_of(cluster, role)
            path = paths.broker(node.index)
            for _ in range(2):
                before = await zookeeper.exists(path)
                assert before is not None
                wanted = len(cluster.events(node, "registered")) + 1
                await remove(zookeeper, path, how)

                def again(wanted: int = wanted) -> bool:
                    return len(cluster.events(node, "registered")) == wanted

                await until(again, "it registers again", SESSION)
                now = await zookeeper.exists(path)
                assert now is not None
                assert now.czxid > before.czxid
                assert now.ephemeralOwner == before.ephemeralOwner
                assert json.loads((await zookeeper.get(path))[0])["clean_lives"][-1] == before.czxid

                async def in_sync() -> bool:
                    found = [await zookeeper.get(paths.partition_state("orders", index)) for index in range(3)]
                    return all(sorted(json.loads(data)["isr"]) == [1, 2, 3] for data, _ in found)

                await until(in_sync, "it is in sync everywhere")
                for index in range(3):
                    await cluster.producer.send("orders", index, [(None, b"x")])
            assert cluster.events(node, "session-lost") == []
            assert all([(await one.process()).state is ProcessState.RUNNING for one in cluster.nodes])
            await zookeeper.close()

    simulate(check)


def test_a_registration_that_is_removed_while_its_broker_is_cut_off_is_made_again_when_it_is_back() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            node = await one_of(cluster, "other")
            registered = len(cluster.events(node, "registered"))
            await node.drop_from(cluster.zookeepers)
            await asyncio.sleep(1.5)
            await zookeeper.delete(paths.broker(node.index))
            await node.accept_all()
            await until(lambda: len(cluster.events(node, "registered")) == registered + 1, "it registers again")
            assert await zookeeper.exists(paths.broker(node.index)) is not None
            await zookeeper.close()

    simulate(check)


OLD = {
    "design document": {"jmx_port": -1, "host": "198.18.0.99", "version": 1, "port": 9092},
    "0.8": {"jmx_port": -1, "timestamp": "1428512949385", "host": "198.18.0.99", "version": 1, "port": 9092},
    "0.9": {
        "jmx_port": -1,
        "timestamp": "1428512949385",
        "endpoints": ["PLAINTEXT://198.18.0.99:9092"],
        "host": "198.18.0.99",
        "version": 2,
        "port": 9092,
    },
    "0.10": {
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": ["PLAINTEXT://198.18.0.99:9092"],
        "rack": "r1",
        "jmx_port": -1,
        "host": "198.18.0.99",
        "timestamp": "1428512949385",
        "port": 9092,
        "version": 4,
    },
}


@pytest.mark.parametrize("form", list(OLD))
def test_a_broker_that_is_registered_as_the_old_documents_say_is_a_broker(form: str) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            cluster._open.append(admin)

            async def known() -> set[tuple[int, str, int]]:
                view = await admin.describe(["orders"])
                return {(number, *node.address) for number, node in view.nodes.items()}

            async def there() -> bool:
                return (99, "198.18.0.99", 9092) in await known()

            await zookeeper.create(paths.broker(99), json.dumps(OLD[form]).encode(), ephemeral=True)
            await until(there, "clients learn of it")
            await zookeeper.delete(paths.broker(99))

            async def gone() -> bool:
                return len(await known()) == 3

            await until(gone, "and that it has gone")
            await zookeeper.close()

    simulate(check)
