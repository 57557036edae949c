"""A moment by the two clocks of a broker: the wall clock, which may be wrong or set, and the monotonic clock.

Durations that end in a deletion are measured by both, so that a step of the wall clock alone deletes nothing.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple


class Instant(NamedTuple):
    """A moment by two clocks, in milliseconds."""

    wall_ms: int
    """Since 1970, by a clock that may be wrong or set."""
    monotonic_ms: int
    """By a clock that is never set. Only differences within one process mean something."""


def read_clocks(wall_clock: Callable[[], float]) -> Instant:
    """Returns the present. ``wall_clock`` returns seconds; the monotonic clock is that of the running event loop."""
    return Instant(int(wall_clock() * 1000), int(asyncio.get_running_loop().time() * 1000))
