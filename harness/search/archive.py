"""Archive of the fork points from which a search can branch, and the choice of the next one.

The idea is Go-Explore (Ecoffet et al., Nature 2021, "First return, then explore"):

1. Runs are compared by the features that they reach. A feature takes the place of that paper's cell, a class of states.
2. The archive keeps a fork point for new features.
3. The probability of a fork point falls with the visits to its features, and with the times it was chosen already.
4. Domain knowledge may raise or lower a weight, as in Go-Explore.

Returning to a fork point costs nothing here, because a process waits there. Playing the rest of the run takes time.
Therefore the weight falls with this time, as AFL prefers inputs that run quickly.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST_FORK_POINTS: Final = 24
"""Fork points that are kept, each a waiting process. The fork point with the lowest weight is dropped first."""


@dataclass
class ArchiveEntry(Generic[T]):
    """A fork point that the search can branch from.

    - ``features``: the features that were new when the run reached them
    - ``favour``: a factor on its weight
    - ``chosen``: how often a run was started from it
    - ``cost``: the work left to be played, in one unit for all fork points
    """

    item: T
    features: tuple[str, ...]
    favour: float = 1.0
    cost: float = 1.0
    chosen: int = 0


class Archive(Generic[T]):
    """Weighted collection of fork points. ``uniform_weights`` gives all fork points one weight, for comparison."""

    def __init__(self, *, uniform_weights: bool = False) -> None:
        self._uniform_weights = uniform_weights
        self._visits: Counter[str] = Counter()
        """The number of runs that reached each feature."""
        self._entries: list[ArchiveEntry[T]] = []

    @property
    def known_features(self) -> frozenset[str]:
        """Returns the features that any run has reached."""
        return frozenset(self._visits)

    def __len__(self) -> int:
        return len(self._entries)

    def record_visits(self, features: Iterable[str]) -> None:
        """Records the features that a finished run reached."""
        self._visits.update(set(features))

    def add(self, item: T, features: Iterable[str], favour: float = 1.0, cost: float = 1.0) -> list[T]:
        """Adds a fork point, and returns those that were dropped for it. Parameters: see :class:`ArchiveEntry`."""
        self._entries.append(ArchiveEntry(item, tuple(features), favour, cost))
        dropped = []
        while len(self._entries) > MOST_FORK_POINTS:
            least = min(self._entries, key=self.weight)
            self._entries.remove(least)
            dropped.append(least.item)
        return dropped

    def disfavour(self, selects: Callable[[T], bool], factor: float) -> None:
        """Multiplies the favour of the fork points that ``selects`` selects by ``factor``."""
        for entry in self._entries:
            if selects(entry.item):
                entry.favour *= factor

    def drop(self, entry: ArchiveEntry[T]) -> None:
        """Removes a fork point whose process is gone."""
        self._entries.remove(entry)

    def weight(self, entry: ArchiveEntry[T]) -> float:
        """Returns the relative probability of a choice: by favour, cost, and the rarest of the cells."""
        if self._uniform_weights:
            return 1.0
        rarest = min((self._visits[feature] for feature in entry.features), default=0)
        return entry.favour / math.sqrt(entry.cost * (1 + rarest + entry.chosen))

    def choose(self, rng: Random) -> ArchiveEntry[T] | None:
        """Draws the next fork point to branch from, or None if there is none."""
        if not self._entries:
            return None
        (entry,) = rng.choices(self._entries, [self.weight(one) for one in self._entries])
        entry.chosen += 1
        return entry

    def clear(self) -> list[T]:
        """Removes and returns all fork points."""
        dropped, self._entries = [entry.item for entry in self._entries], []
        return dropped
