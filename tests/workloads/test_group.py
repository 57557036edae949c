"""The workload of consumer groups: green as it is, the same every time, and red with each defect."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.harness.core.history import HistoryReader
from assay.harness.run.attempt import Attempt
from assay.harness.run.settings import Settings
from assay.harness.run.store import read_run
from assay.system_under_test.defects import DEFECTS
from assay.workloads import test_group

from helpers.attempts import played

pytestmark = pytest.mark.slow


def run(root: Path, **chosen: object) -> Attempt:
    settings = Settings(**({"seed": 1, "time_limit": 15.0, "rate": 100.0, "store": root} | chosen))  # type: ignore[arg-type]
    return played(test_group.test_group, settings)


def test_the_correct_build_is_green_and_all_was_tried(tmp_path: Path) -> None:
    attempt = run(tmp_path, time_limit=11.0, rate=70.0)
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, attempt.judgement
    history = HistoryReader(attempt.folder.history)
    tried = Counter((row["f"], row["outcome"]) for row in history.table("ops").to_pylist())
    assert tried["commit", "ok"] > 150
    assert tried["poll", "ok"] > 500
    assert min(tried[f, "ok"] for f in ("leave", "die", "silence")) >= 1
    effects = history.table("effects").to_pylist()
    acquired = [row for row in effects if row["kind"] == "acquire" and row["group"] == "workers"]
    assert len({row["generation"] for row in acquired}) >= 8
    assert sum(row["key"] != "workers" for row in acquired) >= 30
    holds = [(row["process"], row["key"], row["assignment"]) for row in effects if row["kind"] == "acquire"]
    assert len(holds) == len(set(holds))
    ended = Counter(row["kind"] for row in effects if row["kind"] in ("lost", "release"))
    assert min(ended["lost"], ended["release"]) > 0
    assert any(row["value"] is not None for row in effects if row["kind"] == "fetched")
    assert {row["key"] for row in effects if row["kind"] == "drained"} == {f"orders-{index}" for index in range(4)}
    late = [row for row in effects if row["kind"] == "commit" and row["outcome"] == "fail"]
    assert late, "members that were silent past their session commit in vain"


@pytest.mark.long
@pytest.mark.parametrize(
    "nemesis",
    ["stop-consumer", *(pytest.param(name, marks=pytest.mark.long) for name in ("kill-consumer", "cut-consumer"))],
)
def test_consumers_may_stop_die_and_be_cut_off(nemesis: str, tmp_path: Path) -> None:
    judgement = run(tmp_path, nemesis=(nemesis,), time_limit=12.0).judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.PASS, judgement


@pytest.mark.long
def test_a_seed_repeats_its_history(tmp_path: Path) -> None:
    attempts = [run(tmp_path, nemesis=("stop", "stop-consumer"), time_limit=10.0) for _ in range(2)]
    infos = [read_run(attempt.folder.path) for attempt in attempts]
    assert len({info.digest for info in infos if info is not None}) == 1


@pytest.mark.parametrize(
    ("defect", "nemesis"),
    [("zombie-commit", ()), pytest.param(*("coordinator-amnesia", ("restart-rolling",)), marks=pytest.mark.long)],
)
def test_a_defect_of_a_coordinator_is_caught(defect: str, nemesis: tuple[str, ...], tmp_path: Path) -> None:
    shorter: dict[str, object] = {} if nemesis else {"time_limit": 11.0, "rate": 40.0}
    judgement = run(tmp_path, defect=defect, nemesis=nemesis, **shorter).judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.FAIL
    assert set(judgement.anomalies) & set(DEFECTS[defect].anomalies)


@pytest.mark.long
@pytest.mark.parametrize("defect", ["silent-consumer", pytest.param(None, marks=pytest.mark.long)])
def test_a_member_that_reads_no_more_is_caught(defect: str | None, tmp_path: Path) -> None:
    """The last records are ``unseen``, the reader is stuck, and the group has not read its partitions to their ends.

    Nothing else is wrong, and without the defect there is no anomaly at all.
    """
    found = run(tmp_path, nemesis=("partition",), time_limit=12.0, defect=defect, seed=2).judgement
    assert found is not None
    assert found.verdict is (Verdict.FAIL if defect else Verdict.PASS), found
    assert set(found.anomalies) == ({"unseen", "unsettled-group", "stuck-reader"} if defect else set())
    assert "unseen" in DEFECTS["silent-consumer"].anomalies


@pytest.mark.long
def test_a_defect_of_the_log_is_caught(tmp_path: Path) -> None:
    """A leader that acknowledges alone is cut off; about every second seed cuts it off long enough."""
    verdicts = []
    for seed in range(2, 10):  # the first of them shows it today
        judgement = run(
            tmp_path,
            seed=seed,
            nemesis=("partition-one",),
            nemesis_target="leader",
            time_limit=10.0,
            nemesis_interval=12.0,
            defect="ack-before-replication",
        ).judgement
        assert judgement is not None
        verdicts.append(judgement.verdict)
        if "lost-write" in judgement.anomalies:
            assert judgement.verdict is Verdict.FAIL
            return
    pytest.fail(f"not caught: {verdicts}")
