"""Base of the faults that come in several variants, such as the shapes of a partition.

Each row of a class's ``descriptions`` is one variant, and a fault called ``NAME-VARIANT``. The fault called ``NAME``
draws a variant for each step, and stores it in a parameter of the step.
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

Variant = TypeVar("Variant", bound=StrEnum)


class VariedFault(Generic[Variant]):
    """Mixin for faults that come in several variants. With ``variant``, the fault has only that one."""

    name: str
    description: str
    descriptions: Mapping[Variant, str]
    """A line about each variant that is a fault with its own name."""
    parameter: str
    """The step's parameter that names the variant."""
    variants: Sequence[Variant]
    """The variants that are drawn. If there is only one, a step need not have the parameter."""
    excluded_from_all = False

    def __init__(self, variant: Variant | None = None) -> None:
        if variant is not None:
            self.variants, self.excluded_from_all = (variant,), True
            self.name, self.description = f"{self.name}-{variant}", self.descriptions[variant]

    def find_trouble(self, variant: Variant, census: Census, target: Target | None) -> str | None:
        """Returns why this variant cannot be drawn, or None."""
        return None

    def draw_variant(self, rng: random.Random, census: Census, target: Target | None) -> Variant:
        """Draws a variant that the cluster and the target allow. Raises ``ScheduleError`` if there is none."""
        possible, troubles = self._list_possible(census, target)
        if not possible:
            raise ScheduleError(f"{self.name}: {troubles}")
        return rng.choice(possible)

    def explain_impossible(self, cluster: Cluster, system: System) -> str | None:
        """Returns why this cluster allows none of the variants, or None."""
        possible, troubles = self._list_possible(take_census(cluster, system), None)
        return None if possible else troubles

    def _list_possible(self, census: Census, target: Target | None) -> tuple[list[Variant], str]:
        """Returns the possible variants, and why the others are not possible."""
        troubles = {variant: self.find_trouble(variant, census, target) for variant in self.variants}
        possible = [variant for variant, trouble in troubles.items() if trouble is None]
        return possible, "; ".join(trouble for trouble in troubles.values() if trouble is not None)

    def variant_of(self, injection: Injection) -> Variant:
        """Returns the variant of a step. Raises ``TargetError`` if there is no such variant."""
        known = next(iter(self.descriptions)).__class__
        word = injection.step.parameters.get(self.parameter, self.variants[0] if len(self.variants) == 1 else "")
        try:
            return known(str(word))
        except ValueError as error:
            choices = ", ".join(known)
            raise TargetError(
                f"{self.name}: the parameter {self.parameter} is {word!r}; it must be one of {choices}"
            ) from error
