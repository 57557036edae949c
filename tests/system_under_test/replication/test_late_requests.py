"""A controller's request that arrives again, after later ones: sent before its connection was given up."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from assay.cluster.sim.node import SimNode
from assay.system_under_test.client.admin import Admin
from assay.system_under_test.deployment import Broker
from assay.system_under_test.protocol.control import LeaderAndIsrResponse
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import (
    LeaderAndIsrRequest,
    LiveBroker,
    MemberEpoch,
    PartitionStateUpdate,
    StopReplicaPartition,
    StopReplicaRequest,
)
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.zookeeper import paths

from helpers.sim_brokers import Brokers, brokers, call, simulate, until, zookeeper_of

STATE = "/brokers/topics/orders/partitions/0/state"


async def copy_with_a_former_life(cluster: Brokers, follower: SimNode, leader: SimNode, serial: int) -> None:
    """A request of the present controller in which the leader still has a registration that it has no more."""
    zookeeper = await zookeeper_of(cluster)
    epochs = json.loads((await zookeeper.get(STATE))[0])["isr_epochs"]
    await zookeeper.close()
    former = epochs[str(leader.index)] - 1
    request = LeaderAndIsrRequest(
        controller_id=(await cluster.controller()).index,
        controller_epoch=1,
        broker_epoch=epochs[str(follower.index)],
        partitions=[],
        topics=[],
        live_brokers=[LiveBroker(broker_id=leader.index, host=leader.address, port=9092, broker_epoch=former)],
        serial=serial,
    )
    assert (await call(follower, request)).error_code == ErrorCode.NONE


async def in_sync(cluster: Brokers) -> int:
    zookeeper = await zookeeper_of(cluster)
    try:
        return len(json.loads((await zookeeper.get(STATE))[0])["isr"])
    finally:
        await zookeeper.close()


@pytest.mark.parametrize(("serial", "left"), [(1, 3), (1_000, 1)], ids=["late copy", "no copy"])
def test_a_follower_keeps_its_leader_when_a_late_copy_has_a_former_registration(serial: int, left: int) -> None:
    """A request that is no copy is believed: followers that ask for a life of the leader that is none leave the in-sync
    set. So the first case could fail.
    """

    async def check() -> None:
        async with brokers() as cluster:
            await cluster.producer.send("orders", 0, [(None, b"a")])
            leader = await cluster.leader()
            for follower in (node for node in cluster.nodes if node is not leader):
                await copy_with_a_former_life(cluster, follower, leader, serial)
            await asyncio.sleep(30)
            assert await in_sync(cluster) == left
            changes = [event for node in cluster.nodes for event in cluster.events(node, "isr-change")]
            assert bool(changes) is (left < 3), "nor was it otherwise for a while"

    simulate(check)


@pytest.mark.parametrize(
    ("life", "left"), [(-1, 1), (0, 0), (1, 0)], ids=["of a former topic", "of this topic", "of a later topic"]
)
def test_the_deletion_of_a_topic_that_comes_late_spares_the_next_one_of_that_name(life: int, left: int) -> None:
    """The broker did not answer in time; the topic was gone, and made again, before the second copy arrived.

    Remains of a former topic are deleted with a later one.
    """

    async def check() -> None:
        async with brokers() as cluster:
            await cluster.producer.send("orders", 0, [(None, b"a")])
            leader, zookeeper = await cluster.leader(), await zookeeper_of(cluster)
            czxid = (await zookeeper.get(paths.topic("orders")))[1].czxid
            broker_epoch = (await zookeeper.get(paths.broker(leader.index)))[1].czxid
            await zookeeper.close()
            named = StopReplicaPartition(topic="orders", partition=0, leader_epoch=1, topic_czxid=czxid + life)
            request = StopReplicaRequest(
                controller_id=(await cluster.controller()).index,
                controller_epoch=1,
                broker_epoch=broker_epoch,
                delete=True,
                partitions=[named],
            )
            answer = await call(leader, request)
            assert [one.error_code for one in answer.partitions] == [ErrorCode.NONE]
            assert any("/orders-0/" in path for path in leader.disk.files()) is bool(left)

    simulate(check)


async def role_in_another_topic(cluster: Brokers, node: SimNode, life: int) -> LeaderAndIsrRequest:
    """As the present controller would send it for a topic of that name that was made ``life`` transactions later."""
    zookeeper = await zookeeper_of(cluster)
    czxid = (await zookeeper.get(paths.topic("orders")))[1].czxid
    broker_epoch = (await zookeeper.get(paths.broker(node.index)))[1].czxid
    await zookeeper.close()
    role = PartitionStateUpdate(
        topic="orders", topic_czxid=czxid + life, partition=0, controller_epoch=1, leader=node.index, leader_epoch=0,
        isr=[1, 2, 3], member_epochs=[MemberEpoch(broker_id=node.index, broker_epoch=broker_epoch)], elr=[],
        zk_version=0, replicas=[1, 2, 3],
    )  # fmt: skip
    return LeaderAndIsrRequest(
        controller_id=(await cluster.controller()).index,
        controller_epoch=1,
        broker_epoch=broker_epoch,
        partitions=[role],
        topics=[],
        live_brokers=[],
        serial=1_000,
    )


@pytest.mark.parametrize("leads", [True, False], ids=["at the leader", "at a follower"])
@pytest.mark.parametrize(
    ("life", "answered", "left"),
    [(-1, ErrorCode.STALE_CONTROLLER_EPOCH, 2), (1, ErrorCode.NONE, 0)],
    ids=["of a former topic", "of a later topic"],
)
def test_a_role_that_comes_late_spares_the_log_of_the_next_topic_of_that_name(
    life: int, answered: ErrorCode, left: int, leads: bool
) -> None:
    """It was obeyed once: the log was set aside, and the replica, still in the in-sync set, elected with an empty one.

    That of a later topic has the former one's log set aside.
    """

    async def check() -> None:
        async with brokers() as cluster:
            for value in (b"a", b"b"):
                await cluster.producer.send("orders", 0, [(None, value)])
            leader = await cluster.leader()
            node = leader if leads else next(node for node in cluster.nodes if node is not leader)
            answer = await call(node, await role_in_another_topic(cluster, node, life))
            assert [one.error_code for one in answer.partitions] == [answered]
            assert len(cluster.stored(node, "orders-0")) == left
            assert any(".stray" in path for path in node.disk.files()) is not bool(left)
            if left:
                assert await cluster.leader() is leader
                await cluster.producer.send("orders", 0, [(None, b"c")])
                await until(lambda: len(cluster.stored(node, "orders-0")) == 3, "it has its role still")

    simulate(check)


@pytest.mark.parametrize(
    ("late", "answered"),
    [(True, ErrorCode.STALE_CONTROLLER_EPOCH), (False, ErrorCode.NONE)],
    ids=["late copy", "no copy"],
)
def test_a_role_that_comes_late_does_not_bring_a_deleted_topic_back(
    late: bool, answered: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is of the last request that gave this broker a role; only the deletion came after it. Obeyed, it left a
    folder and a leader that no one would ever delete.
    """
    sent: list[LeaderAndIsrRequest] = []
    real = ReplicaManager.leader_and_isr

    async def obeyed(self: ReplicaManager, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        sent.append(request)
        return await real(self, request)

    monkeypatch.setattr(ReplicaManager, "leader_and_isr", obeyed)

    async def check() -> None:
        async with brokers() as cluster:
            node = await cluster.leader()
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            assert (await admin.delete_topics(["orders"]))["orders"].error is ErrorCode.NONE
            await admin.close()
            assert not any("orders-0" in path for path in node.disk.files())
            zookeeper = await zookeeper_of(cluster)
            life = (await zookeeper.get(paths.broker(node.index)))[1].czxid
            await zookeeper.close()
            last = next(one for one in reversed(sent) if one.broker_epoch == life)
            answer = await call(node, last if late else replace(last, serial=1_000))
            assert {one.error_code for one in answer.partitions} == {answered}
            assert any("orders-0" in path for path in node.disk.files()) is not late

    simulate(check)


@pytest.mark.parametrize(
    ("defect", "life", "left"),
    [
        (None, "former", 3),
        ("former-incarnation", "former", 2),
        (None, "present", 2),
        ("former-incarnation", "none", 3),
    ],
)
def test_only_with_the_defect_a_broker_that_was_started_again_stops_what_its_former_life_was_to_stop(
    defect: str | None, life: str, left: int
) -> None:
    """The controller has its replica stopped for the rest of the leader epoch, as for a broker that leaves."""

    async def check() -> None:
        system = Broker(partitions=1)
        async with brokers(system if defect is None else system.with_defect(defect)) as cluster:
            await cluster.producer.send("orders", 0, [(None, b"a")])
            leader, controller = await cluster.leader(), await cluster.controller()
            broker = next(node for node in cluster.nodes if node not in (leader, controller))
            former = await registered(cluster, broker)
            await broker.terminate()
            await broker.start()

            async def back() -> bool:
                return await in_sync(cluster) == 3

            await until(back, "in sync in its next life")
            present, zookeeper = await registered(cluster, broker), await zookeeper_of(cluster)
            state = json.loads((await zookeeper.get(STATE))[0])
            czxid = (await zookeeper.get(paths.topic("orders")))[1].czxid
            await zookeeper.close()
            named = StopReplicaPartition(
                topic="orders", partition=0, leader_epoch=state["leader_epoch"], topic_czxid=czxid
            )
            request = StopReplicaRequest(
                controller_id=controller.index,
                controller_epoch=1,
                broker_epoch={"former": former, "present": present, "none": -1}[life],
                delete=False,
                partitions=[named],
            )
            assert former < present
            answer = await call(broker, request)
            assert (answer.error_code == ErrorCode.NONE) is (left == 2)
            await asyncio.sleep(30)
            assert await in_sync(cluster) == left

    simulate(check)


async def registered(cluster: Brokers, node: SimNode) -> int:
    """In which life (czxid) a broker is."""
    zookeeper = await zookeeper_of(cluster)
    try:
        return (await zookeeper.get(paths.broker(node.index)))[1].czxid
    finally:
        await zookeeper.close()


async def back_to_a_former_role(cluster: Brokers, controller_epoch: int) -> tuple[int, list[int], bool]:
    """A controller sends a leader the role that it had before. The answer, those of partitions, and was it obeyed?"""
    await cluster.producer.send("orders", 0, [(None, b"a")])
    former = await cluster.leader()
    await former.kill()

    async def replaced() -> bool:
        found = await cluster.system.find(cluster.cluster, "leader", "orders-0")
        return found is not None and found.index != former.index

    await until(replaced, "another leader")
    leader, zookeeper = await cluster.leader(), await zookeeper_of(cluster)
    state = json.loads((await zookeeper.get(STATE))[0])
    czxid = (await zookeeper.get(paths.topic("orders")))[1].czxid
    await zookeeper.close()
    role = PartitionStateUpdate(
        topic="orders", topic_czxid=czxid, partition=0, controller_epoch=controller_epoch, leader=former.index,
        leader_epoch=state["leader_epoch"] - 1, isr=[1, 2, 3], member_epochs=[], elr=[], zk_version=0,
        replicas=[1, 2, 3],
    )  # fmt: skip
    request = LeaderAndIsrRequest(
        controller_id=former.index,
        controller_epoch=controller_epoch,
        broker_epoch=state["isr_epochs"][str(leader.index)],
        partitions=[role],
        topics=[],
        live_brokers=[],
    )
    answer = await call(leader, request)
    last = max(
        (event for kind in ("became-leader", "became-follower") for event in cluster.events(leader, kind)),
        key=lambda event: int(event["seq"]),
    )
    return answer.error_code, [one.error_code for one in answer.partitions], last["event"] == "became-follower"


@pytest.mark.parametrize("controller_epoch", [0, 100], ids=["of a former controller", "of an earlier epoch"])
@pytest.mark.parametrize("defect", [None, "stale-leader-and-isr"])
def test_only_with_the_defect_a_broker_goes_back_to_a_role_of_an_earlier_epoch(
    defect: str | None, controller_epoch: int
) -> None:
    async def check() -> None:
        async with brokers(
            Broker(partitions=1) if defect is None else Broker(partitions=1).with_defect(defect)
        ) as all_of:
            answer, of_partitions, obeyed = await back_to_a_former_role(all_of, controller_epoch)
            if defect is not None:
                assert (answer, of_partitions, obeyed) == (ErrorCode.NONE, [ErrorCode.NONE], True)
            elif controller_epoch == 0:
                assert (answer, of_partitions, obeyed) == (ErrorCode.STALE_CONTROLLER_EPOCH, [], False)
            else:
                assert (answer, of_partitions, obeyed) == (ErrorCode.NONE, [ErrorCode.STALE_CONTROLLER_EPOCH], False)

    simulate(check)
