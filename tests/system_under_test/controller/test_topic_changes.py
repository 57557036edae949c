"""Topics that are made, configured, grown and removed while brokers run: in ZooKeeper, as tools do, and by Admin."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from assay.system_under_test.client.admin import Admin
from assay.system_under_test.client.errors import Certainty, ReadFailed, SendFailed, SendUnknown
from assay.system_under_test.controller import topic_settings
from assay.system_under_test.controller.cluster_state import ClusterState, Topic
from assay.system_under_test.controller.topic_settings import VersionedSettings
from assay.system_under_test.deployment import Broker
from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol import produce
from assay.system_under_test.protocol.errors import ErrorCode as E
from assay.system_under_test.protocol.internal import LeaderAndIsrRequest, TopicSetting, TopicSettingsUpdate
from assay.system_under_test.records import message_set
from assay.system_under_test.runtime import ZooKeeper

from helpers.lost_requests import Requests
from helpers.sim_brokers import Brokers, brokers, simulate, until, zookeeper_of

CONFIG = "/config/topics/orders"
CHANGES = "/config/changes"


@asynccontextmanager
async def tools(system: Broker | None = None, seed: int = 1) -> AsyncIterator[tuple[Brokers, ZooKeeper, Admin]]:
    async with brokers(system, seed=seed) as cluster:
        zookeeper = await zookeeper_of(cluster)
        admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
        try:
            yield cluster, zookeeper, admin
        finally:
            await admin.close()
            await zookeeper.close()


def assignment(**partitions: list[int]) -> bytes:
    return json.dumps({"version": 1, "partitions": {name[1:]: r for name, r in partitions.items()}}).encode()


def config(**settings: str) -> bytes:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return json.dumps({"version": 1, "config": {"min.insync.replicas": "2", **named}}).encode()


async def announce(zookeeper: ZooKeeper, data: bytes = b'{"version":2,"entity_path":"topics/orders"}') -> str:
    return await zookeeper.create(f"{CHANGES}/config_change_", data, sequence=True)


async def change(zookeeper: ZooKeeper, data: bytes) -> None:
    """As kafka-configs.sh does it."""
    if await zookeeper.exists(CONFIG) is None:
        await zookeeper.create(CONFIG, data)
    else:
        await zookeeper.set(CONFIG, data)
    await announce(zookeeper)


def settings(cluster: Brokers) -> list[dict[str, str] | None]:
    """Returns what each broker applied last to its replicas of the topic."""
    found = [cluster.events(node, "topic-configured") for node in cluster.nodes]
    return [events[-1]["detail"]["settings"] if events else None for events in found]


async def applied(cluster: Brokers, **wanted: str) -> None:
    expected = {"min.insync.replicas": "2"} | {name.replace("_", "."): value for name, value in wanted.items()}
    await until(lambda: settings(cluster) == [expected] * len(cluster.nodes), f"all have {expected}", 10)


async def fails(cluster: Brokers, size: int) -> bool:
    try:
        await cluster.producer_with().send("orders", 0, [(None, b"x" * size)])
    except SendFailed as error:
        return error.error is E.MESSAGE_TOO_LARGE
    return False


async def elect(cluster: Brokers, zookeeper: ZooKeeper) -> None:
    count = sum(len(cluster.events(node, "became-controller")) for node in cluster.nodes)
    await zookeeper.delete("/controller")
    await until(
        lambda: sum(len(cluster.events(node, "became-controller")) for node in cluster.nodes) > count, "an election"
    )


async def deleted(zookeeper: ZooKeeper, topic: str) -> None:
    async def gone() -> bool:
        return await zookeeper.exists(f"/admin/delete_topics/{topic}") is None

    await until(gone, "the mark is gone")
    assert await zookeeper.exists(f"/brokers/topics/{topic}") is None


# -- settings ------------------------------------------------------------------------------------------------------


def test_a_change_of_settings_in_zookeeper_is_followed_by_every_broker() -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, _):
            assert not await fails(cluster, 500)
            await change(zookeeper, config(max_message_bytes="300"))
            await applied(cluster, max_message_bytes="300")
            assert await fails(cluster, 500)
            await change(zookeeper, config())
            await applied(cluster)
            assert not await fails(cluster, 500)

    simulate(check)


def test_the_first_form_of_an_announcement_is_understood_too() -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, _):
            await zookeeper.set(CONFIG, config(segment_bytes="4096"))
            await announce(zookeeper, b'{"version":1,"entity_type":"topics","entity_name":"orders"}')
            await applied(cluster, segment_bytes="4096")

    simulate(check)


@pytest.mark.parametrize("bystander", [False, True])
def test_a_change_while_a_broker_is_down_is_applied_at_its_start(bystander: bool) -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, _):
            controller = await cluster.controller()
            down = next(node for node in cluster.nodes if (node is controller) is not bystander)
            await down.kill()
            await change(zookeeper, config(segment_ms="60000"))
            for name in await zookeeper.get_children(CHANGES):
                await zookeeper.delete(f"{CHANGES}/{name}")  # a broker that comes late finds no announcement
            await down.start()
            await until(lambda: len(cluster.events(down, "registered")) == 2, "it is back")
            await applied(cluster, segment_ms="60000")
            life = cluster.events(down, "registered")[-1]["incarnation"]
            known = [e["seq"] for e in cluster.events(down, "topic-configured") if e["incarnation"] == life]
            opened = [e["seq"] for e in cluster.events(down, "recovered") if e["incarnation"] == life]
            assert known[0] < opened[0], "before any log is opened"

    simulate(check)


def test_a_change_between_two_controllers_is_not_undone_by_the_next() -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, _):
            for size in ("300", "400"):
                old = await cluster.controller()
                await old.stop()
                await change(zookeeper, config(max_message_bytes=size))
                await until(lambda o=old: _replaced(cluster, o), "another controller", 20)  # type: ignore[misc]
                await old.resume()
                await applied(cluster, max_message_bytes=size)
                for _ in range(2):
                    await elect(cluster, zookeeper)
                await asyncio.sleep(1)
                await applied(cluster, max_message_bytes=size)
                assert await fails(cluster, 500)

    async def _replaced(cluster: Brokers, old: Any) -> bool:
        found = await cluster.system.find(cluster.cluster, "controller")
        return found is not None and found is not old

    simulate(check)


def test_a_broker_cut_from_zookeeper_reads_all_settings_again() -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, _):
            controller = await cluster.controller()
            node = next(node for node in cluster.nodes if node is not controller)
            await cluster.cut(node, cluster.zookeepers)
            await change(zookeeper, config(segment_ms="70000"))
            await asyncio.sleep(0.1)  # the others have read it
            for name in await zookeeper.get_children(CHANGES):
                await zookeeper.delete(f"{CHANGES}/{name}")
            await cluster.zookeepers[0].kill()  # which ends connections, but no session
            await cluster.zookeepers[0].start()
            await cluster.heal()
            await applied(cluster, segment_ms="70000")
            assert cluster.events(node, "session-lost") == [], "else the controller would have sent it"

    simulate(check)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b'{"version":3,"entity_path":"topics/orders"}',
        b'{"version":2}',
        b'{"version":2,"entity_path":"topics/"}',
        b'{"version":2,"entity_path":"orders"}',
        b'{"version":1,"entity_type":"pets","entity_name":"orders"}',
        b'{"version":2,"entity_path":"topics/.."}',
        b'{"version":1,"entity_type":"topics","entity_name":"."}',
    ],
)
def test_an_announcement_that_makes_no_sense_is_one_line_and_the_next_one_counts(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, _):
            path = await announce(zookeeper, data)
            await announce(zookeeper, b'{"version":2,"entity_path":"clients/c"}')  # quotas: none of our business
            for size in ("300", "400"):
                await change(zookeeper, config(max_message_bytes=size))
                await applied(cluster, max_message_bytes=size)
            said = [r for r in caplog.records if r.levelno >= logging.ERROR]
            assert [path in record.getMessage() for record in said] == [True] * 3, "one line of each broker"

    simulate(check)


def test_settings_that_make_no_sense_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, admin):
            before = settings(cluster)
            await change(zookeeper, b"{}")
            await asyncio.sleep(1)
            assert settings(cluster) == before
            assert sum(CONFIG in record.getMessage() for record in caplog.records) == 3
            assert (await admin.alter_config("orders", {"segment.ms": "1"})).error is E.INVALID_CONFIG
            odd = {"segment.bytes": "0", "no.such": "1", "flush.ms": "soon", "segment.ms": "5"}
            await change(zookeeper, config(**{name.replace(".", "_"): value for name, value in odd.items()}))
            await applied(cluster, segment_ms="5")
            await elect(cluster, zookeeper)
            await cluster.producer_with().send("orders", 0, [(None, b"x")])

    simulate(check)


def test_old_announcements_go_when_a_much_younger_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_settings, "LIFETIME_MS", 5_000)

    async def check() -> None:
        async with tools() as (cluster, zookeeper, _):
            old = await announce(zookeeper, b"nonsense, too")
            await asyncio.sleep(3)
            await announce(zookeeper)
            await asyncio.sleep(3)
            assert len(await zookeeper.get_children(CHANGES)) == 2
            await change(zookeeper, config(segment_ms="60000"))
            await applied(cluster, segment_ms="60000")

            async def gone() -> bool:
                return await zookeeper.exists(old) is None

            await until(gone, "the oldest is gone", 2)
            assert len(await zookeeper.get_children(CHANGES)) == 2

    simulate(check)


def test_settings_are_altered_by_admin_one_by_one() -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, admin):
            assert await admin.describe_config("orders") == {"min.insync.replicas": "2"}
            await zookeeper.set(CONFIG, config(cleanup_odd="theirs"))
            done = await admin.alter_config("orders", {"max.message.bytes": "300", "segment.ms": "60000"})
            assert done.outcome is Certainty.DONE
            await applied(cluster, max_message_bytes="300", segment_ms="60000")
            assert await fails(cluster, 500)
            assert (await admin.alter_config("orders", {"max.message.bytes": None})).outcome is Certainty.DONE
            await applied(cluster, segment_ms="60000")
            described = {"min.insync.replicas": "2", "segment.ms": "60000"}
            assert await admin.describe_config("orders") == described
            written = json.loads((await zookeeper.get(CONFIG))[0])["config"]
            assert written == described | {"cleanup.odd": "theirs"}, "what we do not know stays"
            count = len(await zookeeper.get_children(CHANGES))
            await admin.alter_config("orders", {"segment.ms": "60000"})
            assert len(await zookeeper.get_children(CHANGES)) == count, "nothing changed, nothing is announced"
            for name, changes, error in (
                ("nothing", {"segment.ms": "1"}, E.UNKNOWN_TOPIC_OR_PARTITION),
                ("orders", {"no.such": "1"}, E.INVALID_CONFIG),
                ("orders", {"segment.bytes": "0"}, E.INVALID_CONFIG),
            ):
                refused = await admin.alter_config(name, changes)
                assert (refused.outcome, refused.error) == (Certainty.NOT_DONE, error)
            with pytest.raises(ReadFailed):
                await admin.describe_config("nothing")

    simulate(check)


def test_a_lower_minimum_lets_waiting_partitions_go_on_without_trusting_those_that_left() -> None:
    """With 2 of 2 the last one waits; with 1 it goes on, and who left is no longer eligible for having everything."""

    async def check() -> None:
        async with tools(Broker(partitions=1, replication=2)) as (cluster, zookeeper, admin):
            state = "/brokers/topics/orders/partitions/0/state"
            leader = await cluster.leader()
            replicas = json.loads((await zookeeper.get(state))[0])["isr"]
            follower = cluster.nodes[next(r for r in replicas if r != leader.index) - 1]
            await follower.stop()

            async def alone() -> bool:
                written = json.loads((await zookeeper.get(state))[0])
                return (written["isr"], written["elr"]) == ([leader.index], [follower.index])

            await until(alone, "the follower has left, and is eligible")
            sending = cluster.producer_with(timeout=1.0).send("orders", 0, [(None, b"refused")])
            with pytest.raises(SendFailed):
                await sending
            done = await admin.alter_config("orders", {"min.insync.replicas": "1"})
            assert done.outcome is Certainty.DONE

            async def sent() -> bool:
                try:
                    await cluster.producer_with(timeout=1.0).send("orders", 0, [(None, b"taken")])
                except SendFailed:
                    return False
                assert json.loads((await zookeeper.get(state))[0])["elr"] == [], "one may lead that has not got it"
                return True

            await until(sent, "acknowledged by one", 10)

    simulate(check)


def test_a_higher_minimum_ends_the_wait_of_those_for_whom_it_will_not_be_reached() -> None:
    async def check() -> None:
        async with tools(Broker(partitions=1, min_insync=1)) as (cluster, _, admin):
            leader = await cluster.leader()
            await cluster.cut(leader, [node for node in cluster.nodes if node is not leader])
            sending = asyncio.ensure_future(cluster.producer_with(timeout=1.5).send("orders", 0, [(None, b"x")]))
            await asyncio.sleep(0.3)
            assert not sending.done()
            began = asyncio.get_running_loop().time()
            assert (await admin.alter_config("orders", {"min.insync.replicas": "4"})).outcome is Certainty.DONE
            with pytest.raises(SendUnknown) as refused:
                await sending
            assert refused.value.error is E.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            assert asyncio.get_running_loop().time() - began < 0.2
            await cluster.heal()

    simulate(check)


@pytest.mark.parametrize("age", [-1, 0, 1])
def test_older_settings_from_the_controller_do_not_replace_younger_ones(age: int) -> None:
    """They may have been read before a change that the broker has seen already."""

    async def check() -> None:
        async with tools() as (cluster, zookeeper, _):
            await change(zookeeper, config(segment_ms="60000"))
            await applied(cluster, segment_ms="60000")
            node = cluster.nodes[0]
            known = cluster.events(node, "topic-configured")
            update = TopicSettingsUpdate(
                topic="orders",
                zxid=known[-1]["zxid"] + age,
                settings=[TopicSetting(name="min.insync.replicas", value="2")],
            )
            request = LeaderAndIsrRequest(
                controller_id=1,
                controller_epoch=1,
                broker_epoch=cluster.events(node, "registered")[-1]["zxid"],
                partitions=[],
                topics=[update],
                live_brokers=[],
            )
            connection = await Connection.open(node.address, 9092, 1.0)
            assert (await connection.call(request, 0, 5.0)).error_code == E.NONE
            await connection.close()
            assert len(cluster.events(node, "topic-configured")) == len(known) + (age > 0)

    simulate(check)


def test_the_controller_too_keeps_the_younger_settings() -> None:
    state = ClusterState(topics={"t": Topic(7, {0: [1]}, VersionedSettings({"segment.ms": "5"}, 7))})
    assert not state.configure("t", VersionedSettings({}, 6))
    assert not state.configure("unknown", VersionedSettings({}, 9))
    assert state.topics["t"].settings.values == {"segment.ms": "5"}
    assert state.configure("t", VersionedSettings({}, 8))
    assert state.topics["t"].settings == VersionedSettings({}, 8)


# -- partitions ----------------------------------------------------------------------------------------------------


async def led(cluster: Brokers, admin: Admin, topic: str, count: int) -> None:
    async def check() -> bool:
        found = (await admin.describe([topic])).topics[topic].partitions
        return len(found) == count and all(p.leader is not None for p in found.values())

    await until(check, f"{topic} has {count} partitions, each with a leader")


async def filled(cluster: Brokers, topic: str, count: int) -> None:
    """Each takes a record, once its leader has heard that it is."""

    async def taken(partition: int) -> bool:
        try:
            await cluster.producer_with().send(topic, partition, [(None, b"x")])
        except (SendFailed, SendUnknown):
            return False
        return True

    for partition in range(count):
        await until(lambda p=partition: taken(p), f"{topic}-{partition} takes a record")  # type: ignore[misc]


def test_a_topic_written_to_zookeeper_is_made_and_one_marked_there_is_removed() -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, admin):
            await zookeeper.create("/config/topics/written", config(max_message_bytes="300"))
            await zookeeper.create("/brokers/topics/written", assignment(p0=[1, 2], p1=[3, 1]))
            await led(cluster, admin, "written", 2)
            await filled(cluster, "written", 2)
            await zookeeper.create("/admin/delete_topics/written")

            async def gone() -> bool:
                return await zookeeper.exists("/admin/delete_topics/written") is None

            await until(gone, "the mark is gone")
            for path in ("/brokers/topics/written", "/config/topics/written"):
                assert await zookeeper.exists(path) is None
            assert not [path for node in cluster.nodes for path in node.disk.files() if "written-" in path]

    simulate(check)


def test_a_deletion_goes_on_through_all_other_changes() -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, admin):
            await zookeeper.create("/brokers/topics/second", assignment(p0=[1, 2, 3]))
            await led(cluster, admin, "second", 1)
            await filled(cluster, "second", 1)
            controller = await cluster.controller()
            asleep = next(node for node in cluster.nodes if node is not controller)
            await asleep.stop()
            await zookeeper.create("/admin/delete_topics/second")
            await asyncio.sleep(0.3)  # it waits for the one that sleeps
            own = Admin([f"{controller.address}:9092"], runtime=cluster.cluster.harness_runtime())
            assert (await own.create_partitions("second", 2)).error is E.UNKNOWN_TOPIC_OR_PARTITION
            assert (await own.create_partitions("orders", 2)).outcome is Certainty.DONE
            assert (await own.alter_config("second", {"segment.ms": "60000"})).outcome is Certainty.DONE
            await own.close()
            await asyncio.sleep(0.3)
            await asleep.resume()

            await deleted(zookeeper, "second")
            assert await zookeeper.exists("/config/topics/second") is None

    simulate(check)


@pytest.mark.parametrize("then", ["another controller", "another controller after a lost answer", "another life"])
def test_a_topic_of_which_a_replica_is_gone_is_not_in_service_again(then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica that has deleted its files would begin with an empty log, and could be elected."""
    marks = Requests(monkeypatch, "get", "/admin/delete_topics/second")

    async def check() -> None:
        async with tools() as (cluster, zookeeper, admin):
            controller = await cluster.controller()
            other, asleep = [node for node in cluster.nodes if node is not controller]
            await zookeeper.create("/brokers/topics/second", assignment(p0=[asleep.index, other.index]))
            await led(cluster, admin, "second", 1)
            await cluster.producer.send("second", 0, [(None, b"acknowledged")])
            assert len(cluster.stored(other, "second-0")) == 1
            await asleep.stop()
            await zookeeper.create("/admin/delete_topics/second")
            await until(lambda: not cluster.stored(other, "second-0"), "one of the two has deleted its files")

            def leads() -> int:
                found = [event for node in cluster.nodes for event in cluster.events(node, "became-leader")]
                return sum(event["key"] == "second-0" for event in found)

            before = leads()
            await asleep.kill()
            await asyncio.sleep(20)  # its session is over
            if then == "another life":
                await other.kill()
                await other.start()
            else:
                marks.lose(int("lost" in then))
                await elect(cluster, zookeeper)
            await asyncio.sleep(20)
            await asleep.start()

            await deleted(zookeeper, "second")
            assert leads() == before
            assert [cluster.stored(node, "second-0") for node in (other, asleep)] == [[], []]

    simulate(check)


def test_a_topic_that_is_marked_while_a_replica_is_dead_stays_in_service() -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, admin):
            controller = await cluster.controller()
            other, dead = [node for node in cluster.nodes if node is not controller]
            await zookeeper.create("/brokers/topics/second", assignment(p0=[dead.index, other.index]))
            await led(cluster, admin, "second", 1)
            await dead.kill()
            await asyncio.sleep(20)
            await zookeeper.create("/admin/delete_topics/second")
            await asyncio.sleep(1)
            await cluster.producer_with(acks=1).send("second", 0, [(None, b"kept")])
            assert [value for _, value in cluster.stored(other, "second-0")] == [b"kept"]

    simulate(check)


def test_a_longer_assignment_in_zookeeper_brings_partitions() -> None:
    async def check() -> None:
        async with tools(Broker(partitions=1, replication=2)) as (cluster, zookeeper, admin):
            first = json.loads((await zookeeper.get("/brokers/topics/orders"))[0])["partitions"]["0"]
            for count in (2, 3):  # the watch is set again
                new = {f"p{index}": [3, 1] for index in range(1, count)}
                await zookeeper.set("/brokers/topics/orders", assignment(p0=first, **new))
                await led(cluster, admin, "orders", count)
                await filled(cluster, "orders", count)
            found = (await admin.describe(["orders"])).topics["orders"].partitions
            assert [found[index].replicas for index in (1, 2)] == [(3, 1), (3, 1)]

    simulate(check)


def test_partitions_added_while_there_is_no_controller_are_made_by_the_next() -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, admin):
            old = await cluster.controller()
            first = json.loads((await zookeeper.get("/brokers/topics/orders"))[0])["partitions"]["0"]
            others = [node.index for node in cluster.nodes if node is not old]
            await old.kill()
            await zookeeper.set("/brokers/topics/orders", assignment(p0=first, p1=others, p2=[old.index, *others]))
            await led(cluster, admin, "orders", 3)
            await old.start()
            await filled(cluster, "orders", 3)

    simulate(check)


def test_partitions_being_added_survive_a_controller_that_goes_in_the_middle() -> None:
    async def check(delay: float) -> None:
        async with tools(seed=int(delay * 1000)) as (cluster, zookeeper, admin):
            first = json.loads((await zookeeper.get("/brokers/topics/orders"))[0])["partitions"]["0"]
            new = {f"p{index}": [1, 2, 3] for index in range(1, 8)}
            await zookeeper.set("/brokers/topics/orders", assignment(p0=first, **new))
            await asyncio.sleep(delay)
            await zookeeper.delete("/controller")
            await led(cluster, admin, "orders", 8)
            await filled(cluster, "orders", 8)

    for delay in (0.0, 0.002, 0.004, 0.008, 0.016):
        simulate(lambda d=delay: check(d))  # type: ignore[misc]


@pytest.mark.parametrize(
    "wrong",
    [
        assignment(p0=[1, 2, 3]),
        assignment(p0=[1, 2, 3], p1=[1, 2]),
        assignment(p0=[1, 2, 3], p1=[1, 2, 3], p3=[1, 2, 3]),
        assignment(p0=[1, 2, 3], p1=[1, 2, 3], p2=[1, 1, 2]),
        assignment(p0=[1, 2, 3], p1=[1, 2, 3], p2=[]),
        assignment(p0=[1, 2, 3], p1=[1, 2, 3], p2=[2**40]),
        b"nonsense",
    ],
)
def test_a_shrunk_or_contradictory_assignment_is_refused_in_one_line_and_put_back(
    wrong: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, admin):
            path = "/brokers/topics/second"
            right = {"0": [1, 2, 3], "1": [1, 2, 3]}
            await zookeeper.create(path, assignment(p0=right["0"], p1=right["1"]))
            await led(cluster, admin, "second", 2)
            await zookeeper.set(path, wrong)

            async def restored() -> bool:
                try:
                    return bool(json.loads((await zookeeper.get(path))[0])["partitions"] == right)
                except ValueError:
                    return False

            await until(restored, "the assignment is as it was")
            said = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
            assert len(said) == 1
            assert "topic second is rejected" in said[0]
            await elect(cluster, zookeeper)
            await led(cluster, admin, "second", 2)
            await filled(cluster, "second", 2)

    simulate(check)


def test_a_topic_that_made_no_sense_is_made_once_it_does(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, admin):
            await zookeeper.create("/brokers/topics/odd", assignment(p0=[2**40]))
            await zookeeper.create("/brokers/topics/no name", assignment(p0=[1]))
            await until(lambda: any("/brokers/topics/odd" in r.getMessage() for r in caplog.records), "it is noticed")
            await zookeeper.set("/brokers/topics/odd", assignment(p0=[1]))
            await led(cluster, admin, "odd", 1)
            assert sorted((await admin.describe()).topics) == ["odd", "orders"]

    simulate(check)


@pytest.mark.parametrize("seed", range(5))
def test_a_topic_deleted_and_made_again_behind_the_controllers_back_is_a_new_one(seed: int) -> None:
    """Whether the controller looks between the two or after them."""

    async def check() -> None:
        async with tools() as (cluster, zookeeper, admin):
            await cluster.producer.send("orders", 0, [(None, b"of the old one")])
            for path in ("partitions/0/state", "partitions/0", "partitions"):
                await zookeeper.delete(f"/brokers/topics/orders/{path}")
            await zookeeper.delete("/brokers/topics/orders")
            await zookeeper.create("/brokers/topics/orders", assignment(p0=[1, 2, 3]))

            async def fresh() -> bool:
                return all(cluster.stored(node, "orders-0") == [] for node in cluster.nodes)

            await until(fresh, "the old logs are set aside")
            await led(cluster, admin, "orders", 1)
            await filled(cluster, "orders", 1)

    simulate(check, seed)


def test_a_topic_deleted_behind_the_controllers_back_is_served_no_longer() -> None:
    """Messages acknowledged meanwhile would be set aside when a topic of that name is made. The logs stay."""

    async def check() -> None:
        async with tools() as (cluster, zookeeper, _):
            await cluster.producer.send("orders", 0, [(None, b"of the old one")])
            leader = await cluster.leader()
            for path in ("partitions/0/state", "partitions/0", "partitions"):
                await zookeeper.delete(f"/brokers/topics/orders/{path}")
            await zookeeper.delete("/brokers/topics/orders")
            await asyncio.sleep(1)
            records = message_set.build([(None, b"too late", 5)])
            wanted = produce.ProducePartition(partition=0, records=records)
            topic = produce.ProduceTopic(topic="orders", partitions=[wanted])
            connection = await Connection.open(leader.address, 9092, 5.0)
            answer = await connection.call(produce.ProduceRequest(acks=-1, timeout_ms=1000, topics=[topic]), 2, 5.0)
            await connection.close()
            assert answer.topics[0].partitions[0].error_code == E.NOT_LEADER_FOR_PARTITION
            assert all(len(cluster.stored(node, "orders-0")) == 1 for node in cluster.nodes)

    simulate(check)


def test_partitions_are_added_by_admin() -> None:
    async def check() -> None:
        async with tools() as (cluster, zookeeper, admin):
            assert (await admin.create_partitions("orders", 4)).outcome is Certainty.DONE
            await led(cluster, admin, "orders", 4)
            found = (await admin.describe(["orders"])).topics["orders"].partitions
            leaders = {p.replicas[0] for p in found.values()}
            assert leaders == {1, 2, 3}, "spread over all"
            assert all(sorted(p.replicas) == [1, 2, 3] for p in found.values())
            assert (await admin.create_partitions("orders", 5, [[3, 2, 1]])).outcome is Certainty.DONE
            await led(cluster, admin, "orders", 5)
            assert (await admin.describe(["orders"])).topics["orders"].partitions[4].replicas == (3, 2, 1)
            await filled(cluster, "orders", 5)
            for count, assigned, error in (
                (5, [], E.INVALID_PARTITIONS),
                (1, [], E.INVALID_PARTITIONS),
                (100_000, [], E.INVALID_PARTITIONS),
                (6, [[1, 2]], E.INVALID_REPLICA_ASSIGNMENT),
                (6, [[1, 2, 2]], E.INVALID_REPLICA_ASSIGNMENT),
                (6, [[1, 2, 9]], E.INVALID_REPLICA_ASSIGNMENT),
                (7, [[1, 2, 3]], E.INVALID_REPLICA_ASSIGNMENT),
            ):
                refused = await admin.create_partitions("orders", count, assigned)
                assert (refused.outcome, refused.error) == (Certainty.NOT_DONE, error)
            assert (await admin.create_partitions("nothing", 2)).error is E.UNKNOWN_TOPIC_OR_PARTITION
            written = json.loads((await zookeeper.get("/brokers/topics/orders"))[0])["partitions"]
            assert len(written) == 5

    simulate(check)


def test_a_topic_without_partitions_is_none_and_harms_no_other() -> None:
    async def check() -> None:
        async with tools() as (_, zookeeper, admin):
            await zookeeper.create("/brokers/topics/hollow", assignment())
            refused = await admin.create_partitions("hollow", 2)
            assert (refused.outcome, refused.error) == (Certainty.NOT_DONE, E.UNKNOWN_TOPIC_OR_PARTITION)
            assert (await admin.create_partitions("orders", 2)).outcome is Certainty.DONE

    simulate(check)
