"""Tests what a store becomes: nothing in it raises, nothing is hidden, and a night's attempts go with their runs."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from assay.harness.nightly.dataset_schema import ABANDONED, DAMAGED
from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.harness.nightly.night_record import CellKind, RunningAttempt
from assay.harness.nightly.store_index import GONE, read_store
from assay.harness.run import store
from assay.reports.index.entry import CellKey, Entry, RunVerdict
from assay.reports.index.failures import group_failures
from assay.reports.index.known import KnownFailures
from assay.reports.index.page import render_page

from helpers.morning_store import HOSTILE, LAST, Made, cell, night, result, write


def only(root: Path) -> Entry:
    (entry,) = read_store(root, {}).entries
    return entry


def test_a_run_is_an_entry_with_what_its_small_files_say(tmp_path: Path) -> None:
    figures = {"median_ms": 3.5, "p99_ms": 40.0, "recovery_seconds": 1.25}
    path = write(tmp_path, Made(verdict="fail", anomalies=("vanished", "lost-write"), figures=figures, report=True))
    entry = only(tmp_path)
    assert entry.name == entry.address == f"{path.parent.name}/{path.name}"
    assert entry.cell == CellKey("broker", "test_log", "kill", "sim", "")
    assert (entry.verdict, entry.status, entry.anomalies) == (RunVerdict.FAIL, "finished", ("lost-write", "vanished"))
    assert (entry.version, entry.seed, entry.night) == ("41f0", 7, "2026-11-24")
    assert entry.command.endswith("--nemesis=kill --seed=7")
    assert [label for label, _ in entry.links] == ["report", "schedule", "history"]
    assert all((tmp_path / address).exists() for _, address in entry.links)
    measured = entry.figures
    assert (measured.operations, measured.median, measured.p99, measured.recovery) == (5000, 3.5, 40.0, 1.25)
    assert measured.detection == 4.2


@pytest.mark.parametrize("name", ["run.json", "settings.json", "verdict.json", "schedule.json", "figures.json"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe{", b"[[[[", b'{"a": ', b"null", b'"x"', b"7", b"[" * 100_000])
def test_damage_is_shown_and_never_a_pass(tmp_path: Path, name: str, content: bytes) -> None:
    path = write(tmp_path, Made(verdict="fail", anomalies=("lost-write",), replay="store/found/x.json"))
    (path / name).write_bytes(content)
    entry = only(tmp_path)
    assert entry.verdict is (RunVerdict.NONE if name in ("run.json", "verdict.json") else RunVerdict.FAIL)
    assert entry.address == f"{path.parent.name}/{path.name}"
    if entry.verdict is RunVerdict.NONE:
        assert entry.status == DAMAGED
        assert entry.reason


@pytest.mark.parametrize("name", ["run.json", "settings.json", "verdict.json"])
def test_a_folder_in_place_of_a_file_is_damage(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, Made())
    (path / name).unlink()
    (path / name).mkdir()
    assert only(tmp_path).verdict is (RunVerdict.PASS if name == "settings.json" else RunVerdict.NONE)


def test_a_foreign_folder_is_shown_under_its_name_whatever_that_is(tmp_path: Path) -> None:
    os.makedirs(os.fsencode(tmp_path) + b"/foreign/\xff\xe2\x80\xae<script>")
    entry = only(tmp_path)
    assert (entry.verdict, entry.status) == (RunVerdict.NONE, DAMAGED)
    assert entry.name == "foreign/\\udcff\\u202e<script>"
    assert entry.address == "foreign/%FF%E2%80%AE%3Cscript%3E"


def test_a_verdict_that_contradicts_the_run_is_damage(tmp_path: Path) -> None:
    path = write(tmp_path, Made(verdict="fail"))
    found = msgspec.json.decode((path / "run.json").read_bytes())
    (path / "run.json").write_bytes(msgspec.json.encode({**found, "verdict": "pass"}))
    assert (only(tmp_path).verdict, only(tmp_path).status) == (RunVerdict.NONE, DAMAGED)


@pytest.mark.parametrize(
    ("made", "status", "reason"),
    [
        (Made(status=store.RUNNING), ABANDONED, "it did not end"),
        (Made(status=store.ERROR, problem="Traceback:\n  x\nNodeError: n2"), store.ERROR, "NodeError: n2"),
        (
            Made(verdict=None),
            store.FINISHED,
            "it was not judged; `assay check` judges it, but does not store the verdict",
        ),
    ],
)
def test_a_run_without_a_verdict_says_why(tmp_path: Path, made: Made, status: str, reason: str) -> None:
    write(tmp_path, made)
    entry = only(tmp_path)
    assert (entry.verdict, entry.status, entry.reason) == (RunVerdict.NONE, status, reason)


def test_an_unknown_run_has_its_first_reason(tmp_path: Path) -> None:
    write(tmp_path, Made(verdict="unknown", reason="too little happened\nmore"))
    assert (only(tmp_path).verdict, only(tmp_path).reason) == (RunVerdict.UNKNOWN, "too little happened")


def test_a_shrunk_schedule_gives_its_shape_to_the_run_it_was_made_of_and_to_those_that_play_it(tmp_path: Path) -> None:
    first = write(tmp_path, Made(verdict="fail", anomalies=("lost-write",), faults=("kill", "stop", "stop")))
    again = Made(LAST + timedelta(hours=1), verdict="fail", anomalies=("lost-write",), faults=("stop", "kill"))
    again.replay = "store/found/71-lost-write.json"
    write(tmp_path, again)
    (tmp_path / "found").mkdir()
    steps = [{"at": 1.0, "fault": "stop", "target": {}, "duration": 1.0}]
    small = tmp_path / "found" / f"{first.name}-lost-write.json"
    small.write_bytes(msgspec.json.encode({"type": "schedule", "seed": 1, "steps": steps}))
    one, two = read_store(tmp_path, {}).entries
    assert (one.shape, two.shape) == (("stop",), ("stop", "kill"))
    assert one.links[-1] == ("shrunk schedule", f"found/{small.name}")


def test_a_defect_is_caught_by_what_it_must_be_reported_by(tmp_path: Path) -> None:
    defect = Made(verdict="fail", anomalies=("lost-write",), defect="forgetful")
    write(tmp_path, defect)
    assert [read_store(tmp_path, zoo).entries[0].caught for zoo in ({}, {"forgetful": ("lost-write", "vanished")})] == [
        True
    ] * 2
    assert read_store(tmp_path, {"forgetful": ("vanished",)}).entries[0].caught is False
    of = cell("test_log", "kill", kind=CellKind.CANARY, defect="forgetful", expected=("vanished",))
    night(tmp_path, LAST, [of], [])
    assert only(tmp_path).caught is False, "what the night's matrix expects"


def test_attempts_go_with_their_runs_and_stand_alone_without(tmp_path: Path) -> None:
    path = write(tmp_path, Made(began=LAST + timedelta(hours=30)))
    cells = [cell("test_log", "kill"), cell("test_moves", "stop", cluster="docker"), cell("test_group", "mix")]
    results = [
        result(cells[0], Outcome.PASS, f"{path.parent.name}/{path.name}"),
        result(cells[1], Outcome.HUNG, detail="no line for 600 s", log="logs/a b.txt"),
        result(cells[2], Outcome.PASS),
    ]
    record = night(tmp_path, LAST, cells, results, ended=False)
    (record.path / "logs").mkdir()
    (record.path / "logs" / "a b.txt").touch()
    found = read_store(tmp_path, {})
    by_workload = {entry.cell.workload: entry for entry in found.entries}
    assert len(found.entries) == 3
    assert by_workload["test_log"].night == "2026-11-24", "the night's, not the day's"
    assert by_workload["test_group"].verdict is RunVerdict.PASS
    hung = by_workload["test_moves"]
    assert (hung.verdict, hung.status, hung.reason) == (RunVerdict.NONE, "hung", "no line for 600 s")
    assert hung.links == [("log", "nights/2026-11-24/logs/a%20b.txt")]
    (of,) = found.nights
    assert (of.planned, of.done, of.ended, of.running_cell) == (3, 3, None, "")


@pytest.mark.parametrize(("status", "verdict"), [("running", None), ("finished", "pass"), ("finished", "fail")])
def test_runs_of_an_attempt_that_no_line_records_stand_under_their_night(
    tmp_path: Path, status: str, verdict: str | None
) -> None:
    """The attempt goes on, or the night was killed during it."""
    of = cell("test_log", "kill")
    anomalies = ("lost-write",) if verdict == "fail" else ()
    write(tmp_path, Made(LAST + timedelta(hours=30), status=status, verdict=verdict, anomalies=anomalies))
    record = night(tmp_path, LAST, [of], [], ended=False)
    record.write_running(RunningAttempt(result=result(of, Outcome.INTERRUPTED, detail="killed"), owner="1.2.3"))
    entry = only(tmp_path)
    assert (entry.night, entry.night_cell) == ("2026-11-24", of.name)
    assert (entry.status, entry.verdict) == (ABANDONED if status == "running" else status, verdict or RunVerdict.NONE)
    (one,) = read_store(tmp_path, {}).nights
    assert (one.name, one.done) == ("2026-11-24", int(verdict == "fail"))


def test_a_failed_attempt_whose_runs_all_passed_is_a_failure_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path, Made())
    of = cell("test_log", "kill")
    night(tmp_path, LAST, [of], [result(of, Outcome.FAIL, f"{path.parent.name}/{path.name}", detail="exit code 1")])
    assert sorted(entry.verdict for entry in read_store(tmp_path, {}).entries) == [RunVerdict.FAIL, RunVerdict.PASS]


def test_a_run_that_is_gone_is_no_failure_and_still_says_what_was_green(tmp_path: Path) -> None:
    of = cell("test_log", "kill")
    paths = []
    for back, at, ended in ((3, "v1", Outcome.PASS), (2, "v2", Outcome.FAIL), (1, "v3", Outcome.PASS), (0, "v4", None)):
        began, outcome = LAST - timedelta(days=back), ended or Outcome.FAIL
        anomalies = ("lost-write",) if outcome is Outcome.FAIL else ()
        paths.append(write(tmp_path, Made(began, verdict=outcome, anomalies=anomalies)))
        name = f"{paths[-1].parent.name}/{paths[-1].name}"
        folder = night(tmp_path, began, [of], [result(of, outcome, name, started=began.isoformat())])
        folder.write(msgspec.structs.replace(folder.read(), version=at))
    (before,) = group_failures(read_store(tmp_path, {}), KnownFailures())
    assert (before.new, before.last_pass_version, before.rate.failed, before.rate.runs) == (False, "v1", 2, 4)
    store.delete_runs(paths[:3])
    stored = read_store(tmp_path, {})
    (after,) = group_failures(stored, KnownFailures())
    assert (after.new, after.last_pass_version, after.rate.failed, after.rate.runs) == (True, "v3", 1, 1)
    gone = [(entry.verdict, entry.reason) for entry in stored.entries[:3]]
    assert gone == [(RunVerdict.PASS, ""), (RunVerdict.NONE, GONE), (RunVerdict.PASS, "")]
    store.delete_runs(paths[3:])
    assert group_failures(read_store(tmp_path, {}), KnownFailures()) == [], "of none the anomalies are known"


def test_a_night_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "nights" / "broken").mkdir(parents=True)
    (tmp_path / "nights" / "broken" / "night.json").write_text("{")
    (problem,) = read_store(tmp_path, {}).problems
    assert "night.json is not the record of a night" in problem


def test_days_are_nights_where_there_is_no_record(tmp_path: Path) -> None:
    for days in (0, 0, 1, 3):
        write(tmp_path, Made(LAST - timedelta(days=days)))
    assert [of.name for of in read_store(tmp_path, {}).nights] == ["2026-11-21", "2026-11-23", "2026-11-24"]


def test_an_empty_store_has_nothing(tmp_path: Path) -> None:
    found = read_store(tmp_path, {})
    assert (found.entries, found.nights) == ((), ())


@pytest.mark.parametrize(("outcome", "system", "defect"), [(Outcome.FAIL, "broker with isr-of-one", ""),
                                                           (Outcome.DETECTED, "broker", "isr-of-one")])  # fmt: skip
def test_a_defect_that_a_plain_cell_has_is_a_failure_and_a_canarys_is_not(
    tmp_path: Path, outcome: Outcome, system: str, defect: str
) -> None:
    path = write(tmp_path, Made(verdict="fail", anomalies=("lost-write",), defect="isr-of-one"))
    planned = cell("test_log", "kill", kind=CellKind.RUN if outcome is Outcome.FAIL else CellKind.CANARY)
    night(tmp_path, LAST, [planned], [result(planned, outcome, f"{path.parent.name}/{path.name}")])
    entry = only(tmp_path)
    assert (entry.cell.system, entry.cell.defect) == (system, defect)
    assert entry.caught is (None if outcome is Outcome.FAIL else True)


def test_a_defect_in_a_plain_cell_was_green_before_it_and_the_page_has_the_commits(tmp_path: Path) -> None:
    planned = cell("test_log", "kill")
    nights = [(LAST - timedelta(days=1), "v1", "", Outcome.PASS), (LAST, "v2", "v1", Outcome.FAIL)]
    for began, at, after, ended in nights:
        made = Made(began, verdict=ended, anomalies=("lost-write",) if ended is Outcome.FAIL else (), version="same",
                    defect="isr-of-one" if ended is Outcome.FAIL else None)  # fmt: skip
        path = write(tmp_path, made)
        folder = night(tmp_path, began, [planned], [result(planned, ended, f"{path.parent.name}/{path.name}")])
        commits = (f"abc {HOSTILE}",) if after else ()
        folder.write(msgspec.structs.replace(folder.read(), version=at, after=after, commits=commits))
    (one,) = group_failures(read_store(tmp_path, {}), KnownFailures())
    assert (one.system, one.last_pass_version, one.suspects) == ("broker with isr-of-one", "v1", ("v2",))
    assert one.entries[0].night_cell == planned.name
    html = render_page(read_store(tmp_path, {}), KnownFailures()).html
    assert "1 commit since <code>v1</code>" in html
    assert "<code>abc &lt;/script&gt;" in html
