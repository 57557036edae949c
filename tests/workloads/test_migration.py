"""The workload of a group that migrates: nothing goes back as it is, and what would go back is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.harness.core.history import HistoryReader
from assay.harness.run.attempt import Attempt
from assay.harness.run.settings import Settings
from assay.system_under_test.client.zookeeper_groups.offsets import DualOffsets
from assay.workloads import test_migration

from helpers.attempts import played

pytestmark = pytest.mark.slow


def run(settings: Settings) -> Attempt:
    return played(test_migration.test_migration, settings)


@pytest.mark.parametrize(
    ("nemesis", "steps"), [((), 5), pytest.param(*(("restart-rolling",), 1), marks=pytest.mark.long)]
)
def test_a_group_goes_there_and_back_and_every_step_waits_for_the_one_before(
    nemesis: tuple[str, ...], steps: int, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"time_limit": 14.0, "rate": 100.0} if nemesis else {"time_limit": 11.0, "rate": 50.0}
    attempt = run(Settings(2, nemesis=nemesis, **given, store=tmp_path))
    assert attempt.judgement is not None
    assert attempt.judgement.anomalies == {}
    (examined,) = [one for one in attempt.judgement.examined if one.check == "offset-regression"]
    assert examined.rows > 100
    reached = 0
    for row in HistoryReader(attempt.folder.history).table("ops").to_pylist():
        argument = json.loads(row["argument"])
        if row["phase"] == "main" and row["f"] in ("poll", "commit", "leave"):
            assert reached - 1 <= argument["step"] <= reached + 1, "two steps are never further apart"
            reached = max(reached, argument["step"])
    assert reached >= steps, "five are there and back, and there again"


@pytest.mark.long
def test_a_group_that_writes_one_store_alone_on_its_way_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 0.10.2 on the way back: what is in the offsets topic alone is lost when ZooKeeper is read again."""
    monkeypatch.setattr(DualOffsets, "commit", lambda self, offsets: self._topic.commit(offsets))
    monkeypatch.setattr(DualOffsets, "take_over", DualOffsets.fetch)
    found = run(Settings(2, time_limit=14.0, rate=100.0, store=tmp_path)).judgement
    assert found is not None
    assert "offset-regression" in found.anomalies
