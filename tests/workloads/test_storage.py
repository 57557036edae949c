"""The storage workload: the records that it makes, where its readers begin, and what goes with everybody's power."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.checkers.log.family import LOG_ANOMALIES
from assay.checkers.log.unflushed import UNFLUSHED_LOSS
from assay.harness.core.history import HistoryReader
from assay.harness.run.attempt import Attempt
from assay.harness.run.experiment import Experiment, find_experiment
from assay.harness.run.settings import Settings
from assay.system_under_test.records import message_set
from assay.workloads import test_storage
from assay.workloads.test_storage import POSITIONS, UNIT, StorageSend

from helpers.attempts import played
from helpers.judging import judge


def workload(name: str) -> Experiment:
    found = find_experiment(getattr(test_storage, name))
    assert found is not None
    return found


def run(name: str, settings: Settings) -> Attempt:
    return played(workload(name), settings)


def test_records_are_one_two_or_three_units_large() -> None:
    sizes: Counter[int] = Counter()
    for value in (*range(-3, 3_000), 10**8, 10**12 + 1):
        [(key, content)] = StorageSend.records([value])
        sizes[len(message_set.build([(key, content, 1)]))] += 1
    assert set(sizes) == {UNIT, 2 * UNIT, 3 * UNIT}
    assert min(sizes.values()) > 900


@pytest.mark.long
@pytest.mark.slow
def test_readers_look_everywhere_and_lose_no_position_by_it(tmp_path: Path) -> None:
    attempt = run("test_storage", Settings(3, time_limit=4.0, rate=100.0, store=tmp_path))
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement.unknown
    history = HistoryReader(attempt.folder.history)
    looks = {row["index"] for row in history.table("ops").to_pylist() if row["f"] == "glance"}
    begun: Counter[str] = Counter()
    for row in history.table("effects").to_pylist():
        if row["op"] in looks and row["kind"] == "observe-begin":
            begun[row["key"]] += 1
    assert all(count > POSITIONS for count in begun.values())
    assert len(begun) == 4


def without_power(root: Path, rate: float = 150.0) -> Settings:
    return Settings(7, nemesis=("power-loss",), nemesis_target="all", time_limit=9.0, rate=rate, store=root)


@pytest.mark.slow
def test_what_is_not_flushed_goes_with_everybodys_power_and_nothing_else(tmp_path: Path) -> None:
    attempt = run("test_unflushed", without_power(tmp_path, rate=40.0))
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement
    assert attempt.judgement.anomalies.keys() == {UNFLUSHED_LOSS}
    strict = judge(attempt.folder.history, workload("test_storage").contract)
    assert strict.verdict is Verdict.FAIL, "a contract of logs that flush each record allows none of it"
    assert set(strict.anomalies) & set(LOG_ANOMALIES)


@pytest.mark.long
@pytest.mark.slow
def test_what_is_flushed_does_not_go(tmp_path: Path) -> None:
    recorded = run("test_storage", without_power(tmp_path)).judgement
    assert recorded is not None
    assert (recorded.verdict, recorded.anomalies) == (Verdict.PASS, {}), recorded
