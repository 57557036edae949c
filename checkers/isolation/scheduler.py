"""Finds a legal order quickly if there is one that is close to the order of times. A heuristic: it never refutes.

The scheduler plays the transactions on a store, the earliest return first. For snapshot isolation a transaction has two
events, its start and its commit. An event waits until

1. the store has the versions that the transaction read (a start),
2. no other transaction that writes the same keys is active (a start, snapshot isolation),
3. all readers of the versions that it overwrites have started (a commit),
4. all events that must precede it are done.

If all remaining events wait, some of them wait in a circle. Waits of kinds 2 and 3 come from an earlier step that could
have been later. The scheduler takes back the latest such step, lets it wait for the other event, and continues.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Sequence
from typing import Final

from assay.checkers.isolation.levels import Level, Rule
from assay.checkers.isolation.transactions import INITIAL, NEVER, TransactionHistory

_VERSION, _ACTIVE, _READERS, _BEFORE = range(4)
Wait = tuple[int, int, int]
"""Kind of the wait, key (or 0), and the transaction or the event that it waits for."""
_TIME_STEP: Final = 1000
"""Number of events between two looks at the clock."""


def schedule(
    history: TransactionHistory, level: Level, deadline: float, more: Iterable[tuple[int, int]] = ()
) -> list[int] | None:
    """Returns a legal order of all events, or None if none was found.

    Event ``t`` is transaction ``t``; for snapshot isolation ``2 t`` is its start and ``2 t + 1`` its commit. ``more``:
    further pairs of events that must be in this order.
    """
    return _Scheduler(history, level, more).run(deadline)


class _Scheduler:
    def __init__(self, history: TransactionHistory, level: Level, more: Iterable[tuple[int, int]]) -> None:
        self._snapshot = level.rule is Rule.SNAPSHOT_ISOLATION
        count = len(history)
        events = 2 * count if self._snapshot else count
        self._reads = [list(dict.fromkeys((read.key, read.writer) for read in reads)) for reads in history.reads]
        self._writes = [list(written) for written in history.writes]
        self._readers: dict[tuple[int, int], list[int]] = {}
        for number, reads in enumerate(self._reads):
            for access in reads:
                self._readers.setdefault(access, []).append(number)
        self._pending = {access: len(readers) for access, readers in self._readers.items()}
        self._current: dict[int, int] = {}
        self._active: dict[int, int] = {}
        self._done = bytearray(events)
        self._sources: list[list[int]] = [[] for _ in range(events)]
        self._targets: list[list[int]] = [[] for _ in range(events)]
        self._missing = [0] * events
        self._learned: set[tuple[int, int]] = set()
        self._times = _list_times(history, self._snapshot)
        for first, second in (
            *history.list_order(level.order),
            *((one, other) for one, other, _ in history.list_known_versions()),
        ):
            self._require(self._commit(first), self._start(second))
        for first, second in more:
            self._require(first, second)
        self._order: list[int] = []
        self._undo: list[list[tuple[int, int]]] = []
        self._places: dict[int, int] = {}
        self._waiting: dict[Wait, list[int]] = {}
        self._heap: list[tuple[int, int]] = []

    def run(self, deadline: float) -> list[int] | None:
        count = len(self._reads)
        self._heap = [(self._times[event], event) for event in map(self._start, range(count))]
        heapq.heapify(self._heap)
        steps, left = 0, 1000 + count
        while len(self._order) < len(self._done):
            steps += 1
            if steps % _TIME_STEP == 0 and time.monotonic() > deadline:
                return None
            if not self._heap:
                left -= 1
                if not left or not self._take_back():
                    return None
                continue
            event = heapq.heappop(self._heap)[1]
            if self._done[event]:
                continue
            wait = self._find_wait(event)
            if wait is None:
                self._execute(event)
            else:
                self._waiting.setdefault(wait, []).append(event)
        return self._order

    def _start(self, number: int) -> int:
        return 2 * number if self._snapshot else number

    def _commit(self, number: int) -> int:
        return 2 * number + 1 if self._snapshot else number

    def _require(self, first: int, second: int) -> None:
        self._targets[first].append(second)
        self._sources[second].append(first)
        if not self._done[first]:
            self._missing[second] += 1

    def _find_wait(self, event: int) -> Wait | None:
        """Returns what an event waits for, or None if it can be executed."""
        if self._missing[event]:
            return _BEFORE, 0, next(one for one in self._sources[event] if not self._done[one])
        number = event // 2 if self._snapshot else event
        starts, commits = not (self._snapshot and event & 1), not self._snapshot or event & 1
        if starts:
            for key, writer in self._reads[number]:
                if self._current.get(key, INITIAL) != writer:
                    return _VERSION, key, writer
        if self._snapshot and starts:
            for key in self._writes[number]:
                if key in self._active:
                    return _ACTIVE, key, self._active[key]
        if commits:
            for key in self._writes[number]:
                access = key, self._current.get(key, INITIAL)
                pending = self._pending.get(access, 0)
                if pending > 1 or (pending == 1 and (self._snapshot or access not in self._reads[number])):
                    return _READERS, *access
        return None

    def _execute(self, event: int) -> None:
        number = event // 2 if self._snapshot else event
        self._done[event] = 1
        self._places[event] = len(self._order)
        self._order.append(event)
        undo: list[tuple[int, int]] = []
        self._undo.append(undo)
        if not (self._snapshot and event & 1):
            for access in self._reads[number]:
                self._pending[access] -= 1
                if self._pending[access] <= 1:
                    self._wake((_READERS, *access))
            if self._snapshot:
                for key in self._writes[number]:
                    self._active[key] = number
                heapq.heappush(self._heap, (self._times[event + 1], event + 1))
        if not self._snapshot or event & 1:
            for key in self._writes[number]:
                undo.append((key, self._current.get(key, INITIAL)))
                self._current[key] = number
                self._wake((_VERSION, key, number))
                if self._snapshot:
                    del self._active[key]
                    self._wake((_ACTIVE, key, number))
        for target in self._targets[event]:
            self._missing[target] -= 1
        self._wake((_BEFORE, 0, event))

    def _wake(self, wait: Wait) -> None:
        for event in self._waiting.pop(wait, ()):
            heapq.heappush(self._heap, (self._times[event], event))

    def _take_back(self) -> bool:
        """Takes back a step that makes others wait in a circle. Returns False if there is no such step."""
        events = [event for events in self._waiting.values() for event in events]
        if not events:
            return False
        for event in events[:20]:
            choices = self._list_conditional_waits(event)
            for first, second in sorted(choices, key=lambda pair: -self._places[pair[1]]):
                if (second, first) not in self._learned and (first, second) not in self._learned:
                    self._learned.add((first, second))
                    self._roll_back(second)
                    self._require(first, second)
                    return True
        return False

    def _list_conditional_waits(self, event: int) -> list[tuple[int, int]]:
        """Returns pairs (event, executed event) of a circle of waits: the second could have waited for the first."""
        path: dict[int, tuple[int, int] | None] = {}
        while event not in path:
            wait = self._find_wait(event)
            if wait is None:
                return []
            kind, key, target = wait
            pair: tuple[int, int] | None = None
            following = target
            if kind == _VERSION:
                if target == INITIAL or self._done[self._commit(target)]:
                    return []
                following = self._commit(target)
                if not self._done[self._start(target)]:
                    following = self._start(target)
            elif kind == _ACTIVE:
                following, pair = self._commit(target), (event + 1, self._start(target))
            elif kind == _READERS:
                number = event // 2 if self._snapshot else event
                reader = next(
                    one for one in self._readers[key, target] if one != number and not self._done[self._start(one)]
                )
                following = self._start(reader)
                pair = None if target == INITIAL else (event, self._commit(target))
            elif self._snapshot and target & 1 and not self._done[target - 1]:
                following = target - 1
            path[event] = pair
            event = following
        circle = list(path)[list(path).index(event) :]
        return [pair for one in circle if (pair := path[one]) is not None]

    def _roll_back(self, event: int) -> None:
        """Undoes an executed event and all after it. Every waiting event is tried again."""
        again = [one for events in self._waiting.values() for one in events]
        self._waiting.clear()
        for undone in self._order[: self._places[event] - 1 if self._places[event] else None : -1]:
            number = undone // 2 if self._snapshot else undone
            self._done[undone] = 0
            for target in self._targets[undone]:
                self._missing[target] += 1
            for key, former in reversed(self._undo.pop()):
                self._current[key] = former
                if self._snapshot:
                    self._active[key] = number
            if not (self._snapshot and undone & 1):
                for access in self._reads[number]:
                    self._pending[access] += 1
                if self._snapshot:
                    for key in self._writes[number]:
                        del self._active[key]
            again.append(undone)
        del self._order[self._places[event] :]
        self._heap = [(self._times[one], one) for one in dict.fromkeys((*again, *(one for _, one in self._heap)))
                      if not self._snapshot or not one & 1 or self._done[one - 1]]  # fmt: skip
        heapq.heapify(self._heap)


def _list_times(history: TransactionHistory, snapshot: bool) -> Sequence[int]:
    """Returns the priority of each event: the call of a start, the return of a commit."""
    if not snapshot:
        return [call if ret == NEVER else ret for call, ret in zip(history.calls, history.returns, strict=True)]
    times: list[int] = []
    for call, ret in zip(history.calls, history.returns, strict=True):
        times += (call, call if ret == NEVER else ret)
    return times
