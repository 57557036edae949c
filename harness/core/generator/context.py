"""The state of the run that a generator is called with, and the answers that it may give.

A set of workers is an integer with one bit per worker: immutable, and cheap to build, compare and restrict (``&``).
Randomness is a number in the context. The interpreter steps it once per emitted operation, and generators derive their
random numbers from it. An answer is therefore a function of the generator and the context, and asking twice gives the
same answer.

``Roster`` is the mutable state of the workers from which contexts are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from assay.harness.core.operation import Completed, Operation

T = TypeVar("T")

_WORD = (1 << 64) - 1


def step_random(state: int) -> int:
    """Returns the next state of a 64-bit linear congruential generator (Knuth, MMIX). Only its upper bits are good."""
    return (state * 6364136223846793005 + 1442695040888963407) & _WORD


def hash_random(state: int) -> int:
    """Returns a pseudo-random hash of ``state``: the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    state = (state + 0x9E3779B97F4A7C15) & _WORD
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _WORD
    return state ^ (state >> 31)


class Context(msgspec.Struct, frozen=True):
    """The state of the run as a generator sees it. Bit *i* of a mask stands for worker *i*."""

    time: int
    """Nanoseconds since the run began."""
    free: int
    """Workers that can take an operation now."""
    busy: int
    """Workers with an operation in progress. A worker whose client is being opened is neither free nor busy."""
    workers: int
    """All workers that this generator may use."""
    processes: tuple[int, ...]
    """The current process of each worker, indexed by worker, for all workers of the run."""
    cursor: int = 0
    """The worker whose turn it is. Workers are taken round-robin from here, so that shares stay equal."""
    random: int = 0
    """64 random bits for this operation."""

    def pick(self) -> int:
        """Returns the next free worker in turn. Raises ``ValueError`` if none is free."""
        later = self.free >> self.cursor
        if later:
            return self.cursor + (later & -later).bit_length() - 1
        if not self.free:
            raise ValueError("no worker is free")
        return (self.free & -self.free).bit_length() - 1

    def restrict(self, mask: int) -> Context:
        """Returns this context as if only the workers of ``mask`` existed."""
        return Context(
            self.time, self.free & mask, self.busy & mask, self.workers & mask, self.processes, self.cursor, self.random
        )

    def with_new_random(self) -> Context:
        """Returns this context with other random bits, for a nested generator whose parent has used these."""
        return Context(
            self.time, self.free, self.busy, self.workers, self.processes, self.cursor, hash_random(self.random)
        )

    def random_below(self, limit: int, salt: int = 0) -> int:
        """Returns a random integer in ``[0, limit)``. It is equal for equal salts and unrelated for different ones."""
        return ((hash_random(self.random ^ salt) >> 32) * limit) >> 32

    def choose(self, options: Sequence[T], salt: int = 0) -> T:
        """Returns a random element of ``options``."""
        return options[self.random_below(len(options), salt)]

    def free_in_turn(self) -> Iterator[int]:
        """Yields the free workers in turn, from the cursor on."""
        behind = (1 << self.cursor) - 1
        yield from iterate_bits(self.free & ~behind)
        yield from iterate_bits(self.free & behind)


def iterate_bits(mask: int) -> Iterator[int]:
    """Yields the workers of a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Invoke(msgspec.Struct, frozen=True):
    """Answer: invoke this operation now on this worker, which must be free in the given context."""

    operation: Operation
    worker: int
    scheduled: int | None = None
    """When an open loop scheduled the operation, in nanoseconds since the run began. Latency counts from then."""


class Pending(msgspec.Struct, frozen=True):
    """Answer: nothing now. Ask again at time ``until`` (nanoseconds), or earlier if an event occurs."""

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


def earlier_pending(one: Pending | None, other: Pending) -> Pending:
    """Returns the earlier of the two, or ``other`` if there is only one. None as ``until`` counts as never."""
    if one is None or one.until is None:
        return other
    if other.until is None or one.until <= other.until:
        return one
    return other


class Roster:
    """The workers of a run. Bit *i* of a mask stands for worker *i*."""

    __slots__ = ("busy", "count", "cursor", "everyone", "free", "processes", "random")

    def __init__(self, count: int, seed: int, *, free: bool) -> None:
        """``free``: whether workers may take operations from the start."""
        self.count = count
        self.everyone = (1 << count) - 1
        self.free = self.everyone if free else 0
        self.busy = 0
        self.processes = tuple(range(count))
        self.cursor = 0
        self.random = hash_random(seed)

    def reseed(self, seed: int) -> None:
        """Restarts the random sequence from ``seed``."""
        self.random = hash_random(seed)

    def context(self, now: int) -> Context:
        """Returns the current state as a generator sees it."""
        return Context(now, self.free, self.busy, self.everyone, self.processes, self.cursor, self.random)

    def occupy(self, worker: int) -> bool:
        """Begins an operation: moves the cursor and the random sequence on. Returns False if the worker is not free."""
        bit = 1 << worker
        if not self.free & bit:
            return False
        self.free ^= bit
        self.busy |= bit
        self.cursor = worker + 1 if worker + 1 < self.count else 0
        self.random = step_random(self.random)
        return True

    def release(self, worker: int) -> None:
        """Ends an operation; the worker is free."""
        bit = 1 << worker
        self.busy &= ~bit
        self.free |= bit

    def retire(self, worker: int) -> None:
        """Ends an operation as ``info``: a new process takes over, and is free once its client is open."""
        self.busy &= ~(1 << worker)
        following = self.processes[worker] + self.count
        self.processes = (*self.processes[:worker], following, *self.processes[worker + 1 :])

    def mark_free(self, worker: int) -> None:
        """Marks the worker as free because its client is open."""
        self.free |= 1 << worker
