"""Mutable state of the workers: which are free or busy, and their processes. Contexts are made from it."""

from assay.harness.core.generator.context import Context, hash_random, step_random


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

    def opened(self, worker: int) -> None:
        """Marks the worker as free because its client is open."""
        self.free |= 1 << worker
