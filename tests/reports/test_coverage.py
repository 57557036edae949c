"""Tests what was checked and what was not: everything once, and nothing without data counted as good."""

from __future__ import annotations

import msgspec

from assay.checkers.judging.verdict import Verdict
from assay.checkers.log.loss import LOST_WRITE
from assay.reports.coverage import Policy, State, coverage, meaning

from helpers.run_folders import finding, judgement


def test_every_anomaly_stands_in_the_table_once_with_its_own_state() -> None:
    rows = coverage(
        judgement(Verdict.FAIL, finding(1, 2), finding(3, anomaly="odd"), anomalies={"lost-write": 9, "odd": 1})
    )
    assert {row.name: (row.state, row.policy, row.instances) for row in rows} == {
        "lost-write": (State.FOUND, Policy.FORBIDDEN, 9),
        "odd": (State.FOUND, Policy.OPEN, 1),
        "phantom": (State.NOT_JUDGED, Policy.FORBIDDEN, 0),
        "stale-read": (State.NOT_JUDGED, Policy.FORBIDDEN, 0),
        "vanished": (State.NO_DATA, Policy.FORBIDDEN, 0),
        "duplicate": (State.CLEAR, Policy.TOLERATED, 0),
    }
    assert [row.state for row in rows] == [State.FOUND] * 2 + [State.NOT_JUDGED] * 2 + [State.NO_DATA, State.CLEAR]


def test_the_reason_why_nothing_was_judged_is_kept() -> None:
    notes = {row.name: row.note for row in coverage(judgement(Verdict.UNKNOWN))}
    assert notes["phantom"] == "operations may be missing"
    assert notes["stale-read"] == "no check of it applied to this history"
    assert notes["vanished"] is None


def test_what_an_anomaly_means_is_said_by_the_judgement_and_for_older_ones_by_its_check() -> None:
    older = judgement(Verdict.PASS)
    assert meaning(older, "lost-write") == LOST_WRITE.meaning
    assert meaning(older, "odd") is None
    newer = msgspec.structs.replace(older, meanings={"odd": "something is odd", "lost-write": "a write is lost"})
    assert (meaning(newer, "odd"), meaning(newer, "lost-write")) == ("something is odd", "a write is lost")
