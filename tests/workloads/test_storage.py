"""The storage workload: the records that it makes, and where its readers begin."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from checkers.verdict import Verdict
from harness.app.attempt import Attempt
from harness.app.experiment import experiment_of
from harness.app.settings import Settings
from harness.core.history import HistoryReader
from system_under_test.records import message_set
from workloads import test_storage
from workloads.test_storage import PLACES, UNIT, StorageClient


def test_records_are_one_two_or_three_units_large() -> None:
    sizes: Counter[int] = Counter()
    for value in (*range(-3, 3_000), 10**8, 10**12 + 1):
        [(key, content)] = StorageClient().records([value])
        sizes[len(message_set.build([(key, content, 1)]))] += 1
    assert set(sizes) == {UNIT, 2 * UNIT, 3 * UNIT}
    assert min(sizes.values()) > 900


@pytest.mark.slow
def test_readers_look_everywhere_and_lose_no_position_by_it(tmp_path: Path) -> None:
    experiment = experiment_of(test_storage.test_storage)
    assert experiment is not None
    settings = Settings(3, time_limit=4.0, rate=100.0, store=tmp_path)
    attempt = Attempt(experiment, settings, "workloads/test_storage.py::test_storage[none]", "pytest")
    try:
        attempt.set_up()
        attempt.run()
    finally:
        attempt.tear_down()
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement.unknown
    history = HistoryReader(attempt.folder.history)
    looks = {row["index"] for row in history.table("ops").to_pylist() if row["f"] == "glance"}
    begun: Counter[str] = Counter()
    for row in history.table("effects").to_pylist():
        if row["op"] in looks and row["kind"] == "observe-begin":
            begun[row["key"]] += 1
    assert all(count > PLACES for count in begun.values())
    assert len(begun) == 4
