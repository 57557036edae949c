"""Bursts of asynchronous sends: what they leave in a history, and the defect that they are there for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.harness.core.generator import Context, Invoke
from assay.harness.core.history import HistoryReader
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.run.attempt import Attempt
from assay.harness.run.settings import Settings
from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import SendFailed, SendUnknown
from assay.workloads import test_async_sends
from assay.workloads.broker import bursts
from assay.workloads.broker.bursts import LONGEST, SHORTEST, Burst

from helpers.attempts import played

SCHEDULE = Path(__file__).parents[2] / "schedules" / "shrunk" / "retry-reorders.json"


def test_bursts_have_fresh_values_and_several_sets() -> None:
    generator: Any = Burst.draw(["orders-0", "orders-1"])
    made: list[Operation] = []
    for number in range(200):
        answer, generator = generator.op(Context(number, 1, 0, 1, (0,), random=number * 0x9E3779B97F4A7C15 % 2**64))
        assert isinstance(answer, Invoke)
        made.append(answer.operation)
    values = [value for operation in made for value in operation.argument]
    assert values == list(range(len(values)))
    assert {len(operation.argument) for operation in made} == set(range(SHORTEST, LONGEST + 1))
    assert {operation.key for operation in made} == {"orders-0", "orders-1"}


def effects(outcome: Outcome, result: Any) -> list[tuple[Any, ...]]:
    operation = Operation(Burst.f, "orders-0", [5, 6, 7])
    ret = None if outcome is Outcome.INFO else 20
    completed = Completed(41, 3, "w3", operation, Completion(outcome, result), 10, ret)
    return [(row.kind, row.value, row.position, row.node, row.outcome) for row in Burst.effects(completed)]


def test_each_set_has_an_outcome_of_its_own() -> None:
    known = [SendResult(9, 2), SendFailed("refused"), SendUnknown("no answer")]
    assert effects(Outcome.OK, {"sets": [bursts._to_outcome(one) for one in known]}) == [
        ("append", 5, 9, "n2", Outcome.OK),
        ("append", 6, None, None, Outcome.FAIL),
        ("append", 7, None, None, Outcome.INFO),
    ]


def test_of_a_burst_without_an_end_nothing_is_known() -> None:
    assert effects(Outcome.INFO, None) == [("append", value, None, None, Outcome.INFO) for value in (5, 6, 7)]


def run(root: Path, defect: str | None) -> Attempt:
    settings = Settings(3, replay=SCHEDULE, defect=defect, rate=60.0, time_limit=14.0, store=root)
    return played(test_async_sends.test_async_sends, settings)


@pytest.mark.long
@pytest.mark.slow
def test_sets_that_are_sent_again_keep_their_place_but_with_the_defect(tmp_path: Path) -> None:
    correct, defective = run(tmp_path, None), run(tmp_path, "retry-reorders")
    assert correct.judgement is not None
    assert correct.judgement.verdict is Verdict.PASS, correct.judgement
    assert defective.judgement is not None
    assert defective.judgement.verdict is Verdict.FAIL
    assert defective.judgement.anomalies.keys() == {"nonmonotonic-send"}
    rows = HistoryReader(correct.folder.history).table("effects").to_pylist()
    assert {row["outcome"] for row in rows if row["kind"] == "append"} >= {"ok", "info"}
