"""Every observer of a simulated node's event log gets every line once, in order, whenever it begins."""

from __future__ import annotations

import asyncio

import pytest

from assay.cluster.sim import node
from assay.cluster.sim.node import NodeEventLog


async def collect(log: NodeEventLog, found: list[str]) -> None:
    async for line in log.follow():
        found.append(line)


@pytest.mark.parametrize("lines", [0, 1, 6, 7, 8, 21, 40])
@pytest.mark.parametrize("begins", [0, 3, 7, 15, 40])
def test_early_and_late_observers_get_every_line_in_order(
    monkeypatch: pytest.MonkeyPatch, lines: int, begins: int
) -> None:
    monkeypatch.setattr(node, "BLOCK_LINES", 7)
    written = [f'{{"number": {number}, "name": "ä"}}' for number in range(lines)]

    async def observe() -> tuple[list[str], list[str], list[str]]:
        log, early, late, watched = NodeEventLog(), list[str](), list[str](), list[str]()
        tasks = [asyncio.create_task(collect(log, early))]
        for number, line in enumerate(written):
            if number == begins:
                tasks.append(asyncio.create_task(collect(log, late)))
                log.watch(watched.append)
            log.append(line)
            if number % 3 == 0:
                await asyncio.sleep(0)
        if begins >= lines:
            tasks.append(asyncio.create_task(collect(log, late)))
            log.watch(watched.append)
        log.close()
        await asyncio.gather(*tasks)
        return early, late, watched

    assert asyncio.run(observe()) == (written, written, written)
