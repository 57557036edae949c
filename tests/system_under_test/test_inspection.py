"""Tests what is seen of brokers at the instant of an acknowledgement, on the correct broker and on wrong ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from assay.system_under_test.client.errors import SendUnknown
from assay.system_under_test.deployment import Broker
from assay.system_under_test.inspection import AcknowledgementInspection
from assay.system_under_test.log.segment_list import SegmentList
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.zookeeper import paths

from helpers import replica_disks
from helpers.sim_brokers import DATA, Brokers, brokers, simulate, until, zookeeper_of

FLUSHED = Broker(partitions=1).with_setting("flush.messages", "1")


def inspection(cluster: Brokers) -> AcknowledgementInspection:
    made = cluster.system.inspector(cluster.cluster)
    assert made is not None
    return made


async def sent(cluster: Brokers, count: int = 1) -> int:
    """The offset of the last of some records."""
    result = await cluster.producer.send("orders", 0, [(None, b"%d" % number) for number in range(count)])
    return result.base_offset + count - 1


def whats(seen: Sequence[Mapping[str, Any]]) -> list[str]:
    return [one["what"] for one in seen]


@pytest.mark.slow
def test_on_the_correct_broker_all_is_there_and_durable_through_restarts() -> None:
    async def check() -> None:
        async with brokers(FLUSHED) as cluster:
            look = inspection(cluster)
            for turn in range(8):
                with contextlib.suppress(SendUnknown):
                    assert look.acknowledged("orders-0", await sent(cluster, 40)) == []
                node = cluster.nodes[turn % 3]
                await (node.cut_power() if turn % 2 else node.kill())
                await node.start()
                await until(partial(FLUSHED.ready, node), "it is back")
            assert look.inspected >= 4

    simulate(check)


def test_a_record_of_which_only_the_first_of_its_set_is_waited_for_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Partition.wait_for_commit
    monkeypatch.setattr(Partition, "wait_for_commit", lambda self, offset: wait(self, max(0, offset - 39)))

    async def check() -> None:
        async with brokers(Broker(partitions=1, replica_fetch_max_bytes=400)) as cluster:
            look = inspection(cluster)
            found = look.acknowledged("orders-0", await sent(cluster, 40))
            assert set(whats(found)) == {"lacking"}
            assert len(found) == 2, "both followers"
            assert all(one["log_end"] <= 39 for one in found)

    simulate(check)


@pytest.mark.parametrize("system", [FLUSHED, Broker(partitions=1)], ids=["flushed", "in memory"])
def test_a_record_that_counts_before_its_fsync_is_undurable_where_each_is_flushed(
    monkeypatch: pytest.MonkeyPatch, system: Broker
) -> None:
    async def pretend(self: SegmentList) -> None:
        await asyncio.sleep(0)
        self.flushed_offset = self.end_offset

    async def check() -> None:
        async with brokers(system) as cluster:
            look = inspection(cluster)
            assert look.acknowledged("orders-0", await sent(cluster)) == []
            with monkeypatch.context() as patched:
                patched.setattr(SegmentList, "flush", pretend)
                found = look.acknowledged("orders-0", await sent(cluster))
            expected = ["undurable"] * 3 if system is FLUSHED else []
            assert whats(found) == expected

    simulate(check)


def test_what_retention_has_taken_was_durable() -> None:
    """The log's only file is new, and nothing of it is on the disk; a record of its own would be undurable."""

    async def check() -> None:
        async with brokers(FLUSHED) as cluster:
            look = inspection(cluster)
            last = await sent(cluster, 4)
            for node in cluster.nodes:
                folder = f"{DATA}/orders-0"
                (path,) = [f"{folder}/{name}" for name in node.disk.names(folder) if name.endswith(".log")]
                node.disk.write(path.replace(f"{0:020}", f"{last + 1:020}"), b"")
                node.disk.remove(path)
            assert look.acknowledged("orders-0", last) == []
            assert whats(look.acknowledged("orders-0", last + 1)) == ["lacking"] * 3

    simulate(check)


def test_once_settings_were_changed_nothing_is_said_of_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has not yet learned of the change takes records as before."""

    async def pretend(self: SegmentList) -> None:
        await asyncio.sleep(0)
        self.flushed_offset = self.end_offset

    async def check() -> None:
        async with brokers(FLUSHED) as cluster:
            look, zookeeper = inspection(cluster), await zookeeper_of(cluster)
            monkeypatch.setattr(SegmentList, "flush", pretend)
            last = await sent(cluster)
            assert whats(look.acknowledged("orders-0", last)) == ["undurable"] * 3
            settings, _ = await zookeeper.get(paths.topic_config("orders"))
            await zookeeper.set(paths.topic_config("orders"), settings)
            assert look.acknowledged("orders-0", last) == []
            await zookeeper.close()

    simulate(check)


def test_a_member_that_was_started_again_counts_when_it_is_back() -> None:
    """Its unflushed data may be gone, and its former registration stays until its session is over."""

    async def check() -> None:
        async with brokers() as cluster:
            look, last = inspection(cluster), await sent(cluster)
            leader = await cluster.leader()
            follower = next(node for node in cluster.nodes if node is not leader)
            registered = look.tree.exists(paths.broker(follower.index)).czxid
            for path in follower.disk.files():
                if path.endswith(".log") and "/orders-0/" in path:
                    follower.disk.write(path, b"")
            assert whats(look.acknowledged("orders-0", last)) == ["lacking"]
            await follower.kill()
            assert look.acknowledged("orders-0", last) == []
            await follower.start()
            assert look.tree.exists(paths.broker(follower.index)).czxid == registered
            assert look.acknowledged("orders-0", last) == []
            await until(lambda: "lacking" not in whats(look.acknowledged("orders-0", last)), "it has caught up")

    simulate(check)


@pytest.mark.parametrize("durably", [False, True])
def test_an_empty_file_that_a_failed_roll_has_left_is_no_end_of_the_log(durably: bool) -> None:
    look = replica_disks.cluster("orders", 7)
    node = look.brokers[1]
    replica_disks.log(node, "orders-0", replica_disks.entries({0: "a", 1: "b", 2: "c"}))
    node.disk.write(f"{replica_disks.DATA}/orders-0/{2:020}.log", b"")
    assert look.read_log_end(node, "orders-0", durably=durably) == 3
    node.disk.write(f"{replica_disks.DATA}/brief-0/{7:020}.log", b"")
    assert look.read_log_end(node, "brief-0", durably=durably) == 7


def test_topics_that_are_not_there_or_are_to_go_are_left_alone() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            look = inspection(cluster)
            await sent(cluster)
            assert look.acknowledged("nothing-0", 5) == ()
            assert whats(look.acknowledged("orders#2-0", 5)) == ["lacking"] * 3, "its name in the cluster is orders"
            zookeeper = await zookeeper_of(cluster)
            await zookeeper.create(paths.delete_topic("orders"), b"")
            assert look.acknowledged("orders-0", 5) == ()
            await zookeeper.close()

    simulate(check)


def test_nothing_is_seen_of_a_cluster_outside_the_simulation() -> None:
    class Elsewhere:
        kind = "docker"

    assert Broker().inspector(Elsewhere()) is None
