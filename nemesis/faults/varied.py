"""Base of the faults that come in several ways, such as the shapes of a partition.

A class describes each way in a row of ``descriptions``, which is a fault of its own, called ``NAME-WAY``. The class
itself is one more fault: it draws a way for each step, and stores it in a parameter of the step.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Generic, TypeVar

from assay.cluster.node import Cluster
from assay.cluster.system import System
from assay.nemesis.faults.fault import Census, Injection, take_census
from assay.nemesis.schedule.schedule import ScheduleError
from assay.nemesis.schedule.target import Target, TargetError

Way = TypeVar("Way", bound=StrEnum)


class VariedFault(Generic[Way]):
    """Mixin of a fault in several ways. With ``way`` the fault has that way alone."""

    name: str
    description: str
    descriptions: Mapping[Way, str]
    """The ways with their own names."""
    parameter: str
    """The step's parameter that has the way."""
    ways: Sequence[Way]
    """The ways that are drawn. A step that is written by hand can leave the only one out."""
    excluded_from_all = False

    def __init__(self, way: Way | None = None) -> None:
        if way is not None:
            self.ways, self.excluded_from_all = (way,), True
            self.name, self.description = f"{self.name}-{way}", self.descriptions[way]

    def find_trouble(self, way: Way, census: Census, target: Target | None) -> str | None:
        """Returns why this way cannot be drawn, or None."""
        return None

    def draw_way(self, rng: random.Random, census: Census, target: Target | None) -> Way:
        """Draws a way that the cluster and the target allow. Raises ``ScheduleError`` if there is none."""
        possible, troubles = self._list_possible(census, target)
        if not possible:
            raise ScheduleError(f"{self.name}: {troubles}")
        return rng.choice(possible)

    def explain_impossible(self, cluster: Cluster, system: System) -> str | None:
        """Returns why this cluster allows none of the ways, or None."""
        possible, troubles = self._list_possible(take_census(cluster, system), None)
        return None if possible else troubles

    def _list_possible(self, census: Census, target: Target | None) -> tuple[list[Way], str]:
        """Returns the possible ways, and why the others are not possible."""
        troubles = {way: self.find_trouble(way, census, target) for way in self.ways}
        possible = [way for way, trouble in troubles.items() if trouble is None]
        return possible, "; ".join(trouble for trouble in troubles.values() if trouble is not None)

    def way_of(self, injection: Injection) -> Way:
        """Returns the way of a step. Raises ``TargetError`` if there is no such way."""
        known = next(iter(self.descriptions)).__class__
        word = injection.step.parameters.get(self.parameter, self.ways[0] if len(self.ways) == 1 else "")
        try:
            return known(str(word))
        except ValueError as error:
            raise TargetError(f"{self.name} of unknown {self.parameter} {word!r}; one of {', '.join(known)}") from error
