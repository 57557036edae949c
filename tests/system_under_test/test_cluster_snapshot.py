"""A look at brokers from outside: what it sees of a healthy cluster, and what it reckons not to be at rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from assay.system_under_test import cluster_snapshot
from assay.system_under_test.cluster_snapshot import SnapshotFailed, SnapshotRow, count_unsettled
from assay.system_under_test.deployment import Broker
from assay.system_under_test.disk_inspection import DATA
from assay.system_under_test.log.log import Log
from assay.system_under_test.records import message_set
from assay.system_under_test.zookeeper import paths

from helpers.sim_brokers import Brokers, brokers, simulate

SMALL = (
    Broker(partitions=1, replication=2)
    .with_setting("segment.bytes", "300")
    .with_setting("retention.ms", "5000")
    .with_setting("log.retention.check.interval.ms", "400")
)
WALL_MS = 1_700_000_000_000


async def look(cluster: Brokers, runtime: Any) -> list[SnapshotRow]:
    return [SnapshotRow(**row) for row in await SMALL.look(cluster.cluster, runtime)]


def test_a_look_sees_what_is_in_zookeeper_on_disks_and_what_brokers_say() -> None:
    async def test() -> None:
        async with brokers(SMALL) as cluster:
            for value in range(30):
                await cluster.producer.send("orders", 0, [(None, str(value).encode())])
            runtime = cluster.cluster.harness_runtime()
            seen = await look(cluster, runtime)
            by = {what: [one for one in seen if one.what == what] for what in {one.what for one in seen}}
            assert [(one.node, one.broker) for one in by["broker"]] == [("n1", 1), ("n2", 2), ("n3", 3)]
            (topic,) = by["topic"]
            assert (topic.key, topic.retention_ms, topic.retention_bytes, topic.retention_check_ms) == (
                "orders", 5000, -1, 400,
            )  # fmt: skip
            (state,) = by["partition"]
            assert state.key == "orders-0"
            assert sorted(state.members or "") == sorted(state.replicas or "")
            assert state.zxid == topic.zxid
            holders = {f"n{broker}" for broker in (state.replicas or "").split(",")}
            assert {one.node for one in by["folder"]} == {one.node for one in by["role"]} == holders
            assert {one.zxid for one in by["folder"]} == {topic.zxid}
            assert {one.epoch for one in by["role"]} == {state.epoch}
            segments = [one for one in by["segment"] if one.node == min(holders)]
            assert len(segments) > 3
            assert [one.end_offset for one in segments[:-1]] == [one.base_offset for one in segments[1:]]
            assert all((one.timestamp or 0) >= WALL_MS for one in segments[:-1])
            assert segments[-1].end_offset is segments[-1].timestamp is None
            assert {(one.node, one.key, one.flush_ms) for one in by["flushed"]} == {
                (node, "orders-0", 1_000) for node in holders
            }
            assert sum(one.flushed < one.log_end and one.unsynced > 0 for one in by["flushed"]) == 2, (
                "flush.ms is not over"
            )
            assert count_unsettled(seen, int(runtime.wall_clock() * 1000)) == 2
            await asyncio.sleep(1.1)
            seen = await look(cluster, runtime)
            assert {(one.flushed, one.unsynced) for one in seen if one.what == "flushed"} == {(30, 0)}
            assert count_unsettled(seen, int(runtime.wall_clock() * 1000)) == 0
            assert count_unsettled(seen, int(runtime.wall_clock() * 1000) + 60_000) == 2, "both logs are due by then"

    simulate(test)


def test_an_empty_file_before_the_end_of_a_segment_is_none_so_that_what_is_written_to_is_never_due() -> None:
    """A roll that failed may leave one, after which the segment before went on."""

    async def test() -> None:
        async with brokers(SMALL) as cluster:
            for value in range(13):
                await cluster.producer.send("orders", 0, [(None, str(value).encode())])
            node, folder = await cluster.leader(), f"{DATA}/orders-0"
            before = await cluster_snapshot._read_segment_rows(node, folder, "orders-0")
            active = before[-1].base_offset or 0
            assert 1 < active < 12
            for base in (1, active + 1):
                node.disk.write(f"{folder}/{base:020d}.log", b"")
            assert await cluster_snapshot._read_segment_rows(node, folder, "orders-0") == before
            node.disk.write(f"{folder}/{13:020d}.log", b"")
            (*_, sealed, rolled) = await cluster_snapshot._read_segment_rows(node, folder, "orders-0")
            assert (sealed.end_offset, rolled.base_offset) == (13, 13), "a segment that has just begun is one"

    simulate(test)


@pytest.mark.parametrize(("last", "timestamp"), [(20, 30), (None, -1)])
def test_a_segment_with_a_message_without_a_timestamp_has_none_because_only_the_broker_knows_its_age(
    last: int | None, timestamp: int
) -> None:
    class Node:
        name = "n1"

        async def find_files(self, _: str) -> dict[str, int]:
            return {f"{DATA}/orders-0/{base:020d}.log": 100 for base in (0, 3)}

        async def read_file(self, _: str) -> bytes:
            return message_set.build([(None, b"v", 10), (None, b"v", 30), (None, b"v", last)])

    (sealed, _) = asyncio.run(cluster_snapshot._read_segment_rows(Node(), f"{DATA}/orders-0", "orders-0"))
    assert sealed.timestamp == timestamp


def test_a_damaged_log_has_no_high_watermark_so_that_nothing_of_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with brokers(SMALL) as cluster:
            monkeypatch.setattr(Log, "damage", "a bad CRC")
            seen = await look(cluster, cluster.cluster.harness_runtime())
            assert {one.high_watermark for one in seen if one.what == "role"} == {-1}

    simulate(test)


def test_a_broker_that_is_not_registered_is_seen_to_answer_until_it_is_dead() -> None:
    async def test() -> None:
        async with brokers(SMALL) as cluster:
            runtime = cluster.cluster.harness_runtime()
            zookeeper = runtime.zookeeper(cluster.zookeepers[0].address + ":2181", 3.0)
            await zookeeper.connect(2.0)
            await cluster.cut(cluster.nodes[2], cluster.zookeepers)  # else it registers again
            await zookeeper.delete(paths.broker(3))
            await zookeeper.close()

            async def seen(what: str) -> list[str | None]:
                return [one.node for one in await look(cluster, runtime) if one.what == what]

            assert await seen("broker") == ["n1", "n2"]
            assert await seen("answer") == ["n1", "n2", "n3"]
            await cluster.nodes[2].kill()
            assert await seen("answer") == ["n1", "n2"]

    simulate(test)


def test_without_zookeeper_nothing_is_seen() -> None:
    async def test() -> None:
        async with brokers(SMALL) as cluster:
            await cluster.zookeepers[0].kill()
            with pytest.raises(SnapshotFailed, match="no snapshot of the cluster"):
                await SMALL.look(cluster.cluster, cluster.cluster.harness_runtime())

    simulate(test)


HEALTHY = [
    SnapshotRow("broker", node="n1", broker=1, zxid=11),
    SnapshotRow("broker", node="n2", broker=2, zxid=12),
    SnapshotRow("topic", key="orders", zxid=50, retention_ms=-1, retention_bytes=-1, retention_check_ms=500),
    SnapshotRow("partition", key="orders-0", zxid=50, epoch=4, leader=1, replicas="1,2", members="2,1"),
    *(SnapshotRow("role", key="orders-0", node=node, epoch=4, high_watermark=9) for node in ("n1", "n2")),
    *(SnapshotRow("folder", key="orders-0", node=node, zxid=50) for node in ("n1", "n2")),
    *(SnapshotRow("known", key="orders", node=node) for node in ("n1", "n2")),
]


@pytest.mark.parametrize(
    "more",
    [
        SnapshotRow("answer", node="n3"),
        SnapshotRow("move", key="orders-0", replicas="1,2", removing=""),
        SnapshotRow("deletion", key="gone"),
        SnapshotRow("known", key="gone", node="n1"),
        SnapshotRow("folder", key="gone-0", node="n1", zxid=7),
        SnapshotRow("flushed", key="orders-0", node="n1", flushed=8, log_end=9, flush_ms=1_000),
        SnapshotRow("flushed", key="orders-0", node="n1", flushed=9, log_end=9, flush_ms=1_000, unsynced=4),
        SnapshotRow("folder", key="orders-1", node="n1", zxid=50),
        SnapshotRow("partition", key="orders-1", zxid=50, epoch=0, leader=1, replicas="1", members="1"),
    ],
)
def test_each_thing_that_has_not_ended_counts(more: SnapshotRow) -> None:
    assert count_unsettled(HEALTHY, WALL_MS) == 0
    assert count_unsettled([*HEALTHY, more], WALL_MS) == 1


def test_retention_that_is_longer_than_a_run_has_no_segments_read() -> None:
    assert not cluster_snapshot._may_expire(
        SnapshotRow("topic", retention_ms=cluster_snapshot.LONG_MS, retention_bytes=-1)
    )
    assert not cluster_snapshot._may_expire(SnapshotRow("topic", retention_ms=-1, retention_bytes=-1))
    assert cluster_snapshot._may_expire(SnapshotRow("topic", retention_ms=-1, retention_bytes=100))
    assert cluster_snapshot._may_expire(SnapshotRow("topic", retention_ms=0, retention_bytes=-1))
