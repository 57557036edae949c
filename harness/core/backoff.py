"""Back-off for workers whose operations fail at once, one after the other.

If the system is down, a client may fail a thousand times a second, and each failure adds a useless row to the history.
After ``PATIENCE`` such failures the worker waits before its next operation. The delay doubles until an operation
succeeds or takes longer than ``AT_ONCE``. The jitter comes from the worker's number, not from random numbers, so a run
stays repeatable by its seed.
"""

from typing import Final

from assay.harness.core.operation import Outcome

AT_ONCE: Final = 10_000_000
"""Nanoseconds from call to return: less than any answer of a server that had to wait for another one."""
PATIENCE: Final = 10
"""Immediate failures in a row without a delay. Short series are normal: locks that are held, compare-and-sets that
lose.
"""
FIRST: Final = 0.002
LONGEST: Final = 0.1
"""Seconds."""
SPREAD: Final = 0.618
"""The golden ratio: its multiples modulo 1 lie apart from each other."""


class Backoff:
    """The back-off state of one worker."""

    __slots__ = ("_failures", "_number")

    def __init__(self, number: int) -> None:
        self._number = number
        self._failures = 0

    def after(self, outcome: Outcome, took: int) -> float:
        """Returns the seconds to wait after an operation with this outcome that took ``took`` nanoseconds."""
        if outcome is Outcome.OK or took > AT_ONCE:
            self._failures = 0
            return 0.0
        self._failures += 1
        doubled = self._failures - PATIENCE - 1
        if doubled < 0:
            return 0.0
        longest = min(FIRST * 2.0 ** min(doubled, 10), LONGEST)
        return longest * (0.5 + (SPREAD * (self._number + self._failures)) % 1 / 2)
