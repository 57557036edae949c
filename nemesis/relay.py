"""A relay: the leader of a key is struck, and soon after its return the next leader, several times in a row.

What one failover leaves half done is completed within seconds: followers learn where the new leader's term begins, cut
off what only they have, and rejoin. A second failover in these seconds finds them in the middle of it. Histories in
which acknowledged records were lost after two failovers, never after one, are those of KIP-101 and KIP-279; Raft's
figure 8 is one, too.

Strikes do not overlap by more than ``OVERLAP`` seconds, so that a majority is up nearly all the time.
"""

import random
from collections.abc import Sequence
from typing import Final

from assay.nemesis.catalogue import Catalogue
from assay.nemesis.fault import Census
from assay.nemesis.freeze import Freeze
from assay.nemesis.kill import Kill
from assay.nemesis.partition import Partition
from assay.nemesis.schedule import Step
from assay.nemesis.shape import Shape
from assay.nemesis.stop import Stop
from assay.nemesis.target import Kind, Target

STRIKES: Final = (Kill.name, Kill.name, Stop.name, Freeze.name, Partition(Shape.ONE).name)
"""Each takes one server away from all others."""
LEGS: Final = (2, 4)
"""Strikes, at least and at most."""
SHORT: Final = (0.4, 1.5)
"""Seconds: of a process that is back before its session expires, or gives its partitions away by itself."""
LONG: Final = (1.5, 3.5)
"""Seconds: long enough for a successor."""
OVERLAP: Final = 0.3
PAUSE: Final = 0.4
"""Seconds from a return to the next strike, at most."""


def relay(
    rng: random.Random, faults: Sequence[str], catalogue: Catalogue, census: Census, at: float, end: float
) -> list[Step]:
    """Steps from ``at`` that are healed before ``end`` (seconds); none where no key has a leader, or time is short.

    ``faults``: those that system and cluster can have.
    """
    strikes = [name for name in STRIKES if name in faults]
    if not strikes or not census.keys or census.servers < 3:
        return []
    leader = Target(Kind.LEADER, key=rng.choice(census.keys))
    mostly = rng.choice(strikes)
    steps: list[Step] = []
    for _ in range(rng.randint(*LEGS)):
        name = mostly if rng.random() < 0.7 else rng.choice(strikes)
        duration = rng.uniform(*rng.choice((SHORT, LONG)))
        if at + duration > end:
            break
        target, parameters = catalogue[name].draw(rng, census, leader)
        steps.append(Step(round(at, 3), name, target, round(duration, 3), parameters, rng.getrandbits(32)))
        at += duration + rng.uniform(-OVERLAP, PAUSE)
    return steps
