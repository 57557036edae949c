"""The drain, played against an imagined log: no cluster, no clock."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.harness.core.operation import Completion, Operation, Outcome, Phase
from assay.harness.core.timestamps import NANOSECONDS
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import effects

from helpers.examples import some_of
from helpers.imagined_run import ImaginedRun

KEYS = ("orders-0", "orders-1", "orders-2")


class ImaginedLog:
    """Keeps values per key; a reader sees two records at a time; fails or stays silent as ``luck`` has it."""

    def __init__(self, luck: random.Random, trouble: float) -> None:
        self.luck = luck
        self.trouble = trouble
        self.logs = {key: [7, 8, 9] for key in KEYS}
        self.position: dict[str, int] = {}

    def answer(self, process: int, operation: Operation) -> Completion:
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
        if operation.f == "end":
            return Completion(Outcome.OK, {"offset": len(log)})
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


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2, 0.6]))
def test_a_partition_that_is_drained_in_silence_is_read_to_its_end_and_not_written_to(
    seed: int, trouble: float
) -> None:
    log = ImaginedLog(random.Random(seed), trouble)
    log.logs["orders-1"] = []
    completed = ImaginedRun(drain(KEYS, seconds=1_000, silent=True), log.answer, random.Random(seed + 1)).run()
    assert {(done.operation.f, done.operation.phase) for done in completed} == {
        ("end", Phase.DRAIN),
        ("poll", Phase.DRAIN),
    }
    rows = [effect for done in completed for effect in effects(done)]
    assert not [row for row in rows if row.kind == "drained"], "there is no sentinel that says so"
    for key in KEYS:
        seen = {row.position for row in rows if row.key == key and row.kind == "observe"}
        assert seen == set(range(len(log.logs[key])))


@settings(max_examples=some_of(30))
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
    run = ImaginedRun(drain(KEYS, seconds=3), lambda *_: Completion(Outcome.FAIL, error="refused"), random.Random(1))
    completed = run.run()
    assert 2.5 * NANOSECONDS < run.time <= 3.5 * NANOSECONDS
    assert len(completed) > 3
    assert all(done.operation.phase is Phase.SENTINEL for done in completed)
    assert not any(effect.kind == "drained" for done in completed for effect in effects(done))


def test_a_failed_attempt_is_followed_by_a_pause_not_by_a_storm() -> None:
    run = ImaginedRun(drain(("k",), seconds=2), lambda *_: Completion(Outcome.FAIL, error="refused"), random.Random(1))
    assert len(run.run()) <= 11


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.INFO])
def test_after_trouble_a_partition_is_read_from_its_beginning_again(outcome: Outcome) -> None:
    log = ImaginedLog(random.Random(0), 0.0)
    polls: list[bool] = []

    def answer(process: int, operation: Operation) -> Completion:
        if operation.f == "poll":
            polls.append(operation.argument["seek"])
            if len(polls) == 2:
                return Completion(outcome, error="trouble")
        return log.answer(process, operation)

    ImaginedRun(drain(("orders-0",), seconds=100), answer, random.Random(0)).run()
    assert polls[:4] == [True, False, True, False]
