"""Measures how far the clocks of a node's machine are ahead of this machine's clocks.

A command on the node prints the clocks. The node read them at an unknown moment of the round trip. So the middle of the
round trip is wrong by half of it at most. The shortest of several round trips gives the smallest error.

An offset that is no larger than its error may be 0, and counts as 0. So nothing changes for containers on the kernel of
this machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from assay.cluster.node import NodeError

CLOCKS_COMMAND: Final = "LD_PRELOAD= python3 -c 'import time; print(time.time(), time.monotonic())'"
"""Prints the wall clock and the monotonic clock. No preloaded library shifts them."""
ROUND_TRIPS: Final = 3
RESOLUTION: Final = 1e-6
"""Seconds by which a float that holds seconds since 1970 may be wrong, at most, with the sums made of it."""
MIN_CHANGE: Final = 0.1
"""Smallest change of an offset, in seconds, that is reported. Clocks that are kept right differ by less."""
DECIMALS: Final = 3
"""Decimals of the seconds in texts."""


@dataclass(frozen=True)
class ClockOffset:
    """Seconds by which a machine's clocks are ahead of this machine's. They are exact up to ``error`` seconds."""

    wall: float
    monotonic: float
    error: float

    @property
    def wall_ahead(self) -> float:
        """The offset of the wall clock; 0 if that may be true."""
        return self._drop_error(self.wall)

    @property
    def monotonic_ahead(self) -> float:
        """The offset of the monotonic clock; 0 if that may be true."""
        return self._drop_error(self.monotonic)

    def has_changed(self, before: ClockOffset) -> bool:
        """Returns whether a clock runs ahead by another time than ``before``, beyond the errors of both."""
        changes = abs(self.wall - before.wall), abs(self.monotonic - before.monotonic)
        return max(changes) > max(self.error + before.error, MIN_CHANGE)

    def _drop_error(self, offset: float) -> float:
        return 0.0 if abs(offset) <= self.error else offset

    def __str__(self) -> str:
        """Describes the wall clock, for example ``+1.502 s (within 0.020 s)``."""
        error = math.ceil(self.error * 10**DECIMALS) / 10**DECIMALS
        return f"{self.wall:+.{DECIMALS}f} s (within {error:.{DECIMALS}f} s)"


async def measure_clock_offset(shell: Callable[[str], Awaitable[str]]) -> ClockOffset:
    """Measures the offset. ``shell`` runs a command on the machine. Raises :class:`NodeError` like ``shell``."""
    measured = [await _measure_once(shell) for _ in range(ROUND_TRIPS)]
    return min(measured, key=lambda offset: offset.error)


async def _measure_once(shell: Callable[[str], Awaitable[str]]) -> ClockOffset:
    wall, monotonic = time.time(), time.monotonic()
    printed = await shell(CLOCKS_COMMAND)
    half = (time.monotonic() - monotonic) / 2
    try:
        node_wall, node_monotonic = (float(word) for word in printed.split()[-2:])
    except ValueError:
        raise NodeError(f"`{CLOCKS_COMMAND}` printed no clocks: {printed[-200:]!r}") from None
    return ClockOffset(node_wall - (wall + half), node_monotonic - (monotonic + half), half + RESOLUTION)
