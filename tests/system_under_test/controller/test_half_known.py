"""A controller that has read a part of what there is, or has been replaced, decides nothing by it."""

from __future__ import annotations

import asyncio
import json

import pytest

from assay.cluster.sim.node import SimNode
from assay.system_under_test.protocol.control import LeaderAndIsrRequest, LeaderAndIsrState
from assay.system_under_test.protocol.errors import ErrorCode as E
from assay.system_under_test.protocol.metadata import MetadataRequest
from assay.system_under_test.protocol.topics import DeleteTopicsRequest
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths

from helpers.lost_requests import Requests
from helpers.sim_brokers import Brokers, brokers, call, simulate, until, zookeeper_of


def follows(cluster: Brokers, node: SimNode) -> bool:
    return any(event["key"] == "second-0" for event in cluster.events(node, "reconciled"))


def leads(cluster: Brokers, node: SimNode) -> bool:
    return any(event["key"] == "second-0" for event in cluster.events(node, "became-leader"))


async def followed(cluster: Brokers, zookeeper: ZooKeeper, controller: SimNode) -> tuple[SimNode, SimNode, int]:
    """A second topic on the two that are not the controller, the leader first; and the controller's session."""
    one, other = [node for node in cluster.nodes if node is not controller]
    assignment = {"version": 1, "partitions": {"0": [one.index, other.index]}}
    await zookeeper.create(paths.topic("second"), json.dumps(assignment).encode())
    await until(lambda: follows(cluster, other), "it is followed")
    return one, other, (await zookeeper.get(paths.CONTROLLER))[1].ephemeralOwner


def test_a_controller_that_has_not_read_its_topics_says_of_none_that_it_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is lost while a new controller reads; meanwhile clients ask."""
    topics = Requests(monkeypatch, "get_children", paths.TOPICS)

    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            topics.lose(after=0.5)
            await zookeeper.delete(paths.CONTROLLER)
            await until(lambda: bool(topics.lost), "a new controller reads")
            request = DeleteTopicsRequest(topics=["orders"], timeout_ms=2000)
            answers = await asyncio.gather(*(call(node, request) for node in cluster.nodes))
            codes = [answer.topics[0].error_code for answer in answers]
            assert set(codes) <= {E.NOT_CONTROLLER, E.NONE}
            assert (E.NONE in codes) == (await zookeeper.exists(paths.topic("orders")) is None)
            await zookeeper.close()

    simulate(check)


def test_a_replaced_controller_takes_no_notice_away_from_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is at work on changes of in-sync sets; the next one has read the state before, and comes to them later."""
    notices = Requests(monkeypatch, "get_children", paths.ISR_CHANGES)

    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            former = await cluster.controller()
            one, other, session = await followed(cluster, zookeeper, former)

            formers = notices.hold(lambda client: client.session_id == session)
            await zookeeper.create(f"{paths.ISR_CHANGES}/isr_change_", b'{"version":1,"partitions":[]}', sequence=True)
            await asyncio.sleep(0.1)
            await zookeeper.delete(paths.CONTROLLER)
            await asyncio.sleep(2)
            others = notices.hold(lambda client: client.session_id not in (session, zookeeper.session_id))
            await cluster.cut(one, [other])

            async def noticed() -> bool:
                state = json.loads((await zookeeper.get(paths.partition_state("second", 0)))[0])
                return state["isr"] == [one.index] and bool(await zookeeper.get_children(paths.ISR_CHANGES))

            await until(noticed, "the follower is out of sync, and the controller is to learn of it")
            formers.set()
            await asyncio.sleep(1)
            others.set()

            async def known() -> bool:
                found = (await call(former, MetadataRequest(topics=["second"]))).topics[0].partitions[0].isr
                return list(found) == [one.index]

            await until(known, "the others hear of it")
            await cluster.heal()
            await zookeeper.close()

    simulate(check)


@pytest.mark.parametrize("how", ["asked by a stranger", "the state makes no sense"])
def test_a_broker_leads_only_in_the_life_in_which_it_was_elected(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its followers would cut from their logs what it has lost since then, in the same epoch."""
    looks = Requests(monkeypatch, "get_children", paths.BROKER_IDS)

    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            controller = await cluster.controller()
            leader, other = [node for node in cluster.nodes if node is not controller]
            assignment = {"version": 1, "partitions": {"0": [leader.index, other.index]}}
            await zookeeper.create(paths.topic("second"), json.dumps(assignment).encode())
            await until(lambda: follows(cluster, other), "it is followed")
            await cluster.producer.send("second", 0, [(None, b"acknowledged")])
            before, stat = await zookeeper.get(paths.partition_state("second", 0))
            assert json.loads(before)["leader"] == leader.index
            session = (await zookeeper.get(paths.CONTROLLER))[1].ephemeralOwner
            go_on = looks.hold(lambda client: client.session_id == session)
            if how == "the state makes no sense":
                await zookeeper.set(paths.partition_state("second", 0), b"nonsense", stat.version)
                go_on.set()
            await leader.cut_power()
            await leader.start()
            await until(lambda: len(cluster.events(leader, "registered")) == 2, "another life")
            if how == "asked by a stranger":
                named = LeaderAndIsrState(
                    topic="second",
                    partition=0,
                    controller_epoch=1,
                    leader=leader.index,
                    leader_epoch=0,
                    isr=[leader.index, other.index],
                    zk_version=0,
                    replicas=[leader.index, other.index],
                )
                request = LeaderAndIsrRequest(
                    controller_id=1, controller_epoch=1, partition_states=[named], live_leaders=[]
                )
                answer = await call(leader, request)
                assert [part.error_code for part in answer.partitions] == [E.STALE_CONTROLLER_EPOCH]
            await asyncio.sleep(3)
            if how == "the state makes no sense":
                await zookeeper.set(paths.partition_state("second", 0), before)
                await zookeeper.delete(paths.CONTROLLER)
            go_on.set()
            led = [event for event in cluster.events(leader, "became-leader") if event["key"] == "second-0"]
            assert [event["epoch"] for event in led] == [0]
            for node in (leader, other):
                await until(
                    lambda node=node: [value for _, value in cluster.stored(node, "second-0")] == [b"acknowledged"],  # type: ignore[misc]
                    "it is there",
                )
            await zookeeper.close()

    simulate(check)


def test_a_topic_that_is_made_again_by_hand_gets_no_state_of_the_former_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller is about to look at the former one's; its leader would not be among the new one's replicas."""
    states = Requests(monkeypatch, "get", paths.partition_state("second", 0))

    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            controller = await cluster.controller()
            _, _, session = await followed(cluster, zookeeper, controller)
            go_on = states.hold(lambda client: client.session_id == session)
            wanted = {"version": 1, "partitions": [{"topic": "second", "partition": 0}]}
            await zookeeper.create(paths.PREFERRED_ELECTION, json.dumps(wanted).encode())
            await asyncio.sleep(0.5)
            for path in (
                paths.partition_state("second", 0),
                paths.partition("second", 0),
                paths.partitions("second"),
                paths.topic("second"),
            ):
                await zookeeper.delete(path)
            later = {"version": 1, "partitions": {"0": [controller.index]}}
            await zookeeper.create(paths.topic("second"), json.dumps(later).encode())
            go_on.set()
            await until(lambda: leads(cluster, controller), "it is led by its own replica")
            assert json.loads((await zookeeper.get(paths.partition_state("second", 0)))[0])["isr"] == [controller.index]
            await zookeeper.close()

    simulate(check)
