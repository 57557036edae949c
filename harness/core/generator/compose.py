"""Combinators that work on any worker: mix, limit, once, repeat, transform, in phase."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

import msgspec

from assay.harness.core.generator.base import NOTHING, Generator, Source, Wrapper, as_generator
from assay.harness.core.generator.context import (
    EXHAUSTED,
    Answer,
    Context,
    Exhausted,
    Invoke,
    OperationEvent,
    Pending,
    earlier_pending,
)
from assay.harness.core.operation import Operation, Phase


class Mix(Generator, frozen=True):
    """See :func:`mix`. ``bounds`` are the running sums of the weights; empty if all weights are equal."""

    parts: tuple[Generator, ...]
    bounds: tuple[int, ...] = ()

    def op(self, context: Context) -> tuple[Answer, Generator]:
        chosen = self._choose(context.random)
        below = context.with_new_random()
        part = self.parts[chosen]
        answer, after = part.op(below)
        if type(answer) is Invoke:
            return answer, self if after is part else self._replace(chosen, after)
        return self._instead(chosen, answer, after, below)

    def _choose(self, random: int) -> int:
        if not self.bounds:
            return ((random >> 32) * len(self.parts)) >> 32
        point = ((random >> 32) * self.bounds[-1]) >> 32
        return bisect_right(self.bounds, point)

    def _instead(self, chosen: int, answer: Answer, after: Generator, below: Context) -> tuple[Answer, Generator]:
        """Takes the next source that has an operation, because the chosen one has none now. Drops exhausted sources."""
        parts = list(self.parts)
        exhausted: list[int] = []
        pending: Pending | None = None
        for offset in range(len(parts)):
            at = (chosen + offset) % len(parts)
            if offset:
                answer, after = parts[at].op(below)
            if isinstance(answer, Exhausted):
                exhausted.append(at)
                continue
            parts[at] = after
            if isinstance(answer, Invoke):
                return answer, self._without(parts, exhausted)
            pending = answer if pending is None else earlier_pending(pending, answer)
        if pending is None:
            return EXHAUSTED, NOTHING
        return pending, self._without(parts, exhausted)

    def _replace(self, at: int, after: Generator) -> Generator:
        return Mix((*self.parts[:at], after, *self.parts[at + 1 :]), self.bounds)

    def _without(self, parts: Sequence[Generator], exhausted: Sequence[int]) -> Generator:
        kept = [at for at in range(len(parts)) if at not in exhausted]
        if not self.bounds or len(kept) == len(parts):
            return Mix(tuple(parts[at] for at in kept), self.bounds)
        weights = _weights_of_sums(self.bounds)
        return Mix(tuple(parts[at] for at in kept), _running_sums([weights[at] for at in kept]))

    def update(self, context: Context, event: OperationEvent) -> Generator:
        return Mix(tuple(part.update(context, event) for part in self.parts), self.bounds)

    @property
    def listens(self) -> bool:
        return any(part.listens for part in self.parts)


class Limit(Wrapper, frozen=True):
    """See :func:`limit`."""

    left: int

    def op(self, context: Context) -> tuple[Answer, Generator]:
        if self.left <= 0:
            return EXHAUSTED, NOTHING
        answer, after = self.source.op(context)
        return answer, Limit(after, self.left - 1 if isinstance(answer, Invoke) else self.left)


class Repeat(Wrapper, frozen=True):
    """See :func:`repeat`. ``fresh``: the current round has emitted nothing yet."""

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
    return Mix(parts, _running_sums(weights))


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


def _running_sums(weights: Sequence[int]) -> tuple[int, ...]:
    total = 0
    bounds = []
    for weight in weights:
        total += weight
        bounds.append(total)
    return tuple(bounds)


def _weights_of_sums(bounds: Sequence[int]) -> list[int]:
    return [bound - before for bound, before in zip(bounds, (0, *bounds[:-1]), strict=True)]
