"""What the synthetic objects remember from one chunk to the next: a few numbers for each key, however long the history.

Each takes the operations of one chunk in the order of their slots, with the key of each, and returns what each finds.
"""

from __future__ import annotations

import numpy as np

from assay.harness.synthetic import segments
from assay.harness.synthetic.segments import Flags, Ints


class Tally:
    """A number for each key that only grows: a log's end, a counter, a lease's token."""

    def __init__(self, size: int, start: int = 0) -> None:
        self._totals = np.full(size, start, dtype=np.int64)

    @property
    def totals(self) -> Ints:
        return self._totals

    def follow(self, key: Ints, amount: Ints) -> Ints:
        """What each operation finds, before it adds its own ``amount``."""
        order, starts = segments.sorted_by(key)
        own = amount[order]
        after = self._totals[key[order]] + segments.running_sum(own, starts)
        ends = segments.ends(starts)
        self._totals[key[order][ends]] = after[ends]
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
        self._positions = np.zeros(size, dtype=np.int64)

    @property
    def positions(self) -> Ints:
        return self._positions

    def follow(self, reader: Ints, moving: Flags, step: Ints, there: Ints) -> tuple[Ints, Ints]:
        """Where each operation that is ``moving`` begins and ends: ``position = min(position + step, there)``.

        ``there``, the end of what can be read, never falls for one reader. Unrolled, with s the sum of what could have
        been read so far: position = s + min(start, min(there - s)).
        """
        index = np.flatnonzero(moving)
        order, starts = segments.sorted_by(reader[index])
        chosen = index[order]
        allowed = segments.running_sum(step[chosen], starts)
        start = self._positions[reader[chosen]]
        position = allowed + np.minimum(start, segments.running_min(there[chosen] - allowed, starts))
        before = np.where(starts, start, np.concatenate([[0], position[:-1]]) if len(position) else position)
        ends = segments.ends(starts)
        self._positions[reader[chosen][ends]] = position[ends]
        begin, end = np.zeros(len(reader), np.int64), np.zeros(len(reader), np.int64)
        begin[chosen], end[chosen] = before, position
        return begin, end
