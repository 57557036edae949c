"""Invariants of a system that is no broker, asserted while a simulation runs, and what the run comes to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.checkers.engine import Engines
from assay.checkers.judging.contract import forbid
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Verdict
from assay.cluster.node import Cluster
from assay.harness.run import attempt as attempt_module
from assay.harness.run.attempt import Attempt, ReportPolicy
from assay.harness.run.experiment import Experiment
from assay.harness.run.registry import Registry
from assay.harness.run.settings import Settings
from assay.harness.stored.by_contract import judge_again, open_stored
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import traffic

pytestmark = pytest.mark.slow


@dataclass
class Counted:
    """Is broken with the second start of a process."""

    starts: list[str] = field(default_factory=list)

    def event(self, node: str, line: str) -> Sequence[Mapping[str, Any]]:
        if json.loads(line)["event"] != "became-leader":
            return []
        self.starts.append(node)
        row = {"invariant": "starts-once", "claim": f"{node} started again.", "node": node, "key": "orders-0"}
        return [row] if self.starts.count(node) > 1 else []

    def acknowledged(self, key: str, position: int, found: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        return []

    def asserted(self) -> Mapping[str, int]:
        return {"starts-once": len(self.starts)}


def run(toy: ModuleType, root: Path, contract: Any = None, **settings: Any) -> tuple[Attempt, list[Mapping[str, Any]]]:
    """The run, and its looks at invariants."""

    class Asserts(toy.ToySystem):  # type: ignore[misc, name-defined]
        def invariants(self, cluster: Cluster) -> Counted:
            return Counted()

    chosen: dict[str, Any] = {"seed": 4, "nodes": 1, "time_limit": 4.0, "concurrency": 3, "rate": 50.0} | settings
    keys = ("orders-0", "orders-1")
    promised = contract or forbid("lost-write")
    made = Experiment("test_toy", Asserts(), toy.ToyClient, promised, lambda _: traffic(keys) | drain(keys, seconds=5))
    attempt = Attempt(
        made, Settings(store=root, **chosen), "toy.py::test_toy", "pytest toy.py", reports=ReportPolicy.NEVER
    )
    try:
        attempt.set_up()
        attempt.run()
    finally:
        attempt.tear_down()
    looks = open_history(attempt.folder.history).table("looks").to_pylist()
    return attempt, [row for row in looks if row["invariant"] is not None]


KILL = {"nemesis": ("kill",), "nemesis_interval": 2.0}


def test_a_broken_invariant_ends_the_run_and_fails_it_also_when_it_is_judged_again(
    toy: ModuleType, tmp_path: Path
) -> None:
    attempt, (broken, asserted) = run(toy, tmp_path, **KILL)
    assert (broken["what"], broken["claim"], broken["node"]) == ("broken", "n1 started again.", "n1")
    assert (asserted["what"], asserted["invariant"], asserted["assertions"]) == ("asserted", "starts-once", 2)
    ops = open_history(attempt.folder.history).table("ops").to_pylist()
    assert {row["phase"] for row in ops} == {"main"}
    assert max(row["call"] for row in ops) <= broken["time"]
    stored = open_stored(attempt.folder.path)
    again = judge_again(stored, open_history(stored.history), Engines(), Registry.standard())
    for judgement in (attempt.judgement, again):
        assert judgement is not None
        assert judgement.verdict is Verdict.FAIL
        (finding,) = judgement.findings
        assert finding.anomaly == "broken-invariant"
        assert (finding.key, finding.time) == ("orders-0", broken["time"])
        assert finding.claim.endswith(" on n1, the invariant starts-once was broken: n1 started again.")
        assert "the run was ended at once, because an invariant was broken" in judgement.unknown


def test_one_that_holds_lets_the_run_come_to_its_end(toy: ModuleType, tmp_path: Path) -> None:
    attempt, (asserted,) = run(toy, tmp_path)
    assert (asserted["what"], asserted["assertions"]) == ("asserted", 1), "also what was written before the run began"
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS


def test_they_are_asserted_unless_it_is_said_otherwise_or_a_defect_is_on(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which a run has done before it is judged, so only one is."""
    plain, asserted = run(toy, tmp_path, **KILL, invariants="off")
    assert not asserted
    monkeypatch.setattr(attempt_module, "judge_run", lambda *_, **__: plain.judgement)
    assert not run(toy, tmp_path, **KILL, defect="forgetful")[1]
    assert run(toy, tmp_path, **KILL, defect="forgetful", invariants="on")[1]


def test_a_contract_may_tolerate_it(toy: ModuleType, tmp_path: Path) -> None:
    attempt, _ = run(toy, tmp_path, forbid("lost-write").tolerate("broken-invariant"), **KILL)
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.UNKNOWN, "it was cut short all the same"


def test_what_a_client_saw_is_reported_beside_it(toy: ModuleType, tmp_path: Path) -> None:
    contract = forbid("inconsistent-offset", "vanished")
    attempt, _ = run(toy, tmp_path, contract, **KILL, defect="forgetful", invariants="on")
    assert attempt.judgement is not None
    assert {one.anomaly for one in attempt.judgement.findings} >= {"broken-invariant", "inconsistent-offset"}


def test_an_invariant_that_raises_is_an_error_of_the_run_and_none_of_the_system(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: Counted, node: str, line: str) -> Sequence[Mapping[str, Any]]:
        raise ZeroDivisionError("a bug of the invariant")

    monkeypatch.setattr(Counted, "event", wrong)
    with pytest.raises(ZeroDivisionError, match="a bug of the invariant"):
        run(toy, tmp_path)
