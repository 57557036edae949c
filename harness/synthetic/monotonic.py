"""Traffic of correct pairs of counters: adds to one counter, which return its new value, and reads of both.

Adds go to the counters x and y in turn, so both are functions of the number of adds.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.core.operation import Effect
from assay.harness.synthetic import rows
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneStep
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.segments import Number
from assay.harness.synthetic.state import RunningTotal
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic

ADD, READ = range(2)


def _compute_x(count: Number) -> Number:
    """Returns x after so many adds. The first add goes to x."""
    return (count + 1) // 2


def _compute_y(count: Number) -> Number:
    return count // 2


class MonotonicTraffic(Traffic):
    model = "monotonic"
    verbs = ("add", "read")
    weights = (0.5, 0.5)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._done = RunningTotal(plan.keys)
        self._both = pa.array([f"{name}-{which}" for name in self.names.to_pylist() for which in "xy"], pa.string())

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        """Returns a scene that adds 1 to both counters."""
        x, y = _compute_x(at.count), _compute_y(at.count)

        def add(which: str, value: int, begin: int, end: int, process: int) -> SceneStep:
            effect = Effect("monotonic-add", f"{at.key}-{which}", value=value)
            return SceneStep("add", begin, end, (effect,), process, argument=which, result=value)

        def read(x: int, y: int, begin: int, process: int) -> SceneStep:
            seen = {"x": x, "y": y}
            effects = tuple(Effect("monotonic-read", f"{at.key}-{which}", value=value) for which, value in seen.items())
            return SceneStep("read", begin, begin + 1, effects, process, result=seen)

        steps, which, value = {
            "nonmonotonic-read": (
                (add("x", x + 1, 0, 1, 0), add("y", y + 1, 2, 3, 1), read(x, y + 1, 4, 0)), "x", x + 1,
            ),
            "monotonic-cycle": (
                (add("x", x + 1, 0, 6, 0), add("y", y + 1, 1, 7, 1), read(x + 1, y, 2, 2), read(x, y + 1, 4, 3)),
                "y", y + 1,
            ),
        }[anomaly]  # fmt: skip
        return Scene(key=f"{at.key}-{which}", about=at.key, steps=steps, value=value, takes=2)

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, verb, keep = block.slots, block.verb, block.keep
        key = rows.DictionaryColumn(block.key, self.names)
        count = self._done.follow(block.key, (block.landed & (verb == ADD)).astype(np.int64) + block.takes)
        turn, made = count % 2, np.where(count % 2 == 0, _compute_x(count) + 1, _compute_y(count) + 1)
        adds = np.flatnonzero(keep & (verb == ADD))
        reads = np.flatnonzero(keep & (verb == READ) & slots.ok)
        parts = [
            rows.Part(
                "monotonic-add", adds, rows.DictionaryColumn(2 * block.key[adds] + turn[adds], self._both),
                {"value": rows.MaskedColumn(made[adds], slots.ok[adds])},
            ),
            *(
                rows.Part(
                    "monotonic-read", reads, rows.DictionaryColumn(2 * block.key[reads] + place, self._both),
                    {"value": seen(count[reads])}, sub=place,
                )
                for place, seen in enumerate((_compute_x, _compute_y))
            ),
        ]  # fmt: skip
        doing, ok = verb[keep], slots.ok[keep]
        both = pc.binary_join_element_wise(
            '{"x":',
            rows.to_json_numbers(_compute_x(count)[keep]),
            ',"y":',
            rows.to_json_numbers(_compute_y(count)[keep]),
            "}",
            "",
        )
        got = pc.if_else(doing == ADD, rows.to_json_numbers(made[keep]), both)
        return ChunkEffects(
            verb=verb,
            key=key,
            parts=parts,
            count=count,
            argument=pc.if_else(doing == ADD, pa.array(['"x"', '"y"']).take(pa.array(turn[keep])), "null"),
            result=pc.if_else(ok, got, rows.NONE),
        )
