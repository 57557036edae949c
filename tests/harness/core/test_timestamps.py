"""Stamps strictly increase and follow the loop's clock."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from assay.cluster.sim.loop import SimLoop
from assay.harness.core.timestamps import Stamps


def test_stamps_of_one_instant_differ_and_follow_the_loop() -> None:
    async def go() -> None:
        await asyncio.sleep(7)
        stamps = Stamps()
        first = [stamps.now() for _ in range(1000)]
        assert first == list(range(1000))
        await asyncio.sleep(1.5)
        assert stamps.now() == 1_500_000_000
        assert stamps.to_loop_time(1_500_000_000) == asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(go())


def test_stamps_strictly_increase_in_real_time() -> None:
    async def go() -> list[int]:
        stamps = Stamps()
        return [stamps.now() for _ in range(10_000)]

    assert all(before < after for before, after in pairwise(asyncio.run(go())))
