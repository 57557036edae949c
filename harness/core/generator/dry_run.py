"""Simulates a generator without clients or clock, to test generators and to inspect a test plan.

The design follows jepsen.generator.test.
"""

import heapq
from collections.abc import Callable
from typing import TypeAlias

from assay.harness.core.generator.base import Generator, Source, as_generator
from assay.harness.core.generator.context import Exhausted, Invoke, OperationEvent, Roster
from assay.harness.core.operation import Completed, Completion, Operation, Outcome

Respond: TypeAlias = Callable[[Operation, int], tuple[int, Outcome]]
"""Function of an operation and its process, which returns the duration in nanoseconds and the outcome."""


def respond_ok(operation: Operation, process: int) -> tuple[int, Outcome]:
    """Completes every operation as ok after a millisecond."""
    return 1_000_000, Outcome.OK


def simulate(
    source: Source, *, workers: int = 3, respond: Respond = respond_ok, seed: int = 0, most: int = 10_000
) -> list[OperationEvent]:
    """Returns the invocations and completions of a run, in the order of a generator's notifications.

    ``respond(operation, process)`` returns the duration of an operation in nanoseconds, and its outcome. The run ends
    when ``source`` is exhausted, or after ``most`` invocations. Raises ``RuntimeError`` if it would wait for ever.
    """
    return _Simulation(as_generator(source), workers, respond, seed).run(most)


class _Simulation:
    def __init__(self, generator: Generator, workers: int, respond: Respond, seed: int) -> None:
        self.generator = generator
        self.respond = respond
        self.roster = Roster(workers, seed, free=True)
        self.time = 0
        self.index = 0
        self.open: list[tuple[int, int, OperationEvent, Outcome]] = []
        """The operations in progress: time of the end, index, invocation, outcome."""
        self.events: list[OperationEvent] = []

    def run(self, most: int) -> list[OperationEvent]:
        exhausted = False
        while self.index < most and not exhausted:
            answer, self.generator = self.generator.op(self.roster.context(self.time))
            if isinstance(answer, Invoke):
                self.invoke(answer)
            elif isinstance(answer, Exhausted):
                exhausted = True
            elif self.open and (answer.until is None or self.open[0][0] <= answer.until):
                self.complete()
            elif answer.until is not None:
                self.time = max(self.time + 1, answer.until)
            else:
                raise RuntimeError(
                    f"generator waits for ever: no operation is running and it names no time: {self.generator}"
                )
        while self.open:
            self.complete()
        return self.events

    def invoke(self, answer: Invoke) -> None:
        process = self.roster.processes[answer.worker]
        if not self.roster.occupy(answer.worker):
            raise RuntimeError(f"{answer} is for a worker that is not free")
        event = OperationEvent(answer.worker, process, answer.operation, self.time)
        duration, outcome = self.respond(answer.operation, process)
        heapq.heappush(self.open, (self.time + duration, self.index, event, outcome))
        self.index += 1
        self.notify(event)

    def complete(self) -> None:
        ret, index, event, outcome = heapq.heappop(self.open)
        self.time = max(self.time, ret)
        info = outcome is Outcome.INFO
        if info:
            self.roster.retire(event.worker)
            self.roster.mark_free(event.worker)
        else:
            self.roster.release(event.worker)
        completed = Completed(
            index,
            event.process,
            f"w{event.worker}",
            event.operation,
            Completion(outcome),
            event.time,
            None if info else ret,
        )
        self.notify(OperationEvent(event.worker, event.process, event.operation, ret, completed))

    def notify(self, event: OperationEvent) -> None:
        self.events.append(event)
        self.generator = self.generator.update(self.roster.context(self.time), event)
