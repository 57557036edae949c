"""Finds a legal order quickly if there is one that is close to the order of times. A heuristic: it never refutes.

The scheduler plays the transactions on a store, the earliest return first. For snapshot isolation a transaction has two
events, its start and its commit. An event waits until

1. the store has the versions that the transaction read (a start),
2. no other transaction that writes the same keys is active (a start, snapshot isolation),
3. all readers of the versions that it overwrites have started (a commit),
4. all events that must precede it are done.

Events can wait for each other in a circle. An event waits by rule 2 or 3 only because another event was executed before
it, and perhaps that event could have come later. With the bounds of ``clocks``, the scheduler finds the circle at once.
It takes such an event back, and guesses that this event comes after the waiting one. If these guesses contradict each
other, the scheduler forgets those of the last steps and guesses at random. Without bounds, the order of the events near
the last step is derived (``saturation``), and the steps that contradict it are taken back.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Iterable, Sequence
from typing import Final

from assay.checkers.isolation.clocks import TimeOrder, order_by_time
from assay.checkers.isolation.levels import Level, Order, Rule, add_real_time, find_level
from assay.checkers.isolation.saturation import Conflict, Saturation, SearchLimitReached, make_problem
from assay.checkers.isolation.transactions import INITIAL, NEVER, TransactionHistory

_VERSION, _ACTIVE, _READERS, _BEFORE = range(4)
"""Kinds of waits, in the order of the list above."""
Wait = tuple[int, int, int]
"""Kind of the wait, key (or 0), and the transaction or the event that it waits for."""
_NEIGHBOURHOODS: Final = (40, 160)
"""Numbers of events before and after the last step whose order is derived, if the remaining events wait in a circle."""
_MOST_WAITING: Final = 200
"""Number of waiting events from which a circle is suspected. It is doubled if none is found."""
_FORGOTTEN: Final = 100
"""Number of steps that are first taken back together with their guesses."""
_TIME_STEP: Final = 1000
"""Number of events between two looks at the clock."""


def schedule(history: TransactionHistory, level: Level, deadline: float) -> list[int] | None:
    """Returns a legal order of all events that respects real time, or None if none was found. Most stores have one.

    Event ``t`` is transaction ``t``; for snapshot isolation ``2 t`` is its start and ``2 t + 1`` its commit.
    """
    is_snapshot = level.rule is Rule.SNAPSHOT_ISOLATION
    if is_snapshot:
        serial = schedule(history, find_level("strict-serializable"), deadline)
        if serial is not None:  # each transaction starts and commits before the next one starts
            return [event for number in serial for event in (2 * number, 2 * number + 1)]
    found = order_by_time(history, snapshot=is_snapshot)
    return None if found is None else _Scheduler(history, add_real_time(level), found.pairs, found).run(deadline)


def schedule_derived(
    history: TransactionHistory, level: Level, deadline: float, derived: Iterable[tuple[int, int]]
) -> list[int] | None:
    """Returns a legal order of all events, or None if none was found.

    ``derived``: pairs of events, the first of which comes before the second in every legal order.
    """
    return _Scheduler(history, level, derived).run(deadline)


class _Scheduler:
    """Executes events one after the other. ``more``: pairs of events in the order that a legal order must have."""

    def __init__(
        self,
        history: TransactionHistory,
        level: Level,
        more: Iterable[tuple[int, int]],
        bounds: TimeOrder | None = None,
    ) -> None:
        self._guesses_first = bounds is not None
        """Whether a circle is resolved by a guess at once. Otherwise the order near the last step is derived first."""
        self._guesses_randomly = False
        """Whether guesses are made at random."""
        self._random = random.Random(len(history))
        self._history = history
        self._level = level
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
        """By version (key and writer), the number of readers that have not started."""
        self._current: dict[int, int] = {}
        """By key, the writer of the version that the store has."""
        self._active: dict[int, int] = {}
        """By key, the active transaction that will write it (snapshot isolation)."""
        self._done = bytearray(events)
        self._sources: list[list[int]] = [[] for _ in range(events)]
        self._targets: list[list[int]] = [[] for _ in range(events)]
        self._missing = [0] * events
        """By event, the number of events that must precede it and were not executed."""
        self._learned: set[tuple[int, int]] = set()
        """Pairs of events that were derived or guessed during the run."""
        self._forgotten = _FORGOTTEN
        self._last_forgotten = 0
        self._queued = bytearray(events)
        """Whether an event is in the heap."""
        self._times = _list_times(history, self._snapshot) if bounds is None else bounds.latest
        self._earliest, self._latest = _find_bounds(history, level, bounds)
        self._by_latest = sorted(range(events), key=self._latest.__getitem__) if self._latest else []
        self._ranks = _invert(self._by_latest)
        self._unfinished = 0
        """Place of the first event of ``_by_latest`` that is not done."""
        for one, other, _ in history.list_version_order():
            self._require(self._commit(one), self._start(other))
        if level.order is Order.SESSION:
            for first, second in history.list_session_order():
                self._require(self._commit(first), self._start(second))
        for first, second in more:
            self._require(first, second)
        self._by_time = sorted(range(count), key=lambda number: self._times[self._commit(number)])
        self._time_ranks = _invert(self._by_time)
        self._first = 0
        """Position in ``_by_time``: all transactions before it are committed."""
        self._deadline = 0.0
        self._order: list[int] = []
        self._undo: list[list[tuple[int, int]]] = []
        """For each step of ``_order``: the keys that it wrote, with their former writers."""
        self._places: dict[int, int] = {}
        """By event, its position in ``_order``."""
        self._waiting: dict[Wait, list[int]] = {}
        self._waiting_count = 0
        self._heap: list[tuple[int, int]] = []

    def run(self, deadline: float) -> list[int] | None:
        count = len(self._reads)
        self._deadline = deadline
        self._push(map(self._start, range(count)))
        steps, left, most_waiting = 0, 200 + count // 5, _MOST_WAITING  # ``left``: how often steps may be taken back
        while len(self._order) < len(self._done):
            steps += 1
            if steps % _TIME_STEP == 0 and time.monotonic() > deadline:
                return None
            if not self._heap or (self._waiting_count > most_waiting and not self._guesses_first):
                left -= 1
                if left and self._take_back():
                    most_waiting = _MOST_WAITING
                elif not self._heap:
                    return None
                else:
                    most_waiting *= 2
                continue
            event = heapq.heappop(self._heap)[1]
            self._queued[event] = 0
            if self._done[event] or (self._snapshot and event & 1 and not self._done[event - 1]):
                continue  # a step back has undone the start of a commit
            wait = self._find_wait(event)
            if wait is None:
                self._execute(event)
            else:
                self._waiting.setdefault(wait, []).append(event)
                self._waiting_count += 1
                if self._guesses_first:
                    path, choices = self._follow_waits(event)
                    if path[-1] in path[:-1]:
                        left -= 1
                        if not left or not (self._guess(choices) or self._forget_guesses()):
                            return None
        return self._order

    def _push(self, events: Iterable[int]) -> None:
        for event in events:
            if not self._queued[event]:
                self._queued[event] = 1
                heapq.heappush(self._heap, (self._times[event], event))

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
        if self._latest:
            unfinished = self._find_unfinished()
            if self._latest[unfinished] < self._earliest[event]:
                return _BEFORE, 0, unfinished
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

    def _find_unfinished(self) -> int:
        """Returns the event with the earliest end of its bounds that is not done."""
        while self._done[self._by_latest[self._unfinished]]:
            self._unfinished += 1
        return self._by_latest[self._unfinished]

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
                self._push((event + 1,))
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
        events = self._waiting.pop(wait, None)
        if events is not None:
            self._waiting_count -= len(events)
            self._push(events)

    def _take_back(self) -> bool:
        """Derives the order of some events, and takes back the steps that contradict it. Returns False if it took back
        no step."""
        if self._guesses_first and self._guess_order():
            return True
        for size in _NEIGHBOURHOODS:
            pairs = self._derive_order(size)
            if pairs is None:
                return False  # the time of the attempt is over, or there is no order
            broken = [
                self._places[second] for first, second in pairs
                if self._done[second] and not (self._done[first] and self._places[first] < self._places[second])
            ]  # fmt: skip
            if not broken:
                continue
            self._roll_back(self._order[min(broken)])
            for first, second in pairs:
                if (first, second) not in self._learned:
                    self._learned.add((first, second))
                    self._require(first, second)
            return True
        if self._heap:
            return False
        return self._forget_guesses() if self._guesses_first else self._guess_order()

    def _forget_guesses(self) -> bool:
        """Takes back the last steps and the guesses about them. Returns False if there was no guess.

        Later guesses are random, so they differ. If the order has not become longer since the last time, twice as many
        steps are taken back.
        """
        place = len(self._order)
        self._forgotten = 2 * self._forgotten if place < self._last_forgotten + _FORGOTTEN else _FORGOTTEN
        self._last_forgotten = max(place, self._last_forgotten)
        first_place = max(0, place - self._forgotten)
        forgotten = [
            (first, second) for first, second in self._learned
            if not (self._done[first] and self._places[first] < first_place)
        ]  # fmt: skip
        if not forgotten or not self._order:
            return False
        self._roll_back(self._order[first_place])
        for first, second in forgotten:
            self._learned.remove((first, second))
            self._targets[first].remove(second)
            self._sources[second].remove(first)
            if not self._done[first]:
                self._missing[second] -= 1
        self._guesses_randomly = True
        return True

    def _derive_order(self, size: int) -> list[tuple[int, int]] | None:
        """Returns pairs of events near the last step whose order is derived. None: these events have no legal order, or
        the time is over."""
        while self._first < len(self._by_time) and self._done[self._commit(self._by_time[self._first])]:
            self._first += 1
        near = [event // 2 if self._snapshot else event for event in self._order[-size:]]
        for number in self._by_time[self._first :]:
            if not self._done[self._commit(number)]:
                near.append(number)
                if len(near) >= 2 * size:
                    break
        near += self._list_circle()
        writers = [writer for number in near for _, writer in self._reads[number] if writer != INITIAL]
        problem = make_problem(self._history, self._level, sorted({*near, *writers}))
        saturation = Saturation(problem, self._deadline)
        try:
            saturation.saturate()
        except (Conflict, SearchLimitReached):
            return None
        return saturation.list_derived_pairs()

    def _list_circle(self) -> list[int]:
        """Returns the transactions on the paths of waits from the five earliest waiting events.

        The executed transactions that caused these waits are included.
        """
        waiting = [event for events in self._waiting.values() for event in events]
        found: list[int] = []
        for event in heapq.nsmallest(5, waiting, key=lambda event: self._times[event]):
            path, pairs = self._follow_waits(event)
            events = [*path, *(one for pair in pairs for one in pair)]
            found += [one // 2 if self._snapshot else one for one in events]
        return found

    def _guess_order(self) -> bool:
        """Takes back a step of a circle of waits. Among the steps that could have come later, it takes back the one
        that contradicts the times most. After guesses were forgotten, it takes back a random one."""
        events = [event for events in self._waiting.values() for event in events]
        return any(self._guess(self._list_conditional_waits(event)) for event in events[:20])

    def _guess(self, choices: list[tuple[int, int]]) -> bool:
        """Lets the second event of a pair wait for the first one. Returns False if all pairs were tried before."""
        if self._guesses_randomly:
            self._random.shuffle(choices)
        else:
            choices.sort(key=lambda pair: self._times[pair[0]] - self._times[pair[1]])
        for first, second in choices:
            if (second, first) not in self._learned and (first, second) not in self._learned:
                self._learned.add((first, second))
                self._roll_back(second)
                self._require(first, second)
                return True
        return False

    def _list_conditional_waits(self, event: int) -> list[tuple[int, int]]:
        """Returns pairs (event, executed event) of a circle of waits: the second event could have come after the first.

        Returns nothing if the waits that begin at ``event`` lead to no circle.
        """
        path, pairs = self._follow_waits(event)
        return pairs if path[-1] in path[:-1] else []

    def _follow_waits(self, event: int) -> tuple[list[int], list[tuple[int, int]]]:
        """Returns a path of events, each of which waits for the next one. It ends when an event occurs twice, or waits
        for nothing.

        The second result has pairs as in ``_list_conditional_waits``.
        """
        path: list[int] = []
        pairs: list[tuple[int, int]] = []
        while event not in path:
            path.append(event)
            if self._queued[event]:
                return path, pairs
            wait = self._find_wait(event)
            if wait is None:
                return path, pairs
            kind, key, target = wait
            following = target
            if kind == _VERSION:
                if target == INITIAL or self._done[self._commit(target)]:
                    return path, pairs
                following = self._commit(target)
                if not self._done[self._start(target)]:
                    following = self._start(target)
            elif kind == _ACTIVE:
                following = self._commit(target)
                pairs.append((event + 1, self._start(target)))
            elif kind == _READERS:
                number = event // 2 if self._snapshot else event
                reader = next(
                    one for one in self._readers[key, target] if one != number and not self._done[self._start(one)]
                )
                following = self._start(reader)
                if target != INITIAL:
                    pairs.append((event, self._commit(target)))
            elif self._snapshot and target & 1 and not self._done[target - 1]:
                following = target - 1
            event = following
        path.append(event)
        return path, pairs

    def _roll_back(self, event: int) -> None:
        """Undoes an executed event and all after it. Every waiting event is tried again."""
        again = [one for events in self._waiting.values() for one in events]
        self._waiting.clear()
        self._waiting_count = 0
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
            self._first = min(self._first, self._time_ranks[number])
            if self._ranks:
                self._unfinished = min(self._unfinished, self._ranks[undone])
        del self._order[self._places[event] :]
        self._push(again)


def _invert(order: Sequence[int]) -> list[int]:
    """Returns the place of each number of a permutation."""
    places = [0] * len(order)
    for place, number in enumerate(order):
        places[number] = place
    return places


def _find_bounds(history: TransactionHistory, level: Level, bounds: TimeOrder | None) -> tuple[list[int], list[int]]:
    """Returns the earliest and the latest moment of each event; empty lists if the level knows no real time."""
    if bounds is not None:
        return bounds.earliest, bounds.latest
    if level.order is not Order.REAL_TIME:
        return [], []
    each = 2 if level.rule is Rule.SNAPSHOT_ISOLATION else 1
    return [call for call in history.calls for _ in range(each)], [ret for ret in history.returns for _ in range(each)]


def _list_times(history: TransactionHistory, snapshot: bool) -> Sequence[int]:
    """Returns the priority of each event: the call of a start, the return of a commit."""
    if not snapshot:
        return [call if ret == NEVER else ret for call, ret in zip(history.calls, history.returns, strict=True)]
    times: list[int] = []
    for call, ret in zip(history.calls, history.returns, strict=True):
        times += (call, call if ret == NEVER else ret)
    return times
