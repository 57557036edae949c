"""The log workload against the real broker, in the simulation: short, and the same every time."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.harness.core.history import HistoryReader
from assay.harness.run.attempt import Attempt
from assay.harness.run.experiment import Experiment, find_experiment
from assay.harness.run.settings import Settings
from assay.harness.run.store import read_run

from helpers.attempts import played

pytestmark = pytest.mark.slow

WORKLOAD = Path(__file__).parents[2] / "workloads" / "test_log.py"


def workload() -> Experiment:
    spec = importlib.util.spec_from_file_location("log_workload", WORKLOAD)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = find_experiment(module.test_log)
    assert found is not None
    return found


def run(root: Path, **chosen: object) -> Attempt:
    settings = Settings(**({"seed": 11, "time_limit": 6.0, "rate": 60.0, "store": root} | chosen))  # type: ignore[arg-type]
    return played(workload(), settings)


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_run_under_a_fault_passes_and_its_seed_repeats_it(tmp_path: Path, runs: int) -> None:
    chosen = {"nemesis": ("kill",), "nemesis_interval": 6.0, "rate": 35.0}
    attempts = [run(tmp_path, **chosen) for _ in range(runs)]
    for attempt in attempts:
        assert attempt.judgement is not None
        assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement.unknown
    infos = [read_run(attempt.folder.path) for attempt in attempts]
    digests = {info.digest for info in infos if info is not None}
    assert len(digests) == 1


def test_effects_hold_all_kinds_that_the_checks_need(tmp_path: Path) -> None:
    history = HistoryReader(run(tmp_path, time_limit=2.0).folder.history)
    effects = history.table("effects").to_pylist()
    kinds = {row["kind"] for row in effects}
    assert kinds == {"append", "observe-begin", "observe", "observe-end", "end", "start", "seek", "drained"}
    drained = {row["key"]: row["position"] for row in effects if row["kind"] == "drained"}
    sentinels = {row["key"]: row["position"] for row in effects if row["phase"] == "sentinel"}
    assert drained == {key: position + 1 for key, position in sentinels.items()}
    assert len(drained) == 4
    assert all(row["leader_epoch"] is not None for row in effects if row["kind"] == "end" and row["outcome"] == "ok")
    assert {row["node"] for row in effects if row["kind"] == "observe"} <= {"n1", "n2", "n3"}


def test_a_known_defect_is_caught(tmp_path: Path) -> None:
    """A leader that acknowledges alone is cut off: whenever its followers elect another, acknowledged records go.

    About every second seed cuts the leader off long enough.
    """
    verdicts = []
    for seed in range(2, 10):  # the first of them shows it today
        attempt = run(
            tmp_path,
            seed=seed,
            nemesis=("partition-one",),
            nemesis_target="leader",
            time_limit=9.0,
            rate=30.0,
            nemesis_interval=12.0,
            defect="ack-before-replication",
        )
        assert attempt.judgement is not None
        verdicts.append(attempt.judgement.verdict)
        if "lost-write" in attempt.judgement.anomalies:
            assert attempt.judgement.verdict is Verdict.FAIL
            return
    pytest.fail(f"not caught: {verdicts}")
