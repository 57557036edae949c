"""What the nodes of a log say of themselves: who leads which partition, and who controls them all.

Leaders change with the epoch of the slots, and the controller with them. A node reports the first append that it
accepted in each epoch; the controller that it became one; and every node that it obeyed it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from assay.harness.synthetic import log_rows, rows
from assay.harness.synthetic.log_rows import NODES
from assay.harness.synthetic.segments import Flags, Ints
from assay.harness.synthetic.slots import EVENTS, Schedule, Slots
from assay.harness.synthetic.state import Latest

NEVER: Final = -1
APPENDED: Final = 0
CONTROLLED: Final = 1
OBEYED: Final = 2
WORDS: Final = ("first-append-in-epoch", "became-controller", "request-obeyed")


class NodeEvents:
    """SceneEvent logs of some logs, chunk by chunk."""

    def __init__(self, schedule: Schedule, names: pa.Array) -> None:
        self._schedule = schedule
        self._names = names
        self._epochs = Latest(len(names), NEVER)
        """In which each log was appended to last."""
        self._controlled = NEVER

    def of(self, slots: Slots, key: Ints, appended: Flags, base: Ints) -> pa.RecordBatch | None:
        """``appended``: operations that appended to ``key``, from offset ``base`` on."""
        last, _ = self._epochs.follow(key, appended, slots.epoch)
        first = np.flatnonzero(appended & (last < slots.epoch))
        former = np.concatenate([[self._controlled], slots.epoch[:-1]])
        self._controlled = int(slots.epoch[-1])
        elected = np.flatnonzero(slots.epoch > former)
        obeying, node = np.repeat(elected, len(NODES)), np.tile(np.arange(len(NODES)), len(elected))
        at = np.concatenate([first, elected, obeying])
        kind = np.repeat([APPENDED, CONTROLLED, OBEYED], [len(first), len(elected), len(obeying)])
        if not len(at):
            return None
        leads = log_rows.leader(key[first], slots.epoch[first]).codes
        nodes = np.concatenate([leads, slots.epoch[elected] % len(NODES), node])
        order = np.argsort(EVENTS * at + kind, kind="stable")
        at, kind, nodes = at[order], kind[order], nodes[order]
        mine, epoch = kind == APPENDED, slots.epoch[at]
        columns: rows.Columns = {
            "time": self._schedule.openings(slots.index[at]),
            "node": rows.Named(nodes, NODES),
            "incarnation": 1,
            "seq": EVENTS * slots.index[at] + kind,
            "event": rows.Named(kind, WORDS),
            "key": rows.Named(np.where(mine, key[at], -1), self._names),
            "epoch": rows.Known(epoch, mine),
            "controller_epoch": rows.Known(epoch, ~mine),
            "position": rows.Known(base[at], mine),
            "detail": "{}",
        }
        return rows.batch("events", columns, len(at))
