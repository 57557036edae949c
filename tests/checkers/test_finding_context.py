"""Which faults a finding names: those between cause and effect, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.checkers.engine import Engine
from assay.checkers.judging import disturbance
from assay.checkers.judging.contract import forbid
from assay.checkers.judging.verdict import Finding

from helpers.judging import judge
from helpers.log_histories import Book, Row, write

MILLISECOND = 1_000_000


def fault(number: int, injected: int, healed: int | None, began: int | None = None) -> list[Row]:
    """``began``: when its injection did; all in milliseconds."""
    known = {} if began is None else {"injected": json.dumps({"began": began * MILLISECOND})}
    phases = [("injected", injected), *([("healed", healed)] if healed is not None else [])]
    return [
        {"id": number, "fault": "kill", "targets": '["n1"]', "phase": phase, "time": time * MILLISECOND,
         "detail": known.get(phase, "{}")}
        for phase, time in phases
    ]  # fmt: skip


def found(folder: Path, book: Book, anomaly: str, faults: list[Row], events: list[Row] | None = None) -> Finding:
    rows = [row | {"took_effect": True if row["phase"] == "healed" else None} for row in faults]
    findings = judge(write(folder, book.rows, faults=rows, events=events or []), forbid(anomaly)).findings
    return next(finding for finding in findings if finding.anomaly == anomaly)


def lost() -> Book:
    """Acknowledged from 1.0 to 1.1 s, gone from 2.0 to 2.1 s."""
    book = Book()
    book.send([1], 0, (1_000, 1_100))
    book.send([2], 1, (1_200, 1_300))
    book.poll(0, [(1, 2)], 2, (2_000, 2_100))
    return book


def test_a_fault_between_cause_and_effect_is_named_and_its_neighbours_are_not(tmp_path: Path) -> None:
    faults = [*fault(1, 500, 999), *fault(2, 1_500, 1_600), *fault(3, 2_101, 2_200)]
    finding = found(tmp_path, lost(), "lost-write", faults)
    assert (finding.since, finding.until) == (1_000 * MILLISECOND, 2_100 * MILLISECOND)
    assert finding.faults == (2,)


def test_a_fault_that_lasted_from_before_or_beyond_is_named(tmp_path: Path) -> None:
    faults = [*fault(1, 500, 1_000), *fault(2, 2_100, 2_200), *fault(3, 100, None)]
    assert found(tmp_path, lost(), "lost-write", faults).faults == (1, 2, 3)


def test_a_fault_counts_from_when_its_injection_began(tmp_path: Path) -> None:
    """A kill strikes before it is recorded as injected."""
    faults = [
        *fault(1, 2_150, 2_200, began=2_100),
        *fault(2, 2_150, 2_200, began=2_101),
        *fault(3, 2_150, 2_200),
        *fault(4, 900, 999, began=800),
    ]
    assert found(tmp_path, lost(), "lost-write", faults).faults == (1,)


@pytest.mark.parametrize("detail", ["", "[]", "null", '{"began": "x"}', '{"began": true}'])
def test_a_detail_that_says_no_begin_leaves_the_time_of_its_row(tmp_path: Path, detail: str) -> None:
    rows = [row | ({"detail": detail} if row["phase"] == "injected" else {}) for row in fault(1, 2_000, 2_200)]
    assert found(tmp_path, lost(), "lost-write", rows).faults == (1,)


@pytest.mark.parametrize("detail", ["", "[]", "null", "it did not work", '{"reason": ["it", "did not"]}'])
def test_a_failure_of_a_fault_may_be_described_anyhow(tmp_path: Path, detail: str) -> None:
    """In a history that came from elsewhere; its targets, too."""
    failed = {"id": 1, "fault": "power", "targets": "n1", "phase": "failed", "time": 5, "detail": detail}
    struck = failed | {"phase": "injected", "time": 3, "loses_unsynced": True, "detail": "{}"}
    assert found(tmp_path, lost(), "lost-write", [struck, failed], [LED]).faults == (1,)


LED = {
    "time": 1, "node": "n1", "incarnation": 1, "seq": 1, "event": "became-leader", "key": "orders-0", "epoch": 1,
    "detail": "{}",
}  # fmt: skip


def test_what_was_never_delivered_has_its_cause_up_to_the_end_of_the_drain(tmp_path: Path) -> None:
    book = Book()
    book.send([1], 0, (1_000, 1_100))
    book.poll(0, [], 0, (3_000, 3_100), phase="drain")
    finding = found(tmp_path, book, "unseen", [*fault(1, 500, 999), *fault(2, 2_000, 2_100), *fault(3, 3_200, 3_300)])
    assert finding.faults == (2,)


def test_of_a_copy_the_time_from_the_send_to_the_second_sight_counts(tmp_path: Path) -> None:
    book = Book()
    book.send([1], None, (1_000, None), outcome="info")
    book.poll(0, [(0, 1)], 1, (3_000, 3_100))
    book.poll(1, [(1, 1)], 2, (5_000, 5_100))
    finding = found(tmp_path, book, "duplicate", [*fault(1, 2_000, 2_100), *fault(2, 4_000, 4_100)])
    assert finding.faults == (1, 2)


def test_of_events_the_time_from_the_first_to_the_last_counts(tmp_path: Path) -> None:
    events: list[Row] = [
        {
            "time": time * MILLISECOND,
            "node": node,
            "incarnation": 1,
            "seq": 1,
            "event": "first-append-in-epoch",
            "key": "orders-0",
            "epoch": 3,
            "position": 7,
            "detail": "{}",
        }
        for time, node in ((1_000, "n1"), (2_000, "n2"))
    ]
    faults = [*fault(1, 500, 999), *fault(2, 1_500, 1_600), *fault(3, 2_001, 2_100)]
    assert found(tmp_path, lost(), "two-leaders", faults, events).faults == (2,)


def test_what_all_findings_share_is_asked_of_the_history_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Spark each question takes as long as a check does."""
    faults, asked = disturbance.read_faults, []

    def noted(engine: Engine) -> list[disturbance.FaultTimes]:
        asked.append(engine)
        return faults(engine)

    monkeypatch.setattr(disturbance, "read_faults", noted)
    book = lost()
    book.send([5], None, (3_000, None), outcome="info")
    book.poll(2, [(2, 5), (3, 5)], 4, (3_500, 3_600))
    judgement = judge(write(tmp_path, book.rows, faults=fault(1, 1_500, 3_550)), forbid("lost-write", "duplicate"))
    assert judgement.anomalies.keys() >= {"lost-write", "duplicate"}
    assert {finding.faults for finding in judgement.findings} == {(1,)}
    assert len(asked) == 1
