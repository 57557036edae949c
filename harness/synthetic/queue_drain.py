"""The end of a queue history: what is left is dequeued, queue by queue, until each is empty.

Written some thousand elements at a time, however many are left.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from assay.harness.core.history import HistoryWriter
from assay.harness.synthetic import rows
from assay.harness.synthetic.alone import Alone, blocks
from assay.harness.synthetic.segments import Ints
from assay.harness.synthetic.slots import DRAIN_PROCESS, Schedule
from assay.harness.synthetic.values import values_at

VERBS: Final = ("dequeue", "drained")


def write(writer: HistoryWriter, schedule: Schedule, first_op: int, names: pa.Array, heads: Ints, tails: Ints) -> None:
    """One dequeue for each element that is left, and one operation per queue that finds no more."""
    for turn in blocks(tails - heads + 1):
        ops = Alone.of(schedule, first_op + turn.number, DRAIN_PROCESS)
        place = heads[turn.key] + turn.rank
        ends = place == tails[turn.key]
        key = rows.Named(turn.key, names)
        taken, found = np.flatnonzero(~ends), np.flatnonzero(ends)
        every = np.ones(len(place), dtype=np.bool_)
        value = values_at(place)
        writer.batch("ops", rows.operations(ops, every, {
            "worker": "0", "f": rows.Named(ends.astype(np.int64), VERBS), "key": key, "argument": "null",
            "result": pa.array(rows.numbers(value), mask=ends),
        }, phase="drain"))  # fmt: skip
        batch = rows.effects(ops, [
            rows.Part("queue-dequeue", taken, key.at(taken), {"value": value[taken]}),
            rows.Part("queue-drained", found, key.at(found)),
        ], phase="drain")  # fmt: skip
        if batch is not None:
            writer.batch("effects", batch)
