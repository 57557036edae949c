"""``--repeat=10min``: rounds of all tests, each round with other seeds, until the time is over.

pytest-xdist collects once in each of its processes, so tests cannot be added during the session. Therefore more rounds
are collected than fit into the time. The surplus is neither run nor reported as skipped. The first round always runs in
full.

By default pytest-xdist gives each process an eighth of all tests at once. Some processes could then be in their second
round and others in their ninetieth. Therefore each process gets one test at a time.
"""

import math
import time
from collections.abc import Callable
from typing import Final

import pytest

from assay.harness.run.limits import check_test_count
from assay.harness.run.settings import Budget

SHORTEST_ROUND: Final = 1.0
"""Minimum number of seconds that a round takes."""
COLLECTED: Final = pytest.StashKey[int]()
"""Number of tests collected so far."""
CHUNK_OPTION: Final = "maxschedchunk"
"""pytest-xdist's option for the number of tests that a process gets at once; None if it is not given."""


def count_rounds(repeat: Budget) -> int:
    """Returns the number of rounds to collect."""
    if repeat.seconds is None:
        return repeat.examples or 1  # for ``--repeat``, the number of rounds
    return max(2, math.ceil(repeat.seconds / SHORTEST_ROUND))


def add_collected_tests(config: pytest.Config, tests: int = 0) -> str | None:
    """Adds ``tests`` to the number of collected tests. Returns an error if they are too many, else None."""
    collected = config.stash[COLLECTED] = config.stash.get(COLLECTED, 0) + tests
    return check_test_count(collected, str(config.getoption("--repeat")))


class TimedRounds:
    """The plugin of a session that repeats for a time. ``get_round`` gives an item's round, from 1."""

    def __init__(
        self, seconds: float, get_round: Callable[[pytest.Item], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._get_round = get_round
        self._clock = clock
        self._began: float | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sorts the tests by round."""
        items.sort(key=self._get_round)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Skips a test silently if the time is over: True means that the test is handled."""
        now = self._clock()
        if self._began is None:
            self._began = now
        over = now - self._began >= self._seconds
        return True if over and self._get_round(item) > 1 else None


def register(config: pytest.Config, repeat: Budget, get_round: Callable[[pytest.Item], int]) -> None:
    if repeat.seconds is None:
        return
    config.pluginmanager.register(TimedRounds(repeat.seconds, get_round), "assay-rounds")
    if getattr(config.option, CHUNK_OPTION, True) is None:
        setattr(config.option, CHUNK_OPTION, 1)
