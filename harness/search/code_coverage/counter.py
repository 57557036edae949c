"""What both ways of counting have in common: they say of each line and outcome once that it was reached.

A counter counts in the process in which it is started, and in those that are forked from it: each goes on for itself.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from assay.harness.search.code_coverage.points import Point
from assay.harness.search.code_coverage.source import Loaded, Module, loaded


class Place(NamedTuple):
    """A point of a module."""

    module: str
    line: int
    outcome: bool | None


class Counter:
    """Of these modules; those that are loaded later count from the next :meth:`settle` on."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.on_new: Callable[[], None] = lambda: None
        """Called in the middle of the system's code, when it has come to a place that is not known."""
        self._waiting = {module.name: module for module in modules}
        """Those that are not loaded yet."""
        self._known: set[Place] = set()
        self._new: list[Place] = []

    def start(self) -> None:
        """Once, in the process that is to be counted in, and before anything is put aside by :func:`gc.freeze`."""
        self._load()

    def settle(self) -> None:
        """Between two runs, when none of the system's code is under way."""
        if any(name in sys.modules for name in self._waiting):
            self._load()

    def know(self, places: Iterable[Place]) -> None:
        """These were reached elsewhere, and are not new any more."""
        self._known.update(places)

    def forget_new(self) -> None:
        """What was new until now is for others to report."""
        self._new.clear()

    def take(self) -> frozenset[Place]:
        """What has been reached since the last time for the first time, and was not known."""
        found = frozenset(self._new)
        self._new.clear()
        return found

    def count(self, module: Module, functions: Loaded) -> None:
        """Begins to count in a module that is loaded."""
        raise NotImplementedError

    def reached(self, module: str, points: Sequence[Point]) -> None:
        places = [place for line, outcome in points if (place := Place(module, line, outcome)) not in self._known]
        if places:
            self._known.update(places)
            self._new += places
            self.on_new()

    def _load(self) -> None:
        for name, functions in loaded(self._waiting.values()).items():
            self.count(self._waiting.pop(name), functions)
