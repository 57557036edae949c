"""Traffic of correct FIFO queues: enqueue and dequeue. At the end the remaining elements are dequeued.

The n-th element of a queue is a function of n. A dequeue from an empty queue fails. Half of the dequeues of unknown
outcome took an element.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Effect
from assay.harness.synthetic import rows
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneStep
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.state import Cursors, RunningTotal
from assay.harness.synthetic.timeline import DRAIN_PROCESS, FAIL, INFO, OK, iterate_operations_by_key
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic
from assay.harness.synthetic.values import SCENE_VALUES, UNLANDED, compute_values_at

ENQUEUE, DEQUEUE = range(2)
EMPTY: Final = "empty"


class QueueTraffic(Traffic):
    model = "queue"
    verbs = ("enqueue", "dequeue")
    weights = (0.48, 0.52)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._tails = RunningTotal(plan.keys)
        self._heads = Cursors(plan.keys)

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        """Returns a scene whose element never enters the queue, so that the queue's content does not change."""
        value = SCENE_VALUES

        def enqueue(begin: int) -> SceneStep:
            return SceneStep(
                "enqueue", begin, begin + 1, (Effect("queue-enqueue", at.key, value=value),), argument=value
            )

        def dequeue(begin: int) -> SceneStep:
            return SceneStep("dequeue", begin, begin + 1, (Effect("queue-dequeue", at.key, value=value),), result=value)

        steps = {
            "queue-lost": (enqueue(0),),
            "queue-duplicate": (enqueue(0), dequeue(2), dequeue(4)),
            "queue-phantom": (dequeue(0),),
        }[anomaly]
        return Scene(key=at.key, steps=steps, value=value)

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, key = block.slots, rows.DictionaryColumn(block.key, self.names)
        # A dequeue of unknown outcome could have taken the lost element, so a scene's key has no such dequeue.
        verb = np.where(block.special & (slots.outcome == INFO), ENQUEUE, block.verb)
        landed = block.landed & (verb == ENQUEUE)
        place = self._tails.follow(block.key, landed.astype(np.int64))
        moving = block.landed & (verb == DEQUEUE)
        begin, end = self._heads.follow(block.key, moving, np.ones_like(place), place)
        empty = (verb == DEQUEUE) & (slots.outcome == OK) & (begin == end)
        outcome = np.where(empty, FAIL, slots.outcome).astype(np.int8)
        element = np.where(landed, compute_values_at(place), UNLANDED + slots.index)
        keep, taken = block.keep, compute_values_at(begin)
        ins, outs = np.flatnonzero(keep & (verb == ENQUEUE)), np.flatnonzero(keep & (verb == DEQUEUE))
        parts = [
            rows.Part("queue-enqueue", ins, key.at(ins), {"value": element[ins]}),
            rows.Part(
                "queue-dequeue", outs, key.at(outs), {"value": rows.MaskedColumn(taken[outs], outcome[outs] == OK)}
            ),
        ]
        got = (verb == DEQUEUE) & (outcome == OK)
        return ChunkEffects(
            verb=verb,
            key=key,
            parts=parts,
            outcome=outcome,
            failures=rows.Failures(np.where(empty, 0, -1), (EMPTY,)),
            argument=rows.to_json_numbers(element[keep], verb[keep] == ENQUEUE),
            result=pc.if_else(got[keep], rows.to_json_numbers(taken[keep]), rows.NONE),
        )

    def finish(self, writer: HistoryWriter) -> None:
        """Dequeues each remaining element, and records per queue that no more are left."""
        heads, tails = self._heads.positions, self._tails.totals
        for turn in iterate_operations_by_key(tails - heads + 1):
            ops = self.schedule.alone(self.plan.operations + turn.number, DRAIN_PROCESS)
            place = heads[turn.key] + turn.rank
            ends = place == tails[turn.key]
            key, value = rows.DictionaryColumn(turn.key, self.names), compute_values_at(place)
            taken, found = np.flatnonzero(~ends), np.flatnonzero(ends)
            writer.batch("ops", rows.build_operations(ops, np.ones_like(ends), {
                "worker": "0", "f": rows.DictionaryColumn(ends.astype(np.int64), ("dequeue", "drained")), "key": key,
                "argument": "null", "result": pa.array(rows.to_json_numbers(value), mask=ends),
            }, phase="drain"))  # fmt: skip
            rows.write_effects(writer, ops, [
                rows.Part("queue-dequeue", taken, key.at(taken), {"value": value[taken]}),
                rows.Part("queue-drained", found, key.at(found)),
            ], phase="drain")  # fmt: skip
