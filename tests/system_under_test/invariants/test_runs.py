"""Runs of whole brokers under their invariants: a wrong one is ended at once, the correct one is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Verdict
from assay.harness.run.attempt import Attempt
from assay.harness.run.settings import Settings
from assay.system_under_test.controller import controller
from assay.workloads.test_log import test_log as log_test
from assay.workloads.test_offsets import test_offsets as offsets_test

from helpers.attempts import played

pytestmark = pytest.mark.slow

KILLS = Settings(
    seed=5, nemesis=("kill",), nemesis_target="controller", nemesis_interval=4.0, time_limit=15.0, rate=50.0
)


def rows(run: Attempt, what: str) -> list[dict[str, Any]]:
    return [row for row in open_history(run.folder.history).table("looks").to_pylist() if row["what"] == what]


def test_a_controller_epoch_that_does_not_rise_ends_the_run_with_the_second_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = controller.claim

    async def without_rise(*given: Any) -> Any:
        term = await claim(*given)
        return None if term is None else replace(term, epoch=1)

    monkeypatch.setattr(controller, "claim", without_rise)
    run = played(log_test, replace(KILLS, store=tmp_path))
    (broken,) = rows(run, "broken")
    assert broken["invariant"] == "one-controller"
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.FAIL
    (finding,) = [one for one in run.judgement.findings if one.anomaly == "broken-invariant"]
    assert finding.time == broken["time"]
    assert broken["claim"] in finding.claim
    assert broken["node"] in finding.claim
    ops = open_history(run.folder.history).table("ops").to_pylist()
    assert max(row["call"] for row in ops) <= broken["time"] < 10e9, "nothing is begun any more"


def test_the_correct_broker_is_looked_at_and_goes_on_to_the_end(tmp_path: Path) -> None:
    run = played(offsets_test, replace(KILLS, store=tmp_path))
    assert not rows(run, "broken")
    looks = {row["invariant"]: row["assertions"] for row in rows(run, "asserted")}
    assert looks["one-controller"] >= 2
    assert {name for name, count in looks.items() if not count} <= {"acknowledged"}, "this workload sends nothing"
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.PASS
