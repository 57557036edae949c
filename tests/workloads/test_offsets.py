"""The workload of committed offsets: green as it is, and red with each defect of a coordinator."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkers.verdict import Verdict
from harness.app.attempt import Attempt
from harness.app.experiment import experiment_of
from harness.app.settings import Settings
from harness.core.history import HistoryReader
from system_under_test.defects import DEFECTS
from workloads import test_offsets

pytestmark = pytest.mark.slow


def run(settings: Settings) -> Attempt:
    experiment = experiment_of(test_offsets.test_offsets)
    assert experiment is not None
    attempt = Attempt(experiment, settings, "workloads/test_offsets.py::test_offsets", "pytest")
    try:
        attempt.set_up()
        attempt.run()
    finally:
        attempt.tear_down()
    assert attempt.judgement is not None
    return attempt


def test_the_correct_build_is_green_and_all_was_tried(tmp_path: Path) -> None:
    attempt = run(Settings(1, nemesis=("restart-rolling",), time_limit=30.0, rate=100.0, store=tmp_path))
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement
    history = HistoryReader(attempt.folder.history)
    tried: dict[tuple[str, str], int] = {}
    for row in history.table("ops").to_pylist():
        what = row["f"], row["outcome"]
        tried[what] = tried.get(what, 0) + 1
    assert tried["commit", "ok"] > 500
    assert tried["fetch", "ok"] > 500
    assert tried["zombie", "fail"] > 10
    generations = {row["epoch"] for row in history.table("effects").to_pylist() if row["kind"] == "acquire"}
    assert len(generations) > 10


RETENTION = ("offsets.retention.ms=1000", "offsets.retention.check.interval.ms=200")
CALM = Path(__file__).parent.parent.parent / "schedules" / "offsets-expire-active.json"


@pytest.mark.parametrize("defect", [None, "offsets-expire-active"])
def test_offsets_of_an_active_group_expire_with_the_defect_alone(defect: str | None, tmp_path: Path) -> None:
    settings = Settings(
        1, defect=defect, replay=CALM, time_limit=30.0, rate=100.0, configuration=RETENTION, store=tmp_path
    )
    attempt = run(settings)
    assert attempt.judgement is not None
    expired = [row for row in HistoryReader(attempt.folder.history).table("events").to_pylist()
               if row["event"] == "offsets-expired"]  # fmt: skip
    if defect is None:
        assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement
        assert not expired
    else:
        assert attempt.judgement.verdict is Verdict.FAIL
        assert set(attempt.judgement.anomalies) & set(DEFECTS[defect].anomalies)
        assert {row["key"] for row in expired} == {"members"}


@pytest.mark.parametrize(("defect", "nemesis"), [("zombie-commit", ()), ("coordinator-amnesia", ("restart-rolling",))])
def test_a_defect_is_caught(defect: str, nemesis: tuple[str, ...], tmp_path: Path) -> None:
    settings = Settings(1, defect=defect, nemesis=nemesis, time_limit=30.0, rate=100.0, store=tmp_path)
    judgement = run(settings).judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.FAIL
    assert set(judgement.anomalies) & set(DEFECTS[defect].anomalies)
