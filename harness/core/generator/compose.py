"""Combinators that work on any worker: choice and repetition, the pace of operations, and reactions to events.

By default the pace is a closed loop: a worker takes its next operation when its last one has completed. A closed loop
slows down with the system and so hides how long callers would have waited (coordinated omission, Tene 2013).
:func:`rate` keeps its schedule however slow the system is, and records the scheduled times.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise

import msgspec

from assay.harness.core.generator.base import NOTHING, Generator, Source, Wrapper, as_generator
from assay.harness.core.generator.context import (
    EXHAUSTED,
    PENDING,
    Answer,
    Context,
    Exhausted,
    Invoke,
    OperationEvent,
    Pending,
    earlier_pending,
)
from assay.harness.core.operation import Operation, Outcome, Phase
from assay.harness.core.timestamps import NANOSECONDS


class Mix(Generator, frozen=True):
    """See :func:`mix`. ``bounds`` are the running sums of the weights; empty if all weights are equal."""

    parts: tuple[Generator, ...]
    bounds: tuple[int, ...] = ()

    def op(self, context: Context) -> tuple[Answer, Generator]:
        chosen = self._choose(context.random)
        inner = context.with_new_random()
        part = self.parts[chosen]
        answer, after = part.op(inner)
        if type(answer) is Invoke:
            return answer, self if after is part else self._replace(chosen, after)
        return self._ask_others(chosen, answer, after, inner)

    def _choose(self, random: int) -> int:
        if not self.bounds:
            return ((random >> 32) * len(self.parts)) >> 32
        point = ((random >> 32) * self.bounds[-1]) >> 32
        return bisect_right(self.bounds, point)

    def _ask_others(self, chosen: int, answer: Answer, after: Generator, inner: Context) -> tuple[Answer, Generator]:
        """Takes the next source that has an operation, because the chosen one has none now. Drops exhausted sources."""
        parts = list(self.parts)
        exhausted: list[int] = []
        pending: Pending | None = None
        for offset in range(len(parts)):
            index = (chosen + offset) % len(parts)
            if offset:
                answer, after = parts[index].op(inner)
            if isinstance(answer, Exhausted):
                exhausted.append(index)
                continue
            parts[index] = after
            if isinstance(answer, Invoke):
                return answer, self._without(parts, exhausted)
            pending = earlier_pending(pending, answer)
        if pending is None:
            return EXHAUSTED, NOTHING
        return pending, self._without(parts, exhausted)

    def _replace(self, index: int, after: Generator) -> Generator:
        return Mix((*self.parts[:index], after, *self.parts[index + 1 :]), self.bounds)

    def _without(self, parts: Sequence[Generator], exhausted: Sequence[int]) -> Generator:
        kept = [index for index in range(len(parts)) if index not in exhausted]
        if not self.bounds or len(kept) == len(parts):
            return Mix(tuple(parts[index] for index in kept), self.bounds)
        weights = [bound - before for before, bound in pairwise((0, *self.bounds))]
        return Mix(tuple(parts[index] for index in kept), tuple(accumulate(weights[index] for index in kept)))

    def update(self, context: Context, event: OperationEvent) -> Generator:
        return Mix(tuple(part.update(context, event) for part in self.parts), self.bounds)

    @property
    def listens(self) -> bool:
        return any(part.listens for part in self.parts)


class Limit(Wrapper, frozen=True):
    """See :func:`limit`. ``left``: how many operations it may still emit."""

    left: int

    def op(self, context: Context) -> tuple[Answer, Generator]:
        if self.left <= 0:
            return EXHAUSTED, NOTHING
        answer, after = self.source.op(context)
        return answer, Limit(after, self.left - 1 if isinstance(answer, Invoke) else self.left)


class Repeat(Wrapper, frozen=True):
    """See :func:`repeat`. ``left``: remaining rounds. ``fresh``: the current round has emitted nothing yet."""

    current: Generator
    left: int | None
    fresh: bool = True

    def op(self, context: Context) -> tuple[Answer, Generator]:
        if self.left is not None and self.left <= 0:
            return EXHAUSTED, NOTHING
        current, left, fresh = self.current, self.left, self.fresh
        while True:
            answer, after = current.op(context)
            if not isinstance(answer, Exhausted):
                return answer, Repeat(self.source, after, left, fresh and not isinstance(answer, Invoke))
            left = None if left is None else left - 1
            if fresh or left == 0:
                return EXHAUSTED, NOTHING
            current, fresh = self.source, True

    def update(self, context: Context, event: OperationEvent) -> Generator:
        return msgspec.structs.replace(self, current=self.current.update(context, event))


class Transform(Wrapper, frozen=True):
    """See :func:`transform`."""

    function: Callable[[Operation], Operation]

    def op(self, context: Context) -> tuple[Answer, Generator]:
        answer, after = self.source.op(context)
        if isinstance(answer, Invoke):
            answer = Invoke(self.function(answer.operation), answer.worker, answer.scheduled)
        return answer, self if after is self.source else Transform(after, self.function)


class TimeLimit(Wrapper, frozen=True):
    """See :func:`time_limit`. ``end`` is set by the first call."""

    span: int
    end: int | None = None

    def op(self, context: Context) -> tuple[Answer, Generator]:
        end = context.time + self.span if self.end is None else self.end
        if context.time >= end:
            return EXHAUSTED, NOTHING
        answer, after = self.source.op(context)
        if isinstance(answer, Pending):
            answer = earlier_pending(answer, Pending(end))
        return answer, TimeLimit(after, self.span, end)


class Stagger(Wrapper, frozen=True):
    """See :func:`stagger`. ``due`` is the earliest time of the next operation."""

    mean: int
    due: int = 0

    def op(self, context: Context) -> tuple[Answer, Generator]:
        if context.time < self.due:
            return Pending(self.due), self
        answer, after = self.source.op(context.with_new_random())
        if not isinstance(answer, Invoke):
            return answer, Stagger(after, self.mean, self.due)
        gap = ((context.random >> 32) * 2 * self.mean) >> 32
        return answer, Stagger(after, self.mean, context.time + gap)


class Rate(Wrapper, frozen=True):
    """See :func:`rate`. Operation *n* is due at ``start + n / per_second``, always from the start to avoid drift."""

    per_second: float
    start: int | None = None
    count: int = 0

    def op(self, context: Context) -> tuple[Answer, Generator]:
        start = context.time if self.start is None else self.start
        due = start + int(self.count * NANOSECONDS / self.per_second)
        if context.time < due:
            return Pending(due), self
        answer, after = self.source.op(context)
        if not isinstance(answer, Invoke):
            return answer, Rate(after, self.per_second, start, self.count)
        return Invoke(answer.operation, answer.worker, due), Rate(after, self.per_second, start, self.count + 1)


class Until(Generator, frozen=True):
    """See :func:`until`."""

    predicate: Callable[[OperationEvent], bool]
    source: Generator

    def op(self, context: Context) -> tuple[Answer, Generator]:
        answer, after = self.source.op(context)
        return answer, self if after is self.source else Until(self.predicate, after)

    def update(self, context: Context, event: OperationEvent) -> Generator:
        if self.predicate(event):
            return NOTHING
        return Until(self.predicate, self.source.update(context, event))


class OnEvent(Generator, frozen=True):
    """See :func:`on_event`. ``queue`` holds the reactions that are not exhausted yet."""

    react: Callable[[OperationEvent], Source]
    source: Generator
    queue: tuple[Generator, ...] = ()

    def op(self, context: Context) -> tuple[Answer, Generator]:
        queue = self.queue
        waiting: Pending | None = None
        while queue:
            answer, after = queue[0].op(context)
            if isinstance(answer, Invoke):
                return answer, OnEvent(self.react, self.source, (after, *queue[1:]))
            if isinstance(answer, Pending):
                waiting, queue = answer, (after, *queue[1:])
                break
            queue = queue[1:]
        answer, after = self.source.op(context)
        following = OnEvent(self.react, after, queue)
        if isinstance(answer, Exhausted) and waiting is None:
            # Completions of operations in progress may still cause a reaction.
            return (PENDING, following) if context.busy else (EXHAUSTED, NOTHING)
        if waiting is not None and not isinstance(answer, Invoke):
            answer = earlier_pending(waiting, answer) if isinstance(answer, Pending) else waiting
        return answer, following

    def update(self, context: Context, event: OperationEvent) -> Generator:
        queue = tuple(part.update(context, event) for part in self.queue)
        answer = self.react(event)
        if answer is not None:
            queue = (*queue, as_generator(answer))
        return OnEvent(self.react, self.source.update(context, event), queue)


def mix(*sources: Source, weights: Sequence[int] | None = None) -> Generator:
    """Takes each operation from a random source, with equal probability or by ``weights`` (one positive integer each).

    A source that has nothing now is skipped. A mix is exhausted when all its sources are.
    """
    parts = tuple(as_generator(source) for source in sources)
    if not parts:
        return NOTHING
    if weights is None:
        return Mix(parts)
    if len(weights) != len(parts) or min(weights) < 1:
        raise ValueError(f"mix takes one positive weight per source: {len(parts)} sources, weights {list(weights)}")
    return Mix(parts, tuple(accumulate(weights)))


def limit(count: int, source: Source) -> Generator:
    """Emits at most ``count`` operations of ``source``."""
    return Limit(as_generator(source), count)


def once(source: Source) -> Generator:
    """Emits the first operation of ``source``."""
    return limit(1, source)


def repeat(source: Source, times: int | None = None) -> Generator:
    """Restarts ``source`` whenever it is exhausted, for ever or for ``times`` rounds in all.

    A round that emits nothing ends the repetition.
    """
    generator = as_generator(source)
    return Repeat(generator, generator, times)


def transform(function: Callable[[Operation], Operation], source: Source) -> Generator:
    """Applies ``function``, which must be pure, to each operation of ``source``."""
    return Transform(as_generator(source), function)


def in_phase(phase: Phase | str, source: Source) -> Generator:
    """Marks the operations of ``source`` as ``main``, ``sentinel`` or ``drain``."""
    marked = Phase(phase)
    return transform(lambda operation: msgspec.structs.replace(operation, phase=marked), source)


def time_limit(seconds: float, source: Source) -> Generator:
    """Runs ``source`` for ``seconds`` from its first call. Operations in progress at the end may complete."""
    return TimeLimit(as_generator(source), int(seconds * NANOSECONDS))


def stagger(seconds: float, source: Source) -> Generator:
    """Delays ``source`` by random gaps, uniform in [0, 2 * seconds), between the operations of all workers together."""
    return Stagger(as_generator(source), int(seconds * NANOSECONDS))


def rate(per_second: float, source: Source) -> Generator:
    """Runs ``source`` as an open loop: operation *n* is due *n* / ``per_second`` seconds after the first.

    If no worker is free, the operation comes late and later ones keep their times. Latency counts from the scheduled
    time, which the history keeps. Raises ``ValueError`` unless ``per_second`` is above 0.
    """
    if per_second <= 0:
        raise ValueError(f"a rate must be above 0 operations a second, not {per_second}")
    return Rate(as_generator(source), per_second)


def until(predicate: Callable[[OperationEvent], bool], source: Source) -> Generator:
    """Runs ``source`` up to the first event (invocation or completion) that satisfies the pure ``predicate``."""
    return Until(predicate, as_generator(source))


def until_ok(operation: Operation, seconds: float = 30.0, pause: float = 0.2) -> Generator:
    """Repeats an operation until one repetition has ended ok, or ``seconds`` have passed since the first.

    For reads after the last heal, when the system may not answer yet. ``pause``: mean seconds between two calls.
    """
    return until(partial(_is_ok, operation), time_limit(seconds, stagger(pause, repeat(operation))))


def _is_ok(operation: Operation, event: OperationEvent) -> bool:
    completed = event.completed
    return event.operation == operation and completed is not None and completed.completion.outcome is Outcome.OK


def on_event(react: Callable[[OperationEvent], Source], source: Source) -> Generator:
    """Runs ``source``, and the generators that the pure ``react`` returns for events. These reactions take precedence.

    It ends when ``source`` and all reactions are exhausted and no operation is in progress.
    """
    return OnEvent(react, as_generator(source))
