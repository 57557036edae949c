"""Groups of the old design, live: who owns what as members come and go, and what each of them gets to see."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from collections.abc import Mapping

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.serialization import Delete
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.coordinated import Position
from assay.system_under_test.client.zookeeper_groups.config import ConnectorConfig
from assay.system_under_test.client.zookeeper_groups.connector import ChangeKind, ConsumerConnector
from assay.system_under_test.client.zookeeper_groups.ownership import Ownership
from assay.system_under_test.client.zookeeper_groups.registration import Registration
from assay.system_under_test.client.zookeeper_groups.subscription import StaticSubscription, TopicFilter
from assay.system_under_test.deployment import Broker
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import znodes
from assay.system_under_test.zookeeper.znodes import TopicAssignment, decode

from helpers.consumers import Consumer, fill, make_topic
from helpers.sim_brokers import Brokers, brokers, simulate, until, zookeeper_of


async def owners(zookeeper: ZooKeeper, group: str = "g", topic: str = "orders") -> dict[int, str]:
    """As ZooKeeper has it."""
    folder = f"/consumers/{group}/owners/{topic}"
    found = {}
    try:
        for name in await zookeeper.get_children(folder):
            found[int(name)] = (await zookeeper.get(f"{folder}/{name}"))[0].decode()
    except NoNodeError:
        return {}
    return found


async def shared_as(zookeeper: ZooKeeper, expected: dict[int, str], seconds: float = 20.0) -> None:
    async def now() -> bool:
        return await owners(zookeeper) == expected

    await until(now, f"owners are {expected}", seconds)


def test_three_partitions_while_consumers_join_and_leave_one_by_one() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=3)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            members = [Consumer(cluster, f"c{n}") for n in range(1, 5)]
            joining = [{0: 1, 1: 1, 2: 1}, {0: 1, 1: 1, 2: 2}, {0: 1, 1: 2, 2: 3}, {0: 1, 1: 2, 2: 3}]
            for member, expected in zip(members, joining, strict=True):
                await member.start()
                await shared_as(zookeeper, {p: f"g_c{n}-0" for p, n in expected.items()})
            leaving = [{0: 2, 1: 3, 2: 4}, {0: 3, 1: 3, 2: 4}, {0: 4, 1: 4, 2: 4}, {}]
            for member, expected in zip(members, leaving, strict=True):
                await member.shutdown()
                await shared_as(zookeeper, {p: f"g_c{n}-0" for p, n in expected.items()})
                assert member.kinds().count(ChangeKind.ACQUIRED) == member.kinds().count(ChangeKind.RELEASED)
            await zookeeper.close()

    simulate(check)


def test_each_change_wakes_all_members_also_those_for_which_nothing_changes() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            members = [Consumer(cluster, f"c{n}") for n in range(1, 6)]
            for member in members:
                await member.start()
            await shared_as(zookeeper, {0: "g_c1-0", 1: "g_c2-0"})
            await asyncio.sleep(2.0)
            before = [dataclasses.replace(member.connector.counters) for member in members]
            await members[4].shutdown()  # it owns nothing
            await asyncio.sleep(2.0)
            for earlier, member in zip(before[:4], members, strict=False):
                now = member.connector.counters
                assert now.watches - earlier.watches == 1
                assert now.rebalances - earlier.rebalances == now.unchanged - earlier.unchanged == 1
            await members[0].shutdown()
            await shared_as(zookeeper, {0: "g_c2-0", 1: "g_c3-0"})
            await asyncio.sleep(2.0)
            efforts = [member.connector.counters for member in members[1:4]]
            assert all(
                counters.watches - earlier.watches > 1 for counters, earlier in zip(efforts, before[1:4], strict=True)
            )
            useful = [counters.rebalances - counters.unchanged for counters in efforts]
            assert useful[2] == before[3].rebalances - before[3].unchanged, "the last one still owns nothing"
            assert useful[1] > before[2].rebalances - before[2].unchanged
            await zookeeper.close()

    simulate(check)


@pytest.mark.parametrize(
    ("threads", "expected"),
    [(1, ["c1-0", "c1-0", "c2-0", "c3-0"]), (2, ["c1-0", "c1-1", "c2-0", "c2-1"])],
)
def test_four_partitions_for_three_consumers(threads: int, expected: list[str]) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=4)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            members = [Consumer(cluster, f"c{n}") for n in range(1, 4)]
            for member in members:
                await member.start({"orders": threads})
            await shared_as(zookeeper, {p: f"g_{owner}" for p, owner in enumerate(expected)})
            data, stat = await zookeeper.get("/consumers/g/ids/g_c1")
            assert stat.ephemeralOwner
            assert f'"subscription":{{"orders":{threads}}},"pattern":"static"' in data.decode()
            for member in members:
                await member.shutdown()
            await zookeeper.close()

    simulate(check)


@pytest.mark.parametrize("by_broker", [False, True])
def test_partitions_of_one_broker_are_next_to_each_other_where_members_want_that(by_broker: bool) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=6, replication=1)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            description = decode(TopicAssignment, "orders", (await zookeeper.get("/brokers/topics/orders"))[0])
            brokers_of = {int(index): replicas[0] for index, replicas in description.partitions.items()}
            assert sorted(brokers_of.values()) == [1, 1, 2, 2, 3, 3]
            members = [Consumer(cluster, f"c{n}", by_broker=by_broker) for n in range(1, 4)]
            for member in members:
                await member.start()
            in_order = sorted(brokers_of, key=lambda index: (brokers_of[index] if by_broker else 0, index))
            await shared_as(zookeeper, {index: f"g_c{1 + rank // 2}-0" for rank, index in enumerate(in_order)})
            asked = [len({brokers_of[index] for _, index in member.owned}) for member in members]
            assert max(asked) == (1 if by_broker else 2)
            await zookeeper.close()

    simulate(check)


def test_members_of_a_group_share_the_messages_and_two_groups_each_get_all() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=4)) as cluster:
            one, two = Consumer(cluster, "a1"), Consumer(cluster, "a2")
            other = Consumer(cluster, "b1", group="h")
            for member in (one, two, other):
                await member.start()
            await until(lambda: len(one.owned) == len(two.owned) == 2 and len(other.owned) == 4, "all is shared out")
            sent = await fill(cluster, "x", 4)
            await until(lambda: len(one.values) + len(two.values) == len(sent) == len(other.values), "all is read")
            await asyncio.sleep(1.0)
            assert set(one.values + two.values) == sent == set(other.values)
            assert max((one.values + two.values + other.values).values()) == 2, "once in each group"
            for member in (one, two, other):
                assert {(topic, index) for _, topic, index, _, _ in member.received} == set(member.owned)
                await member.shutdown()

    simulate(check)


def test_filters_take_up_a_new_topic_and_leave_others_alone() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            white, black = Consumer(cluster, "w", group="w"), Consumer(cluster, "b", group="b")
            await white.start(wanted=TopicFilter("logs-.*", 2))
            await black.start(wanted=TopicFilter("logs-.*", 1, exclude=True))
            await until(lambda: len(black.owned) == 2, "what is there")
            assert white.owned == []
            await make_topic(cluster, "logs-a", 3)
            await until(lambda: len(white.owned) == 3, "the new topic")
            assert set(white.connector.owned.values()) == {"w_w-0", "w_w-1"}
            assert {topic for topic, _ in black.owned} == {"orders"}
            sent = await fill(cluster, "x", 3, topic="logs-a")
            await until(lambda: set(white.values) == sent, "its messages")
            await white.shutdown()
            await black.shutdown()

    simulate(check)


def test_what_was_committed_is_read_on_from_by_the_next_owner() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            first = Consumer(cluster, "c1", auto_commit_interval=0.5)
            await first.start()
            old = await fill(cluster, "old", 2)
            await until(lambda: set(first.values) == old, "all is read")

            async def committed() -> bool:
                return (await zookeeper.get("/consumers/g/offsets/orders/1"))[0] == b"5"

            await asyncio.sleep(1.0)
            assert await committed(), "by the interval alone"
            second = Consumer(cluster, "c2")
            await second.start()
            await until(lambda: len(second.owned) == 1, "its part")
            new = await fill(cluster, "new", 2)
            await until(lambda: set(first.values + second.values) == old | new, "all is read")
            await first.shutdown()
            await until(lambda: len(second.owned) == 2, "all of it")
            last = await fill(cluster, "last", 2)
            await until(lambda: set(second.values) >= last, "the rest")
            assert max((first.values + second.values).values()) == 1
            await second.shutdown()
            await zookeeper.close()

    simulate(check)


def test_what_a_member_lets_go_of_in_order_is_read_on_from_while_there_is_traffic() -> None:
    """Nothing is handed out between its last commit and the release."""

    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:

            async def feed() -> None:
                for number in itertools.count():
                    for partition in range(2):
                        await cluster.producer.send("orders", partition, [(None, b"%d-%d" % (partition, number))])

            traffic = asyncio.get_running_loop().create_task(feed())
            one, two = Consumer(cluster, "c1"), Consumer(cluster, "c2")
            await one.start()
            await until(lambda: len(one.values) > 20, "something is read")
            await two.start()
            await until(lambda: len(two.values) > 20, "by the other as well")
            await two.shutdown()
            await until(lambda: len(one.owned) == 2, "all of it")
            await asyncio.sleep(0.2)
            traffic.cancel()
            assert max((one.values + two.values).values()) == 1
            ends: dict[Partition, int] = {}
            for _, change in sorted([*one.changes, *two.changes], key=lambda each: each[0]):
                if change.kind is ChangeKind.RELEASED:
                    ends[change.topic, change.partition] = change.offset
                else:
                    assert change.offset == ends.get((change.topic, change.partition), 0)
            await one.shutdown()

    simulate(check)


def test_a_claim_that_came_to_nothing_is_let_go_of_when_the_partition_is_for_another_member() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            first = Consumer(cluster, "c2")
            await first.cut_from(cluster.nodes)  # it cannot learn where to begin
            await first.start()
            await shared_as(zookeeper, {0: "g_c2-0"})
            assert first.owned == []
            second = Consumer(cluster, "c1")
            await second.start()
            await until(lambda: len(second.owned) == 1, "the partition, of which the first has no part any more", 20.0)
            await first.shutdown()
            await second.shutdown()
            await zookeeper.close()

    simulate(check)


async def overtaken(cluster: Brokers, monkeypatch: pytest.MonkeyPatch, classic: bool) -> tuple[Consumer, Consumer]:
    """Between a member's look at its group and its claim a third comes, by which another claims; the third waits.

    Returns the member and the other.
    """
    late, slow, other = (Consumer(cluster, name, classic=classic) for name in ("c1", "c2", "c3"))
    await other.start()
    await until(lambda: len(other.owned) == 4, "all")
    claim, claimed = Ownership.claim, asyncio.Event()

    async def in_turn(self: Ownership, wanted: Mapping[Partition, str]) -> int:
        thread = next(iter(wanted.values()))
        if thread == "g_c2-0" and not claimed.is_set():
            await late.start()
            await until(lambda: other.owned == [("orders", 3)], "the other's claim")
            made = await claim(self, wanted)
            claimed.set()
            return made
        if thread == "g_c1-0":
            await claimed.wait()
        return await claim(self, wanted)

    monkeypatch.setattr(Ownership, "claim", in_turn)
    await slow.start()
    return slow, other


@pytest.mark.parametrize("classic", [False, True])
def test_a_claim_by_an_old_view_is_let_go_of_but_by_members_as_they_were(
    classic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=4)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            slow, other = await overtaken(cluster, monkeypatch, classic)
            await shared_as(zookeeper, {0: "g_c1-0", 1: "g_c1-0", 2: "g_c2-0", 3: "g_c3-0"})
            await until(lambda: slow.owned == [("orders", 2)], "all is settled")
            newer = next(claim for claim in other.claims if claim.shares["orders", 0] == "g_c1")
            first = slow.claims[0]
            assert newer.claim_zxid < first.claim_zxid
            assert (first.view_zxid < newer.view_zxid) is classic
            assert first.shares["orders", 0] == ("g_c2" if classic else "g_c1")
            assert (len(slow.claims) == 1) is not classic
            await zookeeper.close()

    simulate(check)


@pytest.mark.parametrize("classic", [False, True])
def test_a_member_whose_share_stays_the_same_lets_go_of_it_only_as_they_were(classic: bool) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            first, second = Consumer(cluster, "c1", classic=classic), Consumer(cluster, "c2", classic=classic)
            await first.start()
            await until(lambda: first.owned == [("orders", 0)], "the partition")
            await second.start()
            if classic:
                await until(lambda: first.kinds().count(ChangeKind.ACQUIRED) > 1, "it is claimed again")
            await asyncio.sleep(1.0)
            assert first.kinds()[:2] == [ChangeKind.ACQUIRED, ChangeKind.RELEASED][: 1 + classic]
            assert first.owned == [("orders", 0)]

    simulate(check)


async def cut_off(cluster: Brokers, defects: tuple[str, ...]) -> tuple[Consumer, Consumer, float]:
    """Cuts c1 from ZooKeeper, not from the brokers. From the time returned on, c2 owns every partition."""
    one, two = Consumer(cluster, "c1", defects=defects), Consumer(cluster, "c2")
    await one.start()
    await two.start()
    await until(lambda: len(one.owned) == len(two.owned) == 1, "each has one")
    await fill(cluster, "before", 2)
    await until(lambda: len(one.values) == len(two.values) == 5, "all is read")
    await one.cut_from(cluster.zookeepers)
    await until(lambda: len(two.owned) == 2, "the other has taken over")
    return one, two, asyncio.get_running_loop().time()


def test_one_who_is_cut_off_gives_up_by_itself_before_others_take_over_and_comes_back() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            one, two, taken = await cut_off(cluster, ())
            assert [kind for kind in one.kinds() if kind is ChangeKind.LOST] == [ChangeKind.LOST]
            assert max(at for at, change in one.changes if change.kind is ChangeKind.LOST) < taken
            sent = await fill(cluster, "after", 2)
            await until(lambda: set(two.values) >= sent, "the other reads all")
            assert not set(one.values) & sent
            assert one.owned == []
            await one.heal()
            await until(lambda: len(one.owned) == len(two.owned) == 1, "it is a member again")
            more = await fill(cluster, "more", 2)
            await until(lambda: set(one.values + two.values) >= more, "all is read")
            await one.shutdown()
            await two.shutdown()

    simulate(check)


def test_with_the_defect_it_goes_on_beside_the_next_owner() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            one, two, _ = await cut_off(cluster, ("zk-owner-overlap",))
            sent = await fill(cluster, "after", 2)
            await until(lambda: set(two.values) >= sent and not sent.isdisjoint(one.values), "both read the same")
            assert ChangeKind.LOST not in one.kinds()
            await one.heal()
            await one.shutdown()
            await two.shutdown()

    simulate(check)


def test_one_who_sleeps_for_longer_than_its_session_hands_out_nothing_when_it_wakes() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            one, two = Consumer(cluster, "c1"), Consumer(cluster, "c2")
            await one.start()
            await two.start()
            await until(lambda: len(one.owned) == len(two.owned) == 1, "each has one")
            one.process.stop()
            await until(lambda: len(two.owned) == 2, "the other has taken over")
            sent = await fill(cluster, "asleep", 2)
            await until(lambda: set(two.values) >= sent, "the other reads all")
            one.process.resume()
            await until(lambda: len(one.owned) == len(two.owned) == 1, "it is a member again")
            assert not set(one.values) & sent
            await one.shutdown()
            await two.shutdown()

    simulate(check)


def test_a_short_silence_changes_nothing() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            one = Consumer(cluster, "c1", session_timeout=4.0)
            await one.start()
            await until(lambda: len(one.owned) == 2, "all of it")
            for node in cluster.zookeepers:
                await node.kill()
                await node.start()
            await asyncio.sleep(6.0)
            assert one.kinds() == [ChangeKind.ACQUIRED] * 2
            await one.shutdown()

    simulate(check)


def test_after_a_shutdown_nothing_is_left_but_the_offsets_and_streams_end() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            one = Consumer(cluster, "c1")
            await one.start()
            sent = await fill(cluster, "x", 2)
            await until(lambda: set(one.values) == sent, "all is read")
            await one.shutdown()
            await one.shutdown()
            assert one.kinds() == [ChangeKind.ACQUIRED] * 2 + [ChangeKind.RELEASED] * 2
            assert await zookeeper.get_children("/consumers/g/ids") == []
            assert await owners(zookeeper) == {}
            assert (await zookeeper.get("/consumers/g/offsets/orders/0"))[0] == b"5"
            with pytest.raises(RuntimeError, match="not after a shutdown"):
                await one.connector.create_streams({"orders": 1})
            await zookeeper.close()

    simulate(check)


def test_others_read_on_where_a_task_of_a_member_fails() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            one, other = Consumer(cluster, "c1"), Consumer(cluster, "c2")
            await one.start()
            await shared_as(zookeeper, {0: "g_c1-0", 1: "g_c1-0"})

            async def fails() -> None:
                raise RuntimeError("the caller's own code")

            one.connector._before_release = fails  # as an application does that commits by itself
            await other.start()
            await shared_as(zookeeper, {0: "g_c2-0", 1: "g_c2-0"})
            assert one.kinds() == [ChangeKind.ACQUIRED] * 2 + [ChangeKind.LOST] * 2
            sent = await fill(cluster, "x", 2)
            await until(lambda: set(other.values) == sent, "all is read")
            assert not one.received
            await one.shutdown()
            await zookeeper.close()

    simulate(check)


@pytest.mark.parametrize("iterates", [False, True])
def test_a_reader_that_waits_ends_with_the_shutdown(iterates: bool) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            zookeepers = ",".join(f"{node.address}:2181" for node in cluster.zookeepers)
            config = ConnectorConfig(zookeeper=zookeepers, bootstrap=cluster.bootstrap)
            connector = ConsumerConnector(config, runtime=cluster.cluster.harness_runtime())
            (stream,) = (await connector.create_streams({"orders": 1}))["orders"]

            async def read() -> list[object]:
                return [message async for message in stream] if iterates else [*await stream.receive(60.0)]

            loop = asyncio.get_running_loop()
            reader = loop.create_task(read())
            await until(lambda: len(connector.owned) == 2, "it owns both")
            await asyncio.sleep(1.0)
            before = loop.time()
            await connector.shutdown()
            assert await reader == []
            assert loop.time() - before < 0.5

    simulate(check)


def test_a_shutdown_that_is_cancelled_lets_go_of_everything_all_the_same() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            one = Consumer(cluster, "c1", offsets_storage="kafka")
            await one.start()
            await until(lambda: len(one.owned) == 2, "it owns both")
            for node in cluster.nodes:
                await node.stop()  # its last commit gets no answer
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await one.connector.shutdown()
            assert await owners(zookeeper) == {}
            assert one.kinds() == [ChangeKind.ACQUIRED] * 2 + [ChangeKind.RELEASED] * 2
            for node in cluster.nodes:
                await node.resume()
            await zookeeper.close()

    simulate(check)


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_brokers_are_found_in_zookeeper_also_those_that_come_later(storage: str) -> None:
    """When it starts one broker lives, and in the end only the others do."""

    async def check() -> None:
        async with brokers(Broker(partitions=2, min_insync=1)) as cluster:
            first, *others = cluster.nodes
            sent = await fill(cluster, "x", 2)
            await cluster.consumer.commit("other", {("orders", 0): Position(1)})  # so that there is the offsets topic
            for node in others:
                await node.terminate()
            one = Consumer(cluster, "c1", bootstrap=(), offsets_storage=storage, auto_commit=False)
            await one.start()
            await until(lambda: set(one.values) == sent, "all is read", 30)
            for node in others:
                await node.start()
            await until(lambda: all(len(cluster.events(node, "registered")) == 2 for node in others), "they are back")
            await until(lambda: in_sync_again(cluster), "all are in sync", 30)
            await first.kill()
            await asyncio.sleep(5)
            producer = cluster.producer_with(repeat_unknown=True)
            for partition in range(2):
                await producer.send("orders", partition, [(None, b"later %d" % partition)])
            await until(lambda: {b"later 0", b"later 1"} <= set(one.values), "what comes later is read, too", 30)
            assert set(await one.call(one.connector.commit_offsets())) == {("orders", 0), ("orders", 1)}
            await one.shutdown()

    simulate(check)


async def in_sync_again(cluster: Brokers) -> bool:
    zookeeper = await zookeeper_of(cluster)
    states = [json.loads((await zookeeper.get(f"/brokers/topics/orders/partitions/{p}/state"))[0]) for p in range(2)]
    await zookeeper.close()
    return all(sorted(state["isr"]) == [1, 2, 3] for state in states)


def test_a_member_has_an_id_of_its_own_and_there_is_a_default_group() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            config = ConnectorConfig(zookeeper=f"{cluster.zookeepers[0].address}:2181", bootstrap=cluster.bootstrap)
            runtime = cluster.cluster.harness_runtime()
            one, two = (ConsumerConnector(config, runtime=runtime) for _ in range(2))
            group, host, milliseconds, chance = one.consumer_id.replace("_", "-", 1).split("-")
            assert (group, host, len(milliseconds), len(chance)) == ("default", runtime.host_name, 13, 8)
            assert runtime.host_name not in ("", "localhost")
            assert one.consumer_id != two.consumer_id
            elsewhere = ConsumerConnector(dataclasses.replace(config, host="web.example"), runtime=runtime)
            assert elsewhere.consumer_id.startswith("default_web.example-")
            await elsewhere.shutdown()
            await one.shutdown()
            await two.shutdown()

    simulate(check)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"offsets_storage": "disk"}, "zookeeper or kafka"),
        ({"reset": "earliest"}, "smallest or largest"),
        ({"group": "a/b"}, "name of a znode"),
        ({"host": "a/b"}, "part of the name of a znode"),
        ({"consumer_id": "a/b"}, "part of the name of a znode"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConnectorConfig(zookeeper="zk:2181", bootstrap=["b:9092"], **wrong)  # type: ignore[arg-type]


REMOVED = {
    "deleted": lambda zookeeper, path: zookeeper.delete(path),
    "overwritten": lambda zookeeper, path: zookeeper.set(path, b"nonsense"),
}


@pytest.mark.parametrize("done", list(REMOVED))
def test_a_member_whose_registration_was_removed_by_hand_registers_again_and_the_group_goes_on(done: str) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=4)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            one, two = Consumer(cluster, "c1"), Consumer(cluster, "c2")
            await one.start()
            await two.start()
            await shared_as(zookeeper, {0: "g_c1-0", 1: "g_c1-0", 2: "g_c2-0", 3: "g_c2-0"})
            before = await zookeeper.exists("/consumers/g/ids/g_c1")
            await REMOVED[done](zookeeper, "/consumers/g/ids/g_c1")

            async def registered() -> bool:
                now = await zookeeper.exists("/consumers/g/ids/g_c1")
                return now is not None and now.czxid > before.czxid and now.version == 0

            await until(registered, "it has registered again")
            await shared_as(zookeeper, {0: "g_c1-0", 1: "g_c1-0", 2: "g_c2-0", 3: "g_c2-0"})
            await until(lambda: len(one.owned) == len(two.owned) == 2, "both own their shares")
            sent = await fill(cluster, "x", 4)
            await until(lambda: set(one.values + two.values) == sent, "all is read")
            await one.call(one.connector.commit_offsets())
            await one.shutdown()
            await shared_as(zookeeper, {0: "g_c2-0", 1: "g_c2-0", 2: "g_c2-0", 3: "g_c2-0"})
            await two.shutdown()
            await zookeeper.close()

    simulate(check)


def test_nothing_is_released_without_a_registration_and_everything_once_there_is_one_again() -> None:
    """Else the claims would stay for as long as the session, and no one could have the partitions."""

    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            registration = Registration(zookeeper, "g", "g_c1")
            ownership = Ownership(zookeeper, "g", registration)
            await registration.ensure(StaticSubscription({"orders": 1}), 0)
            assert await ownership.claim({("orders", 0): "g_c1-0"})
            await zookeeper.delete("/consumers/g/ids/g_c1")
            with pytest.raises(NoNodeError):
                await ownership.release()
            assert ownership.claimed == {("orders", 0)}
            await registration.ensure(StaticSubscription({"orders": 1}), 0)
            await ownership.release()
            assert not ownership.claimed
            assert await owners(zookeeper) == {}
            await zookeeper.close()

    simulate(check)


def test_a_claim_that_could_not_be_looked_at_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed look sets no watch, so nothing else would tell that the claim is gone."""

    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            registration = Registration(zookeeper, "g", "g_c1")
            ownership = Ownership(zookeeper, "g", registration)
            await registration.ensure(StaticSubscription({"orders": 1}), 0)
            assert await ownership.claim({("orders", 0): "g_c1-0"})
            (watch,) = ownership._watches.values()
            watch(WatchedEvent(EventType.NONE, KeeperState.CONNECTING, ""))  # as when the connection is lost
            assert ownership.in_doubt

            async def fails(*_: object) -> None:
                raise ConnectionLoss

            with monkeypatch.context() as patched:
                patched.setattr(zookeeper, "exists", fails)
                with pytest.raises(ConnectionLoss):
                    await ownership.find_gone()
            assert ownership.in_doubt
            await zookeeper.delete("/consumers/g/owners/orders/0")
            assert await ownership.find_gone() == [("orders", 0)]
            await zookeeper.close()

    simulate(check)


@pytest.mark.parametrize("classic", [False, True])
def test_a_member_stops_reading_a_partition_whose_claim_is_deleted_by_hand_and_claims_it_again(classic: bool) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            member = Consumer(cluster, "c1", classic=classic)
            await member.start()
            await shared_as(zookeeper, {0: "g_c1-0", 1: "g_c1-0"})
            await until(lambda: len(member.owned) == 2, "it owns both")
            first = member.connector.counters.watches
            await zookeeper.multi(
                [
                    Delete("/consumers/g/owners/orders/1", -1),
                    znodes.make_create("/consumers/g/owners/orders/1", b"g_other-0"),
                ]
            )
            await until(lambda: ChangeKind.LOST in member.kinds(), "it has noticed")
            lost = next(change for _, change in member.changes if change.kind is ChangeKind.LOST)
            assert (lost.topic, lost.partition) == ("orders", 1)
            assert ("orders", 1) not in member.owned
            other = await fill(cluster, "other", 2)
            await asyncio.sleep(3.0)
            assert not member.values[b"other-1-0"], "it belongs to another"
            await zookeeper.delete("/consumers/g/owners/orders/1")
            await shared_as(zookeeper, {0: "g_c1-0", 1: "g_c1-0"})
            await until(lambda: set(member.values) == other, "it reads both again")
            assert member.connector.counters.watches == first, "its own releases do not wake it"
            await member.shutdown()
            await zookeeper.close()

    simulate(check)


def test_a_claim_that_is_deleted_while_its_owner_is_cut_off_is_noticed_when_it_is_back() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            member = Consumer(cluster, "c1", session_timeout=6.0)
            await member.start()
            await shared_as(zookeeper, {0: "g_c1-0", 1: "g_c1-0"})
            await until(lambda: len(member.owned) == 2, "it owns both")
            await member.cut_from(cluster.zookeepers)
            await asyncio.sleep(3.5)
            await zookeeper.delete("/consumers/g/owners/orders/0")
            await member.heal()
            await until(lambda: ChangeKind.LOST in member.kinds(), "it has noticed")
            lost = [change.partition for _, change in member.changes if change.kind is ChangeKind.LOST]
            assert lost == [0], "its session goes on, and so does the other partition"
            await shared_as(zookeeper, {0: "g_c1-0", 1: "g_c1-0"})
            await until(lambda: len(member.owned) == 2, "it owns both again")
            await member.shutdown()
            await zookeeper.close()

    simulate(check)


def test_a_member_that_is_registered_as_the_old_documents_say_gets_its_share() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            one = Consumer(cluster, "c1")
            await one.start()
            await until(lambda: len(one.owned) == 2, "it owns both")
            other = b'{"version": 1, "pattern": "static", "subscription": {"orders": 1}}'
            await zookeeper.create("/consumers/g/ids/g_c2", other, ephemeral=True)
            await until(lambda: one.owned == [("orders", 0)], "it leaves one for the other")
            await one.shutdown()
            await zookeeper.close()

    simulate(check)
