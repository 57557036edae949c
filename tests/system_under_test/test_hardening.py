"""Strangers do no harm to whole brokers: thousands of hostile requests, and clients that misbehave, in the simulation.

``test_hardening_process`` does the same to a real process, for what the simulation has not: memory and time.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from assay.cluster.node import ProcessState
from assay.cluster.sim.node import SimNode
from assay.system_under_test import broker
from assay.system_under_test.deployment import Broker
from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from assay.system_under_test.protocol.header import encode_request
from assay.system_under_test.protocol.internal import (
    EpochEndRequest,
    ReplicaFetchRequest,
)
from assay.system_under_test.protocol.metadata import MetadataRequest
from assay.system_under_test.protocol.offsets import LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from assay.system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from assay.system_under_test.protocol.schema import Request, read_records
from assay.system_under_test.protocol.topics import ConfigEntry, CreatableTopic, CreateTopicsRequest, ReplicaAssignment
from assay.system_under_test.records import message_set
from assay.system_under_test.replication.purgatory import MAX_WAIT, WaitingProducers, expire

from helpers.group_client import coordinator
from helpers.hostile_requests import VERSIONS, Attack, Stranger
from helpers.sim_brokers import Brokers, brokers, simulate, until

pytestmark = pytest.mark.slow

ATTACKERS = 12
NORMAL = 0.25
"""Seconds within which an undisturbed send or poll is answered, ten times over."""
FOREVER = 2**31 - 1


class Complaints(logging.Handler):
    """Counts the lines that the brokers log, and keeps every error."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = 0
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += 1
        if record.levelno >= logging.ERROR:
            self.errors.append(logging.Formatter().format(record))


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    handler = Complaints()
    root = logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


def inside() -> list[broker.BrokerProcess]:
    """The brokers that live in this process now, by id: what they keep in memory can be counted."""
    gc.collect()
    processes = [thing for thing in gc.get_objects() if type(thing) is broker.BrokerProcess]
    found = [process for process in processes if process._server._server is not None]
    return sorted(found, key=lambda thing: thing.config.broker_id)


def kept(process: broker.BrokerProcess) -> dict[str, int]:
    """How much a broker keeps for its clients."""
    partitions = list(process._manager.replicas.all())
    return {
        "connections": process._server.connections,
        "requests": process._server._limits.max_buffered_bytes - process._server._memory.free,
        "responses": process._server._outbox.unsent,
        "producers": sum(len(partition.producers) for partition in partitions),
        "readers": sum(len(partition.commit_readers._waiting) for partition in partitions),
        "partitions": len(partitions),
        "topics": len(process._cache._topics),
    }


class Customer:
    """Sends and polls as an honest client does, and remembers how long it took."""

    def __init__(self, cluster: Brokers) -> None:
        self._cluster = cluster
        self.sent: list[bytes] = []
        self.read: list[bytes | None] = []
        self.slowest = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            began = loop.time()
            value = b"good %d" % len(self.sent)
            await self._cluster.producer.send("orders", 0, [(None, value)])
            self.sent.append(value)
            fetched = await self._cluster.consumer.fetch("orders", 0, len(self.read))
            assert fetched.error is ErrorCode.NONE
            self.read += [message.value for message in fetched.messages]
            self.slowest = max(self.slowest, loop.time() - began)
            await asyncio.sleep(0.05)


async def attack(nodes: list[SimNode], attacks: Iterator[Attack], seen: Counter[str], number: int, count: int) -> None:
    """Sends attacks on a connection until the broker closes it; after the eighth the connection is left at once.

    All attackers together end with the last of ``count``. The next attack follows when the last was answered, or
    soon, so that it may come on the heels of half a request.
    """
    for turn in itertools.count(number):
        reader, writer = await asyncio.open_connection(nodes[turn % len(nodes)].address, 9092)
        for each in itertools.islice(attacks, 8):
            seen[each.kind] += 1
            writer.write(each.data)
            try:
                async with asyncio.timeout(0.02):
                    if not await reader.read(65536):
                        break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            writer.transport.abort()
            if seen.total() == count:
                return
        writer.transport.abort()


def controlled(cluster: Brokers) -> list[tuple[str, int]]:
    """Returns what may change only when a controller says so."""
    names = ("request-obeyed", "became-leader", "became-follower", "truncated", "isr-change", "became-controller")
    return [(name, len(cluster.events(node, name))) for node in cluster.nodes for name in names]


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_hostile_requests_leave_no_trace(complaints: Complaints, count: int) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await coordinator(cluster)  # or the first stranger who asks for one has the offsets topic made
            await asyncio.sleep(2)
            epochs = [event["zxid"] for node in cluster.nodes for event in cluster.events(node, "registered")]
            before, obeyed = [kept(process) for process in inside()], controlled(cluster)
            customer, stop, seen = Customer(cluster), asyncio.Event(), Counter[str]()
            working = asyncio.ensure_future(customer.run(stop))
            attacks = Stranger(1, epochs).attacks(count)
            await asyncio.gather(*(attack(cluster.nodes, attacks, seen, number, count) for number in range(ATTACKERS)))
            stop.set()
            await working

            assert seen.total() == count
            assert {kind for kind in seen if kind.startswith("hostile")} == {
                f"hostile {a.name} {v}" for a, v in VERSIONS
            }
            assert complaints.errors == [], "an exception that no code foresaw"
            assert [(await node.process()).state for node in cluster.nodes] == [ProcessState.RUNNING] * 3
            assert customer.slowest < NORMAL
            assert len(customer.sent) > count // 200
            await asyncio.sleep(MAX_WAIT + 2)
            for node in cluster.nodes:
                assert [value for _, value in cluster.stored(node, "orders-0")] == customer.sent
            assert customer.read == customer.sent[: len(customer.read)]
            assert len(customer.sent) - len(customer.read) <= 1
            assert controlled(cluster) == obeyed, "a broker obeyed a stranger"
            after = [kept(process) for process in inside()]
            for was, now in zip(before, after, strict=True):
                assert now["connections"] <= was["connections"] + 3, "the customer's own"
                assert {**now, "connections": 0} == {**was, "connections": 0}

    simulate(check)


async def connect(node: SimNode) -> Connection:
    return await Connection.open(node.address, 9092, 1.0)


def fetch(*partitions: int, wait_ms: int = 0, max_bytes: int = FOREVER) -> FetchRequest:
    parts = [FetchPartition(partition=index, offset=0, max_bytes=max_bytes) for index in partitions]
    topics = [FetchTopic(topic="orders", partitions=parts)]
    return FetchRequest(replica_id=-1, max_wait_ms=wait_ms, min_bytes=FOREVER, max_bytes=FOREVER, topics=topics)


def produce(value: bytes, acks: int = -1, timeout_ms: int = FOREVER) -> ProduceRequest:
    part = ProducePartition(partition=0, records=message_set.build([(None, value, 1)]))
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topics=[ProduceTopic(topic="orders", partitions=[part])])


def test_what_is_named_thousands_of_times_is_answered_once() -> None:
    """65 kB of names would otherwise be a hundred MB of answer, thousands of reads at each append, or as many questions
    to ZooKeeper.
    """

    async def check() -> None:
        async with brokers() as cluster:
            await cluster.producer.send("orders", 0, [(None, bytes(100_000))])
            leader = await cluster.leader()
            connection = await connect(leader)
            for version in (0, 1, 2, 3):
                fetched = await connection.call(fetch(*[0] * 4_000), version, 5.0)
                assert len(fetched.topics[0].partitions) == 1
                assert len(read_records(fetched.topics[0].partitions[0].records)) > 100_000
            for version in (0, 1, 2):
                metadata = await connection.call(MetadataRequest(topics=["orders"] * 8_000), version, 5.0)
                assert len(metadata.topics) == 1
            asked = [ListOffsetsPartition(partition=0, timestamp=LATEST - n % 2) for n in range(4_000)]
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(topic="orders", partitions=asked)])
            for version in (0, 1):
                assert len((await connection.call(request, version, 5.0)).topics[0].partitions) == 1
            await connection.close()

    simulate(check)


def test_an_answer_has_a_size_whatever_is_asked_for() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            for _ in range(20):
                await cluster.producer.send("orders", 0, [(None, bytes(900_000))])
            connection = await connect(await cluster.leader())
            sizes = []
            for version in (0, 1, 2, 3):
                fetched = await connection.call(fetch(0), version, 5.0)
                sizes.append(len(read_records(fetched.topics[0].partitions[0].records)))
            assert [
                900_000 < size < limit for size, limit in zip(sizes, (1 << 20, 1 << 20, 8 << 20, 8 << 20), strict=True)
            ]
            assert max(sizes[:2]) <= 1 << 20
            assert max(sizes) <= 8 << 20
            await connection.close()

    simulate(check)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"num_partitions": 3_000_000, "replication_factor": 1}, ErrorCode.INVALID_PARTITIONS),
        (
            {"replica_assignment": [ReplicaAssignment(partition=n, replicas=[1]) for n in range(1_001)]},
            ErrorCode.INVALID_PARTITIONS,
        ),
        ({"configs": [ConfigEntry(name="segment.bytes", value="0")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [ConfigEntry(name="segment.bytes", value="9" * 20)]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [ConfigEntry(name="segment.bytes", value="9" * 9_000)]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [ConfigEntry(name="max.message.bytes", value="-1")]}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_no_broker_could_carry_is_not_made(
    settings: dict[str, Any], code: ErrorCode, complaints: Complaints
) -> None:
    """It would be in ZooKeeper for good, and its brokers would reject the controller's orders for ever."""

    async def check() -> None:
        async with brokers() as cluster:
            connection = await connect(await cluster.controller())
            sane: dict[str, Any] = (
                {} if "replica_assignment" in settings else {"num_partitions": 1, "replication_factor": 3}
            )
            topic = CreatableTopic(topic="poison", **{**sane, **settings})
            answer = await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=2_000), 1, 5.0)
            assert answer.topics[0].error_code == code
            topic = CreatableTopic(topic="fine", num_partitions=1, replication_factor=3)
            answer = await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=2_000), 1, 5.0)
            assert answer.topics[0].error_code == ErrorCode.NONE
            await cluster.producer.send("fine", 0, [(None, b"x")])
            assert complaints.errors == []
            await connection.close()

    simulate(check)


def test_clients_that_vanish_while_their_requests_wait_leave_nothing_behind() -> None:
    """Without a quorum and with weeks to wait, a produce and a fetch hold a connection each for a minute, no longer."""

    async def check() -> None:
        async with brokers(Broker(partitions=1, min_insync=2)) as cluster:
            leader = await cluster.leader()
            process = next(found for found in inside() if found.config.broker_id == leader.index)
            before = process._server.connections
            for follower in [node for node in cluster.nodes if node is not leader]:
                await follower.stop()
            for number in range(40):
                request: Request[Any] = produce(b"%d" % number) if number % 2 else fetch(0, wait_ms=FOREVER)
                connection = await connect(leader)
                calling = asyncio.ensure_future(connection.call(request, 2, 9.0))
                await asyncio.sleep(0.05)
                calling.cancel()
                await connection.close()
            assert process._server.connections >= 20, "they do wait"
            for follower in [node for node in cluster.nodes if node is not leader]:
                await follower.resume()
            await asyncio.sleep(MAX_WAIT + 1)
            await until(lambda: process._server.connections <= before, "all connections are gone")
            assert {**kept(process), "connections": 0} == {
                "connections": 0,
                "requests": 0,
                "responses": 0,
                "producers": 0,
                "readers": 0,
                "partitions": 1,
                "topics": 1,
            }

    simulate(check)


def test_producers_whose_time_ran_out_are_forgotten_though_the_high_watermark_stands_still() -> None:
    async def check() -> None:
        waiting, most = WaitingProducers(), 0
        lasting = [waiting.add(offset) for offset in range(50)]
        for number in range(10_000):
            expire(waiting.add(1_000 + number))
            most = max(most, len(waiting))
        assert most <= 200
        waiting.advance(24)
        assert [future.done() for future in lasting] == [True] * 25 + [False] * 25
        waiting.fail(ErrorCode.NOT_LEADER_FOR_PARTITION)
        assert all(future.done() for future in lasting)

    simulate(check)


def test_thousands_of_timed_out_produces_behind_one_that_waits_leave_no_more_behind_than_a_few() -> None:
    """The leader's followers stand still and it cannot say so to ZooKeeper: it appends, and commits nothing."""

    async def check() -> None:
        async with brokers(Broker(partitions=1, min_insync=1)) as cluster:
            leader = await cluster.leader()
            process = next(found for found in inside() if found.config.broker_id == leader.index)
            await cluster.cut(leader, cluster.zookeepers)
            for follower in [node for node in cluster.nodes if node is not leader]:
                await follower.stop()
            patient, hasty = await connect(leader), await connect(leader)
            waiting = asyncio.ensure_future(patient.call(produce(b"x"), 2, 2 * MAX_WAIT))
            await asyncio.sleep(0.1)
            codes, most = Counter[int](), 0
            for number in range(3_000):
                answer = await hasty.call(produce(b"x", timeout_ms=number % 2), 2, 5.0)
                codes[answer.topics[0].partitions[0].error_code] += 1
                most = max(most, kept_producers(process))
            assert codes == {ErrorCode.REQUEST_TIMED_OUT: 3_000}
            assert not waiting.done()
            assert most <= 64
            answer = await waiting
            assert answer.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT, "weeks are a minute"
            await patient.close()
            await hasty.close()

    simulate(check)


def kept_producers(process: broker.BrokerProcess) -> int:
    return sum(len(partition.producers) for partition in process._manager.replicas.all())


@pytest.mark.parametrize(("magic", "size"), [(1, 5 << 20), (0, 2 << 20)])
def test_a_set_of_very_many_messages_is_refused_at_sight(magic: int, size: int) -> None:
    """A hundred MB of the smallest messages would keep everybody else waiting for half a minute."""

    async def check() -> None:
        async with brokers() as cluster:
            connection = await connect(await cluster.leader())
            one = message_set.build([(None, None, 1 if magic else None)], magic=magic)
            part = ProducePartition(partition=0, records=one * (size // len(one)))
            request = ProduceRequest(
                acks=-1, timeout_ms=1_000, topics=[ProduceTopic(topic="orders", partitions=[part])]
            )
            answer = await connection.call(request, 2, 5.0)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.RECORD_LIST_TOO_LARGE
            assert cluster.stored(await cluster.leader(), "orders-0") == []
            await connection.close()

    simulate(check)


def test_a_broker_between_two_registrations_obeys_no_peer_that_names_none() -> None:
    """From the loss of its session until it is registered again its own epoch is -1, and everybody can name that."""

    async def check() -> None:
        async with brokers() as cluster:
            leader = await cluster.leader()
            process = next(found for found in inside() if found.config.broker_id == leader.index)
            connection = await connect(leader)
            fetching = ReplicaFetchRequest(
                replica_id=2, replica_epoch=FOREVER, broker_epoch=-1, max_wait_ms=0, min_bytes=0, partitions=[]
            )
            asking = EpochEndRequest(replica_id=2, broker_epoch=-1, partitions=[])
            await cluster.cut(leader, cluster.zookeepers)
            await asyncio.sleep(6)
            await cluster.heal()
            between = 0
            while len(cluster.events(leader, "registered")) < 2:
                for request in (fetching, asking):
                    before = process._manager.broker_epoch
                    answer: Any = await connection.call(request, 0, 5.0)
                    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
                    between += before == process._manager.broker_epoch == -1
            assert between, "it was asked while it had no registration"
            await connection.close()

    simulate(check)


def test_who_is_idle_for_ten_minutes_is_closed_whatever_it_is_in_the_middle_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Idle is who brings no whole request, and who does not take its answer; who asks now and then stays."""

    async def check() -> None:
        async with brokers(Broker(partitions=1, replication=1, min_insync=1), nodes=1) as cluster:
            for _ in range(8):
                await cluster.producer.send("orders", 0, [(None, bytes(900_000))])
            process, busy = inside()[0], await connect(cluster.nodes[0])
            asked = encode_request(MetadataRequest(topics=["orders"]), 1, 1, "idle")
            before, strangers = process._server.connections, []
            for sent in (b"", asked, asked[:-3], asked[:4], encode_request(fetch(0), 3, 1, "deaf")):
                _, writer = await asyncio.open_connection(cluster.nodes[0].address, 9092)
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(sent)
                strangers.append(writer)
            for _ in range(59):
                strangers[3].write(bytes(1))  # a long request that comes in dribbles
                await asyncio.sleep(10)
                await busy.call(MetadataRequest(topics=["orders"]), 1, 5.0)
                await cluster.producer.send("orders", 0, [(None, b"x")])
            assert process._server.connections == before + len(strangers)
            await asyncio.sleep(15)
            assert process._server.connections == before
            assert kept(process)["responses"] == 0
            await busy.call(MetadataRequest(topics=["orders"]), 1, 5.0)
            await busy.close()
            for writer in strangers:
                writer.transport.abort()

    with caplog.at_level(logging.INFO, logger="assay.network"):
        simulate(check)
    assert sum("idle for 600 s" in record.getMessage() for record in caplog.records) == 5


def test_acks_0_in_dribbles_and_bursts_disturbs_no_one() -> None:
    """A dozen producers that send a byte at times, and one that sends thousands of requests and reads no answer."""

    async def check() -> None:
        async with brokers() as cluster:
            leader = await cluster.leader()
            slow = encode_request(produce(b"slow", acks=0), 2, 1, "slow")
            stop, customer = asyncio.Event(), Customer(cluster)

            async def dribble() -> None:
                _, writer = await asyncio.open_connection(leader.address, 9092)
                for byte in slow[:-1]:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.05)
                writer.transport.abort()

            async def burst() -> None:
                _, writer = await asyncio.open_connection(leader.address, 9092)
                bad = encode_request(fetch(9), 2, 1, "burst")
                for _ in range(3_000):
                    writer.write(bad)
                await asyncio.sleep(3)
                writer.transport.abort()

            working = asyncio.ensure_future(customer.run(stop))
            await asyncio.gather(burst(), *(dribble() for _ in range(12)))
            stop.set()
            await working
            assert customer.slowest < NORMAL
            assert [value for _, value in cluster.stored(leader, "orders-0")] == customer.sent

    simulate(check)
