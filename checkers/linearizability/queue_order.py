"""Queues in near-linear time, without a search: FIFO queues with distinct values, and unordered queues.

*Sources* of the patterns: Henzinger, Sezgin and Vafeiadis, "Aspect-oriented linearizability proofs" (2013); Bouajjani,
Emmi, Enea and Hamza, "On reducing linearizability to state reachability" (2015). Near-linear algorithms for queues are
also in Lee and Mathur, "Efficient decrease-and-conquer linearizability monitoring" (2025). The proof, which includes
dequeues of unknown outcome, is in docs/contributing/algorithms_linearizability.md.

Each value enters the queue during its enqueue and leaves it during its dequeue. The enqueue takes effect before the
dequeue returns, and the dequeue takes effect after the enqueue was called. So both intervals are cut to these times. A
queue is linearizable iff:

1. Each dequeued value was enqueued, before the dequeue returned, and was dequeued once.
2. No value overtakes another. Value b overtakes value a if the enqueue of a ended before the enqueue of b began, and
   the dequeue of b ended before the dequeue of a began. A value that was never dequeued counts as dequeued after all
   others.
3. A value is certainly in the queue between the end of its enqueue and the begin of its dequeue. During each answer
   that the queue is empty, there is a moment without such a value.

A dequeue of unknown outcome may remove a value that no other dequeue returned. So rule 2 gives each such value a
*deadline*, the return of the first dequeue that shows it must have left. Unknown dequeues can meet all deadlines iff
Hall's condition holds at each deadline. The number of unknown dequeues called so far must be at least the number of
values that must have left. By rule 3, all values that were enqueued before the moment at which the queue is empty must
have left by then.

An enqueue of unknown outcome counts iff its value was dequeued.

An unordered queue obeys rules 1 and 3 alone, and a value has a deadline only by rule 3. If no answer says that the
queue is empty, values may repeat. Then Hall's condition must hold for each value, at the return of each of its
dequeues. The number of its enqueues called so far must be at least the number of its dequeues that have returned.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from assay.checkers.linearizability.encode import FOREVER, KeyHistory
from assay.checkers.linearizability.key_result import Contradiction
from assay.checkers.linearizability.limits import Deadline
from assay.checkers.linearizability.queues import DEQUEUE, EMPTY, ENQUEUE
from assay.harness.core.lazy_import import LazyModule
from assay.harness.core.printable import count_noun

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
else:
    np = LazyModule("numpy")

UNFINISHED: Final = "before all answers that the queue is empty were judged"
MOST_NAMED: Final = 3
"""Maximum number of values that an explanation names one by one."""


@dataclass(frozen=True)
class _Passage:
    """A value that was dequeued: the rows of both operations, and the intervals in which they can take effect.

    The enqueue can take effect from ``enter_from`` until ``enter_until``, the dequeue from ``leave_from`` until
    ``leave_until``.
    """

    enqueue: int
    dequeue: int
    enter_from: int
    enter_until: int
    leave_from: int
    leave_until: int


@dataclass
class _Queue:
    """The operations of one key by kind. All numbers are rows of the history."""

    enqueues: dict[object, int] = field(default_factory=dict)
    dequeues: dict[object, int] = field(default_factory=dict)
    empties: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    """Dequeues of unknown outcome."""
    repeated: tuple[int, int] | None = None
    """Two dequeues of one value."""


def has_distinct_values(history: KeyHistory) -> bool:
    """Returns whether no value was enqueued twice, which the algorithm requires."""
    kinds = [(action.f, action.x) for action in history.actions]
    values = [kinds[number][1] for number in history.action.tolist() if kinds[number][0] == ENQUEUE]
    return len(set(values)) == len(values)


def find_queue_contradiction(history: KeyHistory, deadline: Deadline) -> Contradiction | None:
    """Returns operations that contradict each other, or None if the key is linearizable. Values must be distinct.

    Raises ``OutOfTime``.
    """
    queue = _sort_by_kind(history)
    call, ret = history.call.tolist(), history.ret.tolist()
    return _find_impossible_dequeue(history, queue, call, ret) or _Order(history, queue, call, ret).find(deadline)


def has_empty_answers(history: KeyHistory) -> bool:
    """Returns whether a dequeue found the queue empty."""
    empty = [number for number, action in enumerate(history.actions) if action.f == EMPTY]
    return bool(np.isin(history.action, empty).any())


def find_unordered_contradiction(history: KeyHistory, deadline: Deadline) -> Contradiction | None:
    """Returns operations of an unordered queue that contradict each other, or None if the key is linearizable.

    Values must be distinct if a dequeue found the queue empty. Raises ``OutOfTime``.
    """
    call, ret = history.call.tolist(), history.ret.tolist()
    if not has_distinct_values(history):
        return _find_excess(history, call, ret)
    queue = _sort_by_kind(history)
    return _find_impossible_dequeue(history, queue, call, ret) or _Order(
        history, queue, call, ret, first_in_first_out=False
    ).find_false_empty(deadline)


def _find_excess(history: KeyHistory, call: list[int], ret: list[int]) -> Contradiction | None:
    """Finds a value that was dequeued more often than enqueued, up to the return of one of its dequeues."""
    enqueues: dict[Hashable, list[int]] = {}
    dequeues: dict[Hashable, list[int]] = {}
    for row, number in enumerate(history.action.tolist()):
        action = history.actions[number]
        if action.f in (ENQUEUE, DEQUEUE):
            (enqueues if action.f == ENQUEUE else dequeues).setdefault(action.x, []).append(row)
    for value, removals in dequeues.items():
        sources = sorted(enqueues.get(value, ()), key=call.__getitem__)
        begins = [call[row] for row in sources]
        removals.sort(key=ret.__getitem__)
        for count, row in enumerate(removals, start=1):
            begun = bisect_right(begins, ret[row])
            if begun >= count:
                continue
            if not sources:
                return Contradiction(
                    f"{history.describe_operation(row)} returned a value that no one enqueued.", (row,)
                )
            claim = (
                f"{history.describe_operation(row)} was the dequeue number {count} of its value to return; yet only "
                f"{count_noun(begun, 'enqueue')} of the value had been called."
            )
            return Contradiction(claim, (*reversed(removals[:count]), *sources[:begun]))
    return None


def _sort_by_kind(history: KeyHistory) -> _Queue:
    queue = _Queue()
    kinds = [(action.f, action.x) for action in history.actions]
    for row, number in enumerate(history.action.tolist()):
        kind, value = kinds[number]
        if kind == ENQUEUE:
            queue.enqueues[value] = row
        elif kind == DEQUEUE:
            first = queue.dequeues.setdefault(value, row)
            if first != row and queue.repeated is None:
                queue.repeated = (row, first)
        elif kind == EMPTY:
            queue.empties.append(row)
        else:
            queue.unknown.append(row)
    return queue


def _find_impossible_dequeue(
    history: KeyHistory, queue: _Queue, call: list[int], ret: list[int]
) -> Contradiction | None:
    """Rule 1."""
    for value, row in queue.dequeues.items():
        source = queue.enqueues.get(value)
        if source is None:
            return Contradiction(f"{history.describe_operation(row)} returned a value that no one enqueued.", (row,))
        if ret[row] < call[source]:
            claim = (
                f"{history.describe_operation(row)} returned before its value's {history.describe_operation(source)} "
                "was called."
            )
            return Contradiction(claim, (row, source))
    if queue.repeated is not None:
        later, earlier = queue.repeated
        action = history.actions[int(history.action[later])]
        source = queue.enqueues[action.x]
        claim = (
            f"{history.describe_operation(later)} and {history.describe_operation(earlier)} returned the same value, "
            f"which was enqueued once: {history.describe_operation(source)}."
        )
        return Contradiction(claim, (later, earlier, source))
    return None


def _later_to_leave(one: _Passage, other: _Passage) -> _Passage:
    """Returns the passage whose dequeue begins later."""
    return other if other.leave_from > one.leave_from else one


def _earlier_gone(one: _Passage, other: _Passage) -> _Passage:
    """Returns the passage whose dequeue returned earlier."""
    return other if other.leave_until <= one.leave_until else one


class _Order:
    """Rules 2 and 3 for one key."""

    def __init__(
        self,
        history: KeyHistory,
        queue: _Queue,
        call: list[int],
        ret: list[int],
        *,
        first_in_first_out: bool = True,
    ) -> None:
        self._history = history
        self._first_in_first_out = first_in_first_out
        self._call = call
        self._ret = ret
        self._empties = queue.empties
        self._passages = sorted(
            (
                _Passage(
                    enqueue=(source := queue.enqueues[value]),
                    dequeue=row,
                    enter_from=call[source],
                    enter_until=min(ret[source], ret[row]),
                    leave_from=max(call[row], call[source]),
                    leave_until=ret[row],
                )
                for value, row in queue.dequeues.items()
            ),
            key=lambda one: one.enter_from,
        )
        self._left_over = [
            row for value, row in queue.enqueues.items() if value not in queue.dequeues and ret[row] != FOREVER
        ]
        """The enqueues of known outcome whose values no dequeue returned."""
        self._takers = sorted(call[row] for row in queue.unknown)
        """The calls of the dequeues of unknown outcome."""
        self._first_leave = self._list_first_leaves()

    def find(self, deadline: Deadline) -> Contradiction | None:
        return self._find_overtaking() or self._find_late_removal() or self.find_false_empty(deadline)

    def _describe(self, row: int) -> str:
        return self._history.describe_operation(row)

    def _find_overtaking(self) -> Contradiction | None:
        """Rule 2 for values that were dequeued: a sweep over the begin of enqueues, with a running maximum."""
        by_end = sorted(self._passages, key=lambda one: one.enter_until)
        ends = [one.enter_until for one in by_end]
        latest = list(accumulate(by_end, _later_to_leave))
        for behind in self._passages:
            before = bisect_left(ends, behind.enter_from)
            if before and latest[before - 1].leave_from > behind.leave_until:
                front = latest[before - 1]
                claim = (
                    f"{self._describe(behind.dequeue)} returned before {self._describe(front.dequeue)} was called; yet "
                    f"{self._describe(front.enqueue)} had returned before {self._describe(behind.enqueue)} was called."
                )
                return Contradiction(claim, (behind.dequeue, front.dequeue, front.enqueue, behind.enqueue))
        return None

    def _list_first_leaves(self) -> list[_Passage]:
        """Returns for each place in ``_passages`` the passage from there on whose dequeue returned first."""
        return list(accumulate(reversed(self._passages), _earlier_gone))[::-1]

    def _find_deadline(self, row: int) -> _Passage | None:
        """Returns the passage whose dequeue returned first among the values enqueued after ``row`` had ended."""
        place = bisect_right(self._passages, self._ret[row], key=lambda one: one.enter_from)
        return self._first_leave[place] if place < len(self._passages) else None

    def _find_late_removal(self) -> Contradiction | None:
        """Rule 2 for values that no dequeue returned: Hall's condition at each deadline."""
        must_leave = [(one.leave_until, row, one) for row in self._left_over if (one := self._find_deadline(row))]
        must_leave.sort(key=lambda each: each[:2])
        for count, (deadline, _, behind) in enumerate(must_leave, start=1):
            takers = bisect_right(self._takers, deadline)
            if count <= takers:
                continue
            rows = [row for _, row, one in must_leave[:count]]
            shown = (behind.dequeue, rows[-1], behind.enqueue)
            if not takers:
                no_dequeue = "no dequeue returned that value" + (
                    ", and no dequeue of unknown outcome had been called" if self._takers else ""
                )
                claim = (
                    f"{self._describe(behind.dequeue)} returned a value whose {self._describe(behind.enqueue)} was "
                    f"called after {self._describe(rows[-1])} had returned; yet {no_dequeue}."
                )
                return Contradiction(claim, shown)
            claim = (
                f"{self._describe(behind.dequeue)} returned when {count} values that no dequeue returned had to be "
                f"gone, such as that of {self._describe(rows[-1])}; yet only "
                f"{count_noun(takers, 'dequeue')} of unknown outcome had been called."
            )
            return Contradiction(claim, tuple(dict.fromkeys((*shown, *reversed(rows)))))
        return None

    def find_false_empty(self, deadline: Deadline) -> Contradiction | None:
        """Rule 3."""
        if not self._empties:
            return None
        present = [(one.enter_until, one.leave_from, one.enqueue, one.dequeue) for one in self._passages]
        if not self._takers:
            present += [(self._ret[row], FOREVER, row, -1) for row in self._left_over]
        cover = _Cover(present)
        removals = self._plan_removals() if self._takers and self._left_over else None
        for row in self._empties:
            deadline.require(UNFINISHED)
            first = cover.find_gap(self._call[row])
            if first > self._ret[row]:
                return self._to_false_empty(row, cover)
            if removals is None or removals.allows(first):
                continue
            later = self._takers[bisect_right(self._takers, first) : bisect_right(self._takers, self._ret[row])]
            if not self._has_moment(later, self._ret[row], cover, removals, deadline):
                return self._to_crowded_empty(row)
        return None

    def _has_moment(self, later: list[int], end: int, cover: _Cover, removals: _Removals, deadline: Deadline) -> bool:
        """Returns whether the queue can be empty at one of the moments ``later``, or at the next gap of ``cover``."""
        for moment in later:
            deadline.require(UNFINISHED)
            gap = cover.find_gap(moment)
            if gap <= end and removals.allows(gap):
                return True
        return False

    def _plan_removals(self) -> _Removals:
        ends = []
        for row in self._left_over:
            behind = self._find_deadline(row) if self._first_in_first_out else None
            ends.append((FOREVER if behind is None else behind.leave_until, self._ret[row]))
        return _Removals(ends, self._takers)

    def _to_false_empty(self, row: int, cover: _Cover) -> Contradiction:
        chain = cover.find_chain(self._call[row], self._ret[row])
        parts = [
            f"{self._describe(enqueue)} had returned, and "
            + (f"{self._describe(dequeue)} had not been called" if dequeue >= 0 else "its value was never dequeued")
            for enqueue, dequeue in chain[:MOST_NAMED]
        ]
        if len(chain) > MOST_NAMED:
            parts.append(f"and so on for {count_noun(len(chain) - MOST_NAMED, 'value')} more")
        when = "the queue held a value all the time" if len(chain) == 1 else "one value after another was in the queue"
        claim = f"{self._describe(row)} found the queue empty; yet {when}: {'; then '.join(parts)}."
        rows = [each for pair in chain for each in pair if each >= 0]
        return Contradiction(claim, (row, *rows))

    def _to_crowded_empty(self, row: int) -> Contradiction:
        rows = sorted((each for each in self._left_over if self._ret[each] < self._ret[row]), key=self._ret.__getitem__)
        takers = bisect_right(self._takers, self._ret[row])
        claim = (
            f"{self._describe(row)} found the queue empty; yet {count_noun(len(rows), 'value')} that no dequeue "
            f"returned had been enqueued before it returned, such as that of {self._describe(rows[0])}, and "
            f"{count_noun(takers, 'dequeue')} of unknown outcome cannot have removed all that had to be gone."
        )
        return Contradiction(claim, (row, *rows))


class _Cover:
    """Times at which values are certainly in the queue: a union of open intervals."""

    def __init__(self, present: list[tuple[int, int, int, int]]) -> None:
        self._present = sorted(one for one in present if one[0] < one[1])
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end, _, _ in self._present:
            if self._ends and begin < self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def find_gap(self, time: int) -> int:
        """Returns the first moment from ``time`` on that is outside."""
        place = bisect_left(self._begins, time) - 1
        return self._ends[place] if place >= 0 and time < self._ends[place] else time

    def find_chain(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Returns the operations of the fewest values that cover the time from ``begin`` to ``end``."""
        chain, time, place = [], begin, 0
        best: tuple[int, int, int, int] | None = None
        while time <= end:
            while place < len(self._present) and self._present[place][0] < time:
                if best is None or self._present[place][1] > best[1]:
                    best = self._present[place]
                place += 1
            assert best is not None, "the interval is covered"
            chain.append((best[2], best[3]))
            time = best[1]
        return chain


class _Removals:
    """Decides whether dequeues of unknown outcome can empty the queue at a moment, and meet all deadlines.

    Values are sorted by deadline. ``_slack``: at each deadline, the number of unknown dequeues called so far, less the
    number of values that must have left by then.
    """

    def __init__(self, ends: list[tuple[int, int]], takers: list[int]) -> None:
        """``ends``: for each value that no dequeue returned, its deadline and the end of its enqueue. ``takers``: the
        begins of the unknown dequeues, sorted."""
        deadline, entered = zip(*sorted(ends), strict=True)
        self._deadline = np.array(deadline, dtype=np.int64)
        self._entered = np.array(entered, dtype=np.int64)
        self._sorted_entered = np.sort(self._entered)
        self._takers = np.array(takers, dtype=np.int64)
        self._due = np.searchsorted(self._deadline, self._deadline, side="right")
        self._slack = np.searchsorted(self._takers, self._deadline, side="right") - self._due
        self._slack[self._deadline == FOREVER] = FOREVER

    def allows(self, moment: int) -> bool:
        """Returns whether all values that had entered before ``moment`` may have left by then."""
        gone = int(np.searchsorted(self._sorted_entered, moment, side="left"))
        if gone > int(np.searchsorted(self._takers, moment, side="right")):
            return False
        early = self._entered < moment
        # Each value that left by `moment` used a dequeue. So at a deadline from `moment` on, values that are due only
        # after this deadline count, too, if they left by `moment`.
        early_from = np.append(np.cumsum(early[::-1])[::-1], 0)
        return bool(np.all((early_from[self._due] <= self._slack) | (self._deadline < moment)))
