"""A group of the old design keeps its offsets in the configured store, and loses none on the way to the other one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from assay.cluster.sim.node import SimNode
from assay.system_under_test.client.errors import Certainty
from assay.system_under_test.client.membership import CommitFailed, Membership, Position
from assay.system_under_test.client.zookeeper_groups.offsets import ZooKeeperOffsets
from assay.system_under_test.client.zookeeper_groups.registration import Registration
from assay.system_under_test.client.zookeeper_groups.subscription import StaticSubscription
from assay.system_under_test.deployment import Broker
from assay.system_under_test.runtime import ZooKeeper

from helpers.consumers import Consumer, fill
from helpers.group_client import coordinator
from helpers.sim_brokers import Brokers, brokers, simulate, until, zookeeper_of

PARTITIONS = 2
MODES: dict[str, dict[str, Any]] = {
    "zookeeper": {"offsets_storage": "zookeeper"},
    "to-topic": {"offsets_storage": "kafka", "dual_commit": True},
    "in-topic": {"offsets_storage": "kafka"},
    "to-zookeeper": {"offsets_storage": "zookeeper", "dual_commit": True},
}


def topic_offsets(cluster: Brokers) -> Membership:
    made = Membership(cluster.bootstrap, "g", runtime=cluster.cluster.harness_runtime())
    cluster._open.append(made)
    return made


async def stored(zookeeper: ZooKeeper, topic: Membership) -> list[tuple[int, int]]:
    """Returns each partition's offsets in ZooKeeper and in the offsets topic; -1 stands for none."""
    found = await topic.committed([("orders", index) for index in range(PARTITIONS)])
    both = []
    for index in range(PARTITIONS):
        path = f"/consumers/g/offsets/orders/{index}"
        there = await zookeeper.exists(path)
        both.append((-1 if there is None else int((await zookeeper.get(path))[0]), found["orders", index].offset))
    return both


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("zookeeper", (5, -1)), ("in-topic", (-1, 5)), ("to-topic", (5, 5)), ("to-zookeeper", (5, 5))],
)
def test_a_commit_goes_where_it_is_to_go(mode: str, expected: tuple[int, int]) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            zookeeper, topic = await zookeeper_of(cluster), topic_offsets(cluster)
            one = Consumer(cluster, "c1", auto_commit=False, **MODES[mode])
            await one.start()
            sent = await fill(cluster, "x", PARTITIONS)
            await until(lambda: set(one.values) == sent, "all is read")
            assert await stored(zookeeper, topic) == [(-1, -1)] * PARTITIONS, "not before it has to"
            assert await one.call(one.connector.commit_offsets()) == {("orders", 0): 5, ("orders", 1): 5}
            assert await stored(zookeeper, topic) == [expected] * PARTITIONS
            await one.shutdown()
            await zookeeper.close()

    simulate(check)


def test_a_group_migrates_there_and_back_and_idle_partitions_come_along() -> None:
    """Between two steps a member reads on in one partition alone; nothing is read twice, or left out."""

    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            zookeeper, topic = await zookeeper_of(cluster), topic_offsets(cluster)
            sent = await fill(cluster, "first", PARTITIONS)
            members: list[Consumer] = []
            for turn, mode in enumerate(("zookeeper", "to-topic", "in-topic", "to-zookeeper", "zookeeper")):
                rolled = [Consumer(cluster, f"{name}{turn}", auto_commit_interval=0.3, **MODES[mode]) for name in "ab"]
                for one in rolled:
                    if members:
                        await members.pop(0).shutdown()
                    await one.start()
                members = rolled
                await until(
                    lambda now=rolled: all(len(one.owned) == 1 for one in now), f"each has its part, {mode}", 30
                )
                for number in range(3):  # of partition 0 alone
                    await cluster.producer.send("orders", 0, [(None, f"{mode}-{turn}-{number}".encode())])
                    sent.add(f"{mode}-{turn}-{number}".encode())
                await asyncio.sleep(1.0)
                (here, there), idle = await stored(zookeeper, topic)
                assert max(here, there) == 5 + 3 * (turn + 1)
                assert (here == there) == (mode in ("to-topic", "to-zookeeper"))
                assert max(idle) == 5
            for one in members:
                await one.shutdown()
            last = Consumer(cluster, "z", **MODES["zookeeper"])
            await last.start()
            await until(lambda: len(last.owned) == PARTITIONS, "all of it")
            assert sorted(change.offset for _, change in last.changes) == [5, 20]
            await asyncio.sleep(1.0)
            assert not last.values
            await last.shutdown()
            await zookeeper.close()

    simulate(check)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", ["zookeeper", "topic"])
@pytest.mark.parametrize("mode", ["to-topic", "to-zookeeper"])
def test_a_new_owner_begins_at_the_greater_offset_and_then_both_stores_have_it(ahead: str, mode: str) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            zookeeper, topic = await zookeeper_of(cluster), topic_offsets(cluster)
            await fill(cluster, "x", PARTITIONS)
            here, there = (4, 2) if ahead == "zookeeper" else (2, 4)
            await zookeeper.create("/consumers/g/offsets/orders/0", str(here).encode(), makepath=True)
            await topic.commit({("orders", 0): Position(there)})
            one = Consumer(cluster, "c1", auto_commit=False, **MODES[mode])
            await one.start()
            await until(lambda: len(one.owned) == PARTITIONS, "all of it")
            assert sorted(change.offset for _, change in one.changes) == [0, 4]
            assert await stored(zookeeper, topic) == [(4, 4), (-1, -1)]
            await one.shutdown()
            await zookeeper.close()

    simulate(check)


@pytest.mark.parametrize("mode", ["to-topic", "to-zookeeper"])
def test_half_a_commit_is_none(mode: str) -> None:
    """With one store out of reach a commit is of unknown outcome, or certainly not done: never done."""

    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            one = Consumer(cluster, "c1", auto_commit=False, timeout=1.0, **MODES[mode])
            await one.start()
            await fill(cluster, "x", PARTITIONS)
            await until(lambda: sum(one.values.values()) == 10, "all is read")
            await one.cut_from(cluster.nodes)
            with pytest.raises(CommitFailed) as failed:
                await one.call(one.connector.commit_offsets())
            assert failed.value.outcome is Certainty.UNKNOWN
            await one.heal()
            await one.call(one.connector.commit_offsets())
            await one.shutdown()

    simulate(check)


def test_one_whose_session_is_over_rewinds_no_other() -> None:
    """Its commit is refused by ZooKeeper itself, although it does not know yet that it is over."""

    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            registration = Registration(zookeeper, "g", "g_c1")
            await registration.ensure(StaticSubscription({"orders": 1}), 0)
            await zookeeper.delete("/consumers/g/ids/g_c1")
            with pytest.raises(CommitFailed, match="the member is not registered") as failed:
                await ZooKeeperOffsets(zookeeper, "g", registration).commit({("orders", 0): 5})
            assert failed.value.outcome is Certainty.NOT_DONE
            assert await zookeeper.exists("/consumers/g/offsets/orders/0") is None
            await zookeeper.close()

    simulate(check)


class Unanswered(Registration):
    """Its writes go out, and no answer comes."""

    async def execute_fenced(self, session: int, operations: Sequence[Any]) -> None:
        await super().execute_fenced(session, operations)
        raise ConnectionLoss


@pytest.mark.parametrize(
    ("kind", "ends", "outcome"),
    [(Registration, True, Certainty.NOT_DONE), (Unanswered, False, Certainty.UNKNOWN)],
    ids=["over before", "no answer"],
)
def test_a_commit_that_was_never_sent_leaves_no_doubt(kind: type[Registration], ends: bool, outcome: Certainty) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            registration = kind(zookeeper, "g", "g_c1")
            await registration.ensure(StaticSubscription({"orders": 1}), 0)
            commit = ZooKeeperOffsets(zookeeper, "g", registration).commit({("orders", 0): 5})
            task = asyncio.get_running_loop().create_task(commit)
            await asyncio.sleep(0)  # it looks whether the znode is there
            if ends:
                registration.session = 0
            with pytest.raises(CommitFailed) as failed:
                await task
            assert failed.value.outcome is outcome
            assert (await zookeeper.exists("/consumers/g/offsets/orders/0") is None) == ends
            await zookeeper.close()

    simulate(check)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["to-topic", "in-topic"])
def test_a_commit_that_was_given_up_in_a_partition_does_not_undo_those_after_it(mode: str) -> None:
    """Nothing fences it, and the kernel would send it again once the partition is healed."""

    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            topic = topic_offsets(cluster)
            one = Consumer(cluster, "c1", auto_commit=False, timeout=1.0, **MODES[mode])
            await one.start()
            await fill(cluster, "x", PARTITIONS)
            await until(lambda: sum(one.values.values()) == 10, "all is read")
            await one.call(one.connector.commit_offsets())
            await one.cut_from(cluster.nodes)
            with pytest.raises(CommitFailed):
                await one.call(one.connector.commit_offsets())
            await topic.commit({("orders", 0): Position(9)})
            await one.heal()
            await asyncio.sleep(20)
            assert (await topic.committed([("orders", 0)]))["orders", 0].offset == 9
            await one.shutdown()

    simulate(check)


async def coordinator_of(cluster: Brokers, group: str = "g") -> SimNode:
    address = await coordinator(cluster, group)
    return next(node for node in cluster.nodes if node.address == address)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["in-topic", "to-topic", "to-zookeeper"])
@pytest.mark.parametrize("how", ["commit", "shutdown"])
def test_a_commit_outlasts_the_loss_of_its_coordinator_and_of_more_than_one_session_timeout(
    how: str, mode: str
) -> None:
    """Nothing is read again."""

    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            topic = topic_offsets(cluster)
            one = Consumer(
                cluster, "c1", timeout=20.0, session_timeout=2.0, auto_commit=how == "shutdown", **MODES[mode]
            )
            await one.start()
            sent = await fill(cluster, "x", PARTITIONS)
            await until(lambda: set(one.values) == sent, "all is read")
            await one.call(one.connector.commit_offsets())
            more = await fill(cluster, "y", PARTITIONS)
            await until(lambda: set(one.values) == sent | more, "more is read")
            loop = asyncio.get_running_loop()
            await (await coordinator_of(cluster)).kill()
            begun = loop.time()
            if how == "commit":
                assert await one.call(one.connector.commit_offsets()) == {("orders", 0): 10, ("orders", 1): 10}
            else:
                await one.shutdown()
            assert 2.0 < loop.time() - begun < 20.0, "the coordinator is gone for longer than a session may be silent"
            found = await topic.committed([("orders", index) for index in range(PARTITIONS)])
            assert [found["orders", index].offset for index in range(PARTITIONS)] == [10, 10]
            if how == "commit":
                await one.shutdown()
            two = Consumer(cluster, "c2", **MODES[mode])
            await two.start()
            last = await fill(cluster, "z", PARTITIONS)
            await until(lambda: set(two.values) >= last, "the next one reads on")
            assert set(two.values) == last
            await two.shutdown()

    simulate(check)


def test_a_commit_is_not_repeated_once_a_claim_is_lost() -> None:
    """The next owner may have committed more by then."""

    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            zookeeper, topic = await zookeeper_of(cluster), topic_offsets(cluster)
            one = Consumer(cluster, "c1", timeout=30.0, auto_commit=False, **MODES["in-topic"])
            await one.start()
            sent = await fill(cluster, "x", PARTITIONS)
            await until(lambda: set(one.values) == sent, "all is read")
            node = await coordinator_of(cluster)
            await node.stop()
            loop = asyncio.get_running_loop()
            commit = loop.create_task(one.call(one.connector.commit_offsets()))
            await asyncio.sleep(0.5)
            await zookeeper.delete("/consumers/g/owners/orders/0")
            begun = loop.time()
            with pytest.raises(CommitFailed) as failed:
                await commit
            assert failed.value.outcome is Certainty.UNKNOWN
            assert loop.time() - begun < 0.5
            await one.shutdown()
            await node.resume()

            async def committed() -> bool:
                try:
                    await topic.commit({("orders", 0): Position(9)})
                except CommitFailed:
                    return False
                return True

            await until(committed, "another owner commits", 30)
            await asyncio.sleep(10.0)
            assert (await topic.committed([("orders", 0)]))["orders", 0].offset == 9
            await zookeeper.close()

    simulate(check)
