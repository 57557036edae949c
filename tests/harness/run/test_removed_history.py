"""``--keep-history=failures``: the history of a run that passed goes once the rest is written, and no other ever."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from assay.checkers.engine import EngineError
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Verdict
from assay.harness.core.generator import Generator
from assay.harness.run import attempt as attempts
from assay.harness.run import store
from assay.harness.run.attempt import Attempt, HistoryPolicy, ReportPolicy
from assay.harness.run.experiment import Experiment
from assay.harness.run.settings import Settings
from assay.harness.run.store import RemovedHistoryError
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import traffic

pytestmark = pytest.mark.slow

KEYS = ("orders-0", "orders-1")


def body(settings: Settings) -> Generator:
    return traffic(KEYS) | drain(KEYS, seconds=10)


def played(
    toy: ModuleType,
    root: Path,
    *,
    histories: HistoryPolicy = HistoryPolicy.FAILURES,
    reports: ReportPolicy = ReportPolicy.NEVER,
    **settings: Any,
) -> Attempt:
    chosen: dict[str, Any] = {"seed": 4, "nodes": 1, "time_limit": 1.0, "rate": 100.0, "concurrency": 3, "store": root}
    made = Experiment("test_toy", toy.ToySystem(), toy.ToyClient, Contract(minimum_during_fault=0), body)
    test = "toy.py::test_toy[none]"
    run = Attempt(made, Settings(**chosen | settings), test, "pytest", reports=reports, histories=histories)
    try:
        run.set_up()
        run.run()
    finally:
        run.tear_down()
    return run


def is_kept(run: Attempt) -> bool:
    """Returns whether the history is there and can be read, which ``run.json`` must agree with."""
    info = store.read_run(run.folder.path)
    assert info is not None
    if run.folder.history.exists():
        assert store.resolve_history(run.folder.path) == run.folder.history.resolve()
        assert info.history_removed == 0
        assert run.removal is None
        return True
    assert info.history_removed > 0
    with pytest.raises(RemovedHistoryError):
        store.resolve_history(run.folder.path)
    return False


def test_what_a_soak_that_passed_needs_remains(toy: ModuleType, tmp_path: Path) -> None:
    run = played(toy, tmp_path, reports=ReportPolicy.ALL)
    assert not is_kept(run)
    left = {path.name for path in run.folder.path.iterdir()}
    assert left == {
        "run.json", "settings.json", "schedule.json", "verdict.json", "figures.json", "resources.json", "report.html",
        "logs",
    }  # fmt: skip
    page = (run.folder.path / "report.html").read_text()
    assert "Resident memory, MB" in page
    assert "<h2>Timeline</h2>" in page
    info = store.read_run(run.folder.path)
    assert info is not None
    assert (info.verdict, info.in_use, info.status) == ("pass", False, store.FINISHED)
    assert run.removal is not None
    size, remaining, folder = run.removal
    assert size > 1000
    assert remaining.startswith("verdict, page")
    assert folder == run.folder.path


def test_without_a_page_on_request_the_verdict_remains(toy: ModuleType, tmp_path: Path) -> None:
    run = played(toy, tmp_path)
    assert not is_kept(run)
    assert run.removal is not None
    assert "page" not in run.removal[1]
    assert "schedule" in run.removal[1]


def judging(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> None:
    """Lets each run have this verdict."""
    judge = attempts.judge_run
    monkeypatch.setattr(
        attempts, "judge_run", lambda *given, **more: msgspec.structs.replace(judge(*given, **more), verdict=verdict)
    )


def test_by_default_every_history_is_kept(toy: ModuleType, tmp_path: Path) -> None:
    assert is_kept(played(toy, tmp_path, histories=HistoryPolicy.ALL))


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.UNKNOWN])
def test_a_run_that_did_not_pass_keeps_it(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict
) -> None:
    judging(monkeypatch, verdict)
    assert is_kept(played(toy, tmp_path))


def test_a_run_that_could_not_be_judged_keeps_it(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **more: Any) -> Any:
        raise EngineError("no memory left")

    monkeypatch.setattr(attempts, "judge_run", refuse)
    with pytest.raises(EngineError):
        played(toy, tmp_path)
    (run,) = store.list_runs(tmp_path)
    assert store.resolve_history(run).name == "history"


def test_a_run_whose_page_could_not_be_written_keeps_it(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> Path:
        raise RuntimeError("no page")

    monkeypatch.setattr("assay.reports.page.render", refuse)
    assert is_kept(played(toy, tmp_path, reports=ReportPolicy.ALL))


def test_a_run_with_a_defect_that_was_missed_keeps_it(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging(monkeypatch, Verdict.PASS)
    run = played(toy, tmp_path, defect="forgetful")
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.PASS
    assert is_kept(run)


def test_a_history_that_cannot_be_removed_is_still_read(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    assert is_kept(played(toy, tmp_path))


def test_a_process_that_is_killed_before_the_removal_leaves_a_history_that_is_read(
    toy: ModuleType, tmp_path: Path
) -> None:
    run = played(toy, tmp_path, histories=HistoryPolicy.ALL)
    run._update_info(history_removed=17)
    assert store.resolve_history(run.folder.path) == run.folder.history.resolve()
    assert not store.has_removed_history(run.folder.path)
