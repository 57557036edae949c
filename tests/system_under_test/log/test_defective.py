"""Tests that what the defects of a log do wrong is what the correct build does right, and nothing else."""

from __future__ import annotations

import asyncio
import random

import pytest

from assay.cluster.sim.disk import SimDisk
from assay.cluster.sim.loop import SimLoop
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.traits import select_log_traits
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import RecordError

from helpers.producing import validated

SEGMENT = "data/00000000000000000000.log"


async def end_after_restart(config: LogConfig, damage: bytes | int) -> int:
    """Returns the end of a log of 10 messages after bytes were added, or one of its last bytes was flipped."""
    disk = SimDisk(random.Random(1))
    log, _ = await Log.open(disk.storage(), "data", config, clean=False, recovery_point=0, wall_clock=lambda: 1.0)
    for number in range(10):
        log.append(validated(message_set.build([(None, b"%d" % number, 1)])))
    await log.close()
    stored = disk.read(SEGMENT)
    if isinstance(damage, bytes):
        disk.write(SEGMENT, stored + damage)
    else:
        disk.write(SEGMENT, stored[:-damage] + bytes([stored[-damage] ^ 1]) + stored[len(stored) - damage + 1 :])
    log, _ = await Log.open(disk.storage(), "data", config, clean=False, recovery_point=0, wall_clock=lambda: 1.0)
    end = log.end_offset
    await log.close()
    await asyncio.sleep(0)
    return end


SIZES_ONLY = LogConfig(traits=select_log_traits(["no-crc-recovery"]))
NONSENSE = (77).to_bytes(8, "big") + (20).to_bytes(4, "big") + bytes(20)


@pytest.mark.parametrize(
    ("damage", "correct", "defective"), [(NONSENSE, 10, 11), (b"short", 10, 10), (1, 9, 10), (b"", 10, 10)]
)
def test_only_the_correct_build_cuts_what_looks_like_a_message_and_is_none(
    damage: bytes | int, correct: int, defective: int
) -> None:
    loop = SimLoop(1)
    assert loop.run_until_complete(end_after_restart(LogConfig(), damage)) == correct
    assert loop.run_until_complete(end_after_restart(SIZES_ONLY, damage)) == defective
    loop.close()


async def misled(config: LogConfig, *, restart: bool) -> list[int]:
    """Offsets whose record no read from there gives; smaller records take the place of those that were cut."""
    storage = SimDisk(random.Random(1)).storage()
    log, _ = await Log.open(storage, "data", config, clean=False, recovery_point=0, wall_clock=lambda: 1.0)
    for number in range(20):
        log.append(validated(message_set.build([(None, b"%54d" % number, 1)] * 2)))
    log.truncate_to(20)
    await log.flush()
    for number in range(10):
        log.append(validated(message_set.build([(None, b"%10d" % number, 1)] * 2)))
    if restart:
        await log.close()
        log, _ = await Log.open(storage, "data", config, clean=False, recovery_point=0, wall_clock=lambda: 1.0)
    assert log.end_offset == 40
    wrong = []
    for offset in range(40):
        try:
            found = message_set.decode(log.read(offset, 1 << 20).read())
        except RecordError:
            found = []
        if not found or found[0].offset > offset:
            wrong.append(offset)
    await log.close()
    return wrong


@pytest.mark.parametrize("restart", [False, True])
def test_only_a_trusted_index_misleads_readers_after_a_cut_and_only_behind_it(restart: bool) -> None:
    loop = SimLoop(1)
    config = {"index_interval_bytes": 1}
    assert loop.run_until_complete(misled(LogConfig(**config), restart=restart)) == []
    wrong = loop.run_until_complete(
        misled(LogConfig(**config, traits=select_log_traits(["index-trusted"])), restart=restart)
    )
    assert wrong
    assert min(wrong) >= 20
    loop.close()
