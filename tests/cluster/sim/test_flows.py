"""The simulation cuts a single direction of a single connection and delivers all else between the two nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from assay.cluster.deploy import start_system
from assay.cluster.node import Flow, by_role
from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.loop import SimLoop

from helpers.counter_system import PORT, Counter, ask


def simulate(test: Callable[[Any, Any], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        system = Counter()
        cluster = SimCluster(system, {"zookeeper": 1, "broker": 2}, 1)
        try:
            await start_system(system, cluster, 20, lambda _: None)
            await test(*by_role(cluster, "broker"))
        finally:
            await cluster.close()

    with asyncio.Runner(loop_factory=lambda: SimLoop(1)) as runner:
        runner.run(main())


async def counted(node: Any) -> int:
    """How often ``add`` has been carried out."""
    return int(await ask(node, "add"))


def asking(near: Any, far: Any, times: int = 1) -> tuple[asyncio.Task[None], list[str]]:
    """``near`` has ``far`` add, on one connection, and hears these answers."""
    heard: list[str] = []

    async def talk() -> None:
        reader, writer = await asyncio.open_connection(far.address, PORT)
        try:
            for _ in range(times):
                await asyncio.sleep(0.5)
                writer.write(b"add\n")
                heard.append((await reader.readline()).decode().strip())
        except OSError as error:
            heard.append(type(error).__name__)
        finally:
            writer.close()

    return near._process.spawn(talk(), "talk"), heard


def test_answers_that_are_held_back_are_heard_after_the_heal() -> None:
    async def test(n1: Any, n2: Any) -> None:
        before = await counted(n1)
        _, heard = asking(n2, n1)
        await asyncio.sleep(0.3)
        await n2.drop_from([n1], Flow(PORT))
        await asyncio.sleep(2)
        assert await counted(n1) == before + 2, "the request was carried out"
        assert heard == []
        reverse, answers = asking(n1, n2)
        await reverse
        assert [word.isdigit() for word in answers] == [True], "the other's own connections are spared"
        assert (await n2.dropped())[f"n1:{PORT}"] > 0
        await n2.accept_all()
        await asyncio.sleep(3)
        assert heard == [str(before + 1)]

    simulate(test)


def test_requests_that_are_held_back_arrive_after_the_heal() -> None:
    async def test(n1: Any, n2: Any) -> None:
        before = await counted(n1)
        _, heard = asking(n2, n1)
        await asyncio.sleep(0.3)
        await n1.drop_from([n2], Flow(PORT, from_server=False))
        await asyncio.sleep(2)
        assert await counted(n1) == before + 1, "nothing arrived but ours"
        assert heard == []
        await n1.accept_all()
        await asyncio.sleep(3)
        assert heard == [str(before + 2)], "late, after what was asked for later"

    simulate(test)


@pytest.mark.parametrize("every", [1, 2])
def test_a_lost_answer_was_given_and_is_never_heard(every: int) -> None:
    async def test(n1: Any, n2: Any) -> None:
        before = await counted(n1)
        task, heard = asking(n2, n1, times=6)
        await asyncio.sleep(0.3)
        await n2.reject_from([n1], Flow(PORT, every=every))
        await asyncio.sleep(6)
        answered = [word for word in heard if word.isdigit()]
        assert len(answered) <= 1
        assert await counted(n1) > before + 1 + len(answered), "more was carried out than was heard of"
        await n2.accept_all()
        task.cancel()

    simulate(test)


def test_every_third_packet_alone() -> None:
    async def test(n1: Any, n2: Any) -> None:
        task, heard = asking(n2, n1, times=12)
        await asyncio.sleep(0.3)
        await n2.drop_from([n1], Flow(PORT, every=3))
        await task
        assert [word.isdigit() for word in heard] == [True] * 12, "what is dropped now and then is sent again"
        assert (await n2.dropped())[f"n1:{PORT}/3"] > 3

    simulate(test)
