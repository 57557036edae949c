"""What a generator would do, with no clients and no clock: to test generators, and to look at a test plan.

After jepsen.generator.test.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

from harness.core.generator.base import Generator, Source, as_generator
from harness.core.generator.context import Context, Event, Exhausted, Invoke, bits, scatter, step_random
from harness.core.operation import Completed, Completion, Operation, Outcome

Respond: TypeAlias = Callable[[Operation, int], tuple[int, Outcome]]


def perfect(operation: Operation, process: int) -> tuple[int, Outcome]:
    """Every operation takes a millisecond and is ok."""
    return 1_000_000, Outcome.OK


def simulate(
    source: Source, *, workers: int = 3, respond: Respond = perfect, seed: int = 0, most: int = 10_000
) -> list[Event]:
    """The invocations and completions of a run, in order, as a generator would hear of them.

    ``respond(operation, process)`` says after how many nanoseconds an operation ends, and how. The run ends when
    ``source`` is exhausted, or after ``most`` invocations. Raises ``RuntimeError`` when it would wait for ever.
    """
    return _Simulation(as_generator(source), workers, respond, seed).run(most)


class _Simulation:
    def __init__(self, generator: Generator, workers: int, respond: Respond, seed: int) -> None:
        self.generator = generator
        self.workers = workers
        self.respond = respond
        self.random = scatter(seed)
        self.free = (1 << workers) - 1
        self.processes = list(range(workers))
        self.cursor = 0
        self.time = 0
        self.index = 0
        self.open: list[tuple[int, int, Event, Outcome]] = []
        self.events: list[Event] = []

    def run(self, most: int) -> list[Event]:
        exhausted = False
        while self.index < most:
            answer, self.generator = self.generator.op(self.context())
            if isinstance(answer, Invoke):
                self.invoke(answer)
                continue
            exhausted = isinstance(answer, Exhausted)
            until = None if isinstance(answer, Exhausted) else answer.until
            if exhausted or (until is None and not self.open):
                break
            if self.open and (until is None or self.open[0][0] <= until):
                self.complete()
            else:
                self.time = max(self.time + 1, until or 0)
        if not exhausted and self.index < most:
            raise RuntimeError(f"{self.generator} waits for ever: nothing is under way and it names no time")
        while self.open:
            self.complete()
        return self.events

    def context(self) -> Context:
        everyone = (1 << self.workers) - 1
        busy = everyone & ~self.free
        return Context(self.time, self.free, busy, everyone, tuple(self.processes), self.cursor, self.random)

    def invoke(self, answer: Invoke) -> None:
        if answer.worker not in bits(self.free):
            raise RuntimeError(f"{answer} is for a worker that is not free")
        process = self.processes[answer.worker]
        event = Event(answer.worker, process, answer.operation, self.time)
        after, outcome = self.respond(answer.operation, process)
        heapq.heappush(self.open, (self.time + after, self.index, event, outcome))
        self.free &= ~(1 << answer.worker)
        self.cursor = (answer.worker + 1) % self.workers
        self.random = step_random(self.random)
        self.index += 1
        self.tell(event)

    def complete(self) -> None:
        ret, index, event, outcome = heapq.heappop(self.open)
        self.time = max(self.time, ret)
        completed = Completed(
            index,
            event.process,
            f"w{event.worker}",
            event.operation,
            Completion(outcome),
            event.time,
            None if outcome is Outcome.INFO else ret,
        )
        self.free |= 1 << event.worker
        if outcome is Outcome.INFO:
            self.processes[event.worker] += self.workers
        self.tell(Event(event.worker, event.process, event.operation, ret, completed))

    def tell(self, event: Event) -> None:
        self.events.append(event)
        self.generator = self.generator.update(self.context(), event)
