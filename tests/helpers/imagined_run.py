"""Plays a generator without a cluster and without a clock."""

from __future__ import annotations

import random
from collections.abc import Callable

from assay.harness.core.generator import Context, Exhausted, Generator, Invoke, OperationEvent
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.core.timestamps import NANOSECONDS

Answer = Callable[[int, Operation], Completion]
"""Returns a process's answer to an operation."""


class ImaginedRun:
    """Plays a generator with two workers; each operation takes 10 ms and is answered by ``answer``."""

    def __init__(self, generator: Generator, answer: Answer, order: random.Random) -> None:
        self.generator = generator
        self.answer = answer
        self.order = order
        self.time = 0
        self.processes = [0, 1]
        self.open: list[tuple[int, Operation]] = []
        self.completed: list[Completed] = []

    def context(self) -> Context:
        busy = sum(1 << worker for worker, _ in self.open)
        return Context(self.time, 0b11 & ~busy, busy, 0b11, tuple(self.processes))

    def run(self) -> list[Completed]:
        for _ in range(100_000):
            answer, self.generator = self.generator.op(self.context())
            if isinstance(answer, Exhausted):
                if not self.open:
                    return self.completed
                self.complete()
            elif isinstance(answer, Invoke):
                assert self.context().free >> answer.worker & 1, "an operation for a worker that is not free"
                self.open.append((answer.worker, answer.operation))
                self.tell(answer.worker, answer.operation, None)
            elif self.open:
                self.complete()
            else:
                assert answer.until is not None, "nothing is open and the generator waits for ever"
                assert answer.until > self.time, "the generator asks to be asked in the past"
                self.time = answer.until
        raise AssertionError("the drain does not end")

    def complete(self) -> None:
        self.time += NANOSECONDS // 100
        worker, operation = self.open.pop(self.order.randrange(len(self.open)))
        completion = self.answer(self.processes[worker], operation)
        done = Completed(len(self.completed), self.processes[worker], f"w{worker}", operation, completion, 0, self.time)
        self.completed.append(done)
        if completion.outcome is Outcome.INFO:
            self.processes[worker] += 2
        self.tell(worker, operation, done)

    def tell(self, worker: int, operation: Operation, done: Completed | None) -> None:
        process = done.process if done else self.processes[worker]
        self.generator = self.generator.update(
            self.context(), OperationEvent(worker, process, operation, self.time, done)
        )
