"""How long a worker rests whose operations fail at once, one after the other.

A client of a system that is gone may fail a thousand times a second, each time with a row of the history, and find out
no more by that. So after some such failures its worker waits before it takes the next operation, twice as long each
time, until one succeeds or takes its time. No chance is drawn: a run is repeated by its seed as ever, and workers that
began to fail together are spread by their numbers.
"""

from typing import Final

from assay.harness.core.operation import Outcome

AT_ONCE: Final = 10_000_000
"""Nanoseconds from call to return: less than any answer of a server that had to wait for another one."""
PATIENCE: Final = 10
"""So many failures at once are nothing unusual: locks that are held, compare-and-sets that came too late."""
FIRST: Final = 0.002
LONGEST: Final = 0.1
"""Seconds."""
SPREAD: Final = 0.618
"""Multiples of it lie apart from each other, modulo 1."""


class Rest:
    """Of one worker, by its number."""

    __slots__ = ("_failures", "_number")

    def __init__(self, number: int) -> None:
        self._number = number
        self._failures = 0

    def after(self, outcome: Outcome, took: int) -> float:
        """Seconds to wait after an operation that ended so, after so many nanoseconds."""
        if outcome is Outcome.OK or took > AT_ONCE:
            self._failures = 0
            return 0.0
        self._failures += 1
        doubled = self._failures - PATIENCE - 1
        if doubled < 0:
            return 0.0
        longest = min(FIRST * 2.0 ** min(doubled, 10), LONGEST)
        return longest * (0.5 + (SPREAD * (self._number + self._failures)) % 1 / 2)
