"""The controller as a whole, in the simulation: elections, fencing, topics, and lives that end and begin."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from assay.cluster.node import ProcessState
from assay.system_under_test.client.admin import Admin, NewTopic
from assay.system_under_test.client.errors import ReadFailed, SendFailed, SendUnknown
from assay.system_under_test.deployment import Broker
from assay.system_under_test.protocol.errors import ErrorCode

from helpers.sim_brokers import DATA, Brokers, brokers, simulate, until

pytestmark = pytest.mark.slow


def controller_epochs(cluster: Brokers) -> list[tuple[int, str]]:
    found = [
        (event["controller_epoch"], node.name)
        for node in cluster.nodes
        for event in cluster.events(node, "became-controller")
    ]
    return sorted(found)


def test_a_controller_that_sleeps_through_its_session_is_replaced_and_resigns_when_it_wakes() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            old = await cluster.controller()
            await old.stop()
            await until(lambda: len(controller_epochs(cluster)) == 2, "another controller")
            await old.resume()
            await until(lambda: cluster.events(old, "resigned-controller") != [], "the old one resigns")
            epochs = controller_epochs(cluster)
            assert [epoch for epoch, _ in epochs] == [1, 2]
            assert epochs[1][1] != old.name
            # no broker obeys the old epoch once it has obeyed the new one
            for node in cluster.nodes:
                obeyed = [e["controller_epoch"] for e in cluster.events(node, "request-obeyed")]
                assert obeyed == sorted(obeyed)
            await until(lambda: len(cluster.events(old, "registered")) == 2, "the old one registers again")
            await cluster.producer.send("orders", 0, [(None, b"x")])

    simulate(check)


def test_nonsense_in_the_state_of_one_partition_ends_no_broker_and_the_others_get_new_leaders() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=3)) as cluster:
            runtime = cluster.cluster.harness_runtime()
            zookeeper = runtime.zookeeper(f"{cluster.zookeepers[0].address}:2181", 3.0)
            await zookeeper.connect(5)
            path = "/brokers/topics/orders/partitions/0/state"
            right, _ = await zookeeper.get(path)
            await zookeeper.set(path, b"}nonsense{")
            leader = await cluster.leader("orders-1")
            await leader.kill()

            async def led() -> bool:
                try:
                    return (
                        await cluster.leader("orders-1") is not leader
                        and await cluster.leader("orders-2") is not leader
                    )
                except AssertionError:
                    return False

            await until(led, "the others have leaders")
            await leader.start()
            await zookeeper.set(path, right)
            other = await cluster.leader("orders-2")
            await other.kill()
            await until(lambda: writable(cluster, 0), "what was mended is led again", 60)
            for node in cluster.nodes:
                if node is not other:
                    assert (await node.process()).state is ProcessState.RUNNING
            await zookeeper.close()

    simulate(check)


async def writable(cluster: Brokers, partition: int) -> bool:
    try:
        await cluster.producer_with(timeout=2.0).send("orders", partition, [(None, b"x")])
    except (SendFailed, SendUnknown):
        return False
    return True


def test_deleting_the_claim_by_hand_forces_an_election_and_no_two_hold_one_epoch() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            runtime = cluster.cluster.harness_runtime()
            zookeeper = runtime.zookeeper(f"{cluster.zookeepers[0].address}:2181", 3.0)
            await zookeeper.connect(5)
            for round_ in range(2, 6):
                await zookeeper.delete("/controller")
                await until(lambda n=round_: len(controller_epochs(cluster)) == n, "an election")  # type: ignore[misc]
            await zookeeper.set("/controller", b'{"version":1,"brokerid":77,"timestamp":"0"}')
            await until(lambda: len(controller_epochs(cluster)) == 6, "an election after the claim was overwritten")
            epochs = [epoch for epoch, _ in controller_epochs(cluster)]
            assert epochs == list(range(1, 7))
            assert (await zookeeper.get("/controller_epoch"))[0] == b"6"
            await zookeeper.close()

    simulate(check)


def test_a_quick_bounce_is_a_failure_and_then_a_start() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            leader = await cluster.leader()
            await leader.kill()
            await leader.start()  # well within the old session
            await until(lambda: len(cluster.events(leader, "registered")) == 2, "a second life", 10)
            await until(lambda: cluster.events(leader, "became-follower") != [], "it follows now", 10)
            assert await cluster.leader() is not leader
            await cluster.producer.send("orders", 0, [(None, b"x")])

    simulate(check)


def test_topics_are_made_and_removed_with_their_files() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            outcomes = await admin.create_topics(
                [
                    NewTopic("second", partitions=3, replication=2),
                    NewTopic("bad name", partitions=1, replication=1),
                    NewTopic("wide", partitions=1, replication=4),
                    NewTopic("orders", partitions=1, replication=1),
                    NewTopic("odd", partitions=1, replication=1, configs={"no.such.setting": "1"}),
                    NewTopic("placed", assignment={0: [3, 1]}),
                ]
            )
            assert {name: outcome.error for name, outcome in outcomes.items()} == {
                "second": ErrorCode.NONE,
                "bad name": ErrorCode.INVALID_TOPIC,
                "wide": ErrorCode.INVALID_REPLICATION_FACTOR,
                "orders": ErrorCode.TOPIC_ALREADY_EXISTS,
                "odd": ErrorCode.INVALID_CONFIG,
                "placed": ErrorCode.NONE,
            }
            for partition in range(3):
                await cluster.producer.send("second", partition, [(None, b"x")])

            def folders() -> set[str]:
                return {
                    path.lstrip("/").removeprefix(DATA + "/").split("/")[0]
                    for node in cluster.nodes
                    for path in node.disk.files()
                    if path.lstrip("/").startswith(f"{DATA}/second-")
                }

            assert folders() == {"second-0", "second-1", "second-2"}
            gone = await admin.delete_topics(["second", "nothing"])
            assert gone["second"].error == ErrorCode.NONE
            assert gone["nothing"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert folders() == set()
            runtime = cluster.cluster.harness_runtime()
            zookeeper = runtime.zookeeper(f"{cluster.zookeepers[0].address}:2181", 3.0)
            await zookeeper.connect(5)
            assert await zookeeper.get_children("/brokers/topics") == ["orders", "placed"]
            assert await zookeeper.get_children("/admin/delete_topics") == []
            state = json.loads((await zookeeper.get("/brokers/topics/placed/partitions/0/state"))[0])
            assert (state["leader"], state["isr"]) == (3, [3, 1])
            await zookeeper.close()
            await admin.close()

    simulate(check)


def impatient(cluster: Brokers) -> Admin:
    return Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime(), timeout=1.0)


def test_a_deletion_waits_for_the_dead_replica() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            await admin.create_topics([NewTopic("second", partitions=1, replication=3)])
            controller = await cluster.controller()
            dead = next(node for node in cluster.nodes if node is not controller)
            await dead.kill()
            runtime = cluster.cluster.harness_runtime()
            zookeeper = runtime.zookeeper(f"{cluster.zookeepers[0].address}:2181", 3.0)
            await zookeeper.connect(5)
            await until(lambda: _registered(zookeeper, 2), "its session ends")
            await zookeeper.create("/admin/delete_topics/second")
            waiting = await impatient(cluster).delete_topics(["second"])
            assert waiting["second"].error == ErrorCode.REQUEST_TIMED_OUT, "it is marked already, and goes on"
            await asyncio.sleep(3)
            assert "second" in await zookeeper.get_children("/brokers/topics")
            await dead.start()
            await until(lambda: _without(zookeeper, "second"), "deleted once all replicas live")
            assert not [p for p in dead.disk.files() if "second-0" in p]
            await zookeeper.close()
            await admin.close()

    async def _registered(zookeeper: object, count: int) -> bool:
        return len(await zookeeper.get_children("/brokers/ids")) == count  # type: ignore[attr-defined]

    async def _without(zookeeper: object, topic: str) -> bool:
        return topic not in await zookeeper.get_children("/brokers/topics")  # type: ignore[attr-defined]

    simulate(check)


def test_an_ensemble_of_three_survives_the_loss_of_one_server() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2), zookeepers=3) as cluster:
            await cluster.zookeepers[0].kill()
            await cluster.producer.send("orders", 0, [(None, b"x")])
            leader = await cluster.leader()
            await leader.kill()

            async def replaced() -> bool:
                found = await cluster.system.find(cluster.cluster, "leader", "orders-0")
                return found is not None and found is not leader

            await until(replaced, "another leader")

    simulate(check)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 12))])
def test_a_controller_interrupted_in_the_middle_of_its_work_leaves_no_broker_without_the_news(seed: int) -> None:
    """ZooKeeper restarts fail its reads and writes anywhere; afterwards every broker knows every leader."""

    async def check() -> None:
        rng = random.Random(seed)
        async with brokers(Broker(partitions=4), seed=seed) as cluster:
            (zookeeper,) = cluster.zookeepers
            for _ in range(6):
                controller = await cluster.controller()
                victim = rng.choice([node for node in cluster.nodes if node is not controller])
                await victim.kill()
                known = len(cluster.events(victim, "registered"))
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.uniform(2.9, 3.3))  # about when its session ends and the work begins
                else:
                    await victim.start()
                    await until(lambda v=victim, n=known: len(cluster.events(v, "registered")) > n, "a new life")  # type: ignore[misc]
                    await asyncio.sleep(rng.uniform(0.0, 0.03))  # in the middle of the work that it makes
                await zookeeper.kill()
                await asyncio.sleep(rng.uniform(0.0, 0.2))
                await zookeeper.start()
                if (await victim.process()).state is ProcessState.DEAD:
                    await victim.start()
                await until(lambda: _agreed(cluster), "all brokers know all leaders and in-sync sets of three", 30)
            for partition in range(4):
                fresh = cluster.producer_with()
                await fresh.send("orders", partition, [(None, b"x")])

    async def _agreed(cluster: Brokers) -> bool:
        views = []
        for node in cluster.nodes:
            admin = Admin([f"{node.address}:9092"], runtime=cluster.cluster.harness_runtime())
            try:
                view = await admin.describe(["orders"])
            except ReadFailed:
                return False
            finally:
                await admin.close()
            partitions = view.topics["orders"].partitions.values()
            views.append([(p.leader and p.leader.id, sorted(p.isr)) for p in partitions])
        return views[0] == views[1] == views[2] and all(len(isr) == 3 for _, isr in views[0])

    simulate(check, seed)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/config/topics/orders", b'{"version":1,"config":{"min.insync.replicas":"2","retention.ms":"1"}}'),
        ("/brokers/topics/odd", b"{}"),
        ("/isr_change_notification/isr_change_x", b"not json"),
        ("/brokers/ids/odd", b"{}"),
    ],
)
def test_what_others_leave_in_zookeeper_ends_no_broker(path: str, data: bytes) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            runtime = cluster.cluster.harness_runtime()
            zookeeper = runtime.zookeeper(f"{cluster.zookeepers[0].address}:2181", 3.0)
            await zookeeper.connect(5)
            if await zookeeper.exists(path) is None:
                await zookeeper.create(path, data, makepath=True)
            else:
                await zookeeper.set(path, data)
            for epoch in (2, 3):
                await zookeeper.delete("/controller")
                await until(lambda n=epoch: len(controller_epochs(cluster)) == n, "an election")  # type: ignore[misc]
            await cluster.producer_with().send("orders", 0, [(None, b"x")])
            assert [node.exit_code for node in cluster.nodes] == [None] * 3
            await zookeeper.close()

    simulate(check)


def test_metadata_does_not_name_the_dead() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1, replication=1, min_insync=1)) as cluster:
            leader, controller = await cluster.leader(), await cluster.controller()
            others = [node for node in cluster.nodes if node not in (leader, controller)]
            await others[0].kill()
            admin = Admin([f"{controller.address}:9092"], runtime=cluster.cluster.harness_runtime())

            async def forgotten() -> bool:
                return others[0].index not in (await admin.describe()).nodes

            await until(forgotten, "the dead broker is named no more", 10)
            await admin.close()

    simulate(check)


def test_partitions_that_wait_for_the_log_ends_of_a_dead_broker_wait_once_and_not_one_after_another() -> None:
    """Both replicas came back uncleanly, and one is dead again, for which its session stands."""

    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            controller = await cluster.controller()
            one, two = (node for node in cluster.nodes if node is not controller)
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            pair = [cluster.nodes.index(node) + 1 for node in (one, two)]
            await admin.create_topics([NewTopic("many", assignment=dict.fromkeys(range(8), pair))])
            await until(lambda: settled(cluster, "many", 8), "they have leaders")
            await one.kill()
            await two.kill()
            await until(lambda: len(cluster.events(controller, "partition-state-written")) >= 8, "no one leads", 10)
            await one.start()
            await until(lambda: len(cluster.events(one, "registered")) == 2, "the first is back", 10)
            await two.start()
            await one.kill()
            await until(lambda: len(cluster.events(two, "registered")) == 2, "the second is back", 10)
            await one.start()
            await until(lambda: len(cluster.events(one, "registered")) == 3, "the first is back again", 10)
            await until(lambda: settled(cluster, "many", 8), "they have leaders again", 4)
            await admin.close()

    simulate(check)


def test_a_topic_that_goes_while_its_election_waits_ends_no_broker() -> None:
    """Its replicas came back uncleanly, one is dead again, and someone removes the topic by hand."""

    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            controller = await cluster.controller()
            one, two = (node for node in cluster.nodes if node is not controller)
            runtime = cluster.cluster.harness_runtime()
            admin = Admin(cluster.bootstrap, runtime=runtime)
            pair = [cluster.nodes.index(node) + 1 for node in (one, two)]
            await admin.create_topics([NewTopic("brief", assignment={0: pair})])
            await until(lambda: settled(cluster, "brief", 1), "it has a leader")
            await one.kill()
            await two.kill()
            await until(lambda: len(cluster.events(controller, "partition-state-written")) >= 1, "no one leads", 10)
            await one.start()
            await until(lambda: len(cluster.events(one, "registered")) == 2, "the first is back", 10)
            await two.start()
            await one.kill()
            await until(lambda: len(cluster.events(two, "registered")) == 2, "the second is back", 10)
            zookeeper = runtime.zookeeper(f"{cluster.zookeepers[0].address}:2181", 3.0)
            await zookeeper.connect(5)
            await asyncio.sleep(2.5)
            for path in ("partitions/0/state", "partitions/0", "partitions", ""):
                await zookeeper.delete(f"/brokers/topics/brief/{path}".rstrip("/"))
            await zookeeper.close()
            await one.start()
            await until(lambda: len(cluster.events(one, "registered")) == 3, "the first is back again", 10)
            await asyncio.sleep(2)
            assert controller.exit_code is None
            assert await cluster.controller() is controller
            await admin.close()

    simulate(check)


async def settled(cluster: Brokers, topic: str, partitions: int) -> bool:
    try:
        for index in range(partitions):
            await cluster.leader(f"{topic}-{index}")
    except AssertionError:
        return False
    return True
