"""The storage workload in the simulation, when everybody loses power: what goes is what the contract lets go."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from checkers.judge import judge
from checkers.log import LOG_ANOMALIES
from checkers.unflushed import UNFLUSHED_LOSS
from checkers.verdict import Verdict
from harness.app.attempt import Attempt
from harness.app.experiment import Experiment, experiment_of
from harness.app.settings import Settings

pytestmark = pytest.mark.slow

WORKLOAD = Path(__file__).parents[2] / "workloads" / "test_storage.py"


def workload(name: str) -> Experiment:
    spec = importlib.util.spec_from_file_location("storage_workload", WORKLOAD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = experiment_of(getattr(module, name))
    assert found is not None
    return found


def run(root: Path, name: str) -> Attempt:
    settings = Settings(7, nemesis=("power-loss",), nemesis_target="all", time_limit=9.0, rate=150.0, store=root)
    attempt = Attempt(workload(name), settings, f"workloads/test_storage.py::{name}[power-loss]", "pytest")
    try:
        attempt.set_up()
        attempt.run()
    finally:
        attempt.tear_down()
    return attempt


def test_what_is_not_flushed_goes_with_everybodys_power_and_nothing_else(tmp_path: Path) -> None:
    attempt = run(tmp_path, "test_unflushed")
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement
    assert attempt.judgement.anomalies.keys() == {UNFLUSHED_LOSS}
    strict = judge(attempt.folder.history, workload("test_storage").contract)
    assert strict.verdict is Verdict.FAIL, "a contract of logs that flush each record allows none of it"
    assert set(strict.anomalies) & set(LOG_ANOMALIES)


def test_what_is_flushed_does_not_go(tmp_path: Path) -> None:
    told = run(tmp_path, "test_storage").judgement
    assert told is not None
    assert (told.verdict, told.anomalies) == (Verdict.PASS, {}), told
