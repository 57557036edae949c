"""Makes the effects of sends, polls and reads of the log end. Arrays have an entry for every operation."""

from typing import Final

import numpy as np
import pyarrow as pa

from assay.harness.synthetic import rows, segments
from assay.harness.synthetic.segments import Flags, Ints
from assay.harness.synthetic.timeline import OperationArrays
from assay.harness.synthetic.values import UNLANDED, compute_values_at

MOST_SENT: Final = 3
"""Maximum number of values of a send."""
MOST_POLLED: Final = 10
"""Maximum number of records of a poll."""
NODES: Final = ("n1", "n2", "n3")


def find_leader(key: Ints, epoch: Ints) -> rows.DictionaryColumn:
    """Returns the leader of each log, given by number, in an epoch."""
    return rows.DictionaryColumn((key + epoch) % len(NODES), NODES)


def build_send_effects(
    slots: OperationArrays, at: Ints, key: Ints, names: pa.Array, count: Ints, landed: Flags, base: Ints
) -> rows.Part:
    """Returns the effects of the sends ``at``. Each appends ``count`` values from ``base`` on, if it ``landed``."""
    sent, rank = segments.expand_ranks(at, count[at])
    offset = base[sent] + rank
    return rows.Part("append", sent, rows.DictionaryColumn(key[sent], names), {
        "request": slots.index[sent],
        "position": rows.MaskedColumn(offset, slots.ok[sent]),
        "value": np.where(landed[sent], compute_values_at(offset), UNLANDED + slots.index[sent] * 4 + rank),
        "leader_epoch": slots.epoch[sent],
        "node": find_leader(key[sent], slots.epoch[sent]),
    }, sub=rank)  # fmt: skip


def build_poll_effects(
    slots: OperationArrays, at: Ints, key: Ints, names: pa.Array, begin: Ints, end: Ints, own: dict[str, rows.Column]
) -> list[rows.Part]:
    """Returns the effects of the polls ``at`` from ``begin`` to ``end``. ``own``: further columns."""
    good = at[slots.ok[at]]
    shown, place = segments.expand_ranks(good, (end - begin)[good])
    offset = begin[shown] + place

    def part(kind: str, at: Ints, columns: rows.Columns, sub: Ints | int) -> rows.Part:
        more = {name: rows.take_rows(column, at) for name, column in own.items()}
        return rows.Part(kind, at, rows.DictionaryColumn(key[at], names), {**columns, **more}, sub=sub)

    return [
        part("observe-begin", at, {"position": begin[at]}, 0),
        part("observe", shown, {"position": offset, "value": compute_values_at(offset)}, 1 + place),
        part("observe-end", good, {"position": end[good]}, 1 + (end - begin)[good]),
    ]


def build_end_effects(slots: OperationArrays, at: Ints, key: Ints, names: pa.Array, ends: Ints) -> rows.Part:
    """Returns the effects of the operations ``at``, which read the end of a log."""
    known = slots.ok[at]
    return rows.Part("end", at, rows.DictionaryColumn(key[at], names), {
        "position": rows.MaskedColumn(ends[at], known), "leader_epoch": rows.MaskedColumn(slots.epoch[at], known),
    })  # fmt: skip
