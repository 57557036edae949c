"""A history is read wherever it lies, by the same engine that judges it."""

from __future__ import annotations

from pathlib import Path

from assay.checkers.judging.history_views import open_history
from assay.reports.history_db import HistoryDatabase

from helpers.run_folders import ordinary, write_history


def test_a_folder_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "it's [a]* b?"
    write_history(folder, ordinary(20))
    with HistoryDatabase(open_history(folder)) as recording:
        assert recording.rows("select count(*) as total from ops where f = ?", ["send"]) == [{"total": 10}]
        assert recording.columns("select index from ops order by index limit 3")["index"].tolist() == [0, 1, 2]
        assert recording.rows("select * from replicas") == []
