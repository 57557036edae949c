"""The state machines of partitions and replicas follow what the controller does, step by step, and who is out of sync
is said.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from assay.system_under_test.client.admin import Admin, NewTopic
from assay.system_under_test.controller.cluster_state import ClusterState, Topic
from assay.system_under_test.controller.leaders import BrokerIncarnation
from assay.system_under_test.controller.state_machines import ReplicaStateName, StateMachines
from assay.system_under_test.controller.topic_settings import VersionedSettings
from assay.system_under_test.deployment import Broker

from helpers.sim_brokers import Brokers, brokers, simulate, until

P = ("t", 0)


class Written:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def emit(self, event: str, **given: Any) -> None:
        self.lines.append({"event": event, **given})

    def steps(self, replica: int | None) -> list[str]:
        return [f"{one['from_state']} {one['to_state']}" for one in self.lines if one.get("replica") == replica]


def machines(*alive: int) -> tuple[StateMachines, ClusterState, Written]:
    lives = {broker: BrokerIncarnation(broker, "h", 1, 10 + broker) for broker in alive}
    cluster = ClusterState(brokers=lives, topics={"t": Topic(5, {0: [1, 2]}, VersionedSettings({}, 5))})
    written = Written()
    return StateMachines(written, 3, cluster), cluster, written  # type: ignore[arg-type]


def test_a_deletion_that_fails_may_be_tried_again() -> None:
    machine, cluster, written = machines(1, 2)
    machine.record_new(P)
    machine.follow_brokers(P)
    machine.record_topic_deletion_start("t")
    del cluster.brokers[2]
    machine.follow_brokers(P)
    machine.record_deletion_failure(P)
    cluster.brokers[2] = BrokerIncarnation(2, "h", 1, 99)
    machine.follow_brokers(P)
    machine.record_topic_deletion_start("t")
    machine.forget("t", deleted=True)
    began = ["NonExistent New", "New Online", "Online Offline", "Offline ReplicaDeletionStarted",
             "ReplicaDeletionStarted ReplicaDeletionIneligible"]  # fmt: skip
    again = ["Online Offline", "Offline ReplicaDeletionStarted", "ReplicaDeletionStarted ReplicaDeletionSuccessful",
             "ReplicaDeletionSuccessful NonExistent"]  # fmt: skip
    assert written.steps(1) == [*began, "ReplicaDeletionIneligible Online", *again]
    assert written.steps(2) == [*began, "ReplicaDeletionIneligible Offline", "Offline Online", *again]
    assert written.steps(None) == ["NonExistent New", "New Offline", "Offline NonExistent"]
    assert {(one["key"], one["controller_epoch"], one["topic_zxid"]) for one in written.lines} == {("t-0", 3, 5)}


def test_a_topic_that_is_deleted_by_hand_leaves_its_replicas_offline() -> None:
    machine, _, written = machines(1, 2)
    machine.record_new(P)
    machine.follow_brokers(P)
    machine.record_deletion_start(P, [2])
    machine.forget("t", deleted=False)
    assert written.steps(1)[-1] == "Online Offline"
    assert written.steps(2)[-1] == "ReplicaDeletionIneligible Offline"
    assert written.steps(None)[-2:] == ["New Offline", "Offline NonExistent"]


def test_a_replica_of_a_broker_that_is_about_to_stop_stays_offline_until_its_next_life() -> None:
    machine, cluster, written = machines(1, 2)
    machine.record_new(P)
    machine.follow_brokers(P)
    cluster.leaving[2] = cluster.brokers[2].czxid
    machine.record_stopped(2, [P])
    machine.follow_brokers(P)
    assert written.steps(2)[-1] == "Online Offline"
    cluster.brokers[2] = BrokerIncarnation(2, "h", 1, 99)
    machine.follow_brokers(P)
    assert written.steps(2)[-1] == "Offline Online"


def test_a_step_that_is_not_valid_is_an_error_in_the_log_and_written_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine, _, written = machines(1, 2)
    machine.record_new(P)
    machine._move_replica(P, 1, ReplicaStateName.DELETION_SUCCESSFUL)
    assert written.steps(1)[-1] == "New ReplicaDeletionSuccessful"
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "replica 1 of t-0 goes from New to ReplicaDeletionSuccessful, which is no valid" in record.getMessage()


def said(cluster: Brokers, key: str, replica: int | None = None) -> list[str]:
    """The steps of a partition or a replica of it, as any broker wrote them."""
    name = "partition-transition" if replica is None else "replica-transition"
    lines = [line for node in cluster.nodes for line in cluster.events(node, name) if line["key"] == key]
    lines = [line for line in lines if line.get("replica") == replica]
    return [f"{line.get('from_state')} {line['to_state']}" for line in lines]


def test_a_topic_goes_through_all_states_from_its_creation_to_its_deletion() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            await admin.create_topics([NewTopic("other", 1, 2)])
            await until(lambda: "New Online" in said(cluster, "other-0"), "it is led")
            await admin.delete_topics(["other"])
            await until(lambda: "Offline NonExistent" in said(cluster, "other-0"), "it is gone")
            assert said(cluster, "other-0") == [
                "NonExistent New",
                "New Online",
                "Online Offline",
                "Offline NonExistent",
            ]
            replicas = [said(cluster, "other-0", replica) for replica in (1, 2, 3)]
            assert sorted(filter(None, replicas)) == [
                ["NonExistent New", "New Online", "Online Offline", "Offline ReplicaDeletionStarted",
                 "ReplicaDeletionStarted ReplicaDeletionSuccessful", "ReplicaDeletionSuccessful NonExistent"]
            ] * 2  # fmt: skip
            await admin.close()

    simulate(check)


def test_who_is_out_of_sync_is_said_by_the_leader_and_the_controller_and_read_by_clients() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            controller, leader = await cluster.controller(), await cluster.leader()
            other = next(node for node in cluster.nodes if node not in (controller, leader))
            await other.kill()

            def last(name: str, node: Any) -> list[int] | None:
                lines = [line for line in cluster.events(node, name) if line["key"] == "orders-0"]
                return lines[-1]["osr"] if lines else None

            names = ("partition-state-written", "partition-state-read")
            await until(lambda: [other.index] in [last(name, controller) for name in names], "the controller says it")
            await other.start()
            await until(lambda: last("isr-change", leader) == [], "all are in sync again, says the leader")
            await until(lambda: last("partition-state-read", controller) == [], "and the controller")
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            await other.kill()

            async def out() -> bool:
                view = await admin.describe(["orders"])
                return view.topics["orders"].partitions[0].out_of_sync == (other.index,)

            await until(out, "clients read it")
            await admin.close()

    simulate(check)
