"""Traffic of correct max registers: a read returns the largest value written so far.

Many writes are below the maximum, and some values are written more than once. Values rise with the slots, by one
level for each ``plan.keys`` slots, so each key gets about one write per two levels. Ordinary values are multiples of
``STEP``, so that scenes have values in between.
"""

from typing import Final

import numpy as np
import pyarrow.compute as pc

from assay.harness.core.operation import Effect
from assay.harness.synthetic import rows
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneStep
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.segments import Number
from assay.harness.synthetic.state import RunningMaximum
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic

WRITE, READ = range(2)
STEP: Final = 4
SPREAD: Final = 8
"""Number of levels from which a write draws its value at any time."""
EMPTY: Final = -1
"""No value written yet, in the arrays."""


class MaxRegisterTraffic(Traffic):
    model = "max-register"
    verbs = ("write", "read")
    weights = (0.5, 0.5)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._largest = RunningMaximum(plan.keys, EMPTY)

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        """Returns a scene that leaves its second value, which is above all earlier ones."""
        first, second = self._own(at.slot) + 1, self._own(at.slot) + 2

        def step(f: str, value: int, begin: int) -> SceneStep:
            argument, result = (value, None) if f == "write" else (None, value)
            effect = Effect(f"max-{f}", at.key, value=value)
            return SceneStep(f, begin, begin + 1, (effect,), argument=argument, result=result)

        steps = {
            "max-phantom": (step("read", first, 0), step("write", second, 2)),
            "max-order": (step("write", first, 0), step("write", second, 2), step("read", first, 4)),
        }[anomaly]
        return Scene(key=at.key, steps=steps, value=first)

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, verb, key = block.slots, block.verb, rows.DictionaryColumn(block.key, self.names)
        drawn = STEP * (slots.index // self.plan.keys + self.rng.integers(0, SPREAD, len(verb)))
        value = np.where(block.opening, self._own(slots.index) + 2, drawn)
        current = self._largest.follow(block.key, (block.landed & (verb == WRITE)) | block.opening, value)
        keep, ok = block.keep, slots.ok
        writes, reads = np.flatnonzero(keep & (verb == WRITE)), np.flatnonzero(keep & (verb == READ) & ok)
        parts = [
            rows.Part("max-write", writes, key.at(writes), {"value": value[writes]}),
            rows.Part(
                "max-read", reads, key.at(reads), {"value": rows.MaskedColumn(current[reads], current[reads] != EMPTY)}
            ),
        ]
        looked = (ok & (verb == READ))[keep]
        return ChunkEffects(
            verb=verb,
            key=key,
            parts=parts,
            argument=rows.to_json_numbers(value[keep], (verb == WRITE)[keep]),
            result=pc.if_else(looked, rows.to_json_numbers(current[keep], (current != EMPTY)[keep]), rows.NONE),
        )

    def _own(self, slot: Number) -> Number:
        """Returns a value above all that were written before this slot."""
        return STEP * (slot // self.plan.keys + SPREAD)
