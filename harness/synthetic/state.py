"""State that synthetic objects keep between chunks: a few numbers per key, however long the history.

Each ``follow`` takes the operations of a chunk in slot order, with their keys, and returns the state that each finds.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.synthetic import segments
from assay.harness.synthetic.segments import Flags, Ints


class RunningTotal:
    """Running total per key: a log's end, a counter, a lease's token."""

    def __init__(self, size: int, start: int = 0) -> None:
        self.totals = np.full(size, start, dtype=np.int64)

    def follow(self, key: Ints, amount: Ints) -> Ints:
        """Returns the total that each operation finds before it adds its ``amount``."""
        order, starts = segments.sort_by(key)
        own = amount[order]
        after = self.totals[key[order]] + segments.compute_running_sum(own, starts)
        ends = segments.find_ends(starts)
        self.totals[key[order][ends]] = after[ends]
        found = np.empty_like(after)
        found[order] = after - own
        return found


class LatestValues:
    """Register per key, with its current and its previous value."""

    def __init__(self, size: int, initial: int = 0) -> None:
        self._values = np.full(size, initial, dtype=np.int64)
        self._former = np.full(size, initial, dtype=np.int64)

    def follow(self, key: Ints, done: Flags, value: Ints) -> tuple[Ints, Ints]:
        """Returns the current and previous value that each operation finds. ``done``: it then sets ``value``."""
        order, starts = segments.sort_by(key)
        keys, writes, values = key[order], done[order], value[order]
        last = segments.find_last_before(writes, starts)
        now = np.where(last >= 0, values[last], self._values[keys])
        former = np.where(last >= 0, now[last], self._former[keys])
        ends = segments.find_ends(starts)
        self._former[keys[ends]] = np.where(writes[ends], now[ends], former[ends])
        self._values[keys[ends]] = np.where(writes[ends], values[ends], now[ends])
        current, before = np.empty_like(now), np.empty_like(former)
        current[order], before[order] = now, former
        return current, before


class RunningMaximum:
    """Largest value written per key."""

    def __init__(self, size: int, initial: int = 0) -> None:
        self._values = np.full(size, initial, dtype=np.int64)

    def follow(self, key: Ints, done: Flags, value: Ints) -> Ints:
        """Returns the value that each operation finds. ``done``: it then writes ``value``."""
        order, starts = segments.sort_by(key)
        start = self._values[key[order]]
        after = -segments.compute_running_min(-np.where(done[order], np.maximum(value[order], start), start), starts)
        ends = segments.find_ends(starts)
        found = np.empty_like(after)
        found[order] = np.where(starts, start, np.concatenate([start[:1], after[:-1]]))
        self._values[key[order][ends]] = after[ends]
        return found


class Cursors:
    """Position per reader. Each read continues there and stops at the end of the log."""

    def __init__(self, size: int) -> None:
        self.positions = np.zeros(size, dtype=np.int64)

    def follow(self, reader: Ints, moving: Flags, step: Ints, there: Ints) -> tuple[Ints, Ints]:
        """Returns the begin and end of each ``moving`` operation: ``position = min(position + step, there)``.

        ``there`` is the end of the readable records, and must not fall for a reader. Unrolled, with s the sum of the
        steps so far: position = s + min(start, min(there - s)).
        """
        index = np.flatnonzero(moving)
        order, starts = segments.sort_by(reader[index])
        chosen = index[order]
        allowed = segments.compute_running_sum(step[chosen], starts)
        start = self.positions[reader[chosen]]
        position = allowed + np.minimum(start, segments.compute_running_min(there[chosen] - allowed, starts))
        before = np.where(starts, start, np.concatenate([[0], position[:-1]]) if len(position) else position)
        ends = segments.find_ends(starts)
        self.positions[reader[chosen][ends]] = position[ends]
        begin, end = np.zeros(len(reader), np.int64), np.zeros(len(reader), np.int64)
        begin[chosen], end[chosen] = before, position
        return begin, end


class ReplacedKeys:
    """Running total per key, with keys that are replaced so that reads stay short.

    Key k is ``k-0`` at first, then ``k-1``, and so on. Each is in use for ``life * len(names)`` slots, so it gets
    ``life`` operations on average.
    """

    def __init__(self, names: pa.Array, life: int) -> None:
        self._places = names
        self._life = life * len(names)
        self._last = 0
        """Number of the last replacement, common to all keys."""
        self._counts = RunningTotal(len(names))
        self.names = names
        """Keys in use in this chunk."""

    def enter(self, slot: Ints) -> Ints:
        """Moves to a chunk, and returns for each slot where its keys begin in ``names``."""
        turn = slot // self._life
        first, last, size = int(turn[0]), int(turn[-1]), len(self._places)
        former = self._counts.totals[-size:]
        self._counts = RunningTotal((last - first + 1) * size)
        if first == self._last:
            self._counts.totals[:size] = former
        self._last = last
        turns = pa.array([str(number) for number in range(first, last + 1)])
        each = pa.array(np.repeat(np.arange(len(turns)), size))
        self.names = pc.binary_join_element_wise(pa.concat_arrays([self._places] * len(turns)), turns.take(each), "-")
        return np.asarray((turn - first) * size)

    def follow(self, key: Ints, amount: Ints) -> Ints:
        """Returns the total before each ``amount``. ``key``: places in ``names``. Call it once per chunk."""
        return self._counts.follow(key, amount)
