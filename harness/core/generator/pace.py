"""The pace of operations: time limits, stagger, and the open loop.

The default is a closed loop: a worker takes its next operation when its last one has completed. A closed loop slows
down with the system and so hides how long callers would have waited (coordinated omission, Tene 2013). :func:`rate`
keeps its schedule however slow the system is, and records the scheduled times.
"""

from assay.harness.core.generator.base import NOTHING, Generator, Source, Wrapper, as_generator
from assay.harness.core.generator.context import EXHAUSTED, Answer, Context, Invoke, Pending, earlier_pending
from assay.harness.core.timestamps import NANOSECONDS


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
