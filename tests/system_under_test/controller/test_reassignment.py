"""Partitions move to other brokers, whoever dies meanwhile, and lose nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from moving_partition import KEY, Moving, load, moving
from sim_brokers import simulate, until

pytestmark = pytest.mark.slow


def test_a_partition_under_load_moves_and_its_old_replica_leaves_no_files() -> None:
    async def check() -> None:
        async with moving() as test:
            async with load(test):
                await test.ask([2, 3, 4])
                await test.moved([2, 3, 4])
            assert [event["detail"]["replicas"] for event in test.events("assignment-written")] == [
                [1, 2, 3, 4],
                [2, 3, 4],
            ]

    simulate(check)


STEPS = ("asked", "grown", "copying", "switched", "deleted")
VICTIMS = ("controller", "leader", "new", "old")


async def reached(test: Moving, step: str) -> None:
    """Waits for the moment right after it."""

    def written() -> int:
        return len(test.events("assignment-written"))

    conditions: dict[str, Callable[[], bool]] = {
        "asked": lambda: True,
        "grown": lambda: written() >= 1,
        "copying": lambda: written() >= 1 and 4 in test.having(),
        "switched": lambda: written() >= 2,
        "deleted": lambda: 1 not in test.having(),
    }
    await closely(conditions[step], step)


async def closely(condition: Callable[[], bool], what: str) -> None:
    """As ``until``, but at once: a step takes milliseconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 20
    while not condition():
        assert loop.time() < deadline, f"not within 20 s: {what}"
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("seed", range(20))
def test_a_move_under_load_survives_the_death_of_anybody_at_any_step(seed: int) -> None:
    step, who = STEPS[seed % len(STEPS)], VICTIMS[seed % len(VICTIMS)]

    async def check() -> None:
        async with moving(seed) as test, load(test):
            roles = {
                "controller": await test.cluster.controller(),
                "leader": await test.cluster.leader(KEY),
                "new": test.node(4),
                "old": test.node(1),
            }
            await test.ask([2, 3, 4])
            await reached(test, step)
            victim = roles[who]
            await victim.kill()
            await asyncio.sleep(random.Random(seed).choice([0.0, 1.0, 5.0]))
            await victim.start()
            await test.moved([2, 3, 4])

    simulate(check, seed)


@pytest.mark.parametrize("seed", range(20))
def test_moves_go_on_through_whatever_happens(seed: int) -> None:
    """One after the other, or across each other, while brokers and ZooKeeper die, sleep, and are cut off."""

    async def check() -> None:
        rng = random.Random(seed)
        async with moving(seed) as test, load(test):
            watcher = asyncio.ensure_future(_members_are_assigned(test))
            for _ in range(6):
                target = rng.sample([1, 2, 3, 4], rng.choice([2, 3, 3, 3, 4]))
                await test.ask_anyhow(target)
                await asyncio.sleep(rng.choice([0.0, 0.01, 0.03, 0.3, 1.0]) * rng.random())
                await _mishap(test, rng)
                if rng.random() < 0.5:
                    await until(test.gone, f"it is at {target}", 40)
            await until(test.gone, "all has ended", 40)
            await test.moved(await test.assignment())
            watcher.cancel()
            (end,) = await asyncio.gather(watcher, return_exceptions=True)
            assert isinstance(end, asyncio.CancelledError), end

    simulate(check, seed)


async def _mishap(test: Moving, rng: random.Random) -> None:
    node = rng.choice([*test.cluster.nodes, *test.cluster.zookeepers])
    how = rng.choice(["kill", "stop", "cut", "none"])
    if how == "kill":
        await node.kill()
        await asyncio.sleep(rng.choice([0.0, 0.2, 4.0]))
        await node.start()
    elif how == "stop":
        await node.stop()
        await asyncio.sleep(rng.choice([0.5, 5.0]))
        await node.resume()
    elif how == "cut":
        await test.cluster.cut(node, [other for other in test.cluster.cluster.sim_nodes if other is not node])
        await asyncio.sleep(rng.choice([0.5, 5.0]))
        await test.cluster.heal()


async def _members_are_assigned(test: Moving) -> None:
    """For ever: whoever is in sync, or leads, is assigned; state and assignment are read as of one moment."""
    while True:
        before = await test.assignment()
        state = await test.state()
        if before == await test.assignment():
            assert {*state["isr"], *state["elr"], state["leader"]} <= {*before, -1}, f"{state} of {before}"
        await asyncio.sleep(0.02)
