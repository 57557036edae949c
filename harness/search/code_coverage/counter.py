"""Base class of the code coverage counters: they report each line and outcome once.

A counter counts in the process that starts it, and in its forks, which then count independently.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from assay.harness.search.code_coverage.points import Point
from assay.harness.search.code_coverage.source import LoadedFunctions, SourceModule, find_loaded


class CodePlace(NamedTuple):
    """A point of a module."""

    module: str
    line: int
    outcome: bool | None


class CoverageCounter:
    """Counter for these modules; modules that are loaded later are counted from the next :meth:`settle` on."""

    def __init__(self, modules: Iterable[SourceModule]) -> None:
        self.on_new: Callable[[], None] = lambda: None
        """Called in the middle of the system's code when it reaches a place that is not known."""
        self._waiting = {module.name: module for module in modules}
        """Modules that are not loaded yet."""
        self._known: set[CodePlace] = set()
        self._new: list[CodePlace] = []

    def start(self) -> None:
        """Starts to count. Call it once per process, before :func:`gc.freeze` hides functions."""
        self._load()

    def settle(self) -> None:
        """Counts modules loaded since. Call it between two runs, when no code of the system is executing."""
        if any(name in sys.modules for name in self._waiting):
            self._load()

    def know(self, places: Iterable[CodePlace]) -> None:
        """Marks places as known because they were reached elsewhere."""
        self._known.update(places)

    def forget_new(self) -> None:
        """Clears the new places without a report, because another process reports them."""
        self._new.clear()

    def take(self) -> frozenset[CodePlace]:
        """Returns and clears the places covered for the first time since the last call."""
        found = frozenset(self._new)
        self._new.clear()
        return found

    def count(self, module: SourceModule, functions: LoadedFunctions) -> None:
        """Begins to count in a loaded module."""
        raise NotImplementedError

    def reached(self, module: str, points: Sequence[Point]) -> None:
        places = [place for line, outcome in points if (place := CodePlace(module, line, outcome)) not in self._known]
        if places:
            self._known.update(places)
            self._new += places
            self.on_new()

    def _load(self) -> None:
        for name, functions in find_loaded(self._waiting.values()).items():
            self.count(self._waiting.pop(name), functions)
