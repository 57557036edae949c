"""The drain, played against an imagined log: no cluster, no clock."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.generator import Context, Event, Exhausted, Generator, Invoke
from harness.core.operation import Completed, Completion, Operation, Outcome, Phase
from harness.core.stamps import NANOSECONDS
from workloads.log_drain import drain
from workloads.log_operations import effects

KEYS = ("orders-0", "orders-1", "orders-2")
Answer = Callable[[Operation], Completion]


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
        completion = self.answer(operation)
        done = Completed(len(self.completed), self.processes[worker], f"w{worker}", operation, completion, 0, self.time)
        self.completed.append(done)
        if completion.outcome is Outcome.INFO:
            self.processes[worker] += 2
        self.tell(worker, operation, done)

    def tell(self, worker: int, operation: Operation, done: Completed | None) -> None:
        process = done.process if done else self.processes[worker]
        self.generator = self.generator.update(self.context(), Event(worker, process, operation, self.time, done))


class ImaginedLog:
    """Keeps values per key; a reader sees two records at a time; fails or stays silent as ``luck`` has it."""

    def __init__(self, luck: random.Random, trouble: float) -> None:
        self.luck = luck
        self.trouble = trouble
        self.logs = {key: [7, 8, 9] for key in KEYS}
        self.position: dict[str, int] = {}

    def answer(self, operation: Operation) -> Completion:
        assert operation.key is not None
        log = self.logs[operation.key]
        if self.luck.random() < self.trouble:
            if operation.f == "send" and self.luck.random() < 0.5:
                log.extend(operation.argument)
                return Completion(Outcome.INFO, error="timeout")
            return Completion(Outcome.FAIL, error="not-leader")
        if operation.f == "send":
            log.extend(operation.argument)
            return Completion(Outcome.OK, {"offset": len(log) - 1})
        begin = 0 if operation.argument["seek"] else self.position[operation.key]
        end = min(begin + 2, len(log))
        self.position[operation.key] = end
        records = [[offset, log[offset]] for offset in range(begin, end)]
        return Completion(Outcome.OK, {"begin": begin, "records": records, "end": end, "assignment": 0})


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2, 0.6]))
def test_every_partition_is_read_from_its_beginning_past_its_sentinel(seed: int, trouble: float) -> None:
    log = ImaginedLog(random.Random(seed), trouble)
    completed = ImaginedRun(drain(KEYS, seconds=1_000), log.answer, random.Random(seed + 1)).run()
    rows = [(done, effect) for done in completed for effect in effects(done)]
    for key in KEYS:
        sentinels = [
            effect.position
            for done, effect in rows
            if effect.key == key and effect.kind == "append" and done.completion.outcome is Outcome.OK
        ]
        drained = [effect.position for _, effect in rows if effect.key == key and effect.kind == "drained"]
        assert len(sentinels) == 1, "one acknowledged sentinel, and no further attempt"
        assert drained == [sentinels[0] + 1]  # type: ignore[operator]
        seen = {effect.position for _, effect in rows if effect.key == key and effect.kind == "observe"}
        assert seen >= set(range(sentinels[0] + 1))  # type: ignore[operator]


@settings(max_examples=30)
@given(st.integers(0, 1_000))
def test_values_of_sentinels_are_unique_per_key_and_never_those_of_the_main_phase(seed: int) -> None:
    log = ImaginedLog(random.Random(seed), 0.7)
    completed = ImaginedRun(drain(KEYS, seconds=1_000), log.answer, random.Random(seed)).run()
    for key in KEYS:
        sent = [
            value
            for done in completed
            if done.operation.f == "send" and done.operation.key == key
            for value in done.operation.argument
        ]
        assert len(sent) == len(set(sent))
        assert max(sent) < 0


def test_a_log_that_is_dead_is_given_up_at_the_deadline() -> None:
    run = ImaginedRun(drain(KEYS, seconds=3), lambda _: Completion(Outcome.FAIL, error="refused"), random.Random(1))
    completed = run.run()
    assert 2.5 * NANOSECONDS < run.time <= 3.5 * NANOSECONDS
    assert len(completed) > 3
    assert all(done.operation.phase is Phase.SENTINEL for done in completed)
    assert not any(effect.kind == "drained" for done in completed for effect in effects(done))


def test_a_failed_attempt_is_followed_by_a_pause_not_by_a_storm() -> None:
    run = ImaginedRun(drain(("k",), seconds=2), lambda _: Completion(Outcome.FAIL, error="refused"), random.Random(1))
    assert len(run.run()) <= 11


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.INFO])
def test_after_trouble_a_partition_is_read_from_its_beginning_again(outcome: Outcome) -> None:
    log = ImaginedLog(random.Random(0), 0.0)
    polls: list[bool] = []

    def answer(operation: Operation) -> Completion:
        if operation.f == "poll":
            polls.append(operation.argument["seek"])
            if len(polls) == 2:
                return Completion(outcome, error="trouble")
        return log.answer(operation)

    ImaginedRun(drain(("orders-0",), seconds=100), answer, random.Random(0)).run()
    assert polls[:4] == [True, False, True, False]
