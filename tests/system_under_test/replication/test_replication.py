"""Replication as a whole, in the simulation: what is acknowledged, what is cut, who may come back."""

from __future__ import annotations

import asyncio

import pytest

from assay.cluster.sim.node import SimNode
from assay.system_under_test import disk_inspection
from assay.system_under_test.client.admin import Admin, NewTopic
from assay.system_under_test.client.errors import SendFailed, SendUnknown
from assay.system_under_test.deployment import Broker
from assay.system_under_test.log.checkpoints import HIGH_WATERMARKS, parse_lines
from assay.system_under_test.protocol.errors import ErrorCode

from helpers.sim_brokers import DATA, Brokers, brokers, simulate, until


async def send(cluster: Brokers, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        await cluster.producer.send("orders", 0, [(None, b"%d" % number)])


def in_sync(cluster: Brokers, leader: SimNode) -> list[int]:
    """As the leader last said."""
    changes = cluster.events(leader, "became-leader") + cluster.events(leader, "isr-change")
    newest: list[int] = max(changes, key=lambda event: event["seq"])["isr"]
    return newest


def identical(cluster: Brokers) -> bool:
    logs = [cluster.stored(node, "orders-0") for node in cluster.nodes]
    return logs[0] == logs[1] == logs[2]


def test_acknowledged_records_are_on_every_replica_in_the_same_order() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await send(cluster, 50)
            await until(lambda: identical(cluster), "all replicas alike", 1)
            assert [value for _, value in cluster.stored(cluster.nodes[0], "orders-0")] == [
                b"%d" % n for n in range(50)
            ]
            fetched = await cluster.consumer.fetch("orders", 0, 0, 10_000, 0, 0)
            assert [message.offset for message in fetched.messages] == list(range(50))
            assert await cluster.consumer.offsets("orders", 0, -1) == 50

    simulate(check)


def test_the_tail_of_a_deposed_leader_is_cut_where_its_epoch_ended() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await send(cluster, 10)
            old = await cluster.leader()
            others = [node for node in cluster.nodes if node is not old]
            await old.drop_from(others + cluster.zookeepers)
            for node in others + cluster.zookeepers:
                await node.drop_from([old])
            alone = cluster.producer_with(acks=1, retries=0)
            # the harness still reaches it: records that the leader alone has
            for number in range(5):
                await alone.send("orders", 0, [(None, b"doomed %d" % number)])
            assert len(cluster.stored(old, "orders-0")) == 15

            async def replaced() -> bool:
                found = await cluster.system.find(cluster.cluster, "leader", "orders-0")
                return found is not None and found is not old

            await until(replaced, "another leader")
            await cluster.heal()
            await until(lambda: len(cluster.stored(old, "orders-0")) == 10, "the doomed tail is cut")
            cuts = cluster.events(old, "truncated")
            assert [(cut["value"], cut["position"]) for cut in cuts] == [(15, 10)]
            await until(lambda: cluster.events(old, "became-follower") != [], "it follows")
            fresh = cluster.producer_with()  # which asks for the leader before it sends
            for number in range(10, 20):
                await fresh.send("orders", 0, [(None, b"%d" % number)])
            await until(lambda: identical(cluster), "all replicas alike", 10)
            assert [value for _, value in cluster.stored(old, "orders-0")] == [b"%d" % n for n in range(20)]

    simulate(check)


def test_too_few_in_sync_is_a_definite_refusal_and_the_return_ends_it() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await send(cluster, 3)
            leader = await cluster.leader()
            others = [node for node in cluster.nodes if node is not leader]
            for node in others:
                await node.kill()
            impatient = cluster.producer_with(retries=0)
            with pytest.raises(SendUnknown):
                await impatient.send("orders", 0, [(None, b"while no one noticed")])
            await until(lambda: in_sync(cluster, leader) == [leader.index], "the dead are out")
            with pytest.raises(SendFailed) as rejected:
                await impatient.send("orders", 0, [(None, b"alone")])
            assert rejected.value.error == ErrorCode.NOT_ENOUGH_REPLICAS
            for node in others:
                await node.start()

            async def accepted() -> bool:
                try:
                    await impatient.send("orders", 0, [(None, b"together")])
                except (SendFailed, SendUnknown):
                    return False
                return True

            await until(accepted, "enough in sync again")
            await until(lambda: identical(cluster), "all replicas alike", 10)

    simulate(check)


def test_a_stopped_follower_leaves_the_isr_and_rejoins_when_it_wakes() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            leader = await cluster.leader()
            follower = next(node for node in cluster.nodes if node is not leader)
            await follower.stop()
            sending = asyncio.ensure_future(send(cluster, 20))
            await until(lambda: follower.index not in in_sync(cluster, leader), "it is out")
            await sending
            await follower.resume()
            await until(lambda: len(in_sync(cluster, leader)) == 3, "all in sync again")
            await until(lambda: identical(cluster), "all replicas alike", 5)

    simulate(check)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_nothing_acknowledged_is_lost_when_every_broker_is_killed_at_once(seed: int) -> None:
    async def check() -> None:
        async with brokers(seed=seed) as cluster:
            await send(cluster, 30)
            for node in cluster.nodes:
                await node.kill()
            for node in cluster.nodes:
                await node.start()

            async def readable() -> bool:
                return await cluster.system.find(cluster.cluster, "leader", "orders-0") is not None

            await until(readable, "a leader again")
            await send(cluster, 1, start=30)
            fetched = await cluster.consumer.fetch("orders", 0, 0, 10_000, 1.0, 1)
            assert [message.value for message in fetched.messages] == [b"%d" % n for n in range(31)]

    simulate(check, seed)


def test_the_defect_acknowledges_what_only_the_leader_has() -> None:
    async def check(system: Broker) -> int:
        async with brokers(system) as cluster:
            leader = await cluster.leader()
            others = [node for node in cluster.nodes if node is not leader]
            await leader.drop_from(others)
            for node in others:
                await node.drop_from([leader])
            impatient = cluster.producer_with(retries=0, timeout=1.0)
            try:
                await impatient.send("orders", 0, [(None, b"x")])
            except SendUnknown:
                return 0
            return sum(1 for node in cluster.nodes if cluster.stored(node, "orders-0"))

    async def both() -> None:
        assert await check(Broker(partitions=1)) == 0
        assert await check(Broker(partitions=1).with_defect("ack-before-replication")) == 1

    simulate(both)


@pytest.mark.parametrize("defect", [None, "hw-checkpoint-lost"])
def test_only_the_defect_forgets_high_watermarks_of_what_it_does_not_lead(defect: str | None) -> None:
    """A follower that stopped cleanly then throws away all that it has."""
    system = Broker(partitions=1) if defect is None else Broker(partitions=1).with_defect(defect)

    async def check() -> None:
        async with brokers(system) as cluster:
            await send(cluster, 20)
            leader = await cluster.leader()
            await asyncio.sleep(2.5)  # all have written their checkpoints
            for node in cluster.nodes:
                mark = parse_lines(HIGH_WATERMARKS, node.disk.read(f"{DATA}/{HIGH_WATERMARKS}"))[-1]
                assert mark == ["orders", "0", "20" if defect is None or node is leader else "0"]
            follower = next(node for node in cluster.nodes if node is not leader)
            await follower.terminate()
            await until(lambda: follower.index not in in_sync(cluster, leader), "it is out")
            await follower.start()
            await until(lambda: in_sync(cluster, leader).count(follower.index) == 1, "it is back")
            cuts = [(cut["value"], cut["position"]) for cut in cluster.events(follower, "truncated")]
            assert cuts == ([] if defect is None else [(20, 0)])
            assert identical(cluster)

    simulate(check)


def test_a_topics_own_segment_size_holds_after_a_restart() -> None:
    """Logs are opened before the broker knows the topics' settings."""

    async def check() -> None:
        async with brokers() as cluster:
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            await admin.create_topics(
                [NewTopic("small", partitions=1, replication=3, configs={"segment.bytes": "100"})]
            )
            await admin.close()
            for node in cluster.nodes:
                await node.kill()
            for node in cluster.nodes:
                await node.start()

            async def together() -> bool:
                known = (await disk_inspection.read_led_partitions(cluster.nodes, 9092)).get("small-0")
                return known is not None and len(known.in_sync) == 3

            await until(together, "all in sync: a change of leaders would leave a send in doubt")
            for number in range(10):
                await cluster.producer.send("small", 0, [(None, b"%d" % number)])

            def segments(node: SimNode) -> int:
                return sum("/small-0/" in path and path.endswith(".log") for path in node.disk.files())

            await until(lambda: all(segments(node) >= 4 for node in cluster.nodes), "small segments everywhere", 2)

    simulate(check)


def test_what_a_follower_is_to_fetch_now_does_not_wait_for_the_fetch_of_what_it_fetched_before() -> None:
    """Else no send to its leader was acknowledged before that came back: here, after ten seconds."""

    async def check() -> None:
        patient = Broker(partitions=3)
        for name, value in {"replica.fetch.wait.max.ms": "10000", "replica.lag.time.max.ms": "30000"}.items():
            patient = patient.with_setting(name, value)
        async with brokers(patient) as cluster:
            await asyncio.sleep(2)
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            await admin.create_topics([NewTopic("new", partitions=3, replication=3)])
            await admin.close()
            began = asyncio.get_running_loop().time()
            for partition in range(3):
                await cluster.producer.send("new", partition, [(None, b"x")])
            assert asyncio.get_running_loop().time() - began < 0.5

    simulate(check)
