"""Makes the effects of sends, polls and reads of the log end. Arrays have an entry for every operation."""

from typing import Final

import numpy as np
import pyarrow as pa

from assay.harness.synthetic import rows, segments
from assay.harness.synthetic.segments import Flags, Ints
from assay.harness.synthetic.timeline import Slots
from assay.harness.synthetic.values import UNLANDED, values_at

MOST_SENT: Final = 3
"""Maximum number of values of a send."""
MOST_POLLED: Final = 10
"""Maximum number of records of a poll."""
NODES: Final = ("n1", "n2", "n3")


def leader(key: Ints, epoch: Ints) -> rows.Named:
    """Returns the leader of each log, given by number, in an epoch."""
    return rows.Named((key + epoch) % len(NODES), NODES)


def sends(slots: Slots, at: Ints, key: Ints, names: pa.Array, count: Ints, landed: Flags, base: Ints) -> rows.Part:
    """Returns the effects of the sends ``at``. Each appends ``count`` values from ``base`` on, if it ``landed``."""
    sent, rank = segments.ranks(at, count[at])
    offset = base[sent] + rank
    return rows.Part("append", sent, rows.Named(key[sent], names), {
        "request": slots.index[sent],
        "position": rows.Known(offset, slots.ok[sent]),
        "value": np.where(landed[sent], values_at(offset), UNLANDED + slots.index[sent] * 4 + rank),
        "leader_epoch": slots.epoch[sent],
        "node": leader(key[sent], slots.epoch[sent]),
    }, sub=rank)  # fmt: skip


def polls(
    slots: Slots, at: Ints, key: Ints, names: pa.Array, begin: Ints, end: Ints, own: dict[str, rows.Column]
) -> list[rows.Part]:
    """Returns the effects of the polls ``at`` from ``begin`` to ``end``. ``own``: further columns."""
    good = at[slots.ok[at]]
    shown, place = segments.ranks(good, (end - begin)[good])
    offset = begin[shown] + place

    def part(kind: str, at: Ints, columns: rows.Columns, sub: Ints | int) -> rows.Part:
        more = {name: rows.taken(column, at) for name, column in own.items()}
        return rows.Part(kind, at, rows.Named(key[at], names), {**columns, **more}, sub=sub)

    return [
        part("observe-begin", at, {"position": begin[at]}, 0),
        part("observe", shown, {"position": offset, "value": values_at(offset)}, 1 + place),
        part("observe-end", good, {"position": end[good]}, 1 + (end - begin)[good]),
    ]


def looks(slots: Slots, at: Ints, key: Ints, names: pa.Array, ends: Ints) -> rows.Part:
    """Returns the effects of the operations ``at``, which read the end of a log."""
    known = slots.ok[at]
    return rows.Part("end", at, rows.Named(key[at], names), {
        "position": rows.Known(ends[at], known), "leader_epoch": rows.Known(slots.epoch[at], known),
    })  # fmt: skip
