"""Counters to which amounts are added, as in Jepsen's counter and Maelstrom's g-counter and pn-counter.

An ``add`` has the amount as its argument, and does not return the sum. A ``read`` returns the sum. The counter begins
at 0. Two questions exist:

- *Bounds* (Jepsen's counter): each read lies between two sums. Both include the certain amounts: those acknowledged
  before the read's call. Other amounts are possible if their add was called before the read's return and did not fail.
  The lower bound also includes all negative possible amounts, the upper bound all positive ones. Each read is judged by
  itself.
- *Final sum* (Maelstrom): each final read is the sum of all acknowledged amounts and some amounts of unknown outcome.
  ``ReachableSums`` has the possible sums.

A read is *final* if the history file marks it with ``:final?``. If no read is marked, the last read of each process
counts as final, provided that it was called after all adds had ended.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice, pairwise
from math import gcd
from typing import Final

from assay.checkers.times import format_seconds
from assay.checkers.workload_checks.workload_result import (
    MOST_VALUES,
    WorkloadResult,
    describe_some,
    group_by_key,
    name_object,
    select_ok,
)
from assay.harness.core.operation import Completed, Outcome

OUT_OF_BOUNDS = "counter-out-of-bounds"
WRONG_SUM = "counter-wrong-sum"
MOST_INTERVALS: Final = 100_000
"""Number of disjoint intervals of reachable sums at which a counter is not judged further."""
MOST_STEPS: Final = 3_000_000
"""Number of intervals, added up over all amounts, at which a counter is not judged further. They take seconds."""


def check_bounds(operations: Sequence[Completed]) -> WorkloadResult:
    """Judges each read by the amounts that were certain before its call, and possible before its return."""
    result = WorkloadResult()
    total = 0
    for key, ones in group_by_key(operations).items():
        reads = select_ok(ones, "read")
        adds = [one for one in ones if one.operation.f == "add" and one.completion.outcome is not Outcome.FAIL]
        acked = sorted((one.ret, one.operation.argument) for one in select_ok(adds, "add") if one.ret is not None)
        begun = sorted((one.call, one.operation.argument) for one in adds)
        ended, began = [moment for moment, _ in acked], [moment for moment, _ in begun]
        sums = {
            (name, sign): [0, *accumulate(max(0, sign * amount) for _, amount in pairs)]
            for name, pairs in (("acked", acked), ("begun", begun))
            for sign in (1, -1)
        }
        slack: list[tuple[int, int, int]] = []
        """By read, its call, and how far its value is above the lower bound and below the upper bound."""
        for read in reads:
            assert read.ret is not None
            certain, possible = bisect_left(ended, read.call), bisect_right(began, read.ret)
            least = sums["acked", 1][certain] - sums["begun", -1][possible]
            most = sums["begun", 1][possible] - sums["acked", -1][certain]
            value = read.completion.result
            if not least <= value <= most:
                claim = partial(_describe_bounds, key, read, least, most, ones)
                result.add_finding(OUT_OF_BOUNDS, key, claim, [read])
            slack.append((read.call, value - least, most - value))
        result.count_claims(OUT_OF_BOUNDS, _expose_by_bounds(acked, slack))
        total += len(reads)
        if not reads:
            result.doubts.append(f"{name_object(key, 'the counter')} was never read")
    result.examined = {OUT_OF_BOUNDS: total}
    return result


def _expose_by_bounds(acked: Sequence[tuple[int, int]], slack: list[tuple[int, int, int]]) -> Iterator[bool]:
    """Yields for each acknowledged amount whether some later read would be out of bounds without it.

    ``acked`` has the return and the amount of each add. ``slack`` has a row for each read.
    """
    slack.sort(reverse=True)
    calls = [-call for call, _, _ in slack]
    above = list(accumulate((above for _, above, _ in slack), min))
    below = list(accumulate((below for _, _, below in slack), min))
    for ret, amount in acked:
        later = bisect_left(calls, -ret)
        if amount:
            yield later > 0 and (above[later - 1] < amount if amount > 0 else below[later - 1] < -amount)


def _describe_bounds(key: str | None, read: Completed, least: int, most: int, ones: Sequence[Completed]) -> str:
    value = read.completion.result
    failed = [
        one
        for one in ones
        if one.operation.f == "add"
        and one.completion.outcome is Outcome.FAIL
        and one.call < (read.ret or 0)
        and (one.operation.argument > 0) == (value > most)
    ]
    why = f"; the add of {failed[-1].operation.argument} by operation {failed[-1].index} had failed" if failed else ""
    bounds = str(least) if least == most else f"{least} to {most}"
    return (
        f"{name_object(key, 'counter')}: operation {read.index} read {value}, called at {format_seconds(read.call)}; "
        f"by the adds that were acknowledged before and those that may have been done by then, the sum was "
        f"{bounds}{why}."
    )


def check_final_sums(operations: Sequence[Completed]) -> WorkloadResult:
    """Judges each final read: is it the sum of all acknowledged amounts and some amounts of unknown outcome?"""
    result = WorkloadResult()
    total = 0
    for key, ones in group_by_key(operations).items():
        adds = [one for one in ones if one.operation.f == "add"]
        certain = sum(one.operation.argument for one in select_ok(adds, "add"))
        unknown = [one.operation.argument for one in adds if one.completion.outcome is Outcome.INFO]
        finals = find_final_reads(ones)
        reachable = find_reachable_sums(certain, unknown)
        name = name_object(key, "the counter")
        if not finals:
            result.doubts.append(f"{name} has no final read: none is marked :final?, and none follows all adds")
        amounts = [one.operation.argument for one in select_ok(adds, "add") if one.operation.argument]
        if reachable is None:
            result.count_claims(WRONG_SUM, [False] * len(amounts))
            result.doubts.append(f"{name} has too many adds of unknown outcome: its possible sums cannot be listed")
            continue
        total += len(finals)
        values = sorted({read.completion.result for read in finals})
        are_mixed = len({value % reachable.stride for value in values}) > 1
        needed = {amount: are_mixed or not reachable.has_all(values, amount) for amount in set(amounts)}
        result.count_claims(WRONG_SUM, (needed[amount] for amount in amounts))
        for read in finals:
            value = read.completion.result
            if not reachable.has(value):
                result.add_finding(
                    WRONG_SUM,
                    key,
                    f"{name_object(key, 'counter')}: the final read by operation {read.index} shows {value}, called at "
                    f"{format_seconds(read.call)}; the acknowledged adds make {certain}, and with adds of unknown "
                    f"outcome the sum may be {reachable}.",
                    [read],
                )
    result.examined = {WRONG_SUM: total}
    return result


def find_final_reads(operations: Sequence[Completed]) -> list[Completed]:
    """Returns the reads that the file marks as final, or the last read of each process after the end of all adds."""
    reads = select_ok(operations, "read")
    marked = [read for read in reads if read.operation.phase == "drain"]  # the file's :final?
    if marked:
        return marked
    adds = [one for one in operations if one.operation.f == "add" and one.completion.outcome is not Outcome.FAIL]
    end = max((one.call if one.ret is None else one.ret for one in adds), default=-1)
    last = {read.process: read for read in sorted(reads, key=lambda one: one.call) if read.call > end}
    return list(last.values())


@dataclass(frozen=True)
class ReachableSums:
    """The sums ``base + stride * number``, for each number in the sorted disjoint intervals.

    ``stride`` is the greatest common divisor of the amounts, so that equal amounts make one interval.
    """

    base: int
    stride: int
    intervals: Sequence[tuple[int, int]]

    def has(self, value: int) -> bool:
        number, rest = divmod(value - self.base, self.stride)
        place = bisect_right(self.intervals, number, key=lambda pair: pair[0]) - 1
        return rest == 0 and place >= 0 and number <= self.intervals[place][1]

    def has_all(self, values: Sequence[int], amount: int) -> bool:
        """Returns whether it has ``value - amount`` for each value. Values are sorted, and differ by whole strides."""
        if not values:
            return True
        if not (self.has(values[0] - amount) and self.has(values[-1] - amount)):
            return False
        if len(self.intervals) > len(values):
            return all(self.has(value - amount) for value in values)
        start = self.base + amount
        gaps = ((former[1], later[0]) for former, later in pairwise(self.intervals))
        return all(
            bisect_right(values, start + self.stride * end) == bisect_left(values, start + self.stride * begin)
            for end, begin in gaps
        )

    def __str__(self) -> str:
        """Returns the first ranges of sums, and the number of the others."""
        if self.stride == 1:
            ranges = [str(low + self.base) + (f" to {high + self.base}" if high > low else "")
                      for low, high in self.intervals[:MOST_VALUES]]  # fmt: skip
            return describe_some(ranges, len(self.intervals))
        numbers = islice((number for low, high in self.intervals for number in range(low, high + 1)), MOST_VALUES)
        total = sum(high - low + 1 for low, high in self.intervals)
        return describe_some([self.base + self.stride * number for number in numbers], total)


def find_reachable_sums(certain: int, amounts: Sequence[int]) -> ReachableSums | None:
    """Returns the sums of ``certain`` and any of the amounts; None if there are too many.

    If an amount occurs 7 times, any multiple of it up to 7 is a sum of 1, 2 and 4 times the amount. So equal amounts
    take few steps.
    """
    stride = gcd(*amounts) or 1
    steps = list[int]()
    for amount, count in Counter(amounts).items():
        multiple = 1
        while count > 0:
            steps.append(min(multiple, count) * (amount // stride))
            count -= multiple
            multiple *= 2
    intervals, total = [(0, 0)], 0
    for step in sorted(filter(None, steps), key=abs):
        both = sorted([*intervals, *((low + step, high + step) for low, high in intervals)])
        intervals = [both[0]]
        for low, high in both[1:]:
            if low <= intervals[-1][1] + 1:
                intervals[-1] = (intervals[-1][0], max(high, intervals[-1][1]))
            else:
                intervals.append((low, high))
        total += len(intervals)
        if len(intervals) > MOST_INTERVALS or total > MOST_STEPS:
            return None
    return ReachableSums(certain, stride, intervals)
