"""Traffic of correct sets: elements are added, and reads return all of them.

Sets are replaced from time to time (``ReplacedKeys``). The n-th element of a set is a function of n.
"""

from typing import Final

import numpy as np

from assay.harness.core.operation import Effect
from assay.harness.synthetic import rows, segments
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneStep
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.state import ReplacedKeys
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic
from assay.harness.synthetic.values import SCENE_VALUES, UNLANDED, compute_values_at

ADD, READ = range(2)
OPERATIONS_PER_SET: Final = 50
"""Operations on one set, on average."""


class SetTraffic(Traffic):
    model = "set"
    verbs = ("add", "read")
    weights = (0.9, 0.1)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._lives = ReplacedKeys(self.names, OPERATIONS_PER_SET)

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        elements = [compute_values_at(place) for place in range(at.count + 1)]
        before, own = elements[:-1], elements[-1]

        def add(value: int) -> SceneStep:
            return SceneStep("add", 0, 1, (Effect("set-add", at.key, value=value),), argument=value)

        def read(values: list[int], begin: int) -> SceneStep:
            effects = tuple(Effect("set-read", at.key, value=value) for value in values or (None,))
            return SceneStep("read", begin, begin + 1, effects, result=values)

        lost = SCENE_VALUES
        steps, value, takes = {
            "set-lost": ((add(lost), read(before, 2)), lost, 0),
            "set-stale": ((add(own), read(before, 2), read(elements, 4)), own, 1),
            "set-vanished": ((add(lost), read([*before, lost], 2), read(before, 4)), lost, 0),
            "set-phantom": ((read(elements, 0),), own, 1),
        }[anomaly]
        return Scene(key=at.key, steps=steps, value=value, takes=takes)

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, verb = block.slots, block.verb
        place = self._lives.enter(slots.index) + block.key
        key = rows.DictionaryColumn(place, self._lives.names)
        landed = block.landed & (verb == ADD)
        count = self._lives.follow(place, landed.astype(np.int64) + block.takes)
        element = np.where(landed, compute_values_at(count), UNLANDED + slots.index)
        keep = block.keep
        adds, reads = np.flatnonzero(keep & (verb == ADD)), np.flatnonzero(keep & (verb == READ) & slots.ok)
        # An empty read has one row, without a value.
        shown, rank = segments.expand_ranks(reads, np.maximum(count[reads], 1))
        parts = [
            rows.Part("set-add", adds, key.at(adds), {"value": element[adds]}),
            rows.Part(
                "set-read",
                shown,
                key.at(shown),
                {"value": rows.MaskedColumn(compute_values_at(rank), count[shown] > 0)},
                sub=rank,
            ),
        ]
        return ChunkEffects(
            verb=verb,
            key=key,
            parts=parts,
            count=count,
            argument=rows.to_json_numbers(element[keep], verb[keep] == ADD),
            result=rows.to_json_prefixes(count[keep], (slots.ok & (verb == READ))[keep]),
        )
