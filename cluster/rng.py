"""All randomness of one run: labelled sources that can be reseeded together.

A caller may keep its source, and bound methods of the source: :meth:`RandomSources.reseed` resets it in place.
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
        """Returns a source for one use. Until the first reseed it draws like ``Random(label)``, or ``Random(seed)``."""
        first_seed = label if seed is None else seed
        source = Random(first_seed if self._seed is None else self._reseeded_label(label))
        self._sources[source] = label
        return source

    def listen(self, label: str, reseed: Callable[[int], None]) -> None:
        """Registers a consumer that needs a number, not a source. Each reseed calls it with a new 63-bit number."""
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
