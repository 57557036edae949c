"""Violations planted into small legal histories of each kind of object, and what the checks find in them."""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from assay.checkers.engine import Engines
from assay.checkers.families import FAMILIES
from assay.harness.sensitivity.measure import PLANTS
from assay.harness.sensitivity.packing import find_violated, pack
from assay.harness.sensitivity.plant import Claim, ObjectRows, Plant, Rows

from helpers.log_histories import Row
from helpers.plant_histories import Kind, to_operations

HISTORIES: Final = 25
"""Number of histories of each kind."""
CLAIMS: Final = 2
"""Claims of each object: so many exposed ones, and so many others."""
CLIENT_FAMILIES: Final = [family for family in FAMILIES if not family.about_servers]


@dataclass(frozen=True)
class Planted:
    """A plant in one object of a legal history."""

    plant: Plant
    claim: Claim
    rest: Rows
    """The rows of the history's other objects."""
    plain: Rows
    before: Rows
    """A copy of ``plain`` from before the edit."""
    selected: Rows
    edited: Rows
    edited_whole: Rows
    """All rows of the object with the violation."""
    found_plain: frozenset[str]
    """Anomalies of the selection without the violation."""
    found: frozenset[str]

    @property
    def changed(self) -> bool:
        return list(self.edited) != list(self.selected)


def plant_into(kind: Kind, history: Sequence[Row], rng: random.Random) -> list[Planted]:
    effects: defaultdict[str, list[Row]] = defaultdict(list)
    for row in history:
        effects[row["key"]].append(row)
    end = max((row["call"] for row in history), default=0)
    planted = []
    for plant in PLANTS:
        if plant.anomaly not in kind.anomalies or not plant.requires(kind.contract):
            continue
        bound = rng.choice((-1, -1, rng.randint(0, end)))
        for rows in plant.gather({key: ObjectRows(rows) for key, rows in effects.items()}).values():
            if not plant.kinds.intersection(row["kind"] for row in rows):
                continue
            before = copy.deepcopy(list(rows))
            claims = plant.find_claims(rows, bound)
            exposed = [claim for claim in claims if claim.exposed]
            others = [claim for claim in claims if not claim.exposed]
            for claim in [claim for some in (exposed, others) for claim in rng.sample(some, min(CLAIMS, len(some)))]:
                selected = plant.select(rows, claim)
                places = {(row["op"], row["sub"]) for row in rows}
                rest = [row for row in history if (row["op"], row["sub"]) not in places]
                planted.append(
                    Planted(
                        plant, claim, rest, rows, before, selected, plant.edit(selected, claim),
                        plant.edit(rows, claim), frozenset(), frozenset(),
                    )
                )  # fmt: skip
    return planted


@cache
def unjudged_in(kind: Kind) -> list[Planted]:
    """Plants into many histories. Nothing is found yet."""
    planted = []
    for number, history in enumerate(kind.histories(HISTORIES)):
        planted += plant_into(kind, history, random.Random(f"{kind.name}/{number}/plants"))
    return planted


@cache
def planted_in(kind: Kind) -> list[Planted]:
    """Plants into many histories, and judges all copies at once."""
    planted = unjudged_in(kind)
    ops = {row["index"]: row for one in planted for row in to_operations([*one.rest, *one.plain])}
    copies = [rows for one in planted for rows in (one.selected, one.edited)]
    packed = pack(copies, ops, [], separate_times=any(one.plant.separate_times for one in planted))
    found = find_violated(packed, kind.contract, Engines(), CLIENT_FAMILIES)
    none = frozenset[str]()
    return [
        Planted(
            one.plant, one.claim, one.rest, one.plain, one.before, one.selected, one.edited, one.edited_whole,
            found.get(2 * number, none), found.get(2 * number + 1, none),
        )
        for number, one in enumerate(planted)
    ]  # fmt: skip
