"""The generator protocol, its leaves, and sequences.

The design follows Jepsen's (jepsen.generator). ``op(context)`` returns an operation, ``Pending`` or ``EXHAUSTED``,
together with the next state of the generator. ``update(context, event)`` notifies it of what happened. A generator is
immutable and has no clock, so a whole test plan can be tested without a cluster and replayed from a seed.

These sources are accepted wherever a generator is expected:

- an ``Operation``: emitted once
- a function of the context: called repeatedly until it returns None
- a list or tuple of sources: one after the other
- None: nothing
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from assay.harness.core.generator.context import EXHAUSTED, PENDING, Answer, Context, Exhausted, Invoke, OperationEvent
from assay.harness.core.operation import Operation


class Generator(msgspec.Struct, frozen=True):
    """Base class of all generators.

    ``main | drain`` and ``main.then(drain)`` are :func:`phases` that :func:`split_phases` can take apart again.
    """

    def op(self, context: Context) -> tuple[Answer, Generator]:
        """Returns the answer and the generator to ask next. Must not answer ``Invoke`` when ``context.free`` is 0."""
        raise TypeError(f"{type(self).__name__} does not define op")

    def update(self, context: Context, event: OperationEvent) -> Generator:
        """Returns the generator after ``event``; ``context`` is the state of the run after the event."""
        return self

    @property
    def listens(self) -> bool:
        """Whether this generator, or any later state of it, reacts to events. Asked once per run; False saves the
        calls.
        """
        return True

    def then(self, following: Source) -> Generator:
        """Returns a generator that begins ``following`` once every operation of this generator has completed."""
        earlier = self.parts if isinstance(self, InSequence) and self.piped else (self,)
        return InSequence((*earlier, as_generator(following)), barrier=True, piped=True)

    __or__ = then


StepFunction = Callable[[Any, Context], tuple[Operation | None, Any]]
Source: TypeAlias = "Generator | Operation | Callable[[Context], Operation | None] | Sequence[Any] | None"


class Leaf(Generator, frozen=True):
    """A generator without parts that ignores events."""

    @property
    def listens(self) -> bool:
        return False


class Wrapper(Generator, frozen=True):
    """A generator that changes the answers of one source, and ignores events itself."""

    source: Generator

    def update(self, context: Context, event: OperationEvent) -> Generator:
        return msgspec.structs.replace(self, source=self.source.update(context, event))

    @property
    def listens(self) -> bool:
        return self.source.listens


class Nothing(Leaf, frozen=True):
    """The empty generator."""

    def op(self, context: Context) -> tuple[Answer, Generator]:
        return EXHAUSTED, self


NOTHING = Nothing()


class OneOperation(Leaf, frozen=True):
    """Emits one operation once."""

    operation: Operation

    def op(self, context: Context) -> tuple[Answer, Generator]:
        if not context.free:
            return PENDING, self
        return Invoke(self.operation, context.pick()), NOTHING


class Unfold(Leaf, frozen=True):
    """See :func:`unfold`."""

    step: StepFunction
    state: Any

    def op(self, context: Context) -> tuple[Answer, Generator]:
        if not context.free:
            return PENDING, self
        operation, state = self.step(self.state, context)
        if operation is None:
            return EXHAUSTED, NOTHING
        return Invoke(operation, context.pick()), Unfold(self.step, state)


class Call(Leaf, frozen=True):
    """Calls a function of the context for each operation."""

    function: Callable[[Context], Operation | None]

    def op(self, context: Context) -> tuple[Answer, Generator]:
        if not context.free:
            return PENDING, self
        operation = self.function(context)
        if operation is None:
            return EXHAUSTED, NOTHING
        return Invoke(operation, context.pick()), self


class InSequence(Generator, frozen=True):
    """See :func:`sequence` and :func:`phases`."""

    parts: tuple[Generator, ...]
    barrier: bool = False
    """Whether a part begins only when all operations of the part before have completed."""
    piped: bool = False
    """Whether it was written ``first | second``, so that :func:`split_phases` may take it apart."""

    def op(self, context: Context) -> tuple[Answer, Generator]:
        parts = self.parts
        while parts:
            answer, after = parts[0].op(context)
            if not isinstance(answer, Exhausted):
                if after is parts[0] and parts is self.parts:
                    return answer, self
                return answer, self._with_parts((after, *parts[1:]))
            parts = parts[1:]
            if self.barrier and parts and context.busy:
                return PENDING, self._with_parts((NOTHING, *parts))
        return EXHAUSTED, NOTHING

    def update(self, context: Context, event: OperationEvent) -> Generator:
        head = self.parts[0].update(context, event)
        return self if head is self.parts[0] else self._with_parts((head, *self.parts[1:]))

    @property
    def listens(self) -> bool:
        return any(part.listens for part in self.parts)

    def _with_parts(self, parts: tuple[Generator, ...]) -> Generator:
        return InSequence(parts, self.barrier, self.piped)


def as_generator(source: Source) -> Generator:
    """Converts any source to a generator; see the module's docstring. Raises ``TypeError`` for anything else."""
    if isinstance(source, Generator):
        return source
    if source is None:
        return NOTHING
    if isinstance(source, Operation):
        return OneOperation(source)
    if isinstance(source, list | tuple):
        return sequence(*source)
    if callable(source):
        return Call(source)
    raise TypeError(f"not a generator, an operation, a function of the context or a list of these: {source!r}")


def unfold(step: StepFunction, state: Any) -> Generator:
    """Generates operations from a state. ``step(state, context)`` returns an operation and the next state.

    An operation of None ends the generator. ``step`` must be pure and must never change the state in place. Example for
    unique values:
    ``unfold(lambda n, context: (Operation("send", argument=n), n + 1), 0)``.
    """
    return Unfold(step, state)


def sequence(*sources: Source) -> Generator:
    """Runs the sources in order. Each begins when the one before is exhausted, even if operations are still open."""
    return _in_sequence(sources, barrier=False)


def phases(*sources: Source) -> Generator:
    """Runs the sources in order. A source begins only when all operations of those before have completed."""
    return _in_sequence(sources, barrier=True)


def split_phases(generator: Generator) -> tuple[Generator, ...]:
    """Returns the parts of ``first | second | ...``, in order; any other generator is its own single part.

    A trial runs the first part under faults, heals, and runs the others.
    """
    if isinstance(generator, InSequence) and generator.piped:
        return generator.parts
    return (generator,)


def remaining_phases(generator: Generator) -> tuple[Generator, ...]:
    """Returns the current and the later parts of a sequence or of phases; any other generator is a single part."""
    if not isinstance(generator, InSequence):
        return (generator,)
    return (*remaining_phases(generator.parts[0]), *generator.parts[1:])


def _in_sequence(sources: Sequence[Source], *, barrier: bool) -> Generator:
    parts = tuple(as_generator(source) for source in sources)
    if not parts:
        return NOTHING
    return parts[0] if len(parts) == 1 else InSequence(parts, barrier)
