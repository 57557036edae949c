"""A phase after the last heal ends at the drain limit, unless it reads records that are new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.core.generator import (
    Generator,
    describe_generator,
    in_phase,
    limit,
    mix,
    phases,
    repeat,
    stagger,
    unfold,
)
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome, Phase
from assay.harness.run.attempt import Attempt, ReportPolicy
from assay.harness.run.drain_watchdog import NewRecordCounter, compute_drain_limit
from assay.harness.run.experiment import Experiment
from assay.harness.run.settings import Settings

pytestmark = pytest.mark.slow

KEYS = ("orders-0",)
POLL = Operation("poll", KEYS[0], {"start": "earliest"}, Phase.DRAIN)
CONTRACT = Contract(minimum_during_fault=0, recovery_deadline=4.0).tolerate("unseen")
SETTINGS = Settings(seed=4, nodes=1, time_limit=1.0, rate=50.0, concurrency=1, drain_limit=3.0)


def sends(phase: Phase) -> Generator:
    first = 1 if phase is Phase.MAIN else 10_000
    return unfold(lambda n, context: (Operation("send", KEYS[0], [n], phase), n + 1), first)


def judged(toy: ModuleType, root: Path, later: Any) -> Judgement:
    made = Experiment("test_toy", toy.ToySystem(), toy.ToyClient, CONTRACT, lambda settings: sends(Phase.MAIN) | later)
    run = Attempt(
        made, replace(SETTINGS, store=root), "toy.py::test_toy[none]", "pytest toy.py", reports=ReportPolicy.NEVER
    )
    try:
        run.set_up()
        run.run()
    finally:
        run.tear_down()
    assert run.judgement is not None
    return run.judgement


@pytest.mark.parametrize(
    ("later", "name"),
    [
        (stagger(0.05, repeat(POLL)), "stagger(repeat(poll))"),
        (stagger(0.05, mix(sends(Phase.DRAIN), repeat(POLL))), "stagger(mix(unfold("),
        (phases(limit(3, stagger(0.5, POLL)), stagger(0.05, repeat(POLL))), "stagger(repeat(poll))"),
    ],
    ids=["equal answers", "its own records", "the second of two phases"],
)
def test_a_phase_that_reads_nothing_new_is_ended_and_named(
    toy: ModuleType, tmp_path: Path, later: Generator, name: str
) -> None:
    judgement = judged(toy, tmp_path, later)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.unknown[0].startswith(f"the generator {name}")
    assert "did not end: for 3 s after all faults were healed it read no record that was new" in judgement.unknown[0]


def test_records_that_are_new_extend_it(toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plainly = toy.ToyClient.ask

    async def one_by_one(self: Any, **request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = await plainly(self, **request)
        return answer | {"records": answer["records"][:1]} if "records" in answer else answer

    monkeypatch.setattr(toy.ToyClient, "ask", one_by_one)
    judgement = judged(toy, tmp_path, limit(20, stagger(1.0, repeat(POLL))))
    assert not [reason for reason in judgement.unknown if "did not end" in reason]


class Kept(list[Completed]):
    """A recorder."""

    def completed(self, completed: Completed, effects: Sequence[Effect]) -> None:
        self.append(completed)


def test_what_is_counted() -> None:
    kept = Kept()
    records = NewRecordCounter(kept)

    def add(*effects: Effect, outcome: Outcome = Outcome.OK) -> int:
        records.completed(Completed(0, 0, "w0", POLL, Completion(outcome), 1, 2), effects)
        return records.count

    read, other = Effect("observe", "k", position=1, value=7), Effect("observe", "k", position=2, value=8)
    assert add(read) == 0, "under faults, nothing has a limit"
    records.enabled = True
    assert add(read) == 1
    assert add(read, read) == 1
    assert add(Effect("append", "k", value=9), Effect("observe", "k", value=9)) == 1
    assert add(other) == 2
    assert add(Effect("observe", "k", value=10), outcome=Outcome.INFO) == 2
    assert add(Effect("register-read", "k", value=11)) == 2, "a value is no record"
    assert len(kept) == 7


def test_the_default_comes_from_the_longest_deadline() -> None:
    settings = Settings(seed=1, operation_timeout=2.0)
    assert compute_drain_limit(Contract(recovery_deadline=20.0), settings) == 26.0
    assert compute_drain_limit(Contract(recovery_deadline=20.0, deletion_deadline=90.0), settings) == 96.0


def test_generators_are_named_as_their_author_knows_them() -> None:
    def mine(context: Any) -> Operation:
        return POLL

    assert describe_generator(repeat(mine)).startswith("repeat(")
    assert "mine at test_drain_limit.py:" in describe_generator(repeat(in_phase("drain", mine)))
    assert describe_generator(mix(*[POLL] * 5)) == "mix(poll, poll, poll, ...)"
