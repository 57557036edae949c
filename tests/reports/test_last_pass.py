"""A run beside the last one of its cell that passed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.reports.files import read_files
from assay.reports.last_pass import compare_with_last_pass
from assay.reports.model import read_report

from helpers.run_folders import finding, judgement, ordinary, write_run

GREEN, RED = judgement(Verdict.PASS), judgement(Verdict.FAIL, finding(20, 45))


def test_rates_and_faults_stand_side_by_side(tmp_path: Path) -> None:
    write_run(tmp_path / "1", GREEN, ordinary(), started="2026-01-01T00:00:00+00:00")
    report = read_report(write_run(tmp_path / "2", RED, ordinary(40), faults=False))
    assert report.last_pass is not None
    assert (report.last_pass.name, report.last_pass.started) == ("1", "2026-01-01T00:00:00+00:00")
    operation_rates = {f: (here, there) for f, here, there in report.last_pass.operation_rates}
    here, there = operation_rates["send"]
    assert here is not None
    assert there is not None
    assert (here.counts.total, there.counts.total) == (20, 30)
    assert there.rate == pytest.approx(there.counts.ok / 5.9, rel=0.01)
    ((fault, mine, other),) = report.last_pass.fault_summaries
    assert (fault, mine.count, other.count, other.effective) == ("kill", 0, 1, 1)
    assert other.recovery == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("verdict", "info"),
    [
        (RED, {}),
        (judgement(Verdict.UNKNOWN, unknown=("no",)), {}),
        (None, {}),
        (GREEN, {"nemesis": "stop"}),
        (GREEN, {"cluster": "docker"}),
        (GREEN, {"test": "workloads/test_log.py::test_other[kill]"}),
    ],
    ids=["failed", "unknown", "no verdict", "other faults", "another cluster", "another test"],
)
def test_only_a_run_of_the_same_cell_that_passed_is_taken(tmp_path: Path, verdict: Any, info: dict[str, Any]) -> None:
    write_run(tmp_path / "1", GREEN, ordinary(5))
    write_run(tmp_path / "2", verdict, ordinary(10), **info)
    report = read_report(write_run(tmp_path / "3", RED, ordinary()))
    assert report.last_pass is not None
    assert report.last_pass.name == "1"


def test_a_later_run_and_one_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    write_run(tmp_path / "1", GREEN, ordinary(5))
    write_run(tmp_path / "2", GREEN, ordinary(5))
    (tmp_path / "2" / "history" / "ops" / "part-000000.parquet").write_bytes(b"PAR1")
    write_run(tmp_path / "3", GREEN, None)
    write_run(tmp_path / "5", GREEN, ordinary(5))
    (tmp_path / "latest").symlink_to("5")
    report = read_report(write_run(tmp_path / "4", RED, ordinary()))
    assert report.last_pass is not None
    assert report.last_pass.name == "1"


def test_a_run_that_passed_is_compared_with_none_nor_the_first_of_its_cell(tmp_path: Path) -> None:
    first = read_report(write_run(tmp_path / "1", RED, ordinary(5)))
    assert first.last_pass is None
    write_run(tmp_path / "2", GREEN, ordinary(5))
    third = read_report(write_run(tmp_path / "3", GREEN, ordinary(5)))
    assert third.last_pass is None
    assert third.recorded is not None
    assert compare_with_last_pass(tmp_path / "3", read_files(tmp_path / "3"), third.recorded.summary) is not None
