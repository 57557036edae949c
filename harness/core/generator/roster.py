"""Who is free, who is busy, which process each worker is: the one changing thing from which contexts are made."""

from assay.harness.core.generator.context import Context, scatter, step_random


class Roster:
    """The workers of a run. Bit *i* of a mask stands for worker *i*."""

    __slots__ = ("busy", "count", "cursor", "everyone", "free", "processes", "random")

    def __init__(self, count: int, seed: int, *, free: bool) -> None:
        """``free``: may workers take operations from the start?"""
        self.count = count
        self.everyone = (1 << count) - 1
        self.free = self.everyone if free else 0
        self.busy = 0
        self.processes = tuple(range(count))
        self.cursor = 0
        self.random = scatter(seed)

    def reseed(self, seed: int) -> None:
        """Chance goes on from another number."""
        self.random = scatter(seed)

    def context(self, now: int) -> Context:
        """The present moment, as a generator sees it."""
        return Context(now, self.free, self.busy, self.everyone, self.processes, self.cursor, self.random)

    def occupy(self, worker: int) -> bool:
        """An operation begins: it is the next worker's turn, and chance moves on. False if the worker is not free."""
        bit = 1 << worker
        if not self.free & bit:
            return False
        self.free ^= bit
        self.busy |= bit
        self.cursor = worker + 1 if worker + 1 < self.count else 0
        self.random = step_random(self.random)
        return True

    def release(self, worker: int) -> None:
        """An operation has ended, and the worker is free."""
        bit = 1 << worker
        self.busy &= ~bit
        self.free |= bit

    def retire(self, worker: int) -> None:
        """An operation has ended ``info``: another process takes over, free once its client is open."""
        self.busy &= ~(1 << worker)
        following = self.processes[worker] + self.count
        self.processes = (*self.processes[:worker], following, *self.processes[worker + 1 :])

    def opened(self, worker: int) -> None:
        """The worker's client is open: it is free."""
        self.free |= 1 << worker
