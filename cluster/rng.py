"""All randomness of one run: labelled random sources that can be reseeded together.

:meth:`RandomSources.reseed` resets a source in place. So a caller may keep the source, and its bound methods.
"""

import weakref
from collections.abc import Callable
from random import Random


class RandomSources:
    """The random sources of one run. A label names one use and contains the run's seed if there is one."""

    def __init__(self) -> None:
        self._seed: int | None = None
        self._sources: weakref.WeakKeyDictionary[Random, str] = weakref.WeakKeyDictionary()
        self._listeners: dict[str, Callable[[int], None]] = {}

    def source(self, label: str, seed: int | None = None) -> Random:
        """Creates a source for one use. Until the first reseed it draws like ``Random(label)``, or ``Random(seed)``."""
        first_seed = label if seed is None else seed
        source = Random(first_seed if self._seed is None else self._reseeded_label(label))
        self._sources[source] = label
        return source

    def listen(self, label: str, reseed: Callable[[int], None]) -> None:
        """Registers a function that needs a seed, not a source. Each reseed calls it with a new 63-bit number."""
        self._listeners[label] = reseed

    def reseed(self, seed: int) -> None:
        """Reseeds all existing sources, and all sources created later, from ``seed``."""
        self._seed = seed
        for source, label in list(self._sources.items()):
            source.seed(self._reseeded_label(label))
        for label, listener in self._listeners.items():
            listener(Random(self._reseeded_label(label)).getrandbits(63))

    def _reseeded_label(self, label: str) -> str:
        return f"reseeded {self._seed} {label}"
