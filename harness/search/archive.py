"""The moments at which a search can leave runs that it has played, and which of them it leaves next.

After Go-Explore (Ecoffet et al., Nature 2021, "First return, then explore"): runs are told apart by cells, here the
words for states that they come through; of each cell that is new one moment is kept; and a moment is chosen with a
probability that falls with how often its cells were come to, and how often it was chosen already. Returning to it costs
nothing here, since a process stands there; but going on from it costs what is left to be played, so that weighs in, as
AFL prefers inputs that run quickly. As in Go-Explore, what is known of the domain may, too.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST: Final = 24
"""Moments that are kept, each a process that stands still; what is let go of is what is least rare."""


@dataclass
class Kept(Generic[T]):
    """A moment that can be left. ``words``: its cells, those that were new when it was come to. ``favour``: how many
    times as likely as another it is chosen. ``cost``: of what is left to be played, in a unit that is the same for all.
    """

    moment: T
    words: tuple[str, ...]
    favour: float = 1.0
    cost: float = 1.0
    chosen: int = 0


class Archive(Generic[T]):
    """``uniform``: all moments are alike, for comparison."""

    def __init__(self, *, uniform: bool = False) -> None:
        self._uniform = uniform
        self._seen: Counter[str] = Counter()
        """In how many runs each cell was come to."""
        self._kept: list[Kept[T]] = []

    @property
    def known(self) -> frozenset[str]:
        """The cells that some run has come to."""
        return frozenset(self._seen)

    def __len__(self) -> int:
        return len(self._kept)

    def came_through(self, words: Iterable[str]) -> None:
        """A run has ended that came to these cells."""
        self._seen.update(set(words))

    def add(self, moment: T, words: Iterable[str], favour: float = 1.0, cost: float = 1.0) -> list[T]:
        """Keeps it. Returns those that were let go of for it. ``favour`` and ``cost``: as of :class:`Kept`."""
        self._kept.append(Kept(moment, tuple(words), favour, cost))
        gone = []
        while len(self._kept) > MOST:
            least = min(self._kept, key=self.weight)
            self._kept.remove(least)
            gone.append(least.moment)
        return gone

    def disfavour(self, whether: Callable[[T], bool], factor: float) -> None:
        """Makes some moments so many times as likely as they were."""
        for kept in self._kept:
            if whether(kept.moment):
                kept.favour *= factor

    def drop(self, kept: Kept[T]) -> None:
        """It can be left no more."""
        self._kept.remove(kept)

    def weight(self, kept: Kept[T]) -> float:
        """How likely it is to be chosen, against the others: by the rarest of its cells, and by what it costs."""
        if self._uniform:
            return 1.0
        rarest = min((self._seen[word] for word in kept.words), default=0)
        return kept.favour / math.sqrt(kept.cost * (1 + rarest + kept.chosen))

    def choose(self, chance: Random) -> Kept[T] | None:
        """The next to be left; None when there is none."""
        if not self._kept:
            return None
        (kept,) = chance.choices(self._kept, [self.weight(one) for one in self._kept])
        kept.chosen += 1
        return kept

    def clear(self) -> list[T]:
        """Lets go of all, and returns them."""
        gone, self._kept = [kept.moment for kept in self._kept], []
        return gone
