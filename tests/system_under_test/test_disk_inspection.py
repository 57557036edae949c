"""Tests that what a tester reads off the brokers' disks is what the brokers stored."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from assay.system_under_test import disk_inspection
from assay.system_under_test.deployment import Broker
from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from assay.system_under_test.records import message_set
from assay.system_under_test.records.compression import GZIP
from assay.system_under_test.records.wrapper import wrap

from helpers.examples import some_of
from helpers.sim_brokers import DATA, brokers, simulate, until


def produce(records: bytes) -> ProduceRequest:
    part = ProducePartition(partition=0, records=records)
    return ProduceRequest(acks=-1, timeout_ms=1000, topics=[ProduceTopic(topic="orders", partitions=[part])])


def test_every_replica_is_described_with_its_values_epochs_and_what_counts() -> None:
    async def check() -> None:
        system = Broker(partitions=1).with_setting("segment.bytes", "100")
        async with brokers(system) as cluster:
            connection = await Connection.open((await cluster.leader()).address, 9092, 1.0)
            plain = [(None, b"%d" % value, 5) for value in range(3)]
            packed = wrap(message_set.decode(message_set.build([(b"k", b"3", 5), (b"k", b"word", 5)])), GZIP)
            for records in (*(message_set.build([record]) for record in plain), packed):
                await connection.call(produce(records), 2, 5.0)
            await connection.close()
            records = [disk_inspection.StoredRecord(**row) for row in await system.replicas(cluster.cluster)]
            for name in ("n1", "n2", "n3"):
                *own, last = (one for one in records if one.node == name)
                assert (last.position, last.crc, last.below_hw, last.in_isr, last.log_start) == (
                    5,
                    None,
                    False,
                    True,
                    0,
                )
                assert last.high_watermark in range(6)
                assert [(one.position, one.value) for one in own] == [(0, 0), (1, 1), (2, 2), (3, 3), (4, None)]
                assert {(one.key, one.epoch, one.epoch_start) for one in own} == {("orders-0", 0, 0)}
                assert {(one.below_hw, one.in_isr, one.high_watermark) for one in own} == {(True, True, None)}
            assert len({(one.position, one.crc) for one in records if one.high_watermark is None}) == 5

    simulate(check)


def test_a_replica_that_is_out_counts_up_to_its_own_mark_and_a_damaged_one_up_to_the_damage() -> None:
    async def check() -> None:
        system = Broker(partitions=1)
        async with brokers(system) as cluster:
            connection = await Connection.open((await cluster.leader()).address, 9092, 1.0)
            for value in range(10):
                await connection.call(produce(message_set.build([(None, b"%d" % value, 5)])), 2, 5.0)
            await connection.close()
            await asyncio.sleep(2)  # the checkpoint is written each second
            leader = await cluster.leader()
            node = next(node for node in cluster.nodes if node is not leader)
            out = await disk_inspection.read_replica(node, "orders-0", disk_inspection.LedPartition([]), 10)
            assert [one.position for one in out if one.below_hw] == list(range(10))
            assert not any(one.in_isr for one in out)
            await node.kill()
            path = f"{disk_inspection.DATA}/orders-0/{0:020d}.log"
            size = len(await node.read_file(path))
            await node.truncate_file(path, size - 3)
            *own, last = await disk_inspection.read_replica(
                node, "orders-0", disk_inspection.LedPartition([], [node.index], 10), 10
            )
            assert [one.position for one in own] == list(range(9))
            assert (last.position, last.log_start, last.high_watermark) == (9, 0, 10)

    simulate(check)


def test_an_empty_file_in_the_middle_of_another_is_no_end_of_the_log() -> None:
    """A roll that failed may leave one, after which the segment before went on."""

    async def check() -> None:
        system = Broker(partitions=1).with_setting("segment.bytes", "100")
        async with brokers(system) as cluster:
            for value in range(10):
                await cluster.producer.send("orders", 0, [(None, b"%d" % value)])
            node = await cluster.leader()
            node.disk.write(f"{DATA}/orders-0/{1:020d}.log", b"")
            *own, last = await disk_inspection.read_replica(
                node, "orders-0", disk_inspection.LedPartition([], [node.index], 10), 10
            )
            assert [one.value for one in own] == list(range(10))
            assert last.position == 10

    simulate(check)


def test_what_is_preallocated_counts_for_nothing_and_a_broker_that_is_killed_goes_on_from_there() -> None:
    async def check() -> None:
        system = (
            Broker(partitions=1)
            .with_setting("preallocate", "true")
            .with_setting("segment.bytes", "1000")
            .with_setting("retention.bytes", "1000000")
            .with_setting("flush.messages", "1")
        )
        path = f"{disk_inspection.DATA}/orders-0/{0:020d}.log"
        async with brokers(system) as cluster:
            for value in range(10):
                await cluster.producer.send("orders", 0, [(None, b"%d" % value)])
            node = await cluster.leader()
            used = len(message_set.build([(None, b"0", 5)])) * 10
            assert await node.find_files(path) == {path: 1000}
            looks = await system.look(cluster.cluster, cluster.cluster.harness_runtime())
            assert {one["size"] for one in looks if one["what"] == "segment"} == {used}
            await asyncio.sleep(2)  # the checkpoint is written each second
            await node.kill()
            assert await disk_inspection.compute_durable_size(node, path) == used
            *own, last = await disk_inspection.read_replica(
                node, "orders-0", disk_inspection.LedPartition([], [node.index], 10), 10
            )
            assert [one.value for one in own] == list(range(10))
            assert last.position == 10
            await node.start()
            await until(lambda: bool(cluster.events(node, "became-follower")), "it is back")
            assert await node.find_files(path) == {path: used}
            assert not [event for event in cluster.events(node, "recovered") if event.get("detail", {}).get("problem")]
            await cluster.producer_with(repeat_unknown=True).send("orders", 0, [(None, b"10")])
            for one in cluster.nodes:
                await one.terminate()
                assert max((await one.find_files(path)).values()) < 1000, "a clean stop gives it back"

    simulate(check)


def test_it_waits_for_replicas_that_come_back() -> None:
    async def check() -> None:
        system = Broker(partitions=1)
        async with brokers(system) as cluster:
            leader = await cluster.leader()
            node = next(node for node in cluster.nodes if node is not leader)
            await node.kill()
            loop = asyncio.get_running_loop()
            loop.call_later(3.0, lambda: asyncio.ensure_future(node.start()))

            async def out() -> bool:
                return len((await disk_inspection.read_led_partitions([leader], 9092))["orders-0"].in_sync) == 2

            await until(out, "the replica is out")
            connection = await Connection.open(leader.address, 9092, 1.0)
            await connection.call(produce(message_set.build([(None, b"1", 5)])), 2, 5.0)
            await connection.close()
            records = [disk_inspection.StoredRecord(**row) for row in await system.replicas(cluster.cluster)]
            assert sorted(one.node for one in records if one.in_isr and one.crc is not None) == ["n1", "n2", "n3"]

    simulate(check)


@given(
    epochs=st.dictionaries(st.integers(0, 20), st.integers(0, 9), max_size=5),
    lengths=st.lists(st.integers(0, 4), max_size=5),
    watermark=st.integers(0, 20),
)
@settings(deadline=None, max_examples=some_of(100))
def test_records_have_the_epoch_that_begins_last_before_them(
    epochs: dict[int, int], lengths: list[int], watermark: int
) -> None:
    segments, base = [], 0
    for length in lengths:
        records = [(None, b"%d" % (base + number), 5) for number in range(length)]
        segments.append((base, message_set.build(records, base_offset=base)))
        base += length
    replica = disk_inspection.StoredReplica(
        "n1", "orders-0", watermark, True, 3, sorted(epochs.items()), False, segments
    )
    *own, last = replica
    assert [(one.position, one.value) for one in own] == [(number, number) for number in range(base)]
    for one in own:
        begun = [(start, epoch) for start, epoch in epochs.items() if start <= one.position]
        assert (one.epoch_start, one.epoch) == max(begun, default=(None, None))
        assert one.below_hw == (one.position < watermark)
    assert (last.position, last.log_start, last.high_watermark) == (base, 0, 3)
