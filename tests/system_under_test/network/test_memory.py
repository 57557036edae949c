"""Requests hold what has arrived and no more, never wait for each other in a circle, and none of the memory is lost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.system_under_test.network.memory import RequestMemory, Share

from helpers.examples import some_of

TOTAL = 12
PATIENT = 1_000.0
"""Seconds: no one is closed in a test that asks for it."""


def no_close(reason: str) -> None:
    raise AssertionError(f"closed: {reason}")


class Sender:
    """A request that arrives in pieces of 1 to 3 bytes, whenever the test says so."""

    def __init__(self, memory: RequestMemory, size: int, pieces: int) -> None:
        self._context: AbstractContextManager[Share] = memory.share(size, no_close)
        self._memory = memory
        self._piece = pieces
        self.share = self._context.__enter__()
        self.task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> bool:
        return self.task is not None and not self.task.done()

    @property
    def whole(self) -> bool:
        return not self.share.need

    async def send(self) -> None:
        self.task = asyncio.create_task(self._memory.reserve(self.share, min(self._piece, self.share.need)))
        await asyncio.sleep(0)

    async def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        self._context.__exit__(None, None, None)


REQUESTS = st.lists(st.tuples(st.integers(1, TOTAL), st.integers(1, 3)), min_size=1, max_size=8)


@settings(max_examples=some_of(200), deadline=None)
@given(REQUESTS, st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=60))
def test_whatever_has_arrived_every_request_can_be_completed(
    requests: list[tuple[int, int]], turns: list[tuple[int, bool]]
) -> None:
    """Senders go on or leave in any order. Then all that are left send on: they must all end, and leave nothing."""

    async def main() -> None:
        memory = RequestMemory(TOTAL, PATIENT)
        senders = [Sender(memory, size, piece) for size, piece in requests]
        live = list(senders)

        def check() -> None:
            held = sum(sender.share.held for sender in live)
            assert held + memory.free == TOTAL
            assert memory.free >= 0
            assert not [sender for sender in live if sender.waiting and sender.share.need <= memory.free]

        for number, leaves in turns:
            sender = senders[number % len(senders)]
            if sender not in live or sender.waiting:
                continue
            if leaves or sender.whole:
                await sender.end()
                live.remove(sender)
            else:
                await sender.send()
            await asyncio.sleep(0)
            check()
        while live:
            sendable = [sender for sender in live if not sender.waiting]
            assert sendable, f"all wait: {[(each.share.held, each.share.size) for each in live]}, {memory.free} free"
            for sender in sendable:
                if sender.whole:
                    await sender.end()
                    live.remove(sender)
                else:
                    await sender.send()
            await asyncio.sleep(0)
            check()
        assert memory.free == TOTAL

    asyncio.run(main())


@settings(max_examples=some_of(50), deadline=None)
@given(REQUESTS, st.data())
def test_a_cancelled_wait_gives_everything_back(requests: list[tuple[int, int]], data: st.DataObject) -> None:
    async def main() -> None:
        memory = RequestMemory(TOTAL, PATIENT)
        senders = [Sender(memory, size, piece) for size, piece in requests]
        for _, sender in itertools.product(range(4), senders):
            if not sender.waiting and not sender.whole:
                await sender.send()
        for number in data.draw(st.permutations(range(len(senders)))):
            await senders[number].end()
        assert memory.free == TOTAL

    asyncio.run(main())


def test_what_was_announced_takes_no_memory_from_others() -> None:
    async def main() -> None:
        memory = RequestMemory(1_000, PATIENT)
        with ExitStack() as stack:
            for _ in range(50):
                await memory.reserve(stack.enter_context(memory.share(900, no_close)), 1)
            small = stack.enter_context(memory.share(950, no_close))
            await memory.reserve(small, 950)
            assert (small.held, memory.free) == (950, 0)

    asyncio.run(main())


def test_of_those_that_wait_the_oldest_is_first() -> None:
    async def main() -> None:
        memory, order = RequestMemory(10, PATIENT), []

        async def use(share: Share, count: int) -> None:
            await memory.reserve(share, count)
            order.append(share.size)

        with ExitStack() as stack:
            older, younger = (stack.enter_context(memory.share(size, no_close)) for size in (5, 4))
            with memory.share(10, no_close) as first:
                await memory.reserve(first, 8)
                tasks = [asyncio.create_task(use(share, 3)) for share in (younger, older)]
                await asyncio.sleep(0)
                assert order == []
            await asyncio.gather(*tasks)
            assert order == [5, 4]

    asyncio.run(main())


async def crowd(memory: RequestMemory, since: list[float], closed: list[str], stack: ExitStack) -> list[Share]:
    """Requests of 10 bytes that hold 3 each; their senders have owed a piece for so many seconds."""
    now, shares = asyncio.get_running_loop().time(), []
    for number, seconds in enumerate(since):
        share = stack.enter_context(
            memory.share(10, lambda reason, number=number: closed.append(f"{number}: {reason}"))
        )  # type: ignore[misc]
        await memory.reserve(share, 3)
        share.receiving_since = now - seconds
        shares.append(share)
    return shares


async def within(limit: float, waiting: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(limit):
        await waiting


@pytest.mark.parametrize(
    ("since", "size", "count", "expected"),
    [
        ([0.0, 7.0, 8.0], 4, 3, ["2"]),
        ([0.0, 7.0, 8.0], 10, 8, ["2", "1"]),
        ([9.0, 0.0, 7.0], 7, 6, ["0", "2"]),
    ],
    ids=["no more than needed", "as many as needed", "not one in time"],
)
def test_those_that_are_slowest_are_closed_when_another_waits(
    since: list[float], size: int, count: int, expected: list[str]
) -> None:
    async def main() -> None:
        memory, closed = RequestMemory(19, 5.0), list[str]()
        with ExitStack() as stack:
            shares = await crowd(memory, since, closed, stack)
            whole = stack.enter_context(memory.share(8, no_close))  # it is handled and keeps its memory
            await memory.reserve(whole, 8)
            assert memory.free == 2
            waiting = stack.enter_context(memory.share(size, no_close))
            await within(5.0, memory.reserve(waiting, count))
            assert [line.partition(":")[0] for line in closed] == expected
            assert closed[0].endswith(
                "it sends too slowly: 7 of the 10 bytes of its request are missing, the next piece did not arrive "
                "within 5 s, and other requests wait for the memory"
            )
            with pytest.raises(ConnectionAbortedError):
                await memory.reserve(shares[int(expected[0])], 1)
        assert memory.free == 19

    asyncio.run(main())


def test_no_one_is_closed_while_no_one_waits() -> None:
    async def main() -> None:
        memory, closed = RequestMemory(19, 5.0), list[str]()
        with ExitStack() as stack:
            await crowd(memory, [7.0, 8.0, 9.0], closed, stack)
            assert memory._timer is None
            with memory.share(20 - 1, no_close) as waiting:
                task = asyncio.create_task(memory.reserve(waiting, 11))
                await asyncio.sleep(0)
                assert memory._timer is not None
                task.cancel()
                await asyncio.wait([task])
            assert memory._timer is None
        assert closed == []

    asyncio.run(main())


def test_a_request_that_is_larger_than_all_memory_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="11 bytes"), RequestMemory(10, PATIENT).share(11, no_close):
        pass
