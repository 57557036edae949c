"""Traffic of correct registers: reads, writes and CAS operations.

CAS operations form chains that start at the initial value or at a write. A write's value is its operation's index + 1.
A CAS expects the current value, or the previous one in order to fail. Half of the failed ones return the current value,
recorded as a read.
"""

from typing import Final

import numpy as np
import pyarrow.compute as pc

from assay.harness.synthetic import rows
from assay.harness.synthetic.anomaly_template import Opening, Scene
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.register_scenes import LAST, Register, build_register_scene
from assay.harness.synthetic.state import LatestValues
from assay.harness.synthetic.timeline import FAIL, OK
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic

READ, WRITE, CAS = range(3)
CAS_FAILS: Final = 0.3
CAS_SHOWS: Final = 0.5

EMPTY: Final = 0
"""The initial value, in the arrays. No write has it."""

NEVER: Final = 1 << 41
"""First of the values that are never written."""


class RegisterTraffic(Traffic):
    model = "register"
    verbs = ("read", "write", "cas")
    weights = (0.5, 0.25, 0.25)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._registers = LatestValues(plan.keys, EMPTY)

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        return build_register_scene(anomaly, Register(at.key))

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, verb, key = block.slots, block.verb, rows.DictionaryColumn(block.key, self.names)
        length = len(verb)
        fits = (verb != CAS) | (self.rng.random(length) >= CAS_FAILS)
        shows = self.rng.random(length) < CAS_SHOWS
        value = np.where(block.opening, LAST, slots.index + 1)
        # An info that took effect did so in its own slot. Any moment after its call would be legal.
        done = (block.landed & (verb != READ) & fits) | block.opening
        current, before = self._registers.follow(block.key, done, value)
        rejected = (slots.outcome == OK) & ~fits
        outcome = np.where(rejected, FAIL, slots.outcome).astype(np.int8)
        # A CAS that must fail expects the previous value, or one that is never written.
        expected = np.where(fits, current, np.where(before == current, NEVER + value, before))
        writes, swaps = np.flatnonzero(block.keep & (verb == WRITE)), np.flatnonzero(block.keep & (verb == CAS))
        reads, shown = np.flatnonzero(block.keep & (verb == READ)), np.flatnonzero(block.keep & rejected & shows)
        seen = rows.MaskedColumn(current[reads], (current[reads] != EMPTY) & slots.ok[reads])
        parts = [
            rows.Part("register-write", writes, key.at(writes), {"value": value[writes]}),
            rows.Part("register-cas", swaps, key.at(swaps), {
                "value": value[swaps], "expected": rows.MaskedColumn(expected[swaps], expected[swaps] != EMPTY),
            }),
            rows.Part("register-read", reads, key.at(reads), {"value": seen}),
            rows.Part("register-read", shown, key.at(shown), {
                "value": rows.MaskedColumn(current[shown], current[shown] != EMPTY),
            }, sub=1, outcome=np.zeros(len(shown), np.int8)),
        ]  # fmt: skip
        keep = block.keep
        new, old = rows.to_json_numbers(value[keep]), rows.to_json_numbers(expected[keep], expected[keep] != EMPTY)
        swap = pc.binary_join_element_wise("[", old, ",", new, "]", "")
        looked = (verb == READ) & (slots.outcome == OK)
        return ChunkEffects(
            verb=verb,
            key=key,
            parts=parts,
            outcome=outcome,
            failures=rows.Failures(np.where(rejected, 0, -1), ("mismatch",)),
            argument=pc.choose(verb[keep], "null", new, swap),
            result=pc.if_else(
                looked[keep] | (rejected & shows)[keep],
                rows.to_json_numbers(current[keep], current[keep] != EMPTY),
                rows.NONE,
            ),
        )
