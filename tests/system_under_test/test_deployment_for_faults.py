"""Tests what the broker tells a tester of its files: where they are, and which bytes it takes for durable."""

from __future__ import annotations

import asyncio

import pytest

from assay.cluster.system import SupportsDataFiles, SupportsHold
from assay.system_under_test.deployment import DATA, Broker
from assay.system_under_test.groups.terms import find_partition
from assay.system_under_test.log.checkpoints import RECOVERY_POINTS

from helpers.sim_brokers import brokers, simulate, until

ENTRIES = [30, 14, 100, 20]
"""Sizes of entries 5, 6, 7 and 8 of the file, each after a header of 12 bytes."""


class Files:
    """A node with nothing but files."""

    def __init__(self, point: int | None) -> None:
        log = b"".join(
            offset.to_bytes(8, "big") + size.to_bytes(4, "big") + bytes(size) for offset, size in enumerate(ENTRIES, 5)
        )
        self.files = {f"{DATA}/orders-2/00000000000000000005.log": log}
        if point is not None:
            self.files[f"{DATA}/{RECOVERY_POINTS}"] = f"0\n2\norders 1 99\norders 2 {point}\n".encode()

    async def read_file(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None


@pytest.mark.parametrize(
    ("point", "size"), [(None, 0), (0, 0), (5, 0), (6, 42), (7, 68), (8, 180), (9, 212), (50, 212)]
)
def test_durable_is_what_lies_below_the_recovery_point(point: int | None, size: int) -> None:
    path = f"{DATA}/orders-2/00000000000000000005.log"
    assert asyncio.run(Broker().durable_size(Files(point), path)) == size


def test_the_broker_can_be_damaged_and_held() -> None:
    broker = Broker(partitions=2)
    assert isinstance(broker, SupportsDataFiles)
    assert isinstance(broker, SupportsHold)
    topic = [f"{DATA}/orders-0/*.log", f"{DATA}/orders-1/*.log"]
    assert broker.data_files(None) == topic  # type: ignore[arg-type]
    offsets = Broker(partitions=2, groups=("workers", "workers")).data_files(None)  # type: ignore[arg-type]
    assert offsets == [*topic, f"{DATA}/__consumer_offsets-{find_partition('workers', 8)}/*.log"]


@pytest.mark.parametrize("what", ["leader", "coordinator"])
def test_a_deployment_without_partitions_or_groups_has_no_leader_to_find(what: str) -> None:
    async def test() -> None:
        async with brokers(Broker(partitions=0, groups=())) as made:
            assert await made.system.find(made.cluster, what) is None

    simulate(test)


def test_a_spare_is_none_of_the_brokers_until_it_joins_and_then_it_may_have_any_part() -> None:
    async def test() -> None:
        async with brokers(Broker(partitions=1, replication=2), spares=1) as made:
            system, cluster = made.system, made.cluster
            (spare,) = cluster.spares
            looked = await system.look(cluster, cluster.harness_runtime())
            assert [one["broker"] for one in looked if one["what"] == "broker"] == [1, 2, 3]
            assert {one["node"] for one in await system.replicas(cluster)} <= {"n1", "n2", "n3"}
            await spare.start()

            async def member() -> bool:
                found = await system.standing(cluster)
                return found is not None and spare.index in found.members

            await until(member, "n4 is a member")
            others = await system.replicas_of(cluster, "orders-0")
            assert others is not None
            assert await system.move(cluster, "orders-0", [spare, others[1]]) is None

            async def leads() -> bool:
                return await system.find(cluster, "leader", "orders-0") is spare

            await until(leads, "n4 leads")
            assert await system.replicas_of(cluster, "orders-0") == [spare, others[1]]
            inspector = system.inspector(cluster)
            assert inspector is not None
            sent = await made.producer.send("orders", 0, [(None, b"1")])
            assert sent.node == 4
            assert not [seen for seen in inspector.acknowledged("orders-0", sent.base_offset) if seen.what == "lacking"]
            assert inspector.acknowledged("orders-0", sent.base_offset + 1), "it looks at the disk of n4, too"
            assert "n4" in {one["node"] for one in await system.replicas(cluster)}

    simulate(test)
