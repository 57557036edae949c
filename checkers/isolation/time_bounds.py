"""Bounds for the moment at which each event takes effect, if the order respects real time, and what follows from them.

A transaction takes effect between its call and its return. These bounds are tightened along edges: a target is not
before its source's earliest moment, and a source is not after its target's latest moment. A version of a key must be
there until the earliest moment of its last reader. If another version was certainly written before that moment, it is
the earlier one of the two. Such edges tighten more bounds. Each round takes linear time, as a bound is one number.

The edges are sound for levels with real time. For others they are a guess that most stores fulfil.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from assay.checkers.isolation.transactions import INITIAL, NEVER, TransactionHistory

_ROUNDS: Final = 4
_NEAREST: Final = 4
"""Number of earlier versions that get an edge to a version. They have edges from still earlier ones."""


def guess_edges(history: TransactionHistory, *, snapshot: bool) -> tuple[list[tuple[int, int]], list[int]] | None:
    """Returns pairs of events, and the latest moment of each event. None: the reads contradict real time.

    Events are numbered as in ``certificate``.
    """
    return _Bounds(history, snapshot).tighten()


class _Bounds:
    def __init__(self, history: TransactionHistory, snapshot: bool) -> None:
        self._history = history
        self._snapshot = snapshot
        count = len(history)
        self._low: list[int] = []
        self._high: list[int] = []
        for call, ret in zip(history.calls, history.returns, strict=True):
            self._low += (call, call) if snapshot else (call,)
            self._high += (ret, ret) if snapshot else (ret,)
        self._targets: list[list[int]] = [[] for _ in self._low]
        if snapshot:
            for number in range(count):
                self._targets[2 * number].append(2 * number + 1)
        self._readers: dict[int, dict[int, list[int]]] = {}
        for number, reads in enumerate(history.reads):
            for key, writer in {(read.key, read.writer) for read in reads}:
                self._readers.setdefault(key, {}).setdefault(writer, []).append(number)
                if writer != INITIAL:
                    self._targets[self._commit(writer)].append(self._start(number))
        self._writers: dict[int, list[int]] = {}
        for number, writes in enumerate(history.writes):
            for key in writes:
                self._writers.setdefault(key, []).append(number)

    def tighten(self) -> tuple[list[tuple[int, int]], list[int]] | None:
        found: set[tuple[int, int]] = set()
        for _ in range(_ROUNDS):
            if not self._propagate():
                return None
            more = [pair for key in self._writers for pair in self._order_versions(key) if pair not in found]
            if not more:
                break
            found.update(more)
            for source, target in more:
                self._targets[source].append(target)
        return list(found), self._high

    def _start(self, number: int) -> int:
        return 2 * number if self._snapshot else number

    def _commit(self, number: int) -> int:
        return 2 * number + 1 if self._snapshot else number

    def _propagate(self) -> bool:
        """Tightens the bounds along all edges. Returns False if there is a cycle, or no moment is left."""
        low, high, targets = self._low, self._high, self._targets
        waiting = [0] * len(low)
        for following in targets:
            for target in following:
                waiting[target] += 1
        order = [event for event, number in enumerate(waiting) if not number]
        for event in order:
            bound = low[event]
            for target in targets[event]:
                if low[target] < bound:
                    low[target] = bound
                waiting[target] -= 1
                if not waiting[target]:
                    order.append(target)
        if len(order) < len(low):
            return False
        for event in reversed(order):
            bound = high[event]
            for target in targets[event]:
                if high[target] < bound:
                    bound = high[target]
            if bound < low[event]:
                return False
            high[event] = bound
        return True

    def _order_versions(self, key: int) -> list[tuple[int, int]]:
        """Returns pairs for versions of one key: an earlier writer, and readers of its version, before a later one."""
        writers = self._writers[key]
        if len(writers) < 2:
            return []
        readers = self._readers.get(key, {})
        low, high, commit, start = self._low, self._high, self._commit, self._start
        latest = sorted((high[commit(writer)], writer) for writer in writers)
        pairs = []
        for writer in writers:
            needed = max(low[commit(writer)], max((low[start(one)] for one in readers.get(writer, ())), default=-NEVER))
            place = bisect_left(latest, (needed, -1))
            for _, former in latest[max(0, place - _NEAREST) : place]:
                if former != writer:
                    target = commit(writer)
                    pairs.append((commit(former), start(writer) if self._snapshot else target))
                    pairs += [(start(one), target) for one in readers.get(former, ()) if one != writer]
        return pairs
