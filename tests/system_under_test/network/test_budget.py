"""Reservations never exceed the budget, are first come first served, and none is lost."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.system_under_test.network.limits import ByteBudget

from helpers.examples import some_of


@settings(max_examples=some_of(25), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10), st.booleans()), max_size=15))
def test_for_one_that_cancels_or_finishes_the_whole_budget_is_free_again(plan: list[tuple[int, bool]]) -> None:
    async def main() -> None:
        budget = ByteBudget(10)
        held = 0

        async def use(size: int) -> None:
            nonlocal held
            await budget.reserve(size)
            held += size
            assert held <= 10
            try:
                await asyncio.sleep(0)
            finally:
                held -= size
                budget.release(size)

        tasks = [asyncio.create_task(use(size)) for size, _ in plan]
        for task, (_, cancel) in zip(tasks, plan, strict=True):
            await asyncio.sleep(0)
            if cancel:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(outcome is None or isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert budget.free == 10

    asyncio.run(main())


def test_a_small_one_does_not_overtake_a_large_one() -> None:
    async def main() -> None:
        budget = ByteBudget(10)
        order: list[int] = []

        async def use(size: int) -> None:
            await budget.reserve(size)
            order.append(size)

        await budget.reserve(5)
        tasks = [asyncio.create_task(use(size)) for size in (8, 1)]
        await asyncio.sleep(0)
        assert order == []
        budget.release(5)
        await asyncio.gather(*tasks)
        assert order == [8, 1]

    asyncio.run(main())


@pytest.mark.parametrize("granted", [False, True])
def test_a_cancelled_wait_blocks_no_other(granted: bool) -> None:
    async def main() -> None:
        budget = ByteBudget(10)
        await budget.reserve(10)
        waiter = asyncio.create_task(budget.reserve(9))
        await asyncio.sleep(0)
        if granted:
            budget.release(10)  # granted, but its task has not yet run
        waiter.cancel()
        await asyncio.wait([waiter])
        if not granted:
            budget.release(10)
        assert budget.free == 10

    asyncio.run(main())
