"""The report's model: what the folder tells, bounded, and said so when something is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Verdict
from assay.harness.core.history import HistoryWriter
from assay.reports.faults import read_fault_bands
from assay.reports.history_db import HistoryDatabase
from assay.reports.model import MOST_FINDINGS, MOST_NAMED, read_report
from assay.reports.page import format_injection, render_html

from helpers.fault_rows import impact
from helpers.run_folders import SECOND, completed, finding, judgement, ordinary, write_run


def test_a_finding_comes_with_its_operations_faults_and_window(tmp_path: Path) -> None:
    report = read_report(write_run(tmp_path / "run", judgement(Verdict.FAIL, finding(20, 45, 999)), ordinary()))
    (group,) = report.groups
    (found,) = group.findings
    assert [row.index for row in found.operations] == [20, 45]
    assert found.unlisted == 4, "three that the finding does not name, one that the history does not have"
    assert (found.start, found.stop) == (2 * SECOND, 4_504_000_000)
    assert [band.id for band in found.faults] == [1]
    assert report.problems == ()


def test_a_fault_begins_when_its_injection_did(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "history")
    for number, detail in ((1, {"began": SECOND}), (2, {})):
        row: dict[str, Any] = {"id": number, "fault": "kill", "targets": ("n1",), **impact("kill")}
        writer.fault(phase="injected", time=2 * SECOND, detail=detail, **row)
        writer.fault(phase="healed", time=3 * SECOND, took_effect=True, **row)
    writer.close()
    with HistoryDatabase(open_history(tmp_path / "history")) as recording:
        known, older = read_fault_bands(recording)[0]
    assert (known.began, known.start, known.injected) == (SECOND, SECOND, 2 * SECOND)
    assert (older.began, older.start, older.injected) == (None, 2 * SECOND, 2 * SECOND)
    assert [band.overlaps(SECOND, SECOND + 1) for band in (known, older)] == [True, False]
    assert not known.overlaps(0, SECOND - 1)
    assert [format_injection(band) for band in (known, older)] == ["1.000 – 2.000 s", "2.000 s"]


def test_faults_are_read_from_injected_to_recovered(tmp_path: Path) -> None:
    recorded = read_report(write_run(tmp_path / "run", judgement(Verdict.PASS), ordinary())).recorded
    assert recorded is not None
    kill, partition = recorded.faults
    assert (kill.injected, kill.healed, kill.recovered) == (2 * SECOND, 3 * SECOND, 3_250_000_000)
    assert (kill.what, kill.targets, kill.took_effect) == ("kill leader of orders-3", ("n3",), True)
    # Called from 2.0 s on and returned by 3.0 s: operations 20 to 29, of which 29 failed.
    assert kill.succeeded == 9
    assert (partition.injected, partition.failures) == (None, ("target: no one leads orders-9",))
    assert [(term.node, term.stop) for term in recorded.leadership.terms] == [
        ("n3", 2 * SECOND),
        ("n1", recorded.end),
    ]


def test_findings_and_their_operations_are_bounded_and_the_rest_is_counted(tmp_path: Path) -> None:
    names = [f"anomaly-{number}" for number in range(20)]
    many = [finding(*range(20 * number, 20 * number + 20), anomaly=name) for name in names for number in range(20)]
    rows = [completed(index, index * 1_000_000) for index in range(20 * 20)]
    report = read_report(write_run(tmp_path / "run", judgement(Verdict.FAIL, *many), rows))
    assert len(report.findings) == MOST_FINDINGS
    assert [group.name for group in report.groups] == names
    assert all(group.findings and group.omitted == 20 - len(group.findings) for group in report.groups)
    listed = {row.index for found in report.findings for row in found.operations}
    assert len(listed) <= MOST_NAMED
    assert all(len(found.operations) + found.unlisted == 23 for found in report.findings)


def test_an_anomaly_without_a_finding_is_still_a_group(tmp_path: Path) -> None:
    report = read_report(write_run(tmp_path / "run", judgement(Verdict.FAIL, anomalies={"vanished": 4}), ordinary()))
    assert [(group.name, group.count, group.omitted) for group in report.groups] == [("vanished", 4, 4)]


def test_an_interrupted_run_is_read_up_to_its_last_flush(tmp_path: Path) -> None:
    report = read_report(write_run(tmp_path / "run", None, ordinary(10), close=False, status="running"))
    assert report.judgement is None
    assert report.recorded is not None
    assert (report.recorded.operations, report.recorded.closed) == (10, False)


@pytest.mark.parametrize("faults", [True, False])
def test_a_history_without_operations_is_nothing_to_draw(tmp_path: Path, faults: bool) -> None:
    assert read_report(write_run(tmp_path / "run", judgement(Verdict.UNKNOWN), [], faults=faults)).recorded is None


def test_a_run_without_a_history_says_so(tmp_path: Path) -> None:
    report = read_report(write_run(tmp_path / "run", None))
    assert report.recorded is None
    assert report.problems == ("there is no history in this run's folder",)


def test_damaged_files_are_problems_and_do_not_hide_the_rest(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", judgement(Verdict.PASS), ordinary())
    (run / "settings.json").write_text("{")
    (run / "run.json").write_text('{"seed": "seven"}')
    part = next(path for path in sorted((run / "history" / "events").iterdir()))
    part.write_bytes(b"PAR1")
    report = read_report(run)
    assert report.judgement is not None
    assert [problem.split(" ")[0] for problem in report.problems] == ["run.json", "settings.json", "the"]


def test_an_empty_folder_makes_a_report_and_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert read_report(tmp_path / "run").groups == ()
    with pytest.raises(FileNotFoundError, match="not a folder"):
        read_report(tmp_path / "other")


def test_a_page_without_all_faults_says_so_at_the_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.reports.faults.MOST_FAULTS", 1)
    run = write_run(tmp_path / "run", judgement(Verdict.PASS), ordinary())
    page = render_html(read_report(run))
    assert "Only the first fault is drawn; 1 more followed." in " ".join(page.split())
