"""Leadership under churn, in the simulation: a controller sleeps past its session and wakes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checkers.judging.verdict import Verdict
from assay.harness.core.generator import limit, simulate
from assay.harness.core.history import HistoryReader
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.run.attempt import Attempt
from assay.harness.run.experiment import Experiment, find_experiment
from assay.harness.run.settings import Settings
from assay.harness.run.store import read_run
from assay.system_under_test.client.admin import TopicOutcome
from assay.system_under_test.client.errors import Certainty
from assay.system_under_test.protocol.errors import ErrorCode
from assay.workloads.broker.controller_churn import ControllerClient, Touch, churn, count_partitions, format_name, moves
from assay.workloads.broker.topic_admin import Create, Delete, Describe, Elect, Move, to_completion

from helpers.attempts import played

pytestmark = pytest.mark.slow

WORKLOAD = Path(__file__).parents[2] / "workloads" / "test_controller.py"


def workload(test: str = "test_controller") -> Experiment:
    spec = importlib.util.spec_from_file_location("controller_workload", WORKLOAD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = find_experiment(getattr(module, test))
    assert found is not None
    return found


def sleeping_controller(root: Path, defect: str | None = None) -> Attempt:
    """Eleven seconds in which the controller is stopped for six, twice as long as a session lasts."""
    settings = Settings(
        seed=5,
        time_limit=11.0,
        rate=25.0,
        store=root,
        nemesis=("stop",),
        nemesis_target="controller",
        nemesis_interval=12.0,
        defect=defect,
    )
    return played(workload(), settings)


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_run_passes_has_what_the_checks_need_and_is_repeated_by_its_seed(tmp_path: Path, runs: int) -> None:
    attempts = [sleeping_controller(tmp_path) for _ in range(runs)]
    for attempt in attempts:
        assert attempt.judgement is not None
        assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement.unknown
    assert len({info.digest for info in map(read_run, (one.folder.path for one in attempts)) if info is not None}) == 1
    history = HistoryReader(attempts[0].folder.history)
    events = history.table("events").to_pylist()
    assert len({row["controller_epoch"] for row in events if row["event"] == "became-controller"}) >= 2
    terms = {(row["key"], row["epoch"]) for row in events if row["event"] == "first-append-in-epoch"}
    assert len(terms) > len({key for key, _ in terms}), "some partition must have had two leaders in turn"
    done = {row["f"] for row in history.table("ops").to_pylist() if row["outcome"] == "ok"}
    assert done >= {Create.f, Delete.f, Describe.f, Touch.f}


@pytest.mark.long
def test_partitions_move_and_get_their_leaders_back_while_brokers_die(tmp_path: Path) -> None:
    settings = Settings(seed=5, time_limit=14.0, rate=60.0, nodes=4, store=tmp_path, nemesis=("kill",))
    attempt = played(workload("test_moves"), settings)
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement.unknown
    history = HistoryReader(attempt.folder.history)
    done = [row["f"] for row in history.table("ops").to_pylist() if row["outcome"] == "ok"]
    assert done.count(Move.f) > 5
    assert done.count(Elect.f) > 2
    moved = [row for row in history.table("events").to_pylist() if row["event"] == "reassignment-ended"]
    assert len(moved) > 5


def test_moves_are_of_distinct_brokers_and_of_those_keys() -> None:
    events = simulate(limit(300, moves(["a-0", "a-1"], 4, 3)), seed=3)
    drawn = [event.operation for event in events if event.completed is None]
    assert {operation.key for operation in drawn} == {"a-0", "a-1"}
    targets = [tuple(operation.argument["replicas"]) for operation in drawn if operation.f == Move.f]
    assert all(len(set(target)) == 3 and set(target) <= {1, 2, 3, 4} for target in targets)
    assert len(set(targets)) == 24, "each is drawn some time"
    assert {operation.f for operation in drawn} == {Move.f, Elect.f}


def test_a_controller_that_writes_on_after_it_was_replaced_is_caught(tmp_path: Path) -> None:
    judgement = sleeping_controller(tmp_path, "zombie-controller").judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.FAIL
    assert "stale-epoch-obeyed" in judgement.anomalies
    claims = [finding.claim for finding in judgement.findings if finding.anomaly == "stale-epoch-obeyed"]
    assert any("under controller epoch 1, after one with a smaller zxid under epoch 2" in claim for claim in claims)


def operations(seed: int, count: int) -> list[Operation]:
    """Returns what the churn invokes."""
    events = simulate(limit(count, churn()), seed=seed)
    return [event.operation for event in events if event.completed is None]


@given(st.integers(0, 2**32))
def test_no_name_is_used_twice_and_only_what_was_made_is_named(seed: int) -> None:
    made: set[str | None] = set()
    values = []
    for operation in operations(seed, 200):
        if operation.f == Create.f:
            assert operation.key not in made
            made.add(operation.key)
            continue
        assert operation.key in made
        if operation.f == Touch.f:
            values.append(operation.argument["value"])
            topic = next(number for number in range(200) if format_name(number) == operation.key)
            assert operation.argument["partition"] < count_partitions(topic)
    assert len(values) == len(set(values))


def test_topics_go_as_they_come() -> None:
    verbs = [operation.f for operation in operations(7, 400)]
    assert 0.5 < verbs.count(Delete.f) / verbs.count(Create.f) < 1.5


@pytest.mark.parametrize(
    ("known", "outcome", "error"),
    [
        (TopicOutcome(Certainty.DONE, ErrorCode.NONE), Outcome.OK, None),
        (TopicOutcome(Certainty.NOT_DONE, ErrorCode.NOT_CONTROLLER, "no"), Outcome.FAIL, "not-controller: no"),
        (TopicOutcome(Certainty.UNKNOWN, ErrorCode.REQUEST_TIMED_OUT), Outcome.INFO, "request-timed-out"),
        (TopicOutcome(Certainty.UNKNOWN, None, "connection lost"), Outcome.INFO, "no-answer: connection lost"),
    ],
)
def test_a_change_is_known_as_well_as_the_broker_said(known: TopicOutcome, outcome: Outcome, error: str | None) -> None:
    assert to_completion(known) == Completion(outcome, error=error)


def test_what_goes_to_topics_that_come_and_go_is_no_business_of_the_log_checks() -> None:
    operation = Operation(Touch.f, "churn-0", {"partition": 0, "value": 1})
    done = Completed(0, 0, "w0", operation, Completion(Outcome.OK, {"offset": 0, "node": "n1"}), call=1, ret=2)
    assert not ControllerClient.effects(done)
