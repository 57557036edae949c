"""All chance of one run, in one place: sources by label, which can be made to begin again from another seed.

What draws keeps its source, and methods of it, for as long as it likes: :meth:`Chance.reseed` resets it in place.
"""

import weakref
from collections.abc import Callable
from random import Random


class Chance:
    """The sources of one run. A label names one use; it has the run's seed in it, where there is one."""

    def __init__(self) -> None:
        self._seed: int | None = None
        self._sources: dict[int, tuple[weakref.ref[Random], str]] = {}
        self._listeners: dict[str, Callable[[int], None]] = {}
        self._made = 0

    def source(self, label: str, seed: int | None = None) -> Random:
        """A source for this use. Until chance is reseeded it draws as ``Random(label)`` does, or ``Random(seed)``."""
        first = label if seed is None else seed
        made = Random(first if self._seed is None else self._label(label))
        number = self._made
        self._made += 1
        self._sources[number] = weakref.ref(made, lambda gone: self._sources.pop(number, None)), label
        return made

    def listen(self, label: str, reseed: Callable[[int], None]) -> None:
        """For what draws from a number and not from a source: it is called with another, of 63 bits, at each reseed."""
        self._listeners[label] = reseed

    def reseed(self, seed: int) -> None:
        """From now on all chance is drawn from ``seed``: by the sources that there are, and by those to come."""
        self._seed = seed
        for source, label in list(self._sources.values()):
            alive = source()
            if alive is not None:
                alive.seed(self._label(label))
        for label, listener in self._listeners.items():
            listener(Random(self._label(label)).getrandbits(63))

    def _label(self, label: str) -> str:
        return f"reseeded {self._seed} {label}"
