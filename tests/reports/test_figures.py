"""The few figures that a run keeps for the page of its store."""

from __future__ import annotations

from pathlib import Path

from assay.checkers.judging.history_views import open_history
from assay.harness.core.operation import Outcome
from assay.reports.figures import RunFigures, measure_run

from helpers.run_folders import SECOND, completed, write_history

MS = 1_000_000


def test_latencies_are_of_what_succeeded_from_when_it_was_due(tmp_path: Path) -> None:
    rows = [completed(index, index * SECOND, took=(index + 1) * MS) for index in range(100)]
    rows.append(completed(100, 100 * SECOND, took=900 * MS, outcome=Outcome.FAIL))
    rows.append(completed(101, 101 * SECOND, outcome=Outcome.INFO))
    rows.append(completed(102, 102 * SECOND, took=MS, scheduled=102 * SECOND - 500 * MS))
    write_history(tmp_path, rows)
    found = measure_run(open_history(tmp_path))
    assert (found.median_ms, found.p99_ms) == (51.0, 100.0)
    assert found.recovery_seconds == 0.25, "from the heal at 3 s on"
    assert found.rate == round(101 / 102.001, 3), "of what succeeded, to the last answer"


def test_what_never_happened_has_no_figure(tmp_path: Path) -> None:
    write_history(tmp_path, [completed(0, 0, outcome=Outcome.FAIL)], faults=False)
    assert measure_run(open_history(tmp_path)) == RunFigures(rate=0.0)
