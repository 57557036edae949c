"""Replacing a file: whole or not at all, whenever the power goes."""

from __future__ import annotations

import asyncio
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.storage.atomic import write_atomic


@given(st.integers(0, 2**32), st.integers(0, 5))
def test_a_power_loss_at_any_step_leaves_the_old_content_or_the_new(seed: int, steps: int) -> None:
    disk = SimDisk(Random(seed))
    old, new = b"old" * 20, b"new" * 30
    disk.write("d/file", old)
    budget = steps

    def check() -> None:
        nonlocal budget
        budget -= 1
        if budget < 0:
            raise ProcessLookupError

    async def scenario() -> bool:
        try:
            await write_atomic(disk.storage(check, lambda: 0), "d/file", new)
        except ProcessLookupError:
            return False
        return True

    done = asyncio.run(scenario())
    disk.cut_power()
    assert disk.read("d/file") in ([new] if done else [old, new])


def test_what_it_wrote_is_durable_and_nothing_else_is_left() -> None:
    for seed in range(30):
        disk = SimDisk(Random(seed))
        asyncio.run(write_atomic(disk.storage(fsync_delay=lambda: 0), "file", b"x"))
        disk.cut_power()
        assert [(path, disk.read(path)) for path in disk.files()] == [("file", b"x")]
