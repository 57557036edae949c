"""Traffic of correct id generators: the n-th id of each is a function of n, and all ids are distinct."""

import numpy as np
import pyarrow.compute as pc

from assay.harness.core.operation import Effect
from assay.harness.synthetic import rows
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneStep
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.state import Tally
from assay.harness.synthetic.traffic import Acts, Block, Traffic
from assay.harness.synthetic.values import values_at


class IdTraffic(Traffic):
    model = "unique-ids"
    verbs = ("generate",)
    weights = (1.0,)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._given = Tally(plan.keys)

    def stage(self, anomaly: str, at: Opening) -> Scene:
        """Returns a scene whose two operations get the same, next id."""
        value = values_at(at.count)
        effects = (Effect("id-generate", at.key, value=value),)
        steps = tuple(SceneStep("generate", begin, begin + 1, effects, result=value) for begin in (0, 2))
        return Scene(key=at.key, steps=steps, value=value, takes=1)

    def act(self, block: Block) -> Acts:
        slots, key = block.slots, rows.Named(block.key, self.names)
        count = self._given.follow(block.key, block.landed.astype(np.int64) + block.takes)
        value, keep = values_at(count), block.keep
        calls = np.flatnonzero(keep)
        own = {"value": rows.Known(value[calls], slots.ok[calls])}
        return Acts(
            verb=block.verb,
            key=key,
            parts=[rows.Part("id-generate", calls, key.at(calls), own)],
            count=count,
            result=pc.if_else(slots.ok[keep], rows.numbers(value[keep]), rows.NONE),
        )
