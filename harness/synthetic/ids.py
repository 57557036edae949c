"""Traffic of correct id generators: the n-th id of each is a function of n, and all ids are distinct."""

import numpy as np
import pyarrow.compute as pc

from assay.harness.core.operation import Effect
from assay.harness.synthetic import rows
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneStep
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.state import RunningTotal
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic
from assay.harness.synthetic.values import compute_values_at


class IdTraffic(Traffic):
    model = "unique-ids"
    verbs = ("generate",)
    weights = (1.0,)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._given = RunningTotal(plan.keys)

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        """Returns a scene whose two operations get the same, next id."""
        value = compute_values_at(at.count)
        effects = (Effect("id-generate", at.key, value=value),)
        steps = tuple(SceneStep("generate", begin, begin + 1, effects, result=value) for begin in (0, 2))
        return Scene(key=at.key, steps=steps, value=value, takes=1)

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, key = block.slots, rows.DictionaryColumn(block.key, self.names)
        count = self._given.follow(block.key, block.landed.astype(np.int64) + block.takes)
        value, keep = compute_values_at(count), block.keep
        calls = np.flatnonzero(keep)
        own = {"value": rows.MaskedColumn(value[calls], slots.ok[calls])}
        return ChunkEffects(
            verb=block.verb,
            key=key,
            parts=[rows.Part("id-generate", calls, key.at(calls), own)],
            count=count,
            result=pc.if_else(slots.ok[keep], rows.to_json_numbers(value[keep]), rows.NONE),
        )
