"""The workload of committed offsets: green as it is, and red with each defect of a coordinator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.cluster.doctor import docker_available
from assay.harness.core.history import HistoryReader
from assay.harness.run.attempt import Attempt, ReportPolicy
from assay.harness.run.settings import DOCKER, Settings
from assay.system_under_test.defects import DEFECTS
from assay.workloads import test_offsets

from helpers.attempts import played

pytestmark = pytest.mark.slow


def run(settings: Settings, reports: ReportPolicy = ReportPolicy.NEVER) -> Attempt:
    return played(test_offsets.test_offsets, settings, reports=reports)


def test_the_correct_build_is_green_and_all_was_tried(tmp_path: Path) -> None:
    attempt = run(Settings(1, nemesis=("restart-rolling",), time_limit=11.0, rate=80.0, store=tmp_path))
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement
    history = HistoryReader(attempt.folder.history)
    tried: dict[tuple[str, str], int] = {}
    for row in history.table("ops").to_pylist():
        what = row["f"], row["outcome"]
        tried[what] = tried.get(what, 0) + 1
    assert tried["commit", "ok"] > 300
    assert tried["fetch", "ok"] > 300
    assert tried["zombie", "fail"] > 10
    generations = {row["generation"] for row in history.table("effects").to_pylist() if row["kind"] == "acquire"}
    assert len(generations) > 7


@pytest.mark.long
@pytest.mark.parametrize(
    "nemesis",
    [
        "cut-consumer",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("kill-consumer", "stop-consumer", "consumer-from-coordinator")
        ),
    ],
)
def test_consumers_suffer_and_no_promise_is_broken(nemesis: str, tmp_path: Path) -> None:
    drawn = nemesis == "cut-consumer"
    settings = Settings(1, nemesis=(nemesis,), time_limit=20.0, rate=60.0, store=tmp_path)
    attempt = run(settings, ReportPolicy.ALL if drawn else ReportPolicy.NEVER)
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement
    assert attempt.problem is None
    rows = HistoryReader(attempt.folder.history).table("faults").to_pylist()
    healed = [row for row in rows if row["phase"] == "healed"]
    assert [row["took_effect"] for row in healed] == [True, True]
    assert all(name.startswith("client") for row in healed for name in json.loads(row["targets"]))
    assert [row["phase"] for row in rows].count("recovered") == 2
    assert not drawn or "client" in (attempt.folder.path / "report.html").read_text()


def test_a_group_that_nothing_is_left_for_is_judged_by_what_comes_before_and_after(tmp_path: Path) -> None:
    attempt = run(Settings(1, nemesis=("partition-leader-and-follower",), time_limit=20.0, rate=25.0, store=tmp_path))
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement
    rows = HistoryReader(attempt.folder.history).table("faults").to_pylist()
    assert [row["took_effect"] for row in rows if row["phase"] == "healed"] == [True, True]


LATE_COMMIT = 8
"""The first seed from 1 on in which a member is stopped during a commit; another one when packets come otherwise."""


@pytest.mark.long
def test_a_consumer_that_was_stopped_past_its_session_commits_late_and_is_refused(tmp_path: Path) -> None:
    """The history counts its commit as indeterminate by then; the broker's answer stands in the node's own log.

    Whether a member is stopped during a commit to the group is chance, so the first seed that does it shows it.
    """
    for seed in range(LATE_COMMIT, LATE_COMMIT + 12):
        settings = Settings(
            seed, nemesis=("stop-consumer",), nemesis_interval=14.0, time_limit=20.0, rate=100.0, store=tmp_path
        )
        attempt = run(settings)
        assert attempt.judgement is not None
        assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement
        logs = [path.read_text() for path in attempt.folder.path.glob("logs/client*/process.log")]
        lines = [line for log in logs for line in log.splitlines()]
        late = [line for line in lines if "commit, which the harness had given up" in line]
        if any('"outcome":"fail"' in line and "answered UNKNOWN_MEMBER_ID" in line for line in late):
            return
    raise AssertionError("no late commit was refused")


@pytest.mark.long
def test_one_seed_one_history_with_consumers_on_nodes(tmp_path: Path) -> None:
    settings = Settings(3, nemesis=("kill-consumer", "stop-consumer"), time_limit=8.0, rate=60.0, store=tmp_path)
    first, second = run(settings), run(settings)
    assert first.digest == second.digest
    schedule = first.folder.path / "schedule.json"
    replayed = run(replace(settings, nemesis=(), replay=schedule))
    faults = [HistoryReader(one.folder.history).table("faults").to_pylist() for one in (first, replayed)]
    assert [(row["fault"], row["targets"], row["took_effect"]) for row in faults[0]] == [
        (row["fault"], row["targets"], row["took_effect"]) for row in faults[1]
    ]


@pytest.mark.docker
@pytest.mark.long
def test_a_consumer_is_killed_in_a_container(tmp_path: Path) -> None:
    if not docker_available():
        pytest.skip("no Docker engine answers, or no node image can be made; `assay doctor` says what is missing")
    settings = Settings(1, cluster=DOCKER, nemesis=("kill-consumer",), time_limit=10.0, rate=60.0, store=tmp_path)
    attempt = run(settings)
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement
    healed = [row for row in HistoryReader(attempt.folder.history).table("faults").to_pylist() if row["took_effect"]]
    assert [json.loads(row["targets"])[0].startswith("client") for row in healed] == [True]
    assert (attempt.folder.path / "logs" / "client1" / "process.log").exists()


RETENTION = ("offsets.retention.ms=1000", "offsets.retention.check.interval.ms=200")
CALM = Path(__file__).parent.parent.parent / "schedules" / "offsets-expire-active.json"


@pytest.mark.long
@pytest.mark.parametrize("defect", [None, "offsets-expire-active"])
def test_offsets_of_an_active_group_expire_with_the_defect_alone(defect: str | None, tmp_path: Path) -> None:
    settings = Settings(
        1, defect=defect, replay=CALM, time_limit=14.0, rate=100.0, configuration=RETENTION, store=tmp_path
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


@pytest.mark.parametrize(
    ("defect", "nemesis"),
    [pytest.param(*("zombie-commit", ()), marks=pytest.mark.long), ("coordinator-amnesia", ("restart-rolling",))],
)
def test_a_defect_is_caught(defect: str, nemesis: tuple[str, ...], tmp_path: Path) -> None:
    settings = Settings(1, defect=defect, nemesis=nemesis, time_limit=12.0, rate=40.0, store=tmp_path)
    judgement = run(settings).judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.FAIL
    assert set(judgement.anomalies) & set(DEFECTS[defect].anomalies)
