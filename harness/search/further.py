"""Draws the faults of a branch: none, or one or two that strike soon after it leaves."""

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from assay.harness.search.example import Example
from assay.harness.search.strategies import DELAYS, DURATIONS, GRID, MAINSTAYS, MARGIN, ONE_SERVER, Terrain, tidied
from assay.nemesis.schedule import Step
from assay.nemesis.target import Kind, Target
from assay.nemesis.trigger import OnEvent

SOON: Final = 1.0
"""Seconds within which a fault of a branch strikes, or begins to wait."""
NONE: Final = 0.3
"""Of the branches, those that differ by chance alone."""
MAINSTAY: Final = 0.5
WAITING: Final = 0.4
"""Of the faults, those that wait for an event."""


def further_steps(chance: Random, example: Example, at: float, terrain: Terrain) -> Sequence[Step]:
    """In the order of their times; each fits into what is left of the run."""
    if chance.random() < NONE or example.time_limit - MARGIN - at < 2 / GRID:
        return ()
    steps = [_step(chance, example, at, terrain) for _ in range(chance.randint(1, 2))]
    return sorted((tidied(step, example, terrain, at) for step in steps), key=lambda step: step.at)


def _step(chance: Random, example: Example, at: float, terrain: Terrain) -> Step:
    usual = [name for name in terrain.faults if name in MAINSTAYS]
    name = chance.choice(usual if usual and chance.random() < MAINSTAY else terrain.faults)
    seed = chance.getrandbits(32)
    census = terrain.census(example.nodes, example.zookeepers)
    target, parameters = terrain.catalogue[name].draw(Random(seed), census, None)
    begins = at + chance.choice((0.0, 0.001, 0.01, 0.05, SOON * chance.random()))
    step = Step(begins, name, target, chance.choice(DURATIONS), parameters, seed)
    if not terrain.events or chance.random() >= WAITING:
        return step
    if step.target.kind in ONE_SERVER and chance.random() < 0.6:
        step = msgspec.structs.replace(step, target=Target(Kind.ORIGIN))
    trigger = OnEvent(chance.choice(terrain.events), delay=chance.choice(DELAYS), within=5.0, optional=True)
    return msgspec.structs.replace(step, trigger=trigger)
