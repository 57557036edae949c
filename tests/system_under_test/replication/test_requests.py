"""Produce, Fetch, ListOffsets and Metadata as a stranger sends them, byte by byte, to a broker in the simulation."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from assay.cluster.sim.node import SimNode
from assay.system_under_test.client.sender import Sender
from assay.system_under_test.config import TopicConfig
from assay.system_under_test.deployment import Broker
from assay.system_under_test.network.connection import Connection, UnknownOutcome
from assay.system_under_test.network.handler import RequestContext
from assay.system_under_test.protocol.api import ApiVersionsRequest
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from assay.system_under_test.protocol.metadata import MetadataRequest
from assay.system_under_test.protocol.offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from assay.system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from assay.system_under_test.protocol.schema import read_records
from assay.system_under_test.records import message_set
from assay.system_under_test.records.compression import GZIP, LZ4, SNAPPY
from assay.system_under_test.records.message import CODEC_MASK, ENTRY_PREFIX, TIMESTAMP_TYPE_BIT
from assay.system_under_test.records.steps import Turns
from assay.system_under_test.records.wrapper import wrap
from assay.system_under_test.replication.produce import produce as handle_produce

from helpers.sim_brokers import Brokers, brokers, simulate, until


async def leader_connection(cluster: Brokers) -> Connection:
    return await Connection.open((await cluster.leader()).address, 9092, 1.0)


def produce(records: bytes, acks: int = -1, partition: int = 0, timeout_ms: int = 1000) -> ProduceRequest:
    part = ProducePartition(partition=partition, records=records)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topics=[ProduceTopic(topic="orders", partitions=[part])])


def fetch(offset: int, max_bytes: int = 10_000, wait_ms: int = 0, replica_id: int = -1) -> FetchRequest:
    part = FetchPartition(partition=0, offset=offset, max_bytes=max_bytes)
    topics = [FetchTopic(topic="orders", partitions=[part])]
    return FetchRequest(replica_id=replica_id, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


def built(*values: bytes, magic: int = 1) -> bytes:
    return message_set.build([(None, value, 1_700_000_000_000) for value in values], magic=magic)


def test_a_request_that_waits_for_the_followers_keeps_no_records() -> None:
    async def check() -> None:
        committed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        term = SimpleNamespace(append=lambda records, wait_for_all: (7, 8, -1))
        partition = SimpleNamespace(
            config=TopicConfig(), require_leader=lambda: term, log=SimpleNamespace(now_ms=lambda: 1_700_000_000_000),
            wait_for_commit=lambda last: committed, append_lock=asyncio.Lock(),
        )  # fmt: skip
        manager: Any = SimpleNamespace(get=lambda topic, number: partition, turns=Turns())
        request, released = produce(built(b"a", b"b")), asyncio.Event()
        answer = asyncio.ensure_future(
            handle_produce(manager, request, RequestContext(0, 2, 1, "client", "peer", release=released.set))
        )
        async with asyncio.timeout(5):
            await released.wait()
        assert request.topics == []
        assert not answer.done()
        committed.set_result(ErrorCode.NONE)
        assert [part.base_offset for topic in (await answer).topics for part in topic.partitions] == [7]

    asyncio.run(check())


async def error_of(connection: Connection, request: ProduceRequest, version: int = 2) -> ErrorCode:
    response = await connection.call(request, version, 5.0)
    return ErrorCode(response.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_version_of_produce_and_fetch_speaks_its_message_format(version: int) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            connection = await leader_connection(cluster)
            magic = 1 if version == 2 else 0
            assert await error_of(connection, produce(built(b"a", b"b", magic=magic)), version) == ErrorCode.NONE
            for fetch_version in (0, 1, 2, 3):
                response = await connection.call(fetch(0), fetch_version, 5.0)
                messages = message_set.decode(read_records(response.topics[0].partitions[0].records))
                assert [(m.offset, m.value) for m in messages] == [(0, b"a"), (1, b"b")]
                assert {m.magic for m in messages} == {1 if fetch_version >= 2 else 0}
            await connection.close()

    simulate(check)


@pytest.mark.slow
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_compressed_set_is_stored_replicated_and_read_in_every_format(codec: int, version: int) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            connection = await leader_connection(cluster)
            magic = 1 if version == 2 else 0
            plain = built(b"before", magic=magic)
            packed = wrap(message_set.decode(built(b"a", b"b", b"c", magic=magic)), codec)
            for records in (plain, packed, packed):
                assert await error_of(connection, produce(records), version) == ErrorCode.NONE
            for fetch_version in (0, 1, 2, 3):
                response = await connection.call(fetch(0), fetch_version, 5.0)
                found = message_set.decode(read_records(response.topics[0].partitions[0].records))
                assert [(m.offset, m.value) for m in found] == list(enumerate([b"before", *([b"a", b"b", b"c"] * 2)]))
                assert {m.magic for m in found} == {1 if fetch_version >= 2 else 0}
            response = await connection.call(fetch(2), 3, 5.0)
            within = message_set.decode(read_records(response.topics[0].partitions[0].records))
            assert within[0].offset == 1, "an offset within a compressed set is answered with all of it"
            for node in cluster.nodes:
                assert [value for _, value in cluster.stored(node, "orders-0")] == [
                    b"before",
                    *([b"a", b"b", b"c"] * 2),
                ]
            await connection.close()

    simulate(check)


def test_a_topic_can_have_the_time_of_the_append() -> None:
    async def check() -> None:
        system = Broker().with_setting("message.timestamp.type", "LogAppendTime")
        async with brokers(system) as cluster:
            connection = await leader_connection(cluster)
            for records in (built(b"a"), wrap(message_set.decode(built(b"b", b"c")), GZIP)):
                response = await connection.call(produce(records), 2, 5.0)
                time = response.topics[0].partitions[0].log_append_time
                assert time > 1_700_000_000_000
            response = await connection.call(fetch(0), 3, 5.0)
            messages = message_set.decode(read_records(response.topics[0].partitions[0].records))
            assert [m.value for m in messages] == [b"a", b"b", b"c"]
            assert all(m.attributes & TIMESTAMP_TYPE_BIT and m.timestamp != 1_700_000_000_000 for m in messages)
            assert messages[1].timestamp == messages[2].timestamp == time
            await connection.close()

    simulate(check)


def entries(cluster: Brokers, node: SimNode) -> list[tuple[int, int]]:
    """Format and codec of each entry in a node's log."""
    found = []
    for path in sorted(node.disk.files()):
        if path.endswith(".log") and "/orders-0/" in path:
            data = node.disk.read(path)
            for position, _, _ in message_set.scan(data):
                magic, attributes = ENTRY_PREFIX.unpack_from(data, position)[3:]
                found.append((magic, attributes & CODEC_MASK))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize(("version", "magic"), [("0.9.0.1", 0), ("0.10.0-IV1", 1)])
def test_a_topic_can_have_a_codec_and_a_format_of_its_own(codec: str, version: str, magic: int) -> None:
    """Whatever each producer sends. After a kill, what is in the log is believed as it was written."""

    async def check() -> None:
        system = Broker().with_setting("compression.type", codec).with_setting("message.format.version", version)
        async with brokers(system.with_setting("message.timestamp.type", "LogAppendTime")) as cluster:
            connection = await leader_connection(cluster)
            sent = {1: built(b"a", b"b"), 0: built(b"a", b"b", magic=0)}
            packed = {number: wrap(message_set.decode(data), SNAPPY) for number, data in sent.items()}
            for number, records in ((1, sent[1]), (0, sent[0]), (1, packed[1]), (0, packed[0])):
                response = await connection.call(produce(records), 2 if number else 1, 5.0)
                answer = response.topics[0].partitions[0]
                assert answer.error_code == ErrorCode.NONE
                assert number == 0 or (answer.log_append_time > 0) is bool(magic)
            own = {"uncompressed": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4}.get(codec)
            expected = [0, 0, 0, 0, SNAPPY, SNAPPY] if own is None else [own] * (4 if own else 8)
            for _ in range(2):
                for node in cluster.nodes:
                    assert entries(cluster, node) == [(magic, one) for one in expected]
                    assert cluster.stored(node, "orders-0") == list(enumerate([b"a", b"b"] * 4))
                for fetch_version in (1, 3):
                    response = await connection.call(fetch(0), fetch_version, 5.0)
                    found = message_set.decode(read_records(response.topics[0].partitions[0].records))
                    assert [(m.offset, m.value) for m in found] == list(enumerate([b"a", b"b"] * 4))
                    assert {m.magic for m in found} == {min(magic, 1 if fetch_version > 1 else 0)}
                    assert all((m.timestamp is None) is (m.magic == 0) for m in found)
                await connection.close()
                for node in cluster.nodes:
                    await node.kill()
                for node in cluster.nodes:
                    await node.start()
                await until(lambda: all(cluster.events(node, "registered")[1:] for node in cluster.nodes), "all back")
                await asyncio.sleep(5)
                connection = await leader_connection(cluster)
            assert all(event["value"] == 0 for node in cluster.nodes for event in cluster.events(node, "recovered"))
            await connection.close()

    simulate(check)


def test_what_only_becomes_too_large_when_it_is_packed_is_too_large() -> None:
    """Kafka looks at sizes once more after it has packed a set into one message."""

    async def check() -> None:
        system = Broker().with_setting("compression.type", "gzip").with_setting("max.message.bytes", "2000")
        async with brokers(system) as cluster:
            connection = await leader_connection(cluster)
            noise = Random(1).randbytes(3000)
            one, three = built(noise[:1000]), built(noise[:1000], noise[1000:2000], noise[2000:])
            assert await error_of(connection, produce(one)) == ErrorCode.NONE
            assert await error_of(connection, produce(three)) == ErrorCode.MESSAGE_TOO_LARGE
            assert await error_of(connection, produce(built(*[b"x" * 1000] * 3))) == ErrorCode.NONE
            assert len(cluster.stored(await cluster.leader(), "orders-0")) == 4
            await connection.close()

    simulate(check)


def test_acks_decide_what_an_answer_means() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            connection = await leader_connection(cluster)
            await connection.send(produce(built(b"zero"), acks=0), 2, 1.0)
            assert await error_of(connection, produce(built(b"one"), acks=1)) == ErrorCode.NONE
            assert await error_of(connection, produce(built(b"all"), acks=-1)) == ErrorCode.NONE
            assert await error_of(connection, produce(built(b"two"), acks=2)) == ErrorCode.INVALID_REQUIRED_ACKS
            leader = await cluster.leader()
            assert [value for _, value in cluster.stored(leader, "orders-0")] == [b"zero", b"one", b"all"]
            await connection.send(produce(b"garbage", acks=0), 2, 1.0)
            with pytest.raises(UnknownOutcome):  # an error closes the connection: there is no other way to say it
                await connection.call(fetch(0), 2, 5.0)
            await connection.close()

    simulate(check)


def test_what_cannot_be_appended_is_refused_and_leaves_no_trace() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            connection = await leader_connection(cluster)
            good = built(b"x" * 50)
            flipped = good[:-1] + bytes([good[-1] ^ 1])
            assert await error_of(connection, produce(flipped)) == ErrorCode.CORRUPT_MESSAGE
            assert await error_of(connection, produce(good[:-3])) == ErrorCode.CORRUPT_MESSAGE
            assert await error_of(connection, produce(b"")) == ErrorCode.CORRUPT_MESSAGE
            assert await error_of(connection, produce(built(b"x" * 1_100_000))) == ErrorCode.MESSAGE_TOO_LARGE
            assert await error_of(connection, produce(good, partition=7)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            follower = next(node for node in cluster.nodes if node.address not in connection.peer)
            other = await Connection.open(follower.address, 9092, 1.0)
            assert await error_of(other, produce(good)) == ErrorCode.NOT_LEADER_FOR_PARTITION
            assert cluster.stored(await cluster.leader(), "orders-0") == []
            await other.close()
            await connection.close()

    simulate(check)


def test_a_consumer_reads_up_to_the_high_watermark_and_not_beyond() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            leader = await cluster.leader()
            connection = await leader_connection(cluster)
            assert await error_of(connection, produce(built(b"a"))) == ErrorCode.NONE
            await cluster.cut(leader, [node for node in cluster.nodes if node is not leader])
            assert await error_of(connection, produce(built(b"b"), timeout_ms=500)) == ErrorCode.REQUEST_TIMED_OUT

            async def read(offset: int, replica_id: int = -1) -> tuple[ErrorCode, list[Any]]:
                response = await connection.call(fetch(offset, replica_id=replica_id), 2, 5.0)
                part = response.topics[0].partitions[0]
                return ErrorCode(part.error_code), [m.value for m in message_set.decode(read_records(part.records))]

            assert await read(0) == (ErrorCode.NONE, [b"a"])
            assert await read(1) == (ErrorCode.NONE, []), "between the high watermark and the log end: nothing yet"
            assert await read(0, replica_id=-2) == (ErrorCode.NONE, [b"a", b"b"]), "the debugger sees all"
            assert (await read(3))[0] == ErrorCode.OFFSET_OUT_OF_RANGE
            await connection.close()

    simulate(check)


def test_a_fetch_waits_for_records_and_no_longer_than_it_was_asked_to() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            loop = asyncio.get_running_loop()
            connection = await leader_connection(cluster)
            began = loop.time()
            await connection.call(fetch(0, wait_ms=700), 2, 5.0)
            assert 0.7 <= loop.time() - began < 0.75
            waiting = asyncio.ensure_future(connection.call(fetch(0, wait_ms=5000), 2, 9.0))
            await asyncio.sleep(0.3)
            began = loop.time()
            await cluster.producer.send("orders", 0, [(None, b"x")])
            await waiting
            assert loop.time() - began < 0.1
            await connection.close()

    simulate(check)


def test_offsets_are_reported_by_leaders_only_and_the_end_by_proof() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            for value in (b"a", b"b", b"c"):
                await cluster.producer.send("orders", 0, [(None, value)])
            connection = await leader_connection(cluster)

            async def ask(time: int, version: int = 1) -> Any:
                part = ListOffsetsPartition(partition=0, timestamp=time, max_num_offsets=5)
                request = ListOffsetsRequest(
                    replica_id=-1, topics=[ListOffsetsTopic(topic="orders", partitions=[part])]
                )
                return (await connection.call(request, version, 5.0)).topics[0].partitions[0]

            assert (await ask(LATEST)).offset == 3
            assert (await ask(EARLIEST)).offset == 0
            assert (await ask(LATEST, 0)).offsets == [3, 0], "the end, and where its segment begins"
            assert (await ask(1)).offset == 0, "the first message that is at least as young"
            leader = await cluster.leader()
            await cluster.cut(leader, cluster.zookeepers)
            assert (await ask(LATEST)).error_code == ErrorCode.LEADER_NOT_AVAILABLE, "no proof without ZooKeeper"
            assert (await ask(EARLIEST)).offset == 0
            await connection.close()

    simulate(check)


def test_that_an_offset_is_out_of_range_is_reported_by_proof() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            for value in (b"a", b"b", b"c"):
                await cluster.producer.send("orders", 0, [(None, value)])
            connection = await leader_connection(cluster)

            async def ask(offset: int) -> int:
                code: int = (await connection.call(fetch(offset), 2, 5.0)).topics[0].partitions[0].error_code
                return code

            assert await ask(3) == ErrorCode.NONE
            assert await ask(4) == ErrorCode.OFFSET_OUT_OF_RANGE
            assert await ask(-1) == ErrorCode.OFFSET_OUT_OF_RANGE
            leader = await cluster.leader()
            await cluster.cut(leader, cluster.zookeepers)
            assert await ask(4) == ErrorCode.LEADER_NOT_AVAILABLE, "no proof without ZooKeeper"
            assert await ask(3) == ErrorCode.NONE
            await connection.close()

    simulate(check)


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_was_replaced_in_its_sleep_does_not_call_new_offsets_out_of_range(seed: int) -> None:
    """A consumer that is ahead of it would start over."""

    async def check() -> None:
        async with brokers(seed=seed) as cluster:
            await cluster.producer.send("orders", 0, [(None, b"a")])
            before = await cluster.leader()
            connection = await leader_connection(cluster)
            await before.stop()

            async def another() -> bool:
                try:
                    return await cluster.leader() is not before
                except AssertionError:
                    return False

            await until(another, "another leads")
            others = [f"{node.address}:9092" for node in cluster.nodes if node is not before]
            producer = Sender(others, runtime=cluster.cluster.harness_runtime())
            for value in (b"b", b"c", b"d"):
                await producer.send("orders", 0, [(None, value)])
            await producer.close()
            asked = asyncio.ensure_future(connection.call(fetch(3), 2, 5.0))
            await asyncio.sleep(0.1)
            await before.resume()
            code = (await asked).topics[0].partitions[0].error_code
            assert code in (ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
            await connection.close()

    simulate(check, seed)


def test_metadata_names_leaders_replicas_and_the_controller() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=3)) as cluster:
            connection = await leader_connection(cluster)
            for version in (0, 1, 2):
                response = await connection.call(MetadataRequest(topics=["orders", "nothing"]), version, 5.0)
                orders, nothing = response.topics
                assert [sorted(p.replicas) for p in orders.partitions] == [[1, 2, 3]] * 3
                assert [sorted(p.isr) for p in orders.partitions] == [[1, 2, 3]] * 3
                assert nothing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                assert len(response.brokers) == 3
            assert response.controller_id == (await cluster.controller()).index
            assert len(response.cluster_id) == 22
            await connection.close()

    simulate(check)


def test_exactly_the_announced_table_is_reported() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            connection = await leader_connection(cluster)
            response = await connection.call(ApiVersionsRequest(), 0, 5.0)
            announced = {(v.api_key, v.min_version, v.max_version) for v in response.api_versions}
            assert announced == {
                *((0, 0, 2), (1, 0, 3), (2, 0, 1), (3, 0, 2)),
                *((4, 0, 0), (5, 0, 0), (6, 0, 3), (7, 1, 1)),
                *((8, 0, 2), (9, 0, 2), (10, 0, 0), (11, 0, 1)),
                *((key, 0, 0) for key in range(12, 17)),
                *((18, 0, 0), (19, 0, 1), (20, 0, 0)),
            }
            await connection.close()

    simulate(check)


def test_two_in_one_request_are_answered_one_by_one() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            leader = await cluster.leader("orders-0")
            connection = await Connection.open(leader.address, 9092, 1.0)
            parts = [ProducePartition(partition=p, records=built(b"x")) for p in (0, 5)]
            request = ProduceRequest(acks=-1, timeout_ms=1000, topics=[ProduceTopic(topic="orders", partitions=parts)])
            response = await connection.call(request, 2, 5.0)
            codes = [p.error_code for p in response.topics[0].partitions]
            assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            await connection.close()

    simulate(check)


@pytest.mark.parametrize(
    ("version", "error"),
    [("0.9.0", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), ("0.10.0", ErrorCode.NONE)],
)
def test_an_offset_is_found_by_time_only_where_messages_have_one(version: str, error: ErrorCode) -> None:
    """As in 0.10.2, by what the topic is set to. Start, end and the segments of version 0 need no message's time."""

    async def check() -> None:
        async with brokers(Broker().with_setting("message.format.version", version)) as cluster:
            connection = await leader_connection(cluster)
            assert await error_of(connection, produce(built(b"a"))) == ErrorCode.NONE
            for listing, time, code in [(1, 1, error), (1, LATEST, 0), (1, EARLIEST, 0), (0, 1, 0)]:
                wanted = ListOffsetsPartition(partition=0, timestamp=time, max_num_offsets=1)
                request = ListOffsetsRequest(
                    replica_id=-1, topics=[ListOffsetsTopic(topic="orders", partitions=[wanted])]
                )
                response = await connection.call(request, listing, 5.0)
                assert response.topics[0].partitions[0].error_code == code
            await connection.close()

    simulate(check)
