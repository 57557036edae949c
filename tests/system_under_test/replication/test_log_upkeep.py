"""Tests what a cluster does to its logs in the course of time.

Compaction, rolls, flushes, retention; and what may go in.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial

import pytest

from assay.cluster.sim.node import SimNode
from assay.system_under_test import disk_inspection
from assay.system_under_test.client.admin import Admin, NewTopic
from assay.system_under_test.deployment import Broker
from assay.system_under_test.log.checkpoints import CLEANED_OFFSETS, RECOVERY_POINTS, parse_lines
from assay.system_under_test.log.epochs import EPOCHS
from assay.system_under_test.log.files import LOG_SUFFIX, RETIRED_SUFFIX
from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from assay.system_under_test.records import message_set
from assay.system_under_test.records.compression import GZIP
from assay.system_under_test.records.message_set import Record
from assay.system_under_test.records.wrapper import wrap

from helpers.sim_brokers import DATA, Brokers, brokers, simulate, until


def system(**settings: object) -> Broker:
    """With settings of the topic."""
    made = Broker(partitions=1)
    for name, value in settings.items():
        made = made.with_setting(name.replace("_", "."), str(value))
    return made


def compacting(**settings: object) -> Broker:
    return system(**{"cleanup_policy": "compact", "segment_bytes": 400, "min_cleanable_dirty_ratio": 0, **settings})


async def send(cluster: Brokers, *records: Record, codec: int = 0) -> ErrorCode:
    data = message_set.build(records)
    if codec:
        data = wrap(message_set.decode(data), codec)
    part = ProducePartition(partition=0, records=data)
    request = ProduceRequest(acks=-1, timeout_ms=5000, topics=[ProduceTopic(topic="orders", partitions=[part])])
    connection = await Connection.open((await cluster.leader()).address, 9092, 1.0)
    try:
        response = await connection.call(request, 2, 9.0)
    finally:
        await connection.close()
    return ErrorCode(response.topics[0].partitions[0].error_code)


def now_ms(cluster: Brokers) -> int:
    return int(cluster.cluster.harness_runtime().wall_clock() * 1000)


def checkpoint(node: SimNode, name: str) -> int:
    """Returns the offset of orders-0 in the checkpoint."""
    rows = parse_lines(name, node.disk.read(f"{DATA}/{name}"))
    return next((int(offset) for topic, partition, offset in rows if (topic, partition) == ("orders", "0")), 0)


async def read_all(cluster: Brokers, end: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """As a consumer that starts at 0 reads it, some messages at a time."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    position = 0
    while position < end:
        fetched = await cluster.consumer.fetch("orders", 0, position, max_bytes=150)
        assert fetched.error == ErrorCode.NONE
        assert fetched.messages, f"nothing from {position} on"
        found += [(m.offset, m.key, m.value) for m in fetched.messages]
        position = found[-1][0] + 1
    return found


async def accepted(cluster: Brokers, one: Record, other: Record, codec: int) -> bool:
    """False while too few replicas are in sync, and then nothing was appended."""
    error = await send(cluster, one, other, codec=codec)
    assert error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS)
    return error == ErrorCode.NONE


async def numbers(cluster: Brokers, first: int, count: int, codec: int = 0) -> None:
    """Sends a number each, to one of five keys, the sixth of them a null value; sent at a time that tells it, too."""
    for number in range(first, first + count):
        value = None if number % 6 == 5 else b"%d" % number
        record = (b"k%d" % (number % 5), value, 1_000_000 + number)
        both = (b"both", b"%d" % number, 1_000_000 + number)
        await until(partial(accepted, cluster, record, both, codec), "the message is taken")


def cleaned_to(cluster: Brokers, node: SimNode) -> int:
    return max((event["position"] for event in cluster.events(node, "log-cleaned")), default=0)


@pytest.mark.slow
@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_compacted_topic_is_read_copied_and_led_over_its_gaps(codec: int) -> None:
    async def check() -> None:
        async with brokers(compacting()) as cluster:
            await numbers(cluster, 0, 30, codec)
            await until(lambda: all(cleaned_to(cluster, node) > 40 for node in cluster.nodes), "all replicas cleaned")
            first = await cluster.leader()
            others = [node for node in cluster.nodes if node is not first]
            await others[0].kill()
            await numbers(cluster, 30, 10, codec)
            others[0].disk.remove(DATA)
            await first.kill()

            async def moved() -> bool:
                return await cluster.system.find(cluster.cluster, "leader", "orders-0") is others[1]

            await until(moved, "the only other one leads")
            await first.start()
            await numbers(cluster, 40, 10, codec)
            before = cleaned_to(cluster, others[1])
            await until(lambda: cleaned_to(cluster, others[1]) > before or before > 90, "cleaned again")
            await others[0].start()
            replicas = [disk_inspection.StoredRecord(**row) for row in await cluster.system.replicas(cluster.cluster)]
            by_position: dict[int, dict[str, tuple[int | None, int]]] = defaultdict(dict)
            for one in replicas:
                if one.high_watermark is not None:
                    assert one.log_start is None, "a compacted log may lack any offset"
                    continue
                assert one.below_hw
                by_position[one.position][one.node] = (one.value, one.crc)
            assert {one.node for one in replicas if one.in_isr} == {"n1", "n2", "n3"}
            for position, held in by_position.items():
                assert len(set(held.values())) == 1, f"{position}: {held}"
            assert len(by_position) < 60
            assert sum(len(held) == 3 for held in by_position.values()) >= 8

            found = await read_all(cluster, 100)
            latest = {key: value for _, key, value in found}
            expected = {b"k%d" % (n % 5): None if n % 6 == 5 else b"%d" % n for n in range(50)}
            assert latest == {**expected, b"both": b"49"}
            kept = [offset for offset, _, _ in found]
            for number in range(50):
                at = await cluster.consumer.offsets("orders", 0, 1_000_000 + number)
                assert at == next(offset for offset in kept if offset >= 2 * number)
            for node in cluster.nodes:
                assert not [path for path in node.disk.files() if "cleaned" in path.rpartition("/")[2]]

    simulate(check)


def test_tombstones_go_after_their_time_on_every_replica_and_restarts_do_not_forget_it() -> None:
    async def check() -> None:
        async with brokers(compacting(delete_retention_ms=10_000)) as cluster:
            await send(cluster, (b"gone", b"1", 5))
            await send(cluster, (b"gone", None, 5))
            for number in range(20):
                await send(cluster, (b"k", b"%d" % number, 5))

            def held(node: SimNode, offset: int) -> bool:
                return offset in [at for at, _ in cluster.stored(node, "orders-0")]

            await until(lambda: not any(held(node, 0) for node in cluster.nodes), "the value is gone")
            follower = next(node for node in cluster.nodes if node is not cluster.nodes[0])
            await asyncio.sleep(6)
            assert all(held(node, 1) for node in cluster.nodes)
            await follower.kill()
            await follower.start()
            await asyncio.sleep(7)
            assert not any(held(node, 1) for node in cluster.nodes), "nothing was written until then"
            assert all(checkpoint(node, CLEANED_OFFSETS) > 10 for node in cluster.nodes)

    simulate(check)


def test_a_compacted_topic_takes_no_message_without_a_key() -> None:
    async def check() -> None:
        async with brokers(compacting()) as cluster:
            keyed, keyless = (b"k", b"v", 5), (None, b"v", 5)
            for codec in (0, GZIP):
                assert await send(cluster, keyed, keyless, codec=codec) == ErrorCode.CORRUPT_MESSAGE
                assert await send(cluster, keyed, (b"", b"v", 5), codec=codec) == ErrorCode.NONE
            assert [offset for offset, _, _ in await read_all(cluster, 4)] == [0, 1, 2, 3]

    simulate(check)


def test_a_time_too_far_from_the_leaders_is_refused_where_the_producer_gives_it() -> None:
    async def check() -> None:
        async with brokers(system(message_timestamp_difference_max_ms=60_000)) as cluster:
            for codec in (0, GZIP):
                for away, error in [
                    (0, ErrorCode.NONE),
                    (-59_000, ErrorCode.NONE),
                    (59_000, ErrorCode.NONE),
                    (-61_000, ErrorCode.INVALID_TIMESTAMP),
                    (61_000, ErrorCode.INVALID_TIMESTAMP),
                ]:
                    now = now_ms(cluster)
                    assert await send(cluster, (b"k", b"v", now), (b"k", b"v", now + away), codec=codec) == error
        own = system(message_timestamp_difference_max_ms=60_000, message_timestamp_type="LogAppendTime")
        async with brokers(own) as cluster:
            assert await send(cluster, (b"k", b"v", 5)) == ErrorCode.NONE

    simulate(check)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "bases"),
    [
        ({"segment_bytes": 110}, [3, 6, 9]),
        ({"segment_ms": 25_000}, [3, 6, 9]),
        ({"segment_ms": 0}, [*range(1, 10)]),
        ({"segment_bytes": 110, "index_interval_bytes": 0, "flush_messages": 0}, [3, 6, 9]),
        ({"segment_index_bytes": 16, "index_interval_bytes": 1}, [3, 6, 9]),
        ({"segment_ms": 3_600_000}, []),
    ],
    ids=["size", "age", "each", "size and zeros", "index", "none"],
)
def test_every_replica_rolls_by_size_by_age_and_when_an_index_is_full(
    settings: dict[str, object], bases: list[int]
) -> None:
    async def check() -> None:
        async with brokers(system(retention_ms=-1, **settings)) as cluster:
            for number in range(10):
                await send(cluster, (b"k", b"%d" % number, 5))
                await asyncio.sleep(10)
            for node in cluster.nodes:
                assert [event["position"] for event in cluster.events(node, "log-rolled")] == bases
                files = [path for path in node.disk.files() if "/orders-0/" in path and path.endswith(".log")]
                assert [int(path.rpartition("/")[2][:20]) for path in files] == [0, *bases]

    simulate(check)


@pytest.mark.slow
@pytest.mark.parametrize(("delay", "kept"), [(0, []), (20_000, [3, 6]), (3_600_000, [0, 3, 6])])
def test_the_files_of_what_retention_took_stay_for_as_long_as_the_topic_says(delay: int, kept: list[int]) -> None:
    """Every ten seconds there is one segment too many."""

    async def check() -> None:
        made = system(segment_bytes=110, retention_bytes=110, retention_ms=-1, file_delete_delay_ms=delay)
        async with brokers(made.with_setting("log.retention.check.interval.ms", "1000")) as cluster:
            for number in range(13):
                await send(cluster, (b"k", b"%d" % number, 5))
                if number % 3 == 0:
                    await asyncio.sleep(10)
            for node in cluster.nodes:
                assert sum(event["value"] for event in cluster.events(node, "segment-deleted")) == 3
                retired = [path for path in node.disk.files() if path.endswith(f"{LOG_SUFFIX}{RETIRED_SUFFIX}")]
                assert [int(path.rpartition("/")[2][:20]) for path in retired] == kept

    simulate(check)


def test_each_topic_is_flushed_in_its_own_time() -> None:
    async def check() -> None:
        for flush_ms in (300, 30_000):
            async with brokers(system(flush_ms=flush_ms)) as cluster:
                for number in range(3):
                    await send(cluster, (None, b"%d" % number, 5))
                await asyncio.sleep(min(flush_ms / 1000, 5.0) + 1.5)
                flushed = [checkpoint(node, RECOVERY_POINTS) for node in cluster.nodes]
                assert flushed == ([3] * 3 if flush_ms == 300 else [0] * 3)
                if flush_ms > 300:
                    await asyncio.sleep(flush_ms / 1000)
                    assert [checkpoint(node, RECOVERY_POINTS) for node in cluster.nodes] == [3] * 3

    simulate(check)


def test_what_retention_takes_goes_out_of_the_history_of_epochs_and_nothing_else_does() -> None:
    async def check() -> None:
        made = system(segment_bytes=110, retention_bytes=110, retention_ms=-1)
        async with brokers(made) as cluster:
            for number in range(10):
                await send(cluster, (b"k", b"%d" % number, 5))
            first = await cluster.leader()
            await first.kill()
            await until(
                lambda: any(len(cluster.events(n, "became-leader")) for n in cluster.nodes if n is not first), ""
            )
            await first.start()
            await until(lambda: len(cluster.events(first, "reconciled")) > 0, "it follows")
            for number in range(3):
                await send(cluster, (b"k", b"%d" % number, 5))
            await asyncio.sleep(65)
            for node in cluster.nodes:
                start = cluster.events(node, "log-start")[-1]["position"]
                rows = parse_lines(EPOCHS, node.disk.read(f"{DATA}/orders-0/{EPOCHS}"))
                entries = [(int(epoch), int(offset)) for epoch, offset in rows]
                assert start > 6
                assert entries[0][1] == start
                assert entries[0][0] == max(epoch for epoch, at in [(0, 0), *entries] if at <= start)
            await first.kill()
            await first.start()
            await asyncio.sleep(3)
            records = await disks_of(cluster)
            assert len({tuple(held) for held in records.values()}) == 1

    simulate(check)


async def disks_of(cluster: Brokers) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in await cluster.system.replicas(cluster.cluster):
        if one["crc"] is not None:
            found[one["node"]].append((one["position"], one["crc"]))
    return found


def test_a_compacted_log_is_not_deleted_from_because_its_settings_are_not_known_yet() -> None:
    async def check() -> None:
        async with brokers(system(segment_bytes=110, retention_ms=1)) as cluster:
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            settings = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
            await admin.create_topics([NewTopic("kept", partitions=1, replication=3, configs=settings)])
            await admin.close()
            for number in range(10):
                await cluster.producer.send("kept", 0, [(b"%d" % number, b"%d" % number)])
            controller = await cluster.controller()
            node = next(node for node in cluster.nodes if node is not controller)
            await asyncio.sleep(2)
            before = cluster.stored(node, "kept-0")
            assert len(before) == 10
            await node.kill()
            await cluster.cut(node, [other for other in cluster.nodes if other is not node])
            await node.start()
            await asyncio.sleep(70)  # retention is looked after each minute
            assert cluster.stored(node, "kept-0") == before

    simulate(check)
