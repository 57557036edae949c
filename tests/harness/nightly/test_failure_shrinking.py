"""A night makes each new failure small once, after its cells, and the runs of that are in no rate."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.nightly import night_record, night_runner
from assay.harness.nightly.matrix import read_plan
from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.harness.nightly.night_record import (
    AttemptResult,
    CellKind,
    MatrixCell,
    NightError,
    NightFolder,
    ShrunkFailure,
)
from assay.harness.nightly.store_index import read_store
from assay.reports.index.failures import Failure, group_failures
from assay.reports.index.known import KnownFailures

from helpers.night_cells import PROGRAM, alive, begun, cell, environment

FAKE = Path(__file__).parents[2] / "helpers" / "fake_shrink.py"
SOON = 20.0
DRIVER = """\
import sys
from pathlib import Path
from assay.harness.nightly import night_record, night_runner
store, program, shrinker = Path(sys.argv[1]), sys.argv[2:4], sys.argv[2:3] + sys.argv[4:]
one = night_runner.find_resumable_night(store, None)
path = night_record.night_folder(store, one.folder_name)
night_runner.NightRunner(store, path, one, 60.0, program=program, shrinker=shrinker, grace=5.0).run()
"""


def performed(
    store: Path, *cells: MatrixCell, name: str = "n", act: str = "small", seconds: float = 60.0
) -> list[ShrunkFailure]:
    one = night_runner.begin_night(store, name, cells, 100.0, store.parent, None, shrink=seconds)
    path = night_record.night_folder(store, one.folder_name)
    shrinker = (sys.executable, str(FAKE), act)
    night_runner.NightRunner(store, path, one, 100.0, program=PROGRAM, grace=5.0, shrinker=shrinker).run()
    return path.read_shrunk()


def only(store: Path) -> Failure:
    (found,) = group_failures(read_store(store, {}), KnownFailures())
    return found


def until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not there():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def test_a_new_failure_gets_its_shape_and_its_rate_stays(tmp_path: Path) -> None:
    (small,) = performed(tmp_path, cell("fail", "exit=1"), cell("pass"))
    assert (small.anomalies, small.interrupted) == (("lost-write",), False)
    found = only(tmp_path)
    assert (found.shape, found.rate.failed, found.rate.runs) == (("stop",), 1, 2), (
        "two attempts, and no run of a shrinking"
    )
    assert found.example.command == f"pytest t --replay={tmp_path / small.schedule}"
    links = dict(found.example.links)
    assert links["shrunk schedule"] == small.schedule
    assert "small" in (tmp_path / links["small run"]).read_text()
    assert not list((tmp_path / "nights").rglob("run.json")), "its runs are gone"


def test_a_shrinking_that_cannot_be_started_does_not_end_the_night(tmp_path: Path) -> None:
    one = night_runner.begin_night(
        tmp_path, "n", [cell("fail", "exit=1", repeat=2)], 100.0, tmp_path, None, shrink=60.0
    )
    path = night_record.night_folder(tmp_path, one.folder_name)
    results = night_runner.NightRunner(tmp_path, path, one, 100.0, program=PROGRAM, shrinker=("/nowhere/shrink",)).run()
    assert [result.outcome for result in results] == ["fail", "fail"]
    (small,) = path.read_shrunk()
    assert small.detail.startswith("it could not be shrunk: ")
    assert not small.interrupted


def test_only_runs_of_this_nights_own_record_are_executed_again(tmp_path: Path) -> None:
    """Another record in the store, which may come from elsewhere, claims that its failed run is of this night."""
    performed(tmp_path, cell("fail", "exit=1"), name="other", seconds=0.0)
    other = night_record.night_folder(tmp_path, "other")
    night = json.loads((other.path / "night.json").read_text())
    (other.path / "night.json").write_text(json.dumps(night | {"whole": "n"}))
    assert only(tmp_path).entries[0].night == "n", "the page takes it for one of this night"
    assert performed(tmp_path, cell("pass", name="fail-exit=1")) == []


def recorded_failure(store: Path) -> NightFolder:
    """A night whose record names a failed run, and whose failures may be shrunk from now on."""
    assert performed(store, cell("fail", "exit=1"), seconds=0.0) == []
    path = night_record.night_folder(store, "n")
    path.write(msgspec.structs.replace(path.read(), shrink_seconds=60.0))
    return path


def test_a_recorded_failure_is_shrunk_only_if_the_record_is_trusted(tmp_path: Path) -> None:
    """The record and the run may come from elsewhere, and the run may name any test and any options."""
    path = recorded_failure(tmp_path)
    runner = partial(
        night_runner.NightRunner, tmp_path, path, path.read(), 60.0, program=PROGRAM,
        shrinker=(sys.executable, str(FAKE), "small"),
    )  # fmt: skip
    runner().run()
    assert path.read_shrunk() == []
    assert not (tmp_path / "shrinks").exists()
    runner(trusts_record=True).run()
    assert len(path.read_shrunk()) == 1


def test_resume_asks_before_it_shrinks_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    path = recorded_failure(store)
    faked = partial(night_runner.NightRunner, program=PROGRAM, shrinker=(sys.executable, str(FAKE), "small"))
    monkeypatch.setattr(night_runner, "NightRunner", faked)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("assay.harness.nightly.matrix.read_plan", lambda path: ((cell("fail", "exit=1"),), 0.0))
    resume = ["nightly", "--resume", f"--store={store}", f"--matrix={store.parent / 'nightly.toml'}", "--budget=60s"]
    assert main(resume) == ExitCode.FAIL
    said = capsys.readouterr().err
    (run,) = [run for one in path.read_results() for run in one.runs]
    assert f"not shrunk yet: the failure of {run}" in said
    assert "--yes agrees" in said
    assert path.read_shrunk() == []
    assert main([*resume, "--yes"]) == ExitCode.FAIL
    assert len(path.read_shrunk()) == 1


@pytest.mark.parametrize("linked", ["folder", "file"])
def test_a_shrunk_schedule_is_not_written_through_a_link(tmp_path: Path, linked: str) -> None:
    store, users = tmp_path / "store", tmp_path / "mine"
    path = recorded_failure(store)
    users.mkdir()
    (run,) = [run for one in path.read_results() for run in one.runs]
    name = f"{run.rpartition('/')[2]}-lost-write.json"
    (users / name).write_text("a file of the user")
    if linked == "folder":
        (store / "found").symlink_to(users)
    else:
        (store / "found").mkdir()
        (store / "found" / name).symlink_to(users / name)
    shrinker = (sys.executable, str(FAKE), "small")
    night_runner.NightRunner(
        store, path, path.read(), 60.0, program=PROGRAM, shrinker=shrinker, trusts_record=True
    ).run()
    assert (users / name).read_text() == "a file of the user"
    (small,) = path.read_shrunk()
    assert "this is a symbolic link" in small.detail
    assert [one.name for one in users.iterdir()] == [name]


def test_it_comes_after_every_cell_was_done_once_and_before_what_repeats(tmp_path: Path) -> None:
    order: list[str] = []
    cells = [cell("fail", "exit=1", name="a", repeat=2), cell("pass", name="b")]
    one = night_runner.begin_night(tmp_path, "n", cells, 100.0, tmp_path, None, shrink=60.0)

    def done(result: AttemptResult, attempts: int, left: float) -> None:
        order.append(f"{result.cell}{result.attempt}")

    night_runner.NightRunner(
        tmp_path, night_record.night_folder(tmp_path, "n"), one, 100.0, program=PROGRAM, note=done,
        shrinker=(sys.executable, str(FAKE), "small"),
        shrinks=lambda name: order.append(f"shrinks {name}"), shrank=lambda small: order.append("shrank"),
    ).run()  # fmt: skip
    assert order == ["a1", "b1", "shrinks a", "shrank", "a2"]


@pytest.mark.parametrize("act", ["small", "none"])
def test_each_failure_is_tried_once_over_all_nights(tmp_path: Path, act: str) -> None:
    cells = [cell("fail", "exit=1", name=name) for name in "ab"]
    (small,) = performed(tmp_path, *cells, name="n1", act=act)
    assert bool(small.schedule) is (act == "small")
    if act == "none":
        assert (small.detail, only(tmp_path).shape) == ("none of 4 replays failed with lost-write", ())
    (other,) = performed(tmp_path, *cells, cell("fail=phantom", "exit=1"), name="n2", act=act)
    assert other.anomalies == ("phantom",)
    assert len((tmp_path / "shrinks").read_text().split()) == 2


def test_what_is_no_failure_of_a_plain_run_is_not_made_small(tmp_path: Path) -> None:
    cells = [
        cell("fail", "exit=1", kind=CellKind.EXPLORE), cell("unknown", "exit=1"), cell("signal=9"),
        cell("fail", "exit=1", name="canary", kind=CellKind.CANARY, defect="d"),
    ]  # fmt: skip
    assert performed(tmp_path, *cells) == []
    assert performed(tmp_path, cell("fail=phantom", "exit=1"), name="m", seconds=0.0) == [], "none is wanted"
    assert len(performed(tmp_path, cell("fail=vanished", "exit=1", kind=CellKind.SCHEDULE), name="o")) == 1


def driver(store: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", DRIVER, str(store), *PROGRAM, str(FAKE), "wait"]
    return subprocess.Popen(command, env=environment())


def waiting(store: Path) -> tuple[subprocess.Popen[bytes], NightFolder]:
    """A night that is at making a failure small, in a process that can be killed."""
    one = begun(store, [cell("fail", "exit=1", name="a"), cell("pass", name="b")], "n")
    path = night_record.night_folder(store, "n")
    path.write(msgspec.structs.replace(one, shrink_seconds=60.0))
    process = driver(store)
    until((store / "waits").exists)
    return process, path


def test_a_night_that_is_interrupted_meanwhile_stays_readable_and_tries_again(tmp_path: Path) -> None:
    process, path = waiting(tmp_path)
    process.send_signal(2)
    assert process.wait(SOON) == 0
    assert [one.outcome for one in path.read_results()] == [Outcome.FAIL, Outcome.PASS]
    (small,) = path.read_shrunk()
    assert (small.interrupted, small.detail) == (True, "together with the night")
    assert (only(tmp_path).rate.runs, path.read_running(), bool(path.read().ended)) == (2, None, True)
    assert len(performed(tmp_path, cell("fail", "exit=1", name="a"), name="m")) == 1


def test_a_night_that_is_killed_meanwhile_loses_nothing(tmp_path: Path) -> None:
    process, path = waiting(tmp_path)
    process.kill()
    process.wait()
    running = path.read_running()
    assert running is not None
    assert running.shrinks
    orphan = int(running.owner.partition(".")[0])
    assert alive(orphan)
    assert (read_store(tmp_path, {}).nights[0].running_cell, only(tmp_path).rate.runs) == (
        "a, whose failure is being shrunk",
        2,
    )
    shrinker = (sys.executable, str(FAKE), "small")
    results = night_runner.NightRunner(
        tmp_path, path, path.read(), 60.0, program=PROGRAM, shrinker=shrinker, trusts_record=True
    ).run()
    assert not alive(orphan)
    assert [one.outcome for one in results] == [Outcome.FAIL, Outcome.PASS], "no attempt was interrupted"
    assert only(tmp_path).shape == ("stop",)
    assert not (path.path / "shrinking").exists()


def test_the_file_says_for_how_long_and_the_command_line_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def matrix(first: str) -> Path:
        (tmp_path / "nightly.toml").write_text(
            f'{first}\n[systems]\nx = "x:X"\n[[run]]\nworkloads = ["test_x.py"]\noptions = ["fail", "exit=1"]\n'
        )
        return tmp_path / "nightly.toml"

    (tmp_path / "test_x.py").touch()
    assert (read_plan(matrix(""))[1], read_plan(matrix('shrink = "5min"'))[1]) == (0.0, 300.0)
    for wrong in ('shrink = "5"', "shrink = 5", 'shrink = "soon"'):
        with pytest.raises(NightError, match="shrink"):
            read_plan(matrix(wrong))
    faked = partial(night_runner.NightRunner, program=PROGRAM, shrinker=(sys.executable, str(FAKE), "small"))
    monkeypatch.setattr(night_runner, "NightRunner", faked)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    path = matrix('shrink = "5min"')
    given = ["nightly", "--budget=60s", f"--store={tmp_path / 'store'}", f"--matrix={path}"]
    assert main([*given, "--night=n1", "--shrink=no"]) == ExitCode.FAIL
    assert "shrunk" not in capsys.readouterr().out
    assert main([*given, "--night=n2"]) == ExitCode.FAIL
    assert "\n  pytest t --replay=" in capsys.readouterr().out
    assert main([*given, "--night=n3", "--shrink=5"]) == ExitCode.USAGE
