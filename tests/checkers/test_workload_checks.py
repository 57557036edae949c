"""Checks of workloads accuse no history of a correct system, and agree with definitions written out word by word."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.checkers.judging.verdict import MOST_REASONS, Verdict, limit_reasons
from assay.checkers.workload_checks.catalog import CHECKS
from assay.checkers.workload_checks.workload_result import WorkloadResult
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.stored.set_and_queue_effects import make_set_effects


@dataclass
class Recorder:
    """Concurrent operations with random times, each of which takes effect at one moment of its call."""

    chance: random.Random
    operations: list[Completed] = field(default_factory=list)

    def plan(self, count: int) -> list[tuple[int, int, int, int]]:
        """Moments of effect, calls and returns, and processes, in the order of the effects. All times differ."""
        moments = sorted(self.chance.sample(range(1000, 9000), count))
        spans, used = [], set(moments)
        for moment in moments:
            call = next(time for time in range(moment - self.chance.randrange(1, 900), 0, -1) if time not in used)
            used.add(call)
            ret = next(time for time in range(moment + self.chance.randrange(1, 900), 10**6) if time not in used)
            used.add(ret)
            spans.append((moment, call, ret))
        free: list[int] = []
        planned = []
        for moment, call, ret in spans:
            process = next((number for number, end in enumerate(free) if end < call), len(free))
            free[process : process + 1] = [ret]
            planned.append((moment, call, ret, process))
        return planned

    def add(
        self, span: tuple[int, int, int, int], f: str, argument: Any, result: Any, outcome: Outcome = Outcome.OK
    ) -> None:
        _, call, ret, process = span
        if outcome is Outcome.INFO:
            process += 1000 + len(self.operations)
        self.operations.append(
            Completed(
                len(self.operations), process, str(process), Operation(f, None, argument),
                Completion(outcome, result if outcome is Outcome.OK else None), call,
                None if outcome is Outcome.INFO else ret,
            )
        )  # fmt: skip


def draw_outcome(chance: random.Random) -> Outcome:
    return chance.choices([Outcome.OK, Outcome.FAIL, Outcome.INFO], [8, 1, 1])[0]


def record_counter(chance: random.Random) -> Sequence[Completed]:
    recorder, total = Recorder(chance), 0
    for span in recorder.plan(30):
        if chance.random() < 0.5:
            amount, outcome = chance.randrange(-3, 6), draw_outcome(chance)
            happens = outcome is Outcome.OK or (outcome is Outcome.INFO and chance.random() < 0.5)
            total += amount * happens
            recorder.add(span, "add", amount, amount, outcome)
        else:
            recorder.add(span, "read", None, total)
    last = max(one.call if one.ret is None else one.ret for one in recorder.operations)
    recorder.add((0, last + 1, last + 2, 99), "read", None, total)
    return recorder.operations


def record_set(chance: random.Random) -> Sequence[Completed]:
    recorder, shown = Recorder(chance), list[int]()
    for number, span in enumerate(recorder.plan(30)):
        if chance.random() < 0.6:
            outcome = draw_outcome(chance)
            if outcome is Outcome.OK or (outcome is Outcome.INFO and chance.random() < 0.5):
                shown.append(number)
            recorder.add(span, "write", number, number, outcome)
        else:
            recorder.add(span, "read", None, list(shown))
    return recorder.operations


def record_logs(chance: random.Random) -> Sequence[Completed]:
    """Two logs with gaps. Each process polls on from where it was; at the end another one polls everything."""
    recorder = Recorder(chance)
    logs: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    read: dict[tuple[int, str], int] = {}
    for number, span in enumerate(recorder.plan(40)):
        key, process = chance.choice("ab"), span[3]
        log = logs[key]
        if chance.random() < 0.6:
            outcome = draw_outcome(chance)
            offset = chance.randrange(1, 3) + (log[-1][0] if log else -1)
            if outcome is Outcome.OK or (outcome is Outcome.INFO and chance.random() < 0.5):
                log.append((offset, number))
            recorder.add(span, "send", [["send", key, number]], [["send", key, [offset, number]]], outcome)
        else:
            begin = read.get((process, key), 0)
            end = min(len(log), begin + chance.randrange(1, 4))
            read[process, key] = end
            recorder.add(span, "poll", [["poll"]], [["poll", {key: [list(pair) for pair in log[begin:end]]}]])
    everything = {key: [list(pair) for pair in log] for key, log in logs.items()}
    recorder.add((0, 10**7, 10**7 + 1, 999), "poll", [["poll"]], [["poll", everything]])
    return recorder.operations


@pytest.mark.parametrize(
    ("question", "record"),
    [
        ("counter", record_counter), ("final-sum", record_counter), ("causal-reverse", record_set),
        ("kafka", record_logs),
    ],
)  # fmt: skip
def test_a_correct_system_is_never_accused(question: str, record: Any) -> None:
    for seed in range(100):
        judgement = CHECKS[question].judge(record(random.Random(seed)))
        assert not judgement.violations, (seed, judgement.findings[0].claim)


def test_reads_of_a_set_agree_with_the_definition() -> None:
    """A read that lacks an element must not show one whose write began after the other was acknowledged."""
    for seed in range(200):
        chance = random.Random(seed)
        operations = list(record_set(chance))
        for place, one in enumerate(operations):
            if one.operation.f == "read" and one.completion.result and chance.random() < 0.2:
                shown = list(one.completion.result)
                shown.remove(chance.choice(shown))
                operations[place] = Completed(
                    one.index, one.process, one.worker, one.operation, Completion(Outcome.OK, shown), one.call, one.ret
                )
        writes = [one for one in operations if one.operation.f == "write" and one.completion.outcome != Outcome.FAIL]
        wrong = sum(
            any(
                first.ret is not None
                and first.ret < second.call
                and second.operation.argument in read.completion.result
                and first.operation.argument not in read.completion.result
                for first, second in itertools.permutations(writes, 2)
            )
            for read in operations
            if read.operation.f == "read"
        )
        judgement = CHECKS["causal-reverse"].judge(operations)
        assert sum(judgement.anomalies.values()) == wrong, seed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("anomaly", "damage"),
    [("lost-write", "drop"), ("inconsistent-offset", "alter"), ("nonmonotonic-poll", "repeat"), ("phantom", "invent")],
)
def test_a_damaged_log_is_found(anomaly: str, damage: str) -> None:
    """Damages a poll of a correct history. The anomaly is found in most of these histories."""
    found = 0
    for seed in range(60):
        chance = random.Random(seed)
        operations = list(record_logs(chance))
        polls = [
            place
            for place, one in enumerate(operations)
            if one.operation.f == "poll" and any(one.completion.result[0][1].values())
        ]
        place = polls[-1] if damage in ("drop", "invent") else chance.choice(polls[:-1] or polls)
        one = operations[place]
        polled = {key: [list(pair) for pair in pairs] for key, pairs in one.completion.result[0][1].items()}
        key = max(polled, key=lambda name: len(polled[name]))
        if damage == "drop":
            del polled[key][0]
            others = [operations[other] for other in polls[:-1]]
            operations = [other for other in operations if other not in others]
            place = operations.index(one)
        elif damage == "alter":
            polled[key][0][1] = 999
        elif damage == "repeat":
            polled[key] = [*polled[key], polled[key][0]]
        else:
            polled[key].append([10_000, 998])
        operations[place] = Completed(
            one.index, one.process, one.worker, one.operation, Completion(Outcome.OK, [["poll", polled]]), one.call,
            one.ret,
        )  # fmt: skip
        anomalies = CHECKS["kafka"].judge(operations).anomalies
        names = {anomaly, f"int-{anomaly}"} if damage == "repeat" else {anomaly}
        found += bool(names & anomalies.keys())
    assert found >= 40


@pytest.mark.parametrize("more", [0, 1, 1000])
def test_reasons_of_many_keys_are_limited_and_the_others_are_counted(more: int) -> None:
    reasons = [f"key {number} was never read" for number in range(MOST_REASONS + more)]
    judgement = WorkloadResult(doubts=reasons).to_judgement(0, {}, 0.0)
    assert judgement.verdict is Verdict.UNKNOWN
    assert list(judgement.unknown) == [*reasons[:MOST_REASONS], *([f"and {more} reasons more"] if more else [])]
    done = [
        Completed(number, 0, "0", Operation("add", f"key {number}", 1), Completion(Outcome.OK, 1), number, number + 1)
        for number in range(MOST_REASONS + more)
    ]
    doubts = make_set_effects(done, final_only=False, allows_stale=False).doubts
    assert doubts == limit_reasons(reasons, "sets")
