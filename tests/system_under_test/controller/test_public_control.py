"""The controller's requests on their public keys: 0.10.2's checks, and nothing done that ZooKeeper does not say."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from assay.cluster.sim.node import SimNode
from assay.system_under_test.deployment import Broker
from assay.system_under_test.protocol.control import (
    LEADER_DURING_DELETE,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    EndPoint,
    LeaderAndIsrRequest,
    LeaderAndIsrState,
    PartitionName,
    StopReplicaRequest,
    UpdateMetadataBroker,
    UpdateMetadataRequest,
)
from assay.system_under_test.protocol.errors import ErrorCode as E
from assay.system_under_test.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from assay.system_under_test.protocol.internal import ShutdownRequest
from assay.system_under_test.protocol.metadata import MetadataRequest, MetadataTopic
from assay.system_under_test.zookeeper import paths

from helpers.sim_brokers import Brokers, brokers, call, simulate, until, zookeeper_of

STATE = "/brokers/topics/orders/partitions/0/state"


def state(
    leader: int, leader_epoch: int, partition: int = 0, replicas: tuple[int, ...] = (1, 2, 3)
) -> LeaderAndIsrState:
    return LeaderAndIsrState(
        topic="orders",
        partition=partition,
        controller_epoch=1,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(replicas),
        zk_version=0,
        replicas=list(replicas),
    )


def leader_and_isr(*states: LeaderAndIsrState, controller_epoch: int = 1) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=1, controller_epoch=controller_epoch, partition_states=list(states), live_leaders=[]
    )


def stop(*, delete: bool, controller_epoch: int = 1, partition: int = 0) -> StopReplicaRequest:
    named = [PartitionName(topic="orders", partition=partition)]
    return StopReplicaRequest(
        controller_id=1, controller_epoch=controller_epoch, delete_partitions=delete, partitions=named
    )


def update(*states: LeaderAndIsrState, live: list[UpdateMetadataBroker], controller_epoch: int = 1) -> Any:
    return UpdateMetadataRequest(
        controller_id=1, controller_epoch=controller_epoch, partition_states=list(states), live_brokers=live
    )


async def elect_again(cluster: Brokers) -> None:
    """So that there is an older controller epoch than the present one, 2."""
    zookeeper = await zookeeper_of(cluster)
    await zookeeper.delete("/controller")
    await until(lambda: any(_obeyed(cluster, node, 2) for node in cluster.nodes), "another controller")
    await until(lambda: all(_obeyed(cluster, node, 2) for node in cluster.nodes), "all have heard of it")
    await zookeeper.close()


def _obeyed(cluster: Brokers, node: SimNode, epoch: int) -> bool:
    return any(event["controller_epoch"] == epoch for event in cluster.events(node, "request-obeyed"))


@pytest.mark.parametrize("epoch", [1, 0, -1, 3, 2**31 - 1])
def test_only_the_present_controller_epoch_is_admitted_and_no_other_is_adopted(epoch: int) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await elect_again(cluster)
            node = await cluster.leader()
            for request in (
                leader_and_isr(state(1, 99), controller_epoch=epoch),
                stop(delete=True, controller_epoch=epoch),
                update(live=[], controller_epoch=epoch),
            ):
                known = len(cluster.events(node, "request-fenced"))
                assert (await call(node, request)).error_code == E.STALE_CONTROLLER_EPOCH
                fenced = cluster.events(node, "request-fenced")[known:]
                assert [(event["controller_epoch"], event["value"]) for event in fenced] == [(epoch, 2)]
            await cluster.producer.send("orders", 0, [(None, b"x")])
            assert len((await call(node, MetadataRequest(topics=None), 2)).brokers) == 3
            await elect_again_at(cluster, 3)

    simulate(check)


async def elect_again_at(cluster: Brokers, epoch: int) -> None:
    zookeeper = await zookeeper_of(cluster)
    await zookeeper.delete("/controller")
    await until(lambda: all(_obeyed(cluster, node, epoch) for node in cluster.nodes), "the next one is obeyed")
    await zookeeper.close()


def test_a_leader_epoch_not_above_the_known_one_and_a_role_elsewhere_are_refused_one_by_one() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            node = await cluster.leader()
            me = node.index
            others = tuple(n.index for n in cluster.nodes if n is not node)
            request = leader_and_isr(
                state(me, 0),
                state(me, 7, partition=1),
                state(others[0], 1, partition=8, replicas=others),
                state(me, 0, partition=9),
            )
            answer = await call(node, request)
            assert answer.error_code == E.NONE
            assert {p.partition: p.error_code for p in answer.partitions} == {
                0: E.STALE_CONTROLLER_EPOCH,
                1: E.STALE_CONTROLLER_EPOCH,  # above the known one, and ZooKeeper has never heard of it
                8: E.UNKNOWN_TOPIC_OR_PARTITION,
                9: E.STALE_CONTROLLER_EPOCH,
            }
            assert await cluster.leader() is node
            for partition in (0, 1):
                await cluster.producer.send("orders", partition, [(None, b"x")])

    simulate(check)


def test_a_role_that_zookeeper_confirms_is_taken_with_all_that_the_request_cannot_say() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            old = await cluster.leader()
            await cluster.producer.send("orders", 0, [(None, b"before")])
            new = next(node for node in cluster.nodes if node is not old)
            zookeeper = await zookeeper_of(cluster)
            data, stat = await zookeeper.get(STATE)
            wanted = json.loads(data) | {"leader": new.index, "leader_epoch": 1}
            await zookeeper.set(STATE, json.dumps(wanted).encode(), stat.version)
            for node in (new, *(node for node in cluster.nodes if node is not new)):
                answer = await call(node, leader_and_isr(state(new.index, 1)))
                assert [p.error_code for p in answer.partitions] == [E.NONE]
            assert await cluster.leader() is new
            await cluster.producer_with().send("orders", 0, [(None, b"after")])  # acks of all: the followers followed
            for node in cluster.nodes:
                await until(
                    lambda n=node: [v for _, v in cluster.stored(n, "orders-0")] == [b"before", b"after"],  # type: ignore[misc]
                    "all have both",
                )
            isr = json.loads((await zookeeper.get(STATE))[0])["isr"]
            assert sorted(isr) == [1, 2, 3], "no replica left the in-sync set: registrations were known"
            await zookeeper.close()

    simulate(check)


def test_a_replica_that_counts_is_not_stopped_and_one_that_is_assigned_is_not_deleted() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await cluster.producer.send("orders", 0, [(None, b"x")])
            for node in cluster.nodes:
                for delete in (False, True):
                    answer = await call(node, stop(delete=delete))
                    assert [p.error_code for p in answer.partitions] == [E.STALE_CONTROLLER_EPOCH]
                assert [p.error_code for p in (await call(node, stop(delete=True, partition=5))).partitions] == [E.NONE]
            await cluster.producer.send("orders", 0, [(None, b"y")])
            assert [len(cluster.stored(node, "orders-0")) for node in cluster.nodes] == [2, 2, 2]

    simulate(check)


def test_a_replica_that_is_no_longer_assigned_can_be_deleted() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=0)) as cluster:
            controller = await cluster.controller()
            follower = next(node for node in cluster.nodes if node is not controller)
            zookeeper = await zookeeper_of(cluster)
            replicas = [controller.index, follower.index]
            await zookeeper.create("/brokers/topics/orders", assignment(replicas))
            await until(lambda: cluster.events(follower, "reconciled") != [], "it follows")
            await controller.stop()  # it would put the assignment right
            await zookeeper.set("/brokers/topics/orders", assignment(replicas[:1]))
            answer = await call(follower, stop(delete=True))
            assert [p.error_code for p in answer.partitions] == [E.NONE]
            assert not [path for path in follower.disk.files() if "orders-0/" in path]
            await zookeeper.close()

    simulate(check)


def assignment(replicas: list[int]) -> bytes:
    return json.dumps({"version": 1, "partitions": {"0": replicas}}).encode()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_metadata_is_taken_from_each_version(version: int) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            node = cluster.nodes[0]
            points = [
                EndPoint(port=1, host="secret", security_protocol_type=1),
                EndPoint(port=9, host="here", listener_name="PLAINTEXT", security_protocol_type=0),
            ]
            live = [UpdateMetadataBroker(id=2, host="here", port=9, end_points=points)]
            assert (await call(node, update(state(2, 5), live=live), version)).error_code == E.NONE
            metadata = await call(node, MetadataRequest(topics=None), 2)
            assert [(b.node_id, b.host, b.port) for b in metadata.brokers] == [(2, "here", 9)]
            topic: MetadataTopic = metadata.topics[0]
            assert (topic.topic, topic.partitions[0].leader) == ("orders", 2)
            await call(node, update(state(LEADER_DURING_DELETE, 6), live=live), version)
            assert (await call(node, MetadataRequest(topics=None), 2)).topics == []

    simulate(check)


def test_a_public_fetch_with_a_replica_id_moves_no_position() -> None:
    """A stranger says it has all; the high watermark waits for those who really follow."""

    async def check() -> None:
        async with brokers() as cluster:
            leader = await cluster.leader()
            followers = [node for node in cluster.nodes if node is not leader]
            await cluster.producer.send("orders", 0, [(None, b"a")])
            await cluster.cut(leader, followers)
            sending = asyncio.ensure_future(cluster.producer_with(timeout=1.0).send("orders", 0, [(None, b"b")]))
            await asyncio.sleep(0.3)
            for node in followers:
                parts = [FetchPartition(partition=0, offset=2, max_bytes=1000)]
                request = FetchRequest(
                    replica_id=node.index,
                    max_wait_ms=0,
                    min_bytes=0,
                    topics=[FetchTopic(topic="orders", partitions=parts)],
                )
                (answer,) = (await call(leader, request, 3)).topics[0].partitions
                assert (answer.error_code, answer.high_watermark) == (E.NONE, 1)
            assert not sending.done(), "not acknowledged"
            await asyncio.gather(sending, return_exceptions=True)
            assert sending.exception() is not None
            await cluster.heal()

    simulate(check)


async def shut_down(node: SimNode, broker_id: int) -> ControlledShutdownResponse:
    answer: ControlledShutdownResponse = await call(node, ControlledShutdownRequest(broker_id=broker_id), 1)
    return answer


def test_a_broker_that_wants_to_stop_hands_its_lead_over_at_once() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=3)) as cluster:
            for partition in range(3):
                await cluster.producer.send("orders", partition, [(None, b"before")])
            controller = await cluster.controller()
            leaving = await cluster.leader("orders-0")
            other = next(node for node in cluster.nodes if node is not controller)
            assert (await shut_down(other, leaving.index)).error_code == E.STALE_CONTROLLER_EPOCH
            assert (await shut_down(controller, 77)).error_code == E.BROKER_NOT_AVAILABLE
            answer = await shut_down(controller, leaving.index)
            assert (answer.error_code, answer.partitions_remaining) == (E.NONE, [])
            zookeeper = await zookeeper_of(cluster)
            began = asyncio.get_running_loop().time()
            for partition in range(3):
                path = f"/brokers/topics/orders/partitions/{partition}/state"
                written = json.loads((await zookeeper.get(path))[0])
                assert written["leader"] != leaving.index
                assert leaving.index not in written["isr"]
                await cluster.producer_with().send("orders", partition, [(None, b"after")])
            assert asyncio.get_running_loop().time() - began < 1, "no client waits for a session to end"
            await asyncio.sleep(3)
            written = json.loads((await zookeeper.get(STATE))[0])
            assert leaving.index not in written["isr"], "it does not come back while it is leaving"
            await leaving.terminate()
            await until(lambda: leaving.exit_code is not None, "it stops")
            await leaving.start()

            async def back() -> bool:
                return leaving.index in json.loads((await zookeeper.get(STATE))[0])["isr"]

            await until(back, "another life follows again")
            await zookeeper.close()

    simulate(check)


def test_what_a_former_life_has_asked_does_not_take_the_next_one_away() -> None:
    """It asks again while the controller does not answer, gives up, and is back when the controller comes to it."""

    async def check() -> None:
        async with brokers() as cluster:
            zookeeper, controller, leader = (
                await zookeeper_of(cluster),
                await cluster.controller(),
                await cluster.leader(),
            )
            node = next(node for node in cluster.nodes if node not in (controller, leader))
            former = (await zookeeper.get(paths.broker(node.index)))[1].czxid
            await node.terminate()
            await until(lambda: node.exit_code is not None, "it stops")
            await node.start()

            async def back() -> bool:
                return node.index in json.loads((await zookeeper.get(STATE))[0])["isr"]

            await until(back, "it is back")
            late = ShutdownRequest(broker_id=node.index, broker_epoch=former)
            assert (await call(controller, late)).error_code == E.BROKER_NOT_AVAILABLE
            assert await back()
            now = (await zookeeper.get(paths.broker(node.index)))[1].czxid
            own = ShutdownRequest(broker_id=node.index, broker_epoch=now)
            assert (await call(controller, own)).error_code == E.NONE
            assert not await back()
            await zookeeper.close()

    simulate(check)


def test_a_replica_out_of_sync_is_not_deleted_while_its_topic_stays() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await cluster.producer.send("orders", 0, [(None, b"x")])
            leader = await cluster.leader()
            node = next(node for node in cluster.nodes if node is not leader)
            await until(lambda: len(cluster.stored(node, "orders-0")) == 1, "replicated")
            await shut_down(await cluster.controller(), node.index)
            answer = await call(node, stop(delete=True))
            assert [p.error_code for p in answer.partitions] == [E.STALE_CONTROLLER_EPOCH]
            assert len(cluster.stored(node, "orders-0")) == 1
            answer = await call(node, stop(delete=False))
            assert [p.error_code for p in answer.partitions] == [E.NONE]

    simulate(check)


def test_a_replica_of_a_topic_that_makes_no_sense_is_not_deleted() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await cluster.producer.send("orders", 0, [(None, b"x")])
            zookeeper = await zookeeper_of(cluster)
            controller = await cluster.controller()
            await controller.stop()  # it would put the assignment back
            node = next(node for node in cluster.nodes if node is not controller)
            await until(lambda: len(cluster.stored(node, "orders-0")) == 1, "replicated")
            await zookeeper.set("/brokers/topics/orders", b"nonsense")
            answer = await call(node, stop(delete=True))
            assert [p.error_code for p in answer.partitions] == [E.STALE_CONTROLLER_EPOCH]
            assert len(cluster.stored(node, "orders-0")) == 1
            await zookeeper.close()

    simulate(check)


@pytest.mark.parametrize("mark", ["none", "asked for", "of a former topic", "begun"])
def test_a_replica_is_deleted_with_its_topic_only_once_that_has_begun(mark: str) -> None:
    """Until then a marked topic is in service, and this replica may be elected for what it has."""

    async def check() -> None:
        async with brokers() as cluster:
            await cluster.producer.send("orders", 0, [(None, b"x")])
            zookeeper = await zookeeper_of(cluster)
            controller, leader = await cluster.controller(), await cluster.leader()
            follower = next(node for node in cluster.nodes if node not in (controller, leader))
            await until(lambda: len(cluster.stored(follower, "orders-0")) == 1, "replicated")
            await controller.stop()  # it would go on with the deletion
            czxid = (await zookeeper.get(paths.topic("orders")))[1].czxid
            begun = json.dumps({"version": 1, "czxid": czxid - (mark != "begun")}).encode()
            if mark != "none":
                await zookeeper.create(paths.delete_topic("orders"), b"" if mark == "asked for" else begun)
            answer = await call(follower, stop(delete=True))
            assert [p.error_code for p in answer.partitions] == [
                E.NONE if mark == "begun" else E.STALE_CONTROLLER_EPOCH
            ]
            assert len(cluster.stored(follower, "orders-0")) == (mark != "begun")
            await zookeeper.close()

    simulate(check)


def test_what_no_other_broker_can_lead_remains() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1, min_insync=1)) as cluster:
            controller, leader = await cluster.controller(), await cluster.leader()
            for node in cluster.nodes:
                if node is not leader:
                    assert (await shut_down(controller, node.index)).partitions_remaining == []
            answer = await shut_down(controller, leader.index)
            assert [(p.topic, p.partition) for p in answer.partitions_remaining] == [("orders", 0)]
            assert await cluster.leader() is leader
            await cluster.producer.send("orders", 0, [(None, b"x")])

    simulate(check)
