"""Traffic of correct counters: reads, and fetch-and-add(1), which returns the count before the add."""

import numpy as np
import pyarrow.compute as pc

from assay.harness.core.operation import Effect
from assay.harness.synthetic import rows
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneStep
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.state import RunningTotal
from assay.harness.synthetic.timeline import INFO
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic

ADD, READ = range(2)


class CounterTraffic(Traffic):
    model = "counter"
    verbs = ("add", "read")
    weights = (0.6, 0.4)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._counts = RunningTotal(plan.keys)

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        def step(f: str, value: int, begin: int, end: int) -> SceneStep:
            return SceneStep(f, begin, end, (Effect(f"counter-{f}", at.key, value=value),), result=value)

        count = at.count
        steps, takes, value = {
            "counter-duplicate": ((step("add", count, 0, 2), step("add", count, 1, 3)), 1, count),
            # A read of ``count + 1`` belongs between the adds that returned ``count`` and ``count + 1``.
            "counter-order": (
                (step("add", count, 0, 1), step("add", count + 1, 2, 3), step("read", count + 1, 4, 5)), 2, count + 1,
            ),
            "counter-phantom": ((step("add", count + 1, 0, 1),), 2, count + 1),
        }[anomaly]  # fmt: skip
        return Scene(key=at.key, steps=steps, value=value, takes=takes)

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, key = block.slots, rows.DictionaryColumn(block.key, self.names)
        # An add of unknown outcome could explain the count that a scene leaves out, so a scene's key has no such add.
        verb = np.where(block.special & (slots.outcome == INFO), READ, block.verb)
        count = self._counts.follow(block.key, (block.landed & (verb == ADD)).astype(np.int64) + block.takes)
        keep, ok = block.keep, slots.ok
        adds, reads = np.flatnonzero(keep & (verb == ADD)), np.flatnonzero(keep & (verb == READ) & ok)
        parts = [
            rows.Part("counter-add", adds, key.at(adds), {"value": rows.MaskedColumn(count[adds], ok[adds])}),
            rows.Part("counter-read", reads, key.at(reads), {"value": count[reads]}),
        ]
        result = pc.if_else(ok[keep], rows.to_json_numbers(count[keep]), rows.NONE)
        return ChunkEffects(verb=verb, key=key, parts=parts, count=count, result=result)
