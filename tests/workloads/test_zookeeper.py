"""The register workload on a real ZooKeeper ensemble, and a client that it must catch."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.checkers.verdict import Verdict
from assay.cluster.doctor import engine_available
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.run.attempt import Attempt
from assay.harness.run.experiment import experiment_of
from assay.harness.run.settings import DOCKER, Settings

from helpers.attempts import played

WORKLOAD = Path(__file__).parents[2] / "workloads" / "test_zookeeper.py"


@pytest.fixture(scope="module")
def workload() -> ModuleType:
    spec = importlib.util.spec_from_file_location("zookeeper_workload", WORKLOAD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attempt(workload: ModuleType, root: Path, client: Any, **chosen: Any) -> Attempt:
    """One run in containers, to its end."""
    if not engine_available():
        pytest.skip("no Docker engine answers, or no node image can be made; `assay doctor` says what is missing")
    found = experiment_of(workload.test_zookeeper)
    assert found is not None
    settings = Settings(**({"seed": 3, "cluster": DOCKER, "time_limit": 3.0, "store": root} | chosen))
    return played(replace(found, client=client), settings)


@pytest.mark.docker
def test_a_client_that_reads_from_a_cache_is_caught(workload: ModuleType, tmp_path: Path) -> None:
    class CachingClient(workload.RegisterClient):  # type: ignore[name-defined,misc]
        """Reads each register once."""

        def __init__(self) -> None:
            self.cache: dict[str, dict[str, Any]] = {}

        def read(self, key: str, _: None = None) -> dict[str, Any]:
            if key not in self.cache:
                self.cache[key] = super().read(key)
            return self.cache[key]

    judgement = attempt(workload, tmp_path, CachingClient).judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.FAIL
    assert set(judgement.anomalies) == {"stale-read"}
    assert any("read" in finding.claim for finding in judgement.findings)


def completed(operation: Operation, completion: Completion) -> Completed:
    ret = None if completion.outcome is Outcome.INFO else 2
    return Completed(0, 0, "w0", operation, completion, call=1, ret=ret)


def test_a_compare_and_set_without_an_answer_is_a_write_that_may_have_happened(workload: ModuleType) -> None:
    lost = completed(Operation("cas", "/register-0", 7), Completion(Outcome.INFO, error="ConnectionLoss"))
    (effect,) = workload.RegisterClient.effects(lost)
    assert (effect.kind, effect.value, effect.expected, effect.version) == ("register-write", 7, None, None)


def test_a_compare_and_set_says_what_it_replaced_and_its_version(workload: ModuleType) -> None:
    result = {"value": 7, "version": 4, "expected": 5}
    done = completed(Operation("cas", "/register-0", 7), Completion(Outcome.OK, result))
    (effect,) = workload.RegisterClient.effects(done)
    assert (effect.kind, effect.value, effect.expected, effect.version) == ("register-cas", 7, 5, 4)


def test_a_read_without_an_answer_counts_as_an_attempt_and_shows_nothing(workload: ModuleType) -> None:
    read = Operation("read", "/register-0")
    (effect,) = workload.RegisterClient.effects(completed(read, Completion(Outcome.FAIL, error="SessionExpired")))
    assert (effect.kind, effect.value, effect.version) == ("register-read", None, None)
    first = completed(read, Completion(Outcome.OK, {"value": None, "version": 0}))
    assert [(one.kind, one.version) for one in workload.RegisterClient.effects(first)] == [("register-read", 0)]


def test_the_simulation_skips_it_with_the_reason(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(str(WORKLOAD), "--cluster=sim", "-rs", "-p", "no:cacheprovider")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*RegisterClient blocks; the simulation has no threads*"])
