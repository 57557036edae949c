"""The current time by both clocks of a broker: the wall clock, which may be wrong or be set, and the monotonic clock.

Committed offsets, and messages without timestamps, expire only when the monotonic clock, too, says that they are old
enough. So a wall clock that was set forward does not delete them.
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
    """Reads both clocks. ``wall_clock`` returns seconds; the monotonic clock is the running event loop's."""
    return Instant(int(wall_clock() * 1000), int(asyncio.get_running_loop().time() * 1000))
