"""Settings of the system that a mix or a search draws at random."""

import math
import random
import re
from collections.abc import Sequence
from typing import Final

from assay.cluster.system import SupportsSettings, System
from assay.harness.run.settings import derive_seed

LEFT_ALONE: Final = 0.3
"""Probability that a mix leaves a setting unchanged."""


def draw_configuration(system: System, given: Sequence[str], seed: int) -> tuple[str, ...]:
    """Adds drawn values to the given settings. Each depends only on the seed and the setting's name."""
    configuration = {text.partition("=")[0]: text for text in given}
    for name, values in (system.variants if isinstance(system, SupportsSettings) else {}).items():
        rng = random.Random(derive_seed(seed, "variant", name))
        if rng.random() >= LEFT_ALONE and name not in configuration:
            configuration[name] = f"{name}={_draw_value(rng.choice(list(values)), rng)}"
    return tuple(configuration.values())


def coarsen_choices(values: Sequence[str]) -> tuple[str, ...]:
    """Returns few, coarse choices: a range becomes its ends and their geometric mean."""
    found: dict[str, None] = {}
    for value in values:
        ends = _parse_range(value)
        found |= dict.fromkeys(
            [value] if ends is None else [str(ends[0]), str(round(math.sqrt(ends[0] * ends[1]))), str(ends[1])]
        )
    return tuple(found)


def _draw_value(value: str, rng: random.Random) -> str:
    """Draws from a range on a logarithmic scale, so that small numbers are as frequent as large ones."""
    ends = _parse_range(value)
    if ends is None:
        return value
    return str(round(math.exp(rng.uniform(math.log(ends[0]), math.log(ends[1])))))


def _parse_range(value: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"([1-9]\d*)\.\.([1-9]\d*)", value)
    return None if match is None else (int(match[1]), int(match[2]))
