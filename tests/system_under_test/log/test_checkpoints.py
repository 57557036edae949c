"""Offset checkpoints: Kafka's text with a checksum, no partition forgotten, damage named."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log.checkpoints import CheckpointError, OffsetCheckpoint

ENTRIES = st.dictionaries(
    st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,9}", fullmatch=True), st.integers(0, 99)), st.integers(0, 2**63)
)


def checkpoint(disk: SimDisk) -> OffsetCheckpoint:
    return OffsetCheckpoint(disk.storage(fsync_delay=lambda: 0), "points")


@given(ENTRIES, ENTRIES, st.integers(0, 2**32))
def test_a_write_keeps_the_partitions_it_does_not_name(
    first: dict[tuple[str, int], int], second: dict[tuple[str, int], int], seed: int
) -> None:
    """KAFKA-1647, across a power loss and a new process."""
    disk = SimDisk(Random(seed))
    asyncio.run(checkpoint(disk).write(first))
    asyncio.run(checkpoint(disk).write(second))
    disk.cut_power()
    assert checkpoint(disk).load() == {**first, **second}


def test_the_text_is_kafkas_and_a_checksum() -> None:
    disk = SimDisk(Random(0))
    points = checkpoint(disk)
    assert points.load() == {}
    asyncio.run(points.write({("b", 1): 77, ("b", 0): 5, ("a-x", 0): 1042}))
    assert disk.read("points") == b"1\n3\na-x 0 1042\nb 0 5\nb 1 77\ncrc a5f838a9\n"
    asyncio.run(points.write({("b", 0): 6}))
    asyncio.run(points.remove(("b", 1)))
    asyncio.run(points.remove(("never", 0)))
    assert disk.read("points") == b"1\n2\na-x 0 1042\nb 0 6\ncrc 43df6939\n"


def test_what_kafka_wrote_is_read_and_gets_a_checksum_with_the_next_write() -> None:
    disk = SimDisk(Random(0))
    disk.write("points", b"0\n2\na-x 0 1042\nb 0 5\n")
    points = checkpoint(disk)
    assert points.load() == {("a-x", 0): 1042, ("b", 0): 5}
    asyncio.run(points.write({("b", 0): 6}))
    assert disk.read("points") == b"1\n2\na-x 0 1042\nb 0 6\ncrc 43df6939\n"


@given(ENTRIES, st.data())
def test_any_flipped_bit_and_any_lost_end_is_damage(entries: dict[tuple[str, int], int], data: st.DataObject) -> None:
    disk = SimDisk(Random(0))
    asyncio.run(checkpoint(disk).write(entries))
    whole = disk.read("points")
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8
    for damaged in (bytes(flipped), whole[: bit // 8]):
        disk.write("points", damaged)
        with pytest.raises(CheckpointError, match="points"):
            checkpoint(disk).load()


def test_concurrent_writes_are_all_there() -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(0))
        points = OffsetCheckpoint(disk.storage(fsync_delay=lambda: 0.001), "points")
        await asyncio.gather(*(points.write({("t", index): index}) for index in range(5)))
        assert checkpoint(disk).load() == {("t", index): index for index in range(5)}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "line 1"),
        ("2\n0\n", "version 1"),
        ("1\n0\n", "checksum"),
        ("1\n1\nt 0 5\ncrc 00000000\n", "checksum"),
        ("0\n2\nt 0 5\n", "announces '2' entries, there are 1"),
        ("0\n1\nt 0\n", "line 3"),
        ("0\n2\nt 0 5\nt x 5\n", "line 4"),
    ],
)
def test_damage_names_the_file_and_the_line(text: str, where: str) -> None:
    disk = SimDisk(Random(0))
    disk.write("points", text.encode())
    with pytest.raises(CheckpointError, match=f"points.*{where}"):
        checkpoint(disk).load()
