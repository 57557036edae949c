"""``--repeat=10min``: rounds in which each test runs once, each time with another seed, until the time is over.

A test's place among the collected ones cannot be made while the session goes on (pytest-xdist collects once, in each of
its processes), so more rounds are collected than the time can hold. Those that it does not hold are not run and not
reported: they are no tests that were skipped. The first round is always run, so no test is left out for want of time.

Processes of pytest-xdist are dealt one test after another. By default each gets an eighth of all of them at once: then
one process would be in its second round when another begins with its ninetieth.
"""

import math
import time
from collections.abc import Callable
from typing import Final

import pytest

from assay.harness.run.limits import too_many_tests
from assay.harness.run.settings import Budget

QUICKEST: Final = 1.0
"""Seconds that a round takes at the least."""
COLLECTED: Final = pytest.StashKey[int]()
DEALT: Final = "maxschedchunk"
"""pytest-xdist's option for how many tests a process is dealt at once; None: not given."""


def how_many(repeat: Budget) -> int:
    """Rounds to collect."""
    if repeat.seconds is None:
        return repeat.examples or 1
    return max(2, math.ceil(repeat.seconds / QUICKEST))


def excess(config: pytest.Config, tests: int = 0) -> str | None:
    """Adds up the tests that a session is about to collect; why they are too many, None if they are not."""
    collected = config.stash[COLLECTED] = config.stash.get(COLLECTED, 0) + tests
    return too_many_tests(collected, str(config.getoption("--repeat")))


class Rounds:
    """The plugin of a session that repeats for a time. ``number`` gives an item's round; ``clock`` gives seconds."""

    def __init__(
        self, seconds: float, number: Callable[[pytest.Item], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._number = number
        self._clock = clock
        self._began: float | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Round by round, where they were collected test by test."""
        items.sort(key=self._number)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """True: it is dealt with, and there is nothing to report."""
        now = self._clock()
        if self._began is None:
            self._began = now
        over = now - self._began >= self._seconds
        return True if over and self._number(item) > 1 else None


def register(config: pytest.Config, repeat: Budget, number: Callable[[pytest.Item], int]) -> None:
    if repeat.seconds is None:
        return
    config.pluginmanager.register(Rounds(repeat.seconds, number), "assay-rounds")
    if getattr(config.option, DEALT, True) is None:
        setattr(config.option, DEALT, 1)
