"""Tests what was checked and what was not: everything once, and nothing without data counted as good."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.verdict import CheckCoverage, Verdict
from assay.checkers.log.loss import LOST_WRITE
from assay.reports.coverage import AnomalyPolicy, CheckState, build_rows, find_meaning
from assay.reports.page import render

from helpers.run_folders import finding, judgement, ordinary, write_run


def test_every_anomaly_stands_in_the_table_once_with_its_own_state() -> None:
    rows = build_rows(
        judgement(Verdict.FAIL, finding(1, 2), finding(3, anomaly="odd"), anomalies={"lost-write": 9, "odd": 1})
    )
    assert {row.name: (row.state, row.policy, row.instances) for row in rows} == {
        "lost-write": (CheckState.FOUND, AnomalyPolicy.FORBIDDEN, 9),
        "odd": (CheckState.FOUND, AnomalyPolicy.OPEN, 1),
        "phantom": (CheckState.NOT_JUDGED, AnomalyPolicy.FORBIDDEN, 0),
        "stale-read": (CheckState.NOT_JUDGED, AnomalyPolicy.FORBIDDEN, 0),
        "vanished": (CheckState.NO_DATA, AnomalyPolicy.FORBIDDEN, 0),
        "duplicate": (CheckState.CLEAR, AnomalyPolicy.TOLERATED, 0),
    }
    assert [row.state for row in rows] == [CheckState.FOUND] * 2 + [CheckState.NOT_JUDGED] * 2 + [
        CheckState.NO_DATA,
        CheckState.CLEAR,
    ]


def test_the_reason_why_nothing_was_judged_is_kept() -> None:
    notes = {row.name: row.note for row in build_rows(judgement(Verdict.UNKNOWN))}
    assert notes["phantom"] == "operations may be missing"
    assert notes["stale-read"] == "no check of it applied to this history"
    assert notes["vanished"] is None


def test_what_an_anomaly_means_is_said_by_the_judgement_and_for_older_ones_by_its_check() -> None:
    older = judgement(Verdict.PASS)
    assert find_meaning(older, "lost-write") == LOST_WRITE.meaning
    assert find_meaning(older, "odd") is None
    newer = msgspec.structs.replace(older, meanings={"odd": "something is odd", "lost-write": "a write is lost"})
    assert (find_meaning(newer, "odd"), find_meaning(newer, "lost-write")) == ("something is odd", "a write is lost")


def test_an_anomaly_that_needs_no_data_is_calm_without_any() -> None:
    forbidden = ("no-recovery", "broken-invariant", "lost-write")
    examined = (CheckCoverage(check="no-recovery", rows=0, seconds=0.0),)
    shown = {
        row.name: row
        for row in build_rows(judgement(Verdict.PASS, forbidden=forbidden, tolerated=(), examined=examined))
    }
    assert {name: row.state for name, row in shown.items()} == {
        "no-recovery": CheckState.NOT_APPLICABLE,
        "broken-invariant": CheckState.NOT_APPLICABLE,
        "lost-write": CheckState.NOT_JUDGED,
    }
    assert shown["broken-invariant"].note == "this run has no data about it, and needs none"


def test_a_check_that_was_left_out_is_not_judged_even_if_it_needs_no_data() -> None:
    left_out = CheckCoverage(check="no-recovery", rows=0, seconds=0.0, note="the history was not closed")
    (row,) = build_rows(judgement(Verdict.UNKNOWN, forbidden=(), tolerated=(), examined=(left_out,)))
    assert row.state is CheckState.NOT_JUDGED


@pytest.mark.parametrize(
    ("claims", "exposed", "state"),
    [
        (140, 130, CheckState.CLEAR),
        (140, 0, CheckState.NOT_EXPOSED),
        (140, None, CheckState.CLEAR),
        (None, 130, CheckState.CLEAR),
        (None, None, CheckState.CLEAR),
    ],
)
def test_a_verdict_that_has_lost_a_number_is_shown_without_it(
    tmp_path: Path, claims: int | None, exposed: int | None, state: CheckState
) -> None:
    """A flipped bit in the name of a field is enough, and earlier versions had neither number."""
    examined = (CheckCoverage(check="lost-write", rows=9, seconds=0.0, claims=claims, exposed=exposed),)
    judged = judgement(Verdict.PASS, examined=examined)
    assert {row.name: row.state for row in build_rows(judged)}["lost-write"] is state
    run = write_run(tmp_path / "run", judged, ordinary())
    assert "lost-write" in render(run).read_text()
