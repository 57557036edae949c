"""The workload of groups of the draft: green as it is, the same every time, and red where its coordinator is broken."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.harness.core.history import HistoryReader
from assay.harness.run.attempt import Attempt
from assay.harness.run.settings import Settings
from assay.harness.run.store import read_run
from assay.system_under_test.groups.draft.group import DraftGroup
from assay.system_under_test.groups.kill_points import DRAFT_FAILOVER_POINTS
from assay.workloads import test_draft_group

from helpers.attempts import played

pytestmark = pytest.mark.slow


def run(root: Path, **chosen: Any) -> Attempt:
    settings = Settings(**({"seed": 1, "time_limit": 12.0, "rate": 100.0, "store": root} | chosen))
    return played(test_draft_group.test_draft_group, settings)


def test_the_correct_build_is_green_and_its_coordinator_passes_all_five_points(tmp_path: Path) -> None:
    attempt = run(tmp_path, seed=5, time_limit=8.0, rate=60.0)
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement
    history = HistoryReader(attempt.folder.history)
    tried = Counter((row["f"], row["outcome"]) for row in history.table("ops").to_pylist())
    assert tried["commit", "ok"] > 100
    assert min(tried[f, "ok"] for f in ("leave", "die", "silence")) >= 1
    rows = [row for row in history.table("effects").to_pylist() if row["group"] == "workers"]
    assert len({row["generation"] for row in rows if row["kind"] == "acquire"}) >= 5
    assert any(row["kind"] == "commit" and row["outcome"] == "fail" for row in rows), "by those that were silent"
    events = {row["event"] for row in history.table("events").to_pylist()}
    assert set(DRAFT_FAILOVER_POINTS) <= events
    assert "group-generation" not in events, "none is of the other design"


@pytest.mark.long
def test_a_seed_repeats_its_history(tmp_path: Path) -> None:
    attempts = [run(tmp_path, nemesis=("stop", "kill-consumer"), time_limit=10.0) for _ in range(2)]
    assert len({info.digest for info in (read_run(each.folder.path) for each in attempts) if info is not None}) == 1


@pytest.mark.long
def test_a_coordinator_that_takes_commits_of_an_old_generation_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DraftGroup, "check_commit", lambda self, consumer_id, generation: None)
    judgement = run(tmp_path, seed=5).judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.FAIL
    assert "zombie-commit" in judgement.anomalies


@pytest.mark.long
def test_a_coordinator_that_gives_a_partition_to_two_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = DraftGroup._answer_joins

    def to_all(self: DraftGroup, present: Any) -> None:
        everything = [partition for given in self.assignment.values() for partition in given]
        self.assignment = dict.fromkeys(self.assignment, everything)
        answer(self, present)

    monkeypatch.setattr(DraftGroup, "_answer_joins", to_all)
    judgement = run(tmp_path, time_limit=6.0).judgement
    assert judgement is not None
    assert "double-ownership" in judgement.anomalies
