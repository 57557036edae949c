"""The history of correct sets: elements are added, and reads return all of them.

Reads of a set that only grows would be as long as the history, so sets come one after the other: set ``set-k-n`` is the
n-th in the place of key k, for a fixed number of slots. The n-th element of a set is a function of n.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.app.synthetic import rows, segments
from harness.app.synthetic.plan import Plan
from harness.app.synthetic.scene import Opening, Scene, Step
from harness.app.synthetic.segments import Ints
from harness.app.synthetic.state import Tally
from harness.app.synthetic.traffic import Acts, Block, Traffic
from harness.app.synthetic.values import SCENE_VALUES, UNLANDED, value_at, values_at
from harness.core.operation import Effect

ADD: Final = 0
READ: Final = 1
LIFE: Final = 50
"""Operations on one set, on average."""


class SetTraffic(Traffic):
    model = "set"
    verbs = ("add", "read")
    weights = (0.9, 0.1)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._counts = Tally(plan.keys)
        self._life = plan.keys * LIFE
        self._turn = 0
        """The number of the last sets that were in use."""

    def stage(self, anomaly: str, at: Opening) -> Scene:
        elements = [value_at(place) for place in range(at.count + 1)]
        before, own = elements[:-1], elements[-1]

        def add(value: int) -> Step:
            return Step("add", 0, 1, (Effect("add", at.key, value=value),), argument=value)

        def read(values: list[int], begin: int) -> Step:
            effects = tuple(Effect("read", at.key, value=value) for value in values) or (Effect("read", at.key),)
            return Step("read", begin, begin + 1, effects, result=values)

        lost = SCENE_VALUES
        steps, value, takes = {
            "set-lost": ((add(lost), read(before, 2)), lost, 0),
            "set-stale": ((add(own), read(before, 2), read(elements, 4)), own, 1),
            "set-vanished": ((add(lost), read([*before, lost], 2), read(before, 4)), lost, 0),
            "set-phantom": ((read(elements, 0),), own, 1),
        }[anomaly]
        return Scene(key=at.key, steps=steps, value=value, takes=takes)

    def act(self, block: Block) -> Acts:
        slots, verb, keys = block.slots, block.verb, self.plan.keys
        turn = slots.index // self._life
        first, last = int(turn[0]), int(turn[-1])
        names = self._names(first, last)
        key = rows.Named((turn - first) * keys + block.key, names)
        landed = block.landed & (verb == ADD)
        count = self._follow(turn, key.codes, landed.astype(np.int64) + block.takes)
        element = np.where(landed, values_at(count), UNLANDED + slots.index)
        keep = block.keep
        adds, reads = np.flatnonzero(keep & (verb == ADD)), np.flatnonzero(keep & (verb == READ) & slots.ok)
        # An empty read has one row, without a value.
        shown, rank = segments.ranks(reads, np.maximum(count[reads], 1))
        parts = [
            rows.Part("add", adds, key.at(adds), {"value": element[adds]}),
            rows.Part("read", shown, key.at(shown), {"value": rows.Known(values_at(rank), count[shown] > 0)}, sub=rank),
        ]
        return Acts(
            verb=verb,
            key=key,
            parts=parts,
            count=count,
            argument=rows.numbers(element[keep], verb[keep] == ADD),
            result=_lists(count[keep], (slots.ok & (verb == READ))[keep]),
        )

    def _follow(self, turn: Ints, key: Ints, amount: Ints) -> Ints:
        """The sets in use at the end of a chunk go on in the next one."""
        first, last, keys = int(turn[0]), int(turn[-1]), self.plan.keys
        counts = Tally((last - first + 1) * keys)
        if first == self._turn:
            counts.totals[:keys] = self._counts.totals
        found = counts.follow(key, amount)
        self._counts.totals[:] = counts.totals[-keys:]
        self._turn = last
        return found

    def _names(self, first: int, last: int) -> pa.Array:
        turns = [str(turn) for turn in range(first, last + 1)]
        each = pa.array(np.repeat(np.arange(len(turns)), self.plan.keys))
        names = pa.concat_arrays([self.names] * len(turns))
        return pc.binary_join_element_wise(names, pa.array(turns).take(each), "-")


def _lists(count: Ints, reads: np.ndarray) -> pa.Array:
    """JSON of what each of ``reads`` returned: a list of so many elements; null for the other operations."""
    most = int(count[reads].max(initial=0))
    elements = rows.numbers(values_at(np.arange(most)))
    lengths = np.where(reads, count, 0)
    _, rank = segments.ranks(np.arange(len(count)), lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), elements.take(pa.array(rank))), ",")
    return pc.if_else(reads, pc.binary_join_element_wise("[", joined, "]", ""), rows.NONE)
