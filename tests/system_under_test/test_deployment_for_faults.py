"""What the broker tells a tester of its files: where they are, and which bytes it takes for durable."""

from __future__ import annotations

import asyncio

import pytest

from assay.cluster.system import Damageable, Holdable
from assay.system_under_test.deployment import DATA, Broker
from assay.system_under_test.groups.terms import partition_of
from assay.system_under_test.log.checkpoints import RECOVERY_POINTS

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
    assert isinstance(broker, Damageable)
    assert isinstance(broker, Holdable)
    topic = [f"{DATA}/orders-0/*.log", f"{DATA}/orders-1/*.log"]
    assert broker.data_files(None) == topic  # type: ignore[arg-type]
    offsets = Broker(partitions=2, groups=("workers", "workers")).data_files(None)  # type: ignore[arg-type]
    assert offsets == [*topic, f"{DATA}/__consumer_offsets-{partition_of('workers', 8)}/*.log"]
