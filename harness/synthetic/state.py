"""What the synthetic objects remember from one chunk to the next: a few numbers for each key, however long the history.

Each takes the operations of one chunk in the order of their slots, with the key of each, and returns what each finds.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.synthetic import segments
from assay.harness.synthetic.segments import Flags, Ints


class Tally:
    """A number for each key that only grows: a log's end, a counter, a lease's token."""

    def __init__(self, size: int, start: int = 0) -> None:
        self.totals = np.full(size, start, dtype=np.int64)

    def follow(self, key: Ints, amount: Ints) -> Ints:
        """What each operation finds, before it adds its own ``amount``."""
        order, starts = segments.sorted_by(key)
        own = amount[order]
        after = self.totals[key[order]] + segments.running_sum(own, starts)
        ends = segments.ends(starts)
        self.totals[key[order][ends]] = after[ends]
        found = np.empty_like(after)
        found[order] = after - own
        return found


class Latest:
    """A register for each key, with its value and the one before that."""

    def __init__(self, size: int, initial: int = 0) -> None:
        self._values = np.full(size, initial, dtype=np.int64)
        self._former = np.full(size, initial, dtype=np.int64)

    def follow(self, key: Ints, done: Flags, value: Ints) -> tuple[Ints, Ints]:
        """The value that each operation finds, and the value before that one; those ``done`` then set theirs."""
        order, starts = segments.sorted_by(key)
        keys, writes, values = key[order], done[order], value[order]
        last = segments.last_before(writes, starts)
        now = np.where(last >= 0, values[last], self._values[keys])
        former = np.where(last >= 0, now[last], self._former[keys])
        ends = segments.ends(starts)
        self._former[keys[ends]] = np.where(writes[ends], now[ends], former[ends])
        self._values[keys[ends]] = np.where(writes[ends], values[ends], now[ends])
        current, before = np.empty_like(now), np.empty_like(former)
        current[order], before[order] = now, former
        return current, before


class Highest:
    """A number for each key, the highest that was set."""

    def __init__(self, size: int, initial: int = 0) -> None:
        self._values = np.full(size, initial, dtype=np.int64)

    def follow(self, key: Ints, done: Flags, value: Ints) -> Ints:
        """What each operation finds, before it sets its own ``value``, if it is ``done``."""
        order, starts = segments.sorted_by(key)
        start = self._values[key[order]]
        after = -segments.running_min(-np.where(done[order], np.maximum(value[order], start), start), starts)
        ends = segments.ends(starts)
        found = np.empty_like(after)
        found[order] = np.where(starts, start, np.concatenate([start[:1], after[:-1]]))
        self._values[key[order][ends]] = after[ends]
        return found


class Cursors:
    """A position for each reader, which reads on as far as there is something."""

    def __init__(self, size: int) -> None:
        self.positions = np.zeros(size, dtype=np.int64)

    def follow(self, reader: Ints, moving: Flags, step: Ints, there: Ints) -> tuple[Ints, Ints]:
        """Where each operation that is ``moving`` begins and ends: ``position = min(position + step, there)``.

        ``there``, the end of what can be read, never falls for one reader. Unrolled, with s the sum of what could have
        been read so far: position = s + min(start, min(there - s)).
        """
        index = np.flatnonzero(moving)
        order, starts = segments.sorted_by(reader[index])
        chosen = index[order]
        allowed = segments.running_sum(step[chosen], starts)
        start = self.positions[reader[chosen]]
        position = allowed + np.minimum(start, segments.running_min(there[chosen] - allowed, starts))
        before = np.where(starts, start, np.concatenate([[0], position[:-1]]) if len(position) else position)
        ends = segments.ends(starts)
        self.positions[reader[chosen][ends]] = position[ends]
        begin, end = np.zeros(len(reader), np.int64), np.zeros(len(reader), np.int64)
        begin[chosen], end[chosen] = before, position
        return begin, end


class Lives:
    """How much is counted in each key that is in use, where keys come one after the other.

    For where reads of a key that only grows would be too long. In the place of key k comes ``k-0``, then ``k-1``, ...,
    each for as many slots as its ``life`` is long (operations on one, on average) and there are keys.
    """

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
