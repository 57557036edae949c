"""Traffic of correct committed offsets. Each group commits in one partition, and key n has two groups:

- ``group-n`` rewinds. Its committed offset is a register, and a commit's value is its operation's index + 1.
- ``reader-n`` only reads on, so its offset never goes back.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.core.operation import Effect
from assay.harness.synthetic import rows
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneStep
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.register_scenes import LAST, CommittedOffset, build_register_scene
from assay.harness.synthetic.state import LatestValues, RunningTotal
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic
from assay.harness.synthetic.values import compute_offset_of

COMMIT, FETCH, ADVANCE, RESUME = range(4)
MOST_READ: Final = 5
"""Maximum distance between two consecutive commits of a reader."""
CLEAR: Final = MOST_READ + 2
"""Distance that a scene advances, so that even its lower offset exceeds every earlier commit.

Otherwise a late commit of unknown outcome could explain the lower offset.
"""
EMPTY: Final = 0
"""No commit yet, in the arrays. No commit has this value."""
REGRESSION: Final = "offset-regression"


class OffsetsTraffic(Traffic):
    model = "offsets"
    verbs = ("commit", "fetch", "advance", "resume")
    weights = (0.25, 0.3, 0.3, 0.15)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._groups = pa.array([f"group-{number}" for number in range(plan.keys)], pa.string())
        self._readers = pa.array([f"reader-{number}" for number in range(plan.keys)], pa.string())
        self._committed = pa.array([f"group-{number}/orders-{number}" for number in range(plan.keys)], pa.string())
        self._read = pa.array([f"reader-{number}/orders-{number}" for number in range(plan.keys)], pa.string())
        self._both = pa.concat_arrays([self._committed, self._read])
        self._commits = LatestValues(plan.keys, EMPTY)
        self._positions = RunningTotal(plan.keys)

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        number = at.number
        if anomaly != REGRESSION:
            return build_register_scene(anomaly, CommittedOffset(f"group-{number}/orders-{number}", f"group-{number}"))
        group, offset = f"reader-{number}", at.count + CLEAR
        key = f"{group}/orders-{number}"
        steps = (
            SceneStep("advance", 0, 1, (Effect("advance", key, position=offset, group=group),), argument=offset),
            SceneStep("resume", 2, 3, (Effect("resume", key, position=offset - 1, group=group),), result=offset - 1),
        )
        return Scene(key=key, steps=steps, position=offset, takes=CLEAR)

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, verb, key = block.slots, block.verb, block.key
        step = self.rng.integers(1, MOST_READ + 1, len(verb))
        value = np.where(block.opening, LAST, slots.index + 1)
        rewinding = block.opening & (block.takes == 0)
        current, _ = self._commits.follow(key, (block.landed & (verb == COMMIT)) | rewinding, value)
        forward = np.where(block.landed & (verb == ADVANCE), step, 0) + block.takes
        position = self._positions.follow(key, forward)
        keep, ok = block.keep, slots.ok
        commits, fetches = np.flatnonzero(keep & (verb == COMMIT)), np.flatnonzero(keep & (verb == FETCH) & ok)
        advances, resumes = np.flatnonzero(keep & (verb == ADVANCE)), np.flatnonzero(keep & (verb == RESUME) & ok)
        known = current[fetches] != EMPTY
        parts = [
            rows.Part("commit", commits, rows.DictionaryColumn(key[commits], self._committed), {
                "group": rows.DictionaryColumn(key[commits], self._groups),
                "value": value[commits],
                "position": compute_offset_of(value[commits]),
            }),
            rows.Part("fetched", fetches, rows.DictionaryColumn(key[fetches], self._committed), {
                "group": rows.DictionaryColumn(key[fetches], self._groups),
                "value": rows.MaskedColumn(current[fetches], known),
                "position": np.where(known, compute_offset_of(current[fetches]), -1),
            }),
            rows.Part("advance", advances, rows.DictionaryColumn(key[advances], self._read), {
                "group": rows.DictionaryColumn(key[advances], self._readers),
                "position": (position + step)[advances],
            }),
            rows.Part("resume", resumes, rows.DictionaryColumn(key[resumes], self._read), {
                "group": rows.DictionaryColumn(key[resumes], self._readers),
                "position": position[resumes],
            }),
        ]  # fmt: skip
        number = np.where(verb == COMMIT, value, position + step)[keep]
        seen = np.where(verb == FETCH, current, position)[keep]
        verbs, good = verb[keep], ok[keep]
        looked = ((verbs == RESUME) | ((verbs == FETCH) & (seen != EMPTY))) & good
        return ChunkEffects(
            verb=verb,
            key=rows.DictionaryColumn(np.where(verb >= ADVANCE, self.plan.keys, 0) + key, self._both),
            parts=parts,
            count=position,
            argument=rows.to_json_numbers(number, (verbs == COMMIT) | (verbs == ADVANCE)),
            result=pc.if_else(
                ((verbs == FETCH) | (verbs == RESUME)) & good, rows.to_json_numbers(seen, looked), rows.NONE
            ),
        )
