"""Limits after which a search ends as unknown."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

BEAM_WIDTH: Final = 2048
FIRST_LOOK: Final = 1.0
"""Defaults of :class:`Limits`."""


@dataclass(frozen=True)
class Limits:
    """Limits of the search of one key."""

    seconds: float | None = 300.0
    """Maximum seconds per key; None: unlimited."""
    bytes: int = 4 << 30
    """Maximum memory of all parallel searches on one machine or, after ``divide_by``, of one search."""
    beam_width: int = BEAM_WIDTH
    """Maximum number of configurations (possible states of the search, see ``core``). A larger set is first cut to a
    quarter of this number. If none of the kept configurations leads to a legal order, the search goes on with the whole
    set.
    """

    first_look: float = FIRST_LOOK
    """Seconds that each key gets before any key gets more. So a hard key does not delay the results of other keys."""
    every_key: bool = False
    """Whether each key is searched to its limit even if another key is wrong. By default, keys that need more than the
    first look are then unknown."""
    spent: float = 0.0
    """Seconds that an earlier attempt of this key used."""
    clock: Callable[[], float] = time.perf_counter
    """Returns the time in seconds."""

    def __post_init__(self) -> None:
        if self.bytes <= 0 or self.beam_width < 1 or (self.seconds is not None and self.seconds < 0):
            raise ValueError(f"limits must be positive: {self}")

    def take_first_look(self) -> Limits | None:
        """Returns the limits of the first look at each key, or None if the time limit is as short."""
        if self.seconds is not None and self.seconds <= self.first_look:
            return None
        return replace(self, seconds=self.first_look)

    def divide_by(self, searches: int) -> Limits:
        """Returns the limits of one of ``searches`` parallel searches."""
        return replace(self, bytes=max(1, self.bytes // searches))

    def deduct(self, seconds: float) -> Limits:
        """Returns the limits of another attempt, after an attempt that took ``seconds``."""
        return replace(self, spent=self.spent + seconds)


DEFAULT: Final = Limits()


class OutOfTime(Exception):
    """The time limit of a key was reached. The message is a clause that says when it was: ``before ...``."""


class Deadline:
    """The end of the time for one key, which begins now.

    Each step whose duration depends on the history asks it: dividing the operations, the exact algorithms, the search.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._begun = limits.clock()
        self._seconds = None if limits.seconds is None else limits.seconds - limits.spent

    @property
    def elapsed(self) -> float:
        """Seconds since the deadline was made."""
        return self._limits.clock() - self._begun

    def is_over(self) -> bool:
        return self._seconds is not None and self.elapsed > self._seconds

    def require(self, when: str) -> None:
        """Raises ``OutOfTime`` with the clause ``when`` if the time is over."""
        if self.is_over():
            raise OutOfTime(when)

    def extend(self, seconds: float) -> None:
        """Adds time, for work that does not count."""
        if self._seconds is not None:
            self._seconds += seconds

    def get_remaining_limits(self) -> Limits:
        """Returns the limits for the rest of the time."""
        return self._limits.deduct(self.elapsed)

    def describe(self, history: str, when: str) -> str:
        """Returns the reason for an unknown result. ``history``: the name of the key."""
        return f"{history}: the time limit of {self._limits.seconds or 0:g} s was reached {when}"
