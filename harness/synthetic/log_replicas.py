"""What lies on the disks of three replicas after a run: the end of each of the first logs, and where one differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from assay.harness.core.history import HistoryWriter
from assay.harness.synthetic import rows
from assay.harness.synthetic.log_drain import LogDrain, Special
from assay.harness.synthetic.log_rows import NODES
from assay.harness.synthetic.segments import Ints

LOGS: Final = 1000
"""More are not looked at."""
TAIL: Final = 5
"""Records of each."""
DIFFERENT: Final = 1
"""Of three replicas, the one that diverges."""


def write(writer: HistoryWriter, names: pa.Array, drain: LogDrain, ends: Ints, specials: Sequence[Special]) -> None:
    """``ends``: where each log's sentinel is."""
    diverging = [special for special in specials if special.scene.diverges]
    key = np.repeat(np.arange(min(LOGS, len(ends))), TAIL)
    position = ends[key] - np.tile(np.arange(TAIL), len(key) // TAIL)
    apart = np.isin(key, [special.key for special in diverging])
    key, position = key[(position >= 0) & ~apart], position[(position >= 0) & ~apart]
    for special in diverging:
        key, position = np.append(key, special.key), np.append(position, special.base)
    order = np.argsort(key, kind="stable")
    key, position = key[order], position[order]
    value, there = drain.records(key, position)
    key, position, value = (np.repeat(array[there], len(NODES)) for array in (key, position, value))
    node = np.tile(np.arange(len(NODES)), len(key) // len(NODES))
    for special in diverging:
        value = np.where((key == special.key) & (node == DIFFERENT), value + 1, value)
    columns: rows.Columns = {
        "node": rows.Named(node, NODES),
        "key": rows.Named(key, names),
        "position": position,
        "value": value,
        "crc": value % 2**31,
        "below_hw": np.ones(len(key), np.bool_),
        "in_isr": np.ones(len(key), np.bool_),
    }
    writer.batch("replicas", rows.batch("replicas", columns, len(key)))
