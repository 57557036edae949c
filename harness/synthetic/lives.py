"""Keys that are in use for a while, one after the other, where reads of one that only grows would be too long.

In the place of key k comes ``k-0``, then ``k-1``, ..., each for as many slots as its life is long and there are keys.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.synthetic.segments import Ints
from assay.harness.synthetic.state import Tally


class Lives:
    """How much is counted in each key that is in use. ``life``: operations on one, on average."""

    def __init__(self, names: pa.Array, life: int) -> None:
        self._places = names
        self._life = life * len(names)
        self._last = 0
        """The number of the last keys that were in use."""
        self._counts = Tally(len(names))
        self.names = names
        """Those in use in this chunk."""

    def enter(self, slot: Ints) -> Ints:
        """Goes on to a chunk. For each slot, the place in ``names`` at which its keys begin."""
        turn = slot // self._life
        first, last, size = int(turn[0]), int(turn[-1]), len(self._places)
        former = self._counts.totals[-size:]
        self._counts = Tally((last - first + 1) * size)
        if first == self._last:
            self._counts.totals[:size] = former
        self._last = last
        turns = pa.array([str(number) for number in range(first, last + 1)])
        each = pa.array(np.repeat(np.arange(len(turns)), size))
        self.names = pc.binary_join_element_wise(pa.concat_arrays([self._places] * len(turns)), turns.take(each), "-")
        return np.asarray((turn - first) * size)

    def follow(self, key: Ints, amount: Ints) -> Ints:
        """What is counted before each ``amount``; ``key``: places in ``names``. Once for each chunk."""
        return self._counts.follow(key, amount)
