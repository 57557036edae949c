"""Each mix of the broker's workloads, played for a while: what it is about happens, and the correct broker passes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.verdict import Verdict
from assay.harness.core.history import HistoryReader
from assay.harness.run.attempt import Attempt
from assay.harness.run.settings import Settings
from assay.workloads import test_log
from assay.workloads.mixes import LOG_MIXES

from helpers.attempts import played

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "mixes.md"


def play(root: Path, mix: str, test: object = test_log.test_log, **chosen: Any) -> Attempt:
    settings = Settings(
        **({"seed": 11, "time_limit": 6.0, "rate": 80.0, "store": root, "workload_mix": (mix,)} | chosen)
    )
    attempt = played(test, settings)
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, (attempt.judgement.unknown, attempt.judgement.findings)
    return attempt


def table(attempt: Attempt, name: str = "effects") -> list[dict[str, Any]]:
    return HistoryReader(attempt.folder.history).table(name).to_pylist()


def test_the_page_of_mixes_has_a_row_for_each() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [one.name for one in LOG_MIXES]


def test_backlogs_are_read_from_their_middle(tmp_path: Path) -> None:
    attempt = play(tmp_path, "backlogs")
    looked = [row for row in table(attempt, "ops") if row["f"] == "glance" and row["outcome"] == "ok"]
    assert len(looked) > 10
    assert any(row["event"] == "log-rolled" for row in table(attempt, "events"))


def test_settings_change_under_load_and_what_is_rejected_is_looked_at(tmp_path: Path) -> None:
    rows = table(play(tmp_path, "settings", time_limit=9.0))
    done = {(row["name"], row["value"]) for row in rows if row["kind"] == "setting" and row["outcome"] == "ok"}
    assert {name for name, _ in done} >= {"segment.bytes", "max.message.bytes", "flush.ms"}
    rejected = {row["error"].partition(":")[0] for row in rows if row["kind"] == "setting" and row["outcome"] == "fail"}
    assert rejected == {"invalid-config"}
    drained = [row for row in rows if row["phase"] == "drain"]
    assert {row["value"] for row in drained if row["kind"] == "topic-seen"} == {4}
    assert any(row["kind"] == "setting-seen" for row in drained)


def test_handovers_end_within_the_second_and_the_log_is_whole(tmp_path: Path) -> None:
    attempt = play(tmp_path, "handovers")
    moves = [row for row in table(attempt) if row["kind"] == "move" and row["outcome"] == "ok"]
    assert len({row["replicas"] for row in moves}) > 3
    events = table(attempt, "events")
    assert sum(row["event"] == "reassignment-ended" for row in events) > 3
    assert len({(row["key"], row["epoch"]) for row in events if row["event"] == "became-leader"}) > 12
