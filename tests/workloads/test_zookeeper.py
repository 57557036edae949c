"""The register workload on a real ZooKeeper ensemble, and a client that it must catch."""

from __future__ import annotations

import collections
import importlib.util
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from kazoo.exceptions import BadVersionError, ConnectionLoss

from assay.checkers.judging.verdict import Verdict
from assay.cluster.doctor import docker_available
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Operation, Outcome, Phase
from assay.harness.run.attempt import Attempt
from assay.harness.run.experiment import find_experiment
from assay.harness.run.settings import DOCKER, Settings

from helpers.attempts import played
from helpers.judging import judge

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
    """Runs an experiment in containers to its end."""
    if not docker_available():
        pytest.skip("no Docker engine answers, or no node image can be made; `assay doctor` says what is missing")
    found = find_experiment(workload.test_zookeeper)
    assert found is not None
    settings = Settings(**({"seed": 3, "cluster": DOCKER, "time_limit": 3.0, "store": root} | chosen))
    return played(replace(found, client=client), settings)


@pytest.mark.docker
def test_a_client_that_reads_from_a_cache_is_caught(workload: ModuleType, tmp_path: Path) -> None:
    class CachingClient(workload.RegisterClient):  # type: ignore[name-defined,misc]
        """Reads each register once."""

        def __init__(self) -> None:
            self.cache: dict[str, dict[str, Any]] = {}

        def read(self, key: str) -> dict[str, Any]:
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


ENOUGH = 10
"""Operations that succeed, as the contract asks."""


class Registers:
    """A server that loses answers to conditional writes, after they took effect or before, or rejects the writes."""

    def __init__(self, ways: Iterable[str]) -> None:
        self.ways, self.data, self.versions = iter(ways), collections.defaultdict(bytes), collections.Counter[str]()

    def get_async(self, path: str) -> Any:
        stat = SimpleNamespace(version=self.versions[path])
        return SimpleNamespace(get=lambda timeout: (self.data[path], stat))

    def set_async(self, path: str, data: bytes, version: int = -1) -> Any:
        way = next(self.ways) if version >= 0 else "ok"
        if way in ("ok", "lost"):
            self.data[path] = data
            self.versions[path] += 1
        errors = {"lost": ConnectionLoss(), "never": ConnectionLoss(), "changed": BadVersionError()}
        stat = SimpleNamespace(version=self.versions[path])

        def get(timeout: float) -> Any:
            if way != "ok":
                raise errors[way]
            return stat

        return SimpleNamespace(get=get)


def history(workload: ModuleType, folder: Path, ways: Sequence[str]) -> list[str]:
    """Returns the kinds of rows of a cas of each way, each with a read after it, and of reads at the end."""
    client = workload.RegisterClient()
    client.zk = Registers(ways)
    key, kinds = workload.KEYS[0], []
    asked = [Operation("write", key, 1)]
    for number in range(len(ways)):
        asked += [Operation("cas", key, 2 + number), Operation("read", key)]
    with HistoryWriter(folder) as writer:
        for index, operation in enumerate([*asked, *[Operation("read", key, phase=Phase.DRAIN)] * ENOUGH]):
            completion = client.invoke(operation)
            ret = None if completion.outcome is Outcome.INFO else 10 * index + 5
            done = Completed(index, index, "w0", operation, completion, call=10 * index + 1, ret=ret)
            writer.completed(done, effects := client.effects(done))
            kinds += [effect.kind for effect in effects]
    return kinds


@pytest.mark.parametrize("ways", [["lost"] * 3, ["never"] * 3, ["changed"] * 3, ["lost", "never", "changed"]])
def test_a_run_without_one_acknowledged_compare_and_set_is_judged(
    workload: ModuleType, tmp_path: Path, ways: list[str]
) -> None:
    assert history(workload, tmp_path, ways).count("register-cas") == 3
    judgement = judge(tmp_path, find_experiment(workload.test_zookeeper).contract)  # type: ignore[union-attr]
    assert judgement.verdict is Verdict.PASS, judgement.unknown
    (examined,) = [one for one in judgement.examined if one.check == "lost-update"]
    assert examined.rows == (("lost" in ways and ways.count("lost")) or 3)


def test_two_compare_and_sets_without_answers_that_both_replaced_a_value_are_found(
    workload: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {"value": 1, "version": 1}
    reads = itertools.chain([first, None, first], itertools.repeat(None))
    read = workload.RegisterClient.read
    monkeypatch.setattr(workload.RegisterClient, "read", lambda self, key: next(reads) or read(self, key))
    history(workload, tmp_path, ["lost", "lost", "lost"])
    judgement = judge(tmp_path, find_experiment(workload.test_zookeeper).contract)  # type: ignore[union-attr]
    assert judgement.verdict is Verdict.FAIL
    assert "lost-update" in judgement.anomalies


def test_a_compare_and_set_that_never_asked_is_a_failure(workload: ModuleType) -> None:
    client = workload.RegisterClient()
    client.zk = Registers([])
    client.zk.get_async = MagicMock(side_effect=ConnectionLoss())
    operation = Operation("cas", "/register-0", 7)
    completion = client.invoke(operation)
    assert (completion.outcome, completion.result) == (Outcome.FAIL, None)
    assert [effect.kind for effect in client.effects(completed(operation, completion))] == ["register-cas"]


def test_a_compare_and_set_that_the_harness_gave_up_is_a_write_that_may_have_happened(workload: ModuleType) -> None:
    lost = completed(Operation("cas", "/register-0", 7), Completion(Outcome.INFO, error="timeout"))
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
    result.stdout.fnmatch_lines(["*RegisterClient has `blocking = True`, and the simulation has no threads*"])
