"""Minimises a failing example: fewer steps, then a smaller cluster, fewer clients, less time.

1. Delta debugging (Zeller and Hildebrandt 2002) reduces the steps.
2. Single simplifications follow until none is left that still fails.

Not every repetition fails: on real nodes timing differs, and in the simulation a reduction changes the random numbers
that follow. So the caller first estimates the failure rate. A reduction is accepted if one of n repetitions fails with
the same anomaly. The number n gives a 95 % chance of a failure if the rate is unchanged.

The result is stored in the folder of the last run, and its report shows it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from assay.harness.search.example import Example, SystemParts
from assay.nemesis.schedule.schedule import FaultStep
from assay.nemesis.schedule.target import parse_node_number
from assay.nemesis.schedule.trigger import OnEvent
from assay.reports.files import SHRINKING, Shrinking

T = TypeVar("T")

Reproduce = Callable[[Example, int], Example | None]
"""``reproduce(example, n)`` runs the example up to ``n`` times, with other seeds. It returns the first example that
failed with the same anomaly, or None.
"""


class OutOfTime(Exception):
    """No time is left for repetitions. The smallest example found so far is the result."""


def delta_debug(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Returns a subsequence of ``items`` that still fails, and from which no single item can be removed.

    ``fails(items)`` must be true.
    """
    kept, parts = list(items), 2
    while len(kept) >= 2:
        size = math.ceil(len(kept) / parts)
        chunks = [kept[start : start + size] for start in range(0, len(kept), size)]
        rests = [[item for other in chunks if other is not chunk for item in other] for chunk in chunks]
        candidates = chunks + (rests if len(chunks) > 2 else [])
        smaller = next((candidate for candidate in candidates if fails(candidate)), None)
        if smaller is not None:
            parts = 2 if len(smaller) <= size else max(parts - 1, 2)
            kept = smaller
        elif parts >= len(kept):
            break
        else:
            parts = min(len(kept), parts * 2)
    if len(kept) == 1 and fails([]):
        return []
    return kept


def minimise(example: Example, repetitions: int, reproduce: Reproduce) -> tuple[Example, bool]:
    """Returns the smallest failing example, and whether the search for it was complete."""
    shrinking = _Shrinking(example, reproduce)
    try:
        # A first pass with one try each is cheap and often suffices. The second pass repeats as often as the failure
        # rate requires.
        for tries in dict.fromkeys((1, repetitions)):
            shrinking.reduce(tries)
    except OutOfTime:
        return shrinking.best, False
    return shrinking.best, True


@dataclass
class _Shrinking:
    best: Example
    reproduce: Reproduce

    def reduce(self, tries: int) -> None:
        """Simplifies until no candidate fails within ``tries`` repetitions."""
        for plain in without_branches(self.best):
            self._fails(plain, tries)
        delta_debug(self.best.schedule.steps, lambda steps: self._fails(with_steps(self.best, steps), tries))
        while any(self._fails(simpler, tries) for simpler in iterate_simplifications(self.best)):
            pass

    def _fails(self, candidate: Example, tries: int) -> bool:
        failing = self.reproduce(candidate, tries)
        if failing is not None:
            self.best = failing
        return failing is not None


def find_removed_steps(before: Example, after: Example) -> list[FaultStep]:
    """Returns the steps of ``before`` that ``after`` lacks. A step that became simpler counts as kept."""
    left = Counter(map(_step_identity, after.schedule.all_steps))
    removed = []
    for step in before.schedule.all_steps:
        if left[_step_identity(step)]:
            left[_step_identity(step)] -= 1
        else:
            removed.append(step)
    return removed


def _step_identity(step: FaultStep) -> tuple[object, ...]:
    return step.at, step.fault, str(step.target), step.seed


def with_steps(example: Example, steps: Sequence[FaultStep]) -> Example:
    """Returns a copy with these steps; branches stay."""
    return example.with_schedule(steps, example.schedule.branches)


def without_branches(example: Example) -> Iterator[Example]:
    """Yields a copy with the faults of its branches moved into the schedule, if the example has branches."""
    if example.schedule.branches:
        yield example.with_schedule(sorted(example.schedule.all_steps, key=lambda step: step.at))


def simplify_branches(example: Example) -> Iterator[Example]:
    """Yields copies with one branch fewer, or one step of a branch fewer."""
    steps, branches = example.schedule.steps, example.schedule.branches
    for index, branch in enumerate(branches):
        yield example.with_schedule(steps, (*branches[:index], *branches[index + 1 :]))
        for number in range(len(branch.steps)):
            fewer = msgspec.structs.replace(branch, steps=branch.steps[:number] + branch.steps[number + 1 :])
            yield example.with_schedule(steps, (*branches[:index], fewer, *branches[index + 1 :]))


def iterate_simplifications(example: Example) -> Iterator[Example]:
    """Yields copies that are simpler in one respect, the largest simplifications first."""
    change = msgspec.structs.replace
    steps, every = example.schedule.steps, example.schedule.all_steps
    yield from without_branches(example)
    yield from simplify_branches(example)
    for index in range(len(steps)) if len(steps) > 1 else ():
        yield with_steps(example, steps[:index] + steps[index + 1 :])
    for index in range(len(example.configuration)):
        yield change(example, configuration=example.configuration[:index] + example.configuration[index + 1 :])
    if example.zookeepers > 1:
        yield change(example, zookeepers=1)
    if example.nodes > 3 and not any(parse_node_number(name) > 3 for step in every for name in step.target.names):
        yield change(example, nodes=3)
    if example.concurrency > 1:
        yield change(example, concurrency=max(1, example.concurrency // 2))
    end = max([0.0, *(step.until for step in every), *(branch.at for branch in example.schedule.branches)])
    if example.time_limit > math.floor(end) + 1:
        yield change(example, time_limit=float(math.floor(end) + 1))
    for index, step in enumerate(steps):
        for simpler in _simplify_step(step):
            yield with_steps(example, (*steps[:index], simpler, *steps[index + 1 :]))


def _simplify_step(step: FaultStep) -> Iterator[FaultStep]:
    change = msgspec.structs.replace
    if isinstance(step.trigger, OnEvent):
        if step.trigger.delay:
            yield change(step, trigger=change(step.trigger, delay=0.0))
        if step.trigger.nth > 1:
            yield change(step, trigger=change(step.trigger, nth=1))
    for duration in (0.5, 1.0, 2.0):
        if duration < step.duration:
            yield change(step, duration=duration)
            break


def write_shrink_note(
    run: Path,
    before: Example,
    after: Example,
    parts: SystemParts,
    *,
    runs: int,
    first: str | None,
    last: str,
    minimal: bool,
) -> None:
    """Writes the result of shrinking into the folder of a run, where its report finds it.

    - ``parts``: the parts of the system
    - ``runs``: the number of runs played
    - ``first``, ``last``: the failure rates before and after
    """
    note = Shrinking(
        runs=runs,
        kept=tuple(parts.describe_step(step).strip() for step in after.schedule.all_steps),
        left_out=tuple(parts.describe_step(step).strip() for step in find_removed_steps(before, after)),
        first=first,
        last=last,
        minimal=minimal,
    )
    (run / SHRINKING).write_bytes(msgspec.json.format(msgspec.json.encode(note)))
