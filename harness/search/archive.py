"""Archive of the moments from which a search can branch, and the choice of the next one.

The idea is Go-Explore (Ecoffet et al., Nature 2021, "First return, then explore"):

1. Runs are told apart by cells, here the feature words of the states that they reach.
2. The archive keeps a moment for new cells.
3. The probability of a moment falls with the visits to its cells, and with the times it was chosen already.
4. Domain knowledge may raise or lower a weight, as in Go-Explore.

Returning to a moment costs nothing here, because a process waits there. Playing the rest of the run does cost time, so
the weight includes it, as AFL prefers inputs that run quickly.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST: Final = 24
"""Moments that are kept, each a waiting process. The moment with the lowest weight is dropped first."""


@dataclass
class ArchiveEntry(Generic[T]):
    """A moment that the search can branch from.

    - ``words``: its cells, those that were new when the run reached them
    - ``favour``: a factor on its weight
    - ``cost``: the work left to be played, in one unit for all moments
    """

    moment: T
    words: tuple[str, ...]
    favour: float = 1.0
    cost: float = 1.0
    chosen: int = 0


class Archive(Generic[T]):
    """Weighted collection of moments. ``uniform`` gives all moments one weight, for comparison."""

    def __init__(self, *, uniform: bool = False) -> None:
        self._uniform = uniform
        self._seen: Counter[str] = Counter()
        """The number of runs that reached each cell."""
        self._kept: list[ArchiveEntry[T]] = []

    @property
    def known(self) -> frozenset[str]:
        """Returns the cells that any run has reached."""
        return frozenset(self._seen)

    def __len__(self) -> int:
        return len(self._kept)

    def came_through(self, words: Iterable[str]) -> None:
        """Records the cells that a finished run reached."""
        self._seen.update(set(words))

    def add(self, moment: T, words: Iterable[str], favour: float = 1.0, cost: float = 1.0) -> list[T]:
        """Adds a moment, and returns those that were dropped for it. For ``favour`` and ``cost`` see :class:`Kept`."""
        self._kept.append(ArchiveEntry(moment, tuple(words), favour, cost))
        gone = []
        while len(self._kept) > MOST:
            least = min(self._kept, key=self.weight)
            self._kept.remove(least)
            gone.append(least.moment)
        return gone

    def disfavour(self, whether: Callable[[T], bool], factor: float) -> None:
        """Multiplies the favour of the moments that ``whether`` selects by ``factor``."""
        for kept in self._kept:
            if whether(kept.moment):
                kept.favour *= factor

    def drop(self, kept: ArchiveEntry[T]) -> None:
        """Removes a moment whose process is gone."""
        self._kept.remove(kept)

    def weight(self, kept: ArchiveEntry[T]) -> float:
        """Returns the relative probability of a choice: by favour, cost, and the rarest of the cells."""
        if self._uniform:
            return 1.0
        rarest = min((self._seen[word] for word in kept.words), default=0)
        return kept.favour / math.sqrt(kept.cost * (1 + rarest + kept.chosen))

    def choose(self, chance: Random) -> ArchiveEntry[T] | None:
        """Draws the next moment to branch from, or None if there is none."""
        if not self._kept:
            return None
        (kept,) = chance.choices(self._kept, [self.weight(one) for one in self._kept])
        kept.chosen += 1
        return kept

    def clear(self) -> list[T]:
        """Removes and returns all moments."""
        gone, self._kept = [kept.moment for kept in self._kept], []
        return gone
