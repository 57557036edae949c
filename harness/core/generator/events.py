"""Generators that react to events: until, on event."""

from collections.abc import Callable

from assay.harness.core.generator.base import NOTHING, Generator, Source, as_generator
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


def until(predicate: Callable[[OperationEvent], bool], source: Source) -> Generator:
    """Runs ``source`` up to the first event (invocation or completion) that satisfies the pure ``predicate``."""
    return Until(predicate, as_generator(source))


def on_event(react: Callable[[OperationEvent], Source], source: Source) -> Generator:
    """Runs ``source``, and the generators that the pure ``react`` returns for events, which take precedence.

    It ends when ``source`` and all reactions are exhausted and no operation is in progress.
    """
    return OnEvent(react, as_generator(source))
