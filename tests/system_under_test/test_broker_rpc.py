"""Tests what most brokers say: those that stand still are not waited for, and do not count."""

import asyncio

import pytest

from assay.cluster.sim.loop import SimLoop
from assay.system_under_test.broker_rpc import VOTE_SECONDS, find_majority


def asked(*said: tuple[int, float]) -> tuple[int | None, float]:
    """Returns what most of them said, each after so many seconds, and how long that took."""

    async def say(answer: int, after: float) -> int:
        await asyncio.sleep(after)
        return answer

    async def main() -> tuple[int | None, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        found = await find_majority([say(answer, after) for answer, after in said])
        assert asyncio.all_tasks() == {asyncio.current_task()}, "a question is left behind"
        return found, loop.time() - began

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(main())


@pytest.mark.parametrize("slow", [0.2, 60.0])
def test_a_majority_that_agrees_is_enough(slow: float) -> None:
    assert asked((2, 0.01), (3, slow), (2, 0.02)) == (2, pytest.approx(0.02))


def test_those_who_say_nothing_are_no_majority() -> None:
    assert asked((-1, 0.01), (-1, 0.01), (3, 0.2)) == (3, pytest.approx(0.2))
    assert asked((-1, 0.01), (-1, 0.01))[0] is None


def test_one_who_is_slow_decides_where_others_disagree() -> None:
    assert asked((1, 0.01), (2, 0.01), (2, 0.3)) == (2, pytest.approx(0.3))


def test_who_stands_still_is_not_waited_for_any_longer() -> None:
    assert asked((1, 0.01), (-1, 0.01), (2, 60.0)) == (1, pytest.approx(VOTE_SECONDS))
    assert asked((1, 0.01), (2, 0.01), (2, 60.0)) == (None, pytest.approx(VOTE_SECONDS))
    assert asked((1, 60.0), (2, 60.0), (2, 60.0)) == (None, pytest.approx(VOTE_SECONDS))
