"""Topic changes go to the controller and their outcome is known per topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from assay.system_under_test.client.admin import Admin, MoveState, NewTopic, TopicOutcome
from assay.system_under_test.client.errors import Certainty, ReadFailed
from assay.system_under_test.protocol.errors import ErrorCode as E

from helpers.fake_brokers import FakeCluster, FakeRuntime, fake_cluster, lose_connection, never
from helpers.sim_brokers import simulate


@asynccontextmanager
async def administering(**settings: Any) -> AsyncIterator[tuple[FakeCluster, Admin]]:
    async with fake_cluster() as cluster:
        admin = Admin(cluster.bootstrap, runtime=FakeRuntime(), **{"timeout": 2.0, **settings})
        try:
            yield cluster, admin
        finally:
            await admin.close()


def test_topics_are_created_at_the_controller_as_described() -> None:
    async def main() -> None:
        async with administering() as (cluster, admin):
            cluster.controller = 2
            topics = [NewTopic("n", 4, 3, configs={"b": "2", "a": "1"}), NewTopic("m", assignment={0: [1, 2]})]
            assert await admin.create_topics(topics) == {
                "n": TopicOutcome(Certainty.DONE, E.NONE),
                "m": TopicOutcome(Certainty.DONE, E.NONE),
            }
            (request,) = cluster.brokers[2].requests
            first, second = request.topics
            assert (first.topic, first.num_partitions, first.replication_factor) == ("n", 4, 3)
            assert [(entry.name, entry.value) for entry in first.configs] == [("a", "1"), ("b", "2")]
            assert (second.num_partitions, second.replica_assignment[0].replicas) == (-1, [1, 2])

    simulate(main)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (E.TOPIC_ALREADY_EXISTS, Certainty.NOT_DONE),
        (E.INVALID_REPLICATION_FACTOR, Certainty.NOT_DONE),
        (E.REQUEST_TIMED_OUT, Certainty.UNKNOWN),
        (E.UNKNOWN, Certainty.UNKNOWN),
        (lose_connection, Certainty.UNKNOWN),
        (never, Certainty.UNKNOWN),
    ],
)
def test_what_is_known_after_an_error(script: Any, expected: Certainty) -> None:
    async def main() -> None:
        async with administering(timeout=0.3) as (cluster, admin):
            cluster.brokers[1].script = [script]
            assert (await admin.create_topics([NewTopic("n", 1, 1)]))["n"].outcome is expected
            assert len(cluster.brokers[1].requests) == 1

    simulate(main)


@pytest.mark.parametrize(
    ("script", "elected", "reassigned"),
    [
        (E.NONE, Certainty.DONE, Certainty.DONE),
        (E.LEADER_NOT_AVAILABLE, Certainty.NOT_DONE, Certainty.UNKNOWN),
        (E.INVALID_REQUEST, Certainty.NOT_DONE, Certainty.NOT_DONE),
        (E.INVALID_REPLICA_ASSIGNMENT, Certainty.NOT_DONE, Certainty.NOT_DONE),
        (E.REQUEST_TIMED_OUT, Certainty.UNKNOWN, Certainty.UNKNOWN),
        (E.UNKNOWN, Certainty.UNKNOWN, Certainty.UNKNOWN),
        (lose_connection, Certainty.UNKNOWN, Certainty.UNKNOWN),
        (never, Certainty.UNKNOWN, Certainty.UNKNOWN),
    ],
)
def test_what_is_known_of_partitions_after_an_error(script: Any, elected: Certainty, reassigned: Certainty) -> None:
    async def main() -> None:
        async with administering(timeout=0.3) as (cluster, admin):
            cluster.brokers[1].script = [script, script]
            assert (await admin.elect_preferred([("n", 0)]))["n", 0].outcome is elected
            assert (await admin.reassign({("n", 0): [2, 1]}))["n", 0].outcome is reassigned
            assert len(cluster.brokers[1].requests) == 2
            assert cluster.brokers[1].requests[1].partitions[0].replicas == [2, 1]

    simulate(main)


def test_who_cannot_be_asked_about_reassignments_is_a_failed_read() -> None:
    async def main() -> None:
        async with administering(timeout=0.3) as (cluster, admin):
            assert await admin.verify({("n", 0): [1]}) == {("n", 0): MoveState.FAILED}
            cluster.brokers[1].script = [E.UNKNOWN, lose_connection]
            for _ in range(2):
                with pytest.raises(ReadFailed):
                    await admin.reassignments()

    simulate(main)


def test_a_former_controller_sends_us_to_the_new_one() -> None:
    async def main() -> None:
        async with administering() as (cluster, admin):

            def elect() -> None:
                cluster.controller = 2

            cluster.brokers[1].script = [E.NOT_CONTROLLER, E.NOT_CONTROLLER]
            asyncio.get_running_loop().call_later(0.08, elect)
            assert (await admin.delete_topics(["n"]))["n"].outcome is Certainty.DONE
            assert len(cluster.brokers[2].requests) == 1

    simulate(main)


def test_without_a_controller_nothing_was_done() -> None:
    async def main() -> None:
        async with administering(timeout=0.2) as (cluster, admin):
            cluster.controller = -1
            assert (await admin.delete_topics(["n"]))["n"].outcome is Certainty.NOT_DONE

    simulate(main)


def test_describe_gives_brokers_controller_and_partitions() -> None:
    async def main() -> None:
        async with administering() as (cluster, admin):
            cluster.leader = 2
            view = await admin.describe()
            assert (view.cluster_id, list(view.nodes)) == ("c", [1, 2])
            assert view.controller == view.nodes[1]
            partition = view.topics["t"].partitions[3]
            assert (partition.leader, partition.replicas, partition.isr) == (view.nodes[2], (1, 2), (1, 2))
            assert (await admin.describe(["x"])).topics["x"].error is E.UNKNOWN_TOPIC_OR_PARTITION

    simulate(main)


def test_describe_asks_another_broker_when_one_is_gone() -> None:
    async def main() -> None:
        async with administering(timeout=0.5) as (cluster, admin):
            await cluster.brokers[1].stop()
            for _ in range(5):
                assert list((await admin.describe()).nodes) == [1, 2]
            await cluster.brokers[2].stop()
            with pytest.raises(ReadFailed):
                await admin.describe()

    simulate(main)
