"""The defect no-crc-recovery keeps what the correct build cuts, and neither cuts what is good."""

from __future__ import annotations

import asyncio
import random

import pytest

from cluster.sim.disk import SimDisk
from cluster.sim.loop import SimLoop
from system_under_test.log.config import LogConfig
from system_under_test.log.defective import SizesOnly
from system_under_test.log.log import Log
from system_under_test.records import message_set

SEGMENT = "data/00000000000000000000.log"


async def end_after_restart(config: LogConfig, damage: bytes | int) -> int:
    """Of a log of 10 messages to which bytes were added, or one of whose last bytes was flipped."""
    disk = SimDisk(random.Random(1))
    log, _ = await Log.open(disk.storage(), "data", config, clean=False, recovery_point=0, wall_clock=lambda: 1.0)
    for number in range(10):
        log.append(message_set.build([(None, b"%d" % number, 1)]), 1)
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


NONSENSE = (77).to_bytes(8, "big") + (20).to_bytes(4, "big") + bytes(20)


@pytest.mark.parametrize(
    ("damage", "correct", "defective"), [(NONSENSE, 10, 11), (b"short", 10, 10), (1, 9, 10), (b"", 10, 10)]
)
def test_only_the_correct_build_cuts_what_looks_like_a_message_and_is_none(
    damage: bytes | int, correct: int, defective: int
) -> None:
    loop = SimLoop(1)
    assert loop.run_until_complete(end_after_restart(LogConfig(), damage)) == correct
    assert loop.run_until_complete(end_after_restart(SizesOnly(), damage)) == defective
    loop.close()
