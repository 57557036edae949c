"""What a generator is called with, and what it may answer.

Sets of workers are integers with one bit per worker: immutable, compared at a glance, restricted with ``&``; building
one costs nothing on the path that every operation takes. Randomness is a number in the context: the interpreter
steps it once per operation that was emitted, generators that need chance derive theirs from it. An answer is therefore
a function of the generator's value and the context, and asking twice gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from assay.harness.core.operation import Completed, Operation

T = TypeVar("T")

_WORD = (1 << 64) - 1


def step_random(state: int) -> int:
    """The next state of a 64-bit linear congruential sequence (Knuth, MMIX); its upper bits are the good ones."""
    return (state * 6364136223846793005 + 1442695040888963407) & _WORD


def scatter(state: int) -> int:
    """A number that looks unrelated to ``state``: the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    state = (state + 0x9E3779B97F4A7C15) & _WORD
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _WORD
    return state ^ (state >> 31)


class Context(msgspec.Struct, frozen=True):
    """The state of the run as a generator sees it. Bit *i* of a mask stands for worker *i*."""

    time: int
    """Nanoseconds since the run began."""
    free: int
    """Workers that could take an operation now."""
    busy: int
    """Workers with an operation under way. One whose client is being opened is neither free nor busy."""
    workers: int
    """All workers that this generator may use."""
    processes: tuple[int, ...]
    """The process that each worker is now; indexed by worker, of all workers of the run."""
    cursor: int = 0
    """The worker whose turn it is; it and those after it are taken first, so that shares stay equal."""
    random: int = 0
    """64 bits of chance for this operation."""

    def pick(self) -> int:
        """The free worker whose turn it is. Raises ``ValueError`` when none is free."""
        later = self.free >> self.cursor
        if later:
            return self.cursor + (later & -later).bit_length() - 1
        if not self.free:
            raise ValueError("no worker is free")
        return (self.free & -self.free).bit_length() - 1

    def restrict(self, mask: int) -> Context:
        """The same moment, as if only the workers of ``mask`` existed."""
        return Context(
            self.time, self.free & mask, self.busy & mask, self.workers & mask, self.processes, self.cursor, self.random
        )

    def derive(self) -> Context:
        """The same moment with other chance, for a generator below one that has used this context's."""
        return Context(self.time, self.free, self.busy, self.workers, self.processes, self.cursor, scatter(self.random))

    def below(self, limit: int, salt: int = 0) -> int:
        """A whole number in ``[0, limit)`` by chance; equal for equal salts, unrelated for different ones."""
        return ((scatter(self.random ^ salt) >> 32) * limit) >> 32

    def choose(self, options: Sequence[T], salt: int = 0) -> T:
        """One of ``options`` by chance."""
        return options[self.below(len(options), salt)]

    def free_in_turn(self) -> Iterator[int]:
        """The free workers, the one whose turn it is first."""
        behind = (1 << self.cursor) - 1
        yield from bits(self.free & ~behind)
        yield from bits(self.free & behind)


def bits(mask: int) -> Iterator[int]:
    """The workers of a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Invoke(msgspec.Struct, frozen=True):
    """Answer: invoke this, on that worker, now. The worker must be free in the context that was given."""

    operation: Operation
    worker: int
    scheduled: int | None = None
    """When it was due, for an open loop; its latency counts from then. Nanoseconds since the run began."""


class Pending(msgspec.Struct, frozen=True):
    """Answer: nothing now. Ask again at ``until`` (nanoseconds), or when something happens, whichever is first."""

    until: int | None = None


class Exhausted(msgspec.Struct, frozen=True):
    """Answer: nothing ever again."""


PENDING = Pending()
EXHAUSTED = Exhausted()

Answer = Invoke | Pending | Exhausted


class OperationEvent(msgspec.Struct, frozen=True):
    """An operation was invoked (``completed`` is None) or has completed."""

    worker: int
    process: int
    operation: Operation
    time: int
    completed: Completed | None = None


def sooner(one: Pending, other: Pending) -> Pending:
    """Pending until the first of the two."""
    if one.until is None:
        return other
    if other.until is None or one.until <= other.until:
        return one
    return other
