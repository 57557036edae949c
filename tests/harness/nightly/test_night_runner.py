"""A night of processes that crash, hang, fill the disk and are interrupted: each end has its line."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.cli.nightly import _prepare_night
from assay.harness.nightly import night_record, night_runner
from assay.harness.nightly.dataset_schema import UNKNOWN
from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.harness.nightly.night_record import AttemptResult, CellKind, NightError
from assay.harness.run import process_group
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.settings import derive_seed
from assay.harness.run.store import read_owner

from helpers.night_cells import (
    DRIVER,
    PROGRAM,
    alive,
    begun,
    cell,
    environment,
    gone_on_with,
    performed,
    recorded,
    result,
)
from helpers.nightly import by_night
from helpers.small_disk import small_disk

ROOT = Path(__file__).parents[3]
SOON = 20.0


def until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not there():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def outcomes(results: list[AttemptResult]) -> list[str]:
    return [one.outcome for one in results]


def test_each_end_has_its_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    cells = [
        cell("signal=9"), cell("signal=11", name="crash"), cell("sleep=600", name="hang", timeout=0.5),
        cell("say=OSError: [Errno 28] No space left on device", "none", "exit=1", name="disk"),
        cell("say=no Docker engine answers: gone", "exit=1", name="engine", cluster="docker"), cell("fail", "exit=1"),
        cell("fail=phantom", "exit=1", name="canary", kind=CellKind.CANARY, defect="d", expected=("phantom",)),
        cell("say=ERROR: no such option", "exit=4", name="usage"), cell("unknown", "exit=1"), cell("pass"),
    ]  # fmt: skip
    results = performed(tmp_path / "store", cells, "n")
    assert outcomes(results) == [
        "crashed", "crashed", "hung", "no-disk", "no-engine", "fail", "detected", "broken", "unknown", "pass",
    ]  # fmt: skip
    folder = night_record.night_folder(tmp_path / "store", "n")
    assert folder.read_results() == results
    assert folder.read().ended
    assert folder.read_running() is None
    assert [one.detail for one in results[:3]] == [
        "killed by SIGKILL", "killed by SIGSEGV", "no end after 0.5 s; its log ends with its stack",
    ]  # fmt: skip
    assert len(results[5].runs) == 1
    assert (tmp_path / "store" / results[5].runs[0] / "run.json").exists()
    assert "No space" in (folder.path / results[3].log).read_text()
    assert len({one.log for one in results}) == len(results)


def test_runs_of_a_process_with_the_same_id_in_another_container_do_not_count(tmp_path: Path) -> None:
    cells = [cell("stranger", "pass"), cell("stranger", "pass", name="canary", kind=CellKind.CANARY, defect="d")]
    results = performed(tmp_path / "store", cells)
    assert outcomes(results) == ["pass", "missed"]
    assert [len(one.runs) for one in results] == [1, 1]


def test_runs_of_the_workers_of_an_attempt_count(tmp_path: Path) -> None:
    """Options in pytest.ini may make pytest-xdist start workers, and pytest itself then makes no run."""
    (one,) = performed(tmp_path / "store", [cell("worker", "exit=1")])
    assert (one.outcome, len(one.runs)) == (Outcome.FAIL, 1)


def test_what_hangs_says_where_and_leaves_nothing_behind(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (one,) = performed(store, [cell("leave", "deaf", timeout=1.0)], "n")
    assert one.outcome is Outcome.HUNG
    until(lambda: not alive(int((store / "left").read_text())))
    (other,) = performed(store, [cell("sleep=600", timeout=1.0)], "m")
    assert "fake_pytest.py" in (night_record.night_folder(store, "m").path / other.log).read_text()


def test_what_a_cell_leaves_running_is_ended_with_it(tmp_path: Path) -> None:
    (one,) = performed(tmp_path / "store", [cell("leave", "pass")])
    assert one.outcome is Outcome.PASS
    until(lambda: not alive(int((tmp_path / "store" / "left").read_text())))


def test_a_full_disk_is_recorded_on_the_full_disk(tmp_path: Path) -> None:
    cells = [cell("fill"), *(cell("pass", name=f"pass {number}") for number in range(9))]
    with small_disk(tmp_path / "disk", "4m") as disk:
        results = performed(disk, cells, "n")
        assert outcomes(results) == ["no-disk"] * len(cells)
        folder = night_record.night_folder(disk, "n")
        assert folder.read_results() == results
        assert folder.read().ended


def test_a_night_whose_results_found_no_room_does_not_end_as_if_they_were_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, path = (
        begun(tmp_path / "store", [cell("fail", "exit=1")], "n"),
        night_record.night_folder(tmp_path / "store", "n"),
    )
    with monkeypatch.context() as full:
        full.setattr(
            night_record.NightFolder, "append_result", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))
        )
        with pytest.raises(NightError, match="is full, so these are not recorded: fail-exit=1 fail; make room"):
            gone_on_with(tmp_path / "store", one)
    assert path.read().ended is msgspec.UNSET
    assert outcomes(gone_on_with(tmp_path / "store", one)) == ["fail"]


def test_what_cannot_be_started_is_broken(tmp_path: Path) -> None:
    one = begun(tmp_path / "store", [cell("pass")])
    path = night_record.night_folder(tmp_path / "store", one.folder_name)
    (found,) = night_runner.NightRunner(tmp_path / "store", path, one, 9.0, program=["/nowhere/pytest"]).run()
    assert (found.outcome, found.detail.partition(":")[0]) == (Outcome.BROKEN, "it cannot be started")


def test_repetitions_are_all_done_after_every_cell_was_done_once(tmp_path: Path) -> None:
    results = performed(tmp_path / "store", [cell("fail", "exit=1", name="a", repeat=3), cell("pass", name="b")], "n")
    assert [(one.cell, one.attempt, one.outcome) for one in results] == [
        ("a", 1, "fail"), ("b", 1, "pass"), ("a", 2, "fail"), ("a", 3, "fail"),
    ]  # fmt: skip
    assert len({one.seed for one in results}) == len(results)


def test_seeds_follow_from_the_names_of_the_night_and_the_cell_alone(tmp_path: Path) -> None:
    (first,) = performed(tmp_path / "one", [cell("pass", name="a")], "2026-11-21")
    _, second = performed(tmp_path / "two", [cell("pass", name="b"), cell("pass", name="a")], "2026-11-21")
    (other,) = performed(tmp_path / "three", [cell("pass", name="a")], "2026-11-22")
    assert first.seed == second.seed != other.seed
    of_night = derive_seed(0, "night", "2026-11-21") % 2**32
    assert first.seed == derive_seed(of_night, "a", 1) % 2**32
    assert first.command == f"pytest pass --seed={first.seed}"


def test_the_budget_ends_the_night_and_what_does_not_fit_is_left_out(tmp_path: Path) -> None:
    store = tmp_path / "store"
    recorded(store, "2026-11-20", [
        result("long", Outcome.FAIL, seconds=900.0), result("wait", Outcome.PASS), result("a", Outcome.PASS),
    ])  # fmt: skip
    cells = [cell("pass", name="long"), cell("pass", name="a"), cell("wait", name="wait"), cell("pass", name="b")]
    results = performed(store, cells, "2026-11-21", budget=3.0)
    assert [(one.cell, one.outcome) for one in results] == [("b", "pass"), ("a", "pass"), ("wait", "interrupted")]
    assert results[-1].detail == "the night's budget was over"
    assert (store / "healed").exists()


def test_nothing_begins_without_a_budget(tmp_path: Path) -> None:
    assert performed(tmp_path / "store", [cell("pass")], budget=0.0) == []


def driver(store: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", DRIVER, str(store), *PROGRAM], env=environment())


def test_a_night_that_is_killed_is_gone_on_with(tmp_path: Path) -> None:
    store = tmp_path / "store"
    one = begun(store, [cell("pass", name="a"), cell("once", "wait", name="b"), cell("pass", name="c")], "n")
    process = driver(store)
    until(lambda: (store / "waits").exists() and (store / "waits").read_text() != "")
    orphan = int((store / "waits").read_text())
    with pytest.raises(NightError, match="another process"):
        gone_on_with(store, one)
    process.kill()
    process.wait()
    assert alive(orphan)
    results = gone_on_with(store, night_runner.find_resumable_night(store, None))
    assert not alive(orphan)
    assert [(one.cell, one.attempt, one.outcome) for one in results] == [
        ("a", 1, "pass"), ("b", 1, "interrupted"), ("b", 1, "pass"), ("c", 1, "pass"),
    ]  # fmt: skip
    assert results[1].detail == "the night itself was killed"
    assert results[1].seed == results[2].seed
    assert night_record.night_folder(store, "n").read_results() == results
    assert gone_on_with(store, one) == results


@pytest.mark.parametrize(
    ("acts", "outcomes_then"),
    [(("fail", "wait"), ["fail"]), (("pass", "wait"), ["interrupted", "pass"])],
    ids=["a-run-had-failed", "none-had"],
)
def test_what_a_run_had_found_when_its_night_was_killed_is_recorded(
    tmp_path: Path, acts: tuple[str, ...], outcomes_then: list[str]
) -> None:
    """It may not come again."""
    store = tmp_path / "store"
    begun(store, [cell(*acts, name="a")], "n")
    process = driver(store)
    until(lambda: (store / "waits").exists() and (store / "waits").read_text() != "")
    process.kill()
    process.wait()
    again = msgspec.structs.replace(night_runner.find_resumable_night(store, None), cells=(cell("pass", name="a"),))
    results = gone_on_with(store, again)  # now it would pass
    assert outcomes(results) == outcomes_then
    assert len(results[0].runs) == 1
    found = "lost-write in 1 of 1 runs; then interrupted: " if acts[0] == "fail" else ""
    assert results[0].detail == f"{found}the night itself was killed"


@pytest.mark.parametrize("number", [by_night(signal.SIGINT), signal.SIGTERM])
def test_ctrl_c_ends_the_cell_as_ctrl_c_does_and_leaves_a_night_to_read(tmp_path: Path, number: int) -> None:
    store = tmp_path / "store"
    (tmp_path / "nightly.toml").write_text(
        '[systems]\nx = "x:X"\n[[run]]\nworkloads = ["test_waits.py"]\nnemeses = ["none", "kill"]\n'
    )
    (tmp_path / "test_waits.py").write_text(
        "import pathlib, time\n\ndef test_waits() -> None:\n    try:\n        pathlib.Path('waits').touch()\n"
        "        time.sleep(600)\n    finally:\n        pathlib.Path('healed').touch()\n"
    )
    command = [sys.executable, "-m", "assay.harness.cli.main", "nightly", "--budget=60s", "--night=n"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until((tmp_path / "waits").exists)
    process.send_signal(number)
    printed, said = process.communicate(timeout=SOON)
    assert process.returncode == ExitCode.INTERRUPTED
    assert (tmp_path / "healed").exists()
    assert re.match(r"interrupted +run/test_waits/none/sim ", printed)
    assert "interrupted, together with the night: the cell heals, checks and reports" in said
    assert f"`assay nightly --resume --night=n --store={store}` continues it" in said
    folder = night_record.night_folder(store, "n")
    assert outcomes(folder.read_results()) == ["interrupted"]
    assert folder.read().ended


def test_a_second_ctrl_c_ends_a_cell_at_once(tmp_path: Path) -> None:
    twice = Interrupt()
    one = begun(tmp_path / "store", [cell("deaf"), cell("pass")])
    path = night_record.night_folder(tmp_path / "store", one.folder_name)

    def press() -> None:
        until(lambda: path.read_running() is not None)
        twice.request()
        raise KeyboardInterrupt

    asking = night_runner.NightRunner(tmp_path / "store", path, one, 60.0, program=PROGRAM, grace=60.0, interrupt=twice)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.harness.nightly.subprocess_runner._wait_or_stop", lambda *given: press())
        (found,) = asking.run()
    assert (found.outcome, found.detail) == (Outcome.INTERRUPTED, "by a second Ctrl-C")


@pytest.mark.parametrize("measures", [True, False])
def test_a_resumed_night_may_go_on_without_sensitivity(tmp_path: Path, measures: bool) -> None:
    night_runner.begin_night(tmp_path / "store", "n", [cell("pass")], 100.0, tmp_path, None, sensitivity=True)
    arguments = argparse.Namespace(
        store=tmp_path / "store", night="n", resume=True, split=(1, 1), shrink=None, budget=None, sensitivity=measures
    )
    assert _prepare_night(arguments)[0].sensitivity is measures


def test_a_resumed_night_runs_cells_of_the_matrix_and_asks_for_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "assay.harness.nightly.night_runner.NightRunner", partial(night_runner.NightRunner, program=PROGRAM)
    )
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.chdir(tmp_path)
    begun(tmp_path / "store", [cell("pass")], "n")
    resume = ["nightly", "--resume", f"--store={tmp_path / 'store'}"]
    results = night_record.night_folder(tmp_path / "store", "n").read_results
    with monkeypatch.context() as patch:
        for cells in ((), (cell("fail", name="pass"),)):  # there is none, or another command has its name
            patch.setattr("assay.harness.nightly.matrix.read_plan", lambda path, cells=cells: (cells, 0.0))
            assert main(resume) == ExitCode.UNKNOWN
            assert results() == []
            assert "not a cell of nightly.toml: pytest pass" in capsys.readouterr().err
        patch.setattr("assay.harness.nightly.matrix.read_plan", lambda path: ((cell("pass"), cell("fail")), 0.0))
        (tmp_path / "elsewhere").mkdir()
        assert main([*resume, "--matrix=elsewhere/nightly.toml"]) == ExitCode.UNKNOWN, "pytest starts in another folder"
        assert results() == []
        assert main(resume) == ExitCode.PASS
    assert outcomes(results()) == ["pass"]
    begun(tmp_path / "store", [cell("pass")], "o")
    assert main([*resume, "--yes"]) == ExitCode.PASS, "there is no matrix at all, and the user agrees"


def hostile(store: Path, **changes: object) -> Path:
    """A night whose record was changed by someone."""
    begun(store, [cell("pass")], "n")
    record = store / "nights" / "n" / "night.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), **changes}))
    return record.parent


CELL = msgspec.to_builtins(cell("pass"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"night": "../../../victim"}, "lies in the folder of another"),
        ({"night": "o"}, "lies in the folder of another"),
        ({"cells": []}, "has no cells"),
        ({"cells": [CELL, CELL]}, "two cells of one name"),
        ({"cells": [{**CELL, "repeat": 0}]}, "repeat 0"),
        ({"cells": [{**CELL, "repeat": 10**12}]}, "repeat 1000000000000"),
        ({"cells": [{**CELL, "timeout": -1}]}, "timeout -1"),
        ({"budget_seconds": -1}, "budget of -1 s"),
    ],
)
def test_a_record_that_no_matrix_makes_is_not_gone_on_with(
    tmp_path: Path, changes: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store, victim = tmp_path / "a" / "store", tmp_path / "victim"
    hostile(store, **changes)
    victim.mkdir()
    for name in ("lock", "reserve"):
        (victim / name).write_text("precious")
    for name in ([], ["--night=n"]):
        assert main(["nightly", "--resume", f"--store={store}", "--budget=1s", "--yes", *name]) == ExitCode.USAGE
        printed = capsys.readouterr().err
        assert said in printed
        assert len(printed.splitlines()) == 1
    assert {one.name: one.read_text() for one in victim.iterdir()} == {"lock": "precious", "reserve": "precious"}


@pytest.mark.parametrize("name", ["../../victim", "/tmp/victim", "..", "a/b", ""])
def test_a_night_that_is_named_is_a_folder_of_the_store(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "night.json").write_bytes((hostile(tmp_path / "store") / "night.json").read_bytes())
    arguments = ["nightly", "--resume", f"--store={tmp_path / 'store'}", "--budget=1s", "--yes", f"--night={name}"]
    assert main(arguments) == ExitCode.USAGE
    assert "is no name for a folder" in capsys.readouterr().err
    assert [one.name for one in victim.iterdir()] == ["night.json"]


@pytest.mark.parametrize("name", ["lock", "reserve", "cells.jsonl", "logs/0001-pass.log"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_link_or_a_fifo_in_the_folder_of_a_night_is_named_and_nothing_is_written(
    tmp_path: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store, target = tmp_path / "store", tmp_path / "target"
    target.write_text("precious")
    place = hostile(store) / name
    place.parent.mkdir(exist_ok=True)
    if kind == "link":
        place.symlink_to(target)
    else:
        os.mkfifo(place)
    assert main(["nightly", "--resume", f"--store={store}", "--budget=1s", "--yes"]) == ExitCode.USAGE
    assert f"{place}: this is a" in capsys.readouterr().err
    assert target.read_text() == "precious"


@pytest.mark.parametrize("leads", [True, False])
def test_a_link_in_the_place_of_the_folder_of_all_nights_is_named_and_not_followed(
    tmp_path: Path, leads: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    store, target = tmp_path / "store", tmp_path / "target"
    hostile(store)
    if leads:
        (store / "nights").rename(target)
    else:
        shutil.rmtree(store / "nights")
    (store / "nights").symlink_to(target)
    before = sorted(target.rglob("*"))
    said = re.escape(f"{store / 'nights'} is a symbolic link: a night is written in the store itself")
    with pytest.raises(NightError, match=said):
        begun(store, [cell("pass")], "new")
    if leads:
        assert main(["nightly", "--resume", f"--store={store}", "--budget=1s", "--yes"]) == ExitCode.USAGE
        assert re.search(said, capsys.readouterr().err)
    assert sorted(target.rglob("*")) == before


def test_a_night_beside_one_with_a_fifo_goes_its_way(tmp_path: Path) -> None:
    os.mkfifo(hostile(tmp_path / "store") / "cells.jsonl")
    assert outcomes(performed(tmp_path / "store", [cell("pass")], "o")) == ["pass"]


def test_a_night_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = [begun(tmp_path, [cell("pass")]).folder_name for _ in range(3)]
    assert date.fromisoformat(names[0])
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]
    with pytest.raises(NightError, match="--resume"):
        begun(tmp_path, [cell("pass")], names[0])
    with pytest.raises(NightError, match="no name for a folder"):
        begun(tmp_path, [cell("pass")], "../x")
    with pytest.raises(NightError, match="no night"):
        night_runner.find_resumable_night(tmp_path / "empty", None)


def test_a_night_that_another_process_begins_meanwhile_keeps_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*_: object) -> tuple[str, ...]:
        monkeypatch.undo()
        begun(tmp_path, [cell("pass", name="theirs")], "n")
        return ()

    monkeypatch.setattr(night_runner, "list_commits", meanwhile)
    with pytest.raises(NightError, match="there is a night n in"):
        begun(tmp_path, [cell("pass", name="ours")], "n")
    assert [one.name for one in night_record.night_folder(tmp_path, "n").read().cells] == ["theirs"]


@given(st.integers(0, 2**32), st.text(max_size=9), st.integers(1, 9))
def test_a_seed_is_one_that_pytest_takes(of_night: int, name: str, attempt: int) -> None:
    assert 0 <= derive_seed(of_night, name, attempt) % 2**32 < 2**32


@pytest.mark.parametrize(
    ("acts", "code"),
    [
        ((("pass",),), ExitCode.PASS),
        pytest.param((("pass",), ("fail", "exit=1"), ("exit=4",)), ExitCode.FAIL, marks=pytest.mark.long),
        ((("pass",), ("exit=4",), ("unknown", "exit=1")), ExitCode.USAGE),
        ((("pass",), ("unknown", "exit=1")), ExitCode.UNKNOWN),
        ((("pass",), ("signal=9",)), ExitCode.UNKNOWN),
        ((("say=SKIPPED [1] a:1: no",),), ExitCode.UNKNOWN),
    ],
)
def test_exit_codes(
    acts: tuple[tuple[str, ...], ...], code: ExitCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("assay.harness.nightly.matrix.read_plan", lambda path: (tuple(cell(*one) for one in acts), 0.0))
    faked = partial(night_runner.NightRunner, program=PROGRAM)
    monkeypatch.setattr("assay.harness.nightly.night_runner.NightRunner", faked)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["nightly", "--budget=60s", f"--store={tmp_path}"]) == code
    finally:
        signal.signal(signal.SIGTERM, before)
    printed = capsys.readouterr().out
    if code is ExitCode.FAIL:
        assert re.search(
            r"\nfail fail-exit=1, 1 of 1: lost-write in 1 of 1 runs\n  pytest fail exit=1 --seed=\d+\n", printed
        )


def test_a_night_goes_on_if_the_disk_of_its_output_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = (cell("pass"), cell("pass", name="other"))
    monkeypatch.setattr("assay.harness.nightly.matrix.read_plan", lambda path: (cells, 0.0))
    monkeypatch.setattr(
        "assay.harness.nightly.night_runner.NightRunner", partial(night_runner.NightRunner, program=PROGRAM)
    )
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    full = open("/dev/full", "w", buffering=1)  # noqa: SIM115  closing it fails
    monkeypatch.setattr(sys, "stdout", full)
    with suppress(OSError):
        main(["nightly", "--budget=60s", f"--store={tmp_path}", "--night=n", "--no-sensitivity"])
    monkeypatch.undo()
    with suppress(OSError):
        full.close()
    folder = night_record.night_folder(tmp_path, "n")
    assert outcomes(folder.read_results()) == ["pass", "pass"]
    assert folder.read().ended


@pytest.mark.parametrize(
    ("given", "expires", "code"),
    [
        (False, None, ExitCode.FAIL), (True, "2999-01-01", ExitCode.PASS), (False, "2999-01-01", ExitCode.PASS),
        (True, "1999-01-01", ExitCode.FAIL),
    ],
)  # fmt: skip
def test_a_night_whose_failures_are_all_marked_is_green_until_a_mark_is_over(
    given: bool, expires: str | None, code: ExitCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.harness.nightly.matrix.read_plan", lambda path: ((cell("fail", "exit=1"),), 0.0))
    monkeypatch.setattr(
        "assay.harness.nightly.night_runner.NightRunner", partial(night_runner.NightRunner, program=PROGRAM)
    )
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.chdir(tmp_path)
    name = "mine.toml" if given else "known-failures.toml"
    if expires is not None:
        (tmp_path / name).write_text(
            f'[[failure]]\nsystem = "{UNKNOWN}"\nworkload = "t"\nanomalies = ["lost-write"]\nreason = "r"\n'
            f"expires = {expires}\n"
        )
    options = [f"--known={tmp_path / name}"] * given
    assert main(["nightly", "--budget=60s", f"--store={tmp_path / 'store'}", *options]) == code


def test_the_command_line_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nightly", f"--store={tmp_path}"]) == ExitCode.USAGE
    assert main(["nightly", "--budget=5", f"--store={tmp_path}"]) == ExitCode.USAGE
    assert main(["nightly", "--resume", f"--store={tmp_path}"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "--budget is missing" in said
    assert "--budget='5' has no unit" in said
    assert "no night" in said


@pytest.mark.long
def test_real_cells_in_the_simulation(tmp_path: Path) -> None:
    """A run that passes, one that is ruled out, an option that is wrong, a defect that needs no fault."""
    (tmp_path / "nightly.toml").write_text(
        '[systems]\nbroker = "assay.system_under_test.deployment:Broker"\n'
        '[[run]]\nworkloads = ["workloads/test_log.py"]\noptions = ["--time-limit=2", "--rate=50"]\n'
        '[[run]]\nlabel = "wrong"\nworkloads = ["workloads/test_log.py"]\noptions = ["--rate=fast"]\n'
        '[[run]]\nlabel = "blocks"\nworkloads = ["workloads/test_zookeeper.py"]\n'
        '[[canary]]\ndefects = ["zombie-commit"]\noptions = ["--rate=100"]\n'
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --nemesis=nothing-of-these-cells\n")
    for name in ("workloads", "schedules"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "assay.harness.cli.main", "nightly", "--budget=10min", "--night=n"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    found = {one.cell: one for one in night_record.night_folder(tmp_path / "store", "n").read_results()}
    assert {name: one.outcome for name, one in found.items()} == {
        "run/test_log/none/sim": "pass", "run/wrong/test_log/none/sim": "broken",
        "run/blocks/test_zookeeper/none/sim": "skipped", "canary/zombie-commit/sim": "detected",
    }, done.stdout + done.stderr  # fmt: skip
    assert done.returncode == ExitCode.USAGE
    assert [len(one.runs) for one in found.values()].count(1) == 2
    assert shlex.split(found["run/test_log/none/sim"].command)[:2] == ["pytest", "workloads/test_log.py"]


MEASURER = """\
import json, sys, time
from pathlib import Path
run = Path(sys.argv[-1])
store = run.parents[1]
with (store / "measured").open("a") as file:
    file.write(run.name + "\\n")
acts = sys.argv[1:-1]
if "hang" in acts:
    (store / "waits").write_text("")
    time.sleep(600)
(run / "sensitivity.json").write_text("{")
sys.exit(1)
"""
"""Stands in for `assay sensitivity`: notes the run, and fails."""


def measured(store: Path) -> list[str]:
    path = store / "measured"
    return path.read_text().split() if path.exists() else []


def test_a_night_measures_the_first_run_that_passed_of_each_cell_and_no_other(tmp_path: Path) -> None:
    store, said = tmp_path / "store", list[str]()
    cells = [
        cell("pass", repeat=2), cell("fail", "exit=1"), cell("unknown", "exit=1"),
        cell("pass", name="canary", kind=CellKind.CANARY, defect="d"), cell("pass", name="last"),
    ]  # fmt: skip
    one = msgspec.structs.replace(begun(store, cells, "n"), sensitivity=True)
    results = gone_on_with(store, one, measurer=(sys.executable, "-c", MEASURER), measures=said.append)
    first = [one for one in results if one.attempt == 1 and one.cell in ("pass", "last")]
    assert measured(store) == [one.runs[0].rpartition("/")[2] for one in first]
    assert said == ["pass", "last"]
    assert sorted(outcomes(results)) == ["fail", "missed", "pass", "pass", "pass", "unknown"], (
        "a measurement that fails changes no outcome"
    )
    folder = night_record.night_folder(store, "n")
    assert folder.read_results() == results
    assert folder.read_running() is None
    assert (folder.path / first[0].log).with_suffix(".sensitivity.log").exists()


def test_a_night_measures_nothing_unless_asked(tmp_path: Path) -> None:
    performed(tmp_path / "store", [cell("pass")], measurer=(sys.executable, "-c", MEASURER))
    assert measured(tmp_path / "store") == []


def test_a_measurement_that_hangs_ends_with_the_limit_of_its_cell(tmp_path: Path) -> None:
    store = tmp_path / "store"
    one = msgspec.structs.replace(begun(store, [cell("pass", timeout=8.0)]), sensitivity=True)
    assert outcomes(gone_on_with(store, one, measurer=(sys.executable, "-c", MEASURER, "hang"))) == ["pass"]
    assert (store / "waits").exists()


def test_measuring_has_a_share_of_the_budget_and_the_record_says_what_was_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first measurement hangs until the share is used up; the other cell runs, and is not measured."""
    store, said = tmp_path / "store", list[str]()
    monkeypatch.setattr(night_runner, "MEASURING_SHARE", 0.001)
    one = msgspec.structs.replace(begun(store, [cell("pass"), cell("pass", name="last")], "n"), sensitivity=True)
    results = gone_on_with(
        store, one, budget=2000.0, measurer=(sys.executable, "-c", MEASURER, "hang"), stopping=said.append
    )
    assert outcomes(results) == ["pass", "pass"]
    folder = night_record.night_folder(store, "n")
    used, late = folder.read_measurements()
    why = "the share of the budget for measuring, 20%, was used up"
    assert said == [why]
    assert (used.cell, used.detail) == ("pass", f"stopped, because {why}")
    assert 2.0 <= used.seconds < 300
    assert (late.cell, late.detail) == ("last", f"not begun, because {why}")
    assert late.run == results[1].runs[0]


def test_a_measurement_without_a_result_is_recorded(tmp_path: Path) -> None:
    store = tmp_path / "store"
    one = msgspec.structs.replace(begun(store, [cell("pass")], "n"), sensitivity=True)
    gone_on_with(store, one, measurer=(sys.executable, "-c", MEASURER))
    (line,) = night_record.night_folder(store, "n").read_measurements()
    assert line.detail == "it ended with exit code 1 and without a result"


def test_a_run_without_its_history_is_not_measured_and_the_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.harness.run.store.has_removed_history", lambda run: True)
    store = tmp_path / "store"
    one = msgspec.structs.replace(begun(store, [cell("pass")], "n"), sensitivity=True)
    gone_on_with(store, one, measurer=(sys.executable, "-c", MEASURER))
    (line,) = night_record.night_folder(store, "n").read_measurements()
    assert line.detail == f"not begun, because {night_runner.HISTORY_REMOVED}"
    assert measured(store) == []


@pytest.mark.parametrize("linked", [False, True])
def test_a_record_that_names_a_process_of_others_does_not_end_it(tmp_path: Path, linked: bool) -> None:
    """A record may come from elsewhere. ``linked``: its folder has a hard link to a file that the process writes."""
    store = tmp_path / "store"
    one = begun(store, [cell("pass")], "n")
    (result,) = gone_on_with(store, one)
    folder = night_record.night_folder(store, "n")
    written = tmp_path / "written"
    other = process_group.start_group([sys.executable, "-c", "import time; time.sleep(600)"], written)
    try:
        if linked:
            (folder.path / "logs" / "0009-other.log").hardlink_to(written)
        folder.write_running(night_record.RunningAttempt(result=result, owner=read_owner(other.pid)))
        gone_on_with(store, one)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1.0)
    finally:
        other.kill()
        other.wait()


def test_a_night_that_was_killed_while_it_measured_records_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    one = msgspec.structs.replace(begun(store, [cell("pass")], "n"), sensitivity=True)
    (result,) = gone_on_with(store, msgspec.structs.replace(one, sensitivity=False))
    folder = night_record.night_folder(store, "n")
    folder.write_running(night_record.RunningAttempt(result=result, owner="gone"))
    gone_on_with(store, one)
    (line,) = folder.read_measurements()
    assert (line.cell, line.run, line.detail) == ("pass", result.runs[0], "the night itself was killed")


def test_ctrl_c_while_a_night_measures_keeps_the_result(tmp_path: Path) -> None:
    store, interrupt = tmp_path / "store", Interrupt()
    one = msgspec.structs.replace(begun(store, [cell("pass"), cell("pass", name="b")], "n"), sensitivity=True)

    over = threading.Event()

    def stop() -> None:
        while not (store / "waits").exists() and not over.is_set():
            time.sleep(0.02)
        interrupt.request()

    thread = threading.Thread(target=stop)
    thread.start()
    results = gone_on_with(store, one, measurer=(sys.executable, "-c", MEASURER, "hang"), interrupt=interrupt)
    over.set()
    thread.join()
    assert outcomes(results) == ["pass"]
    folder = night_record.night_folder(store, "n")
    assert folder.read_results() == results
    assert folder.read_running() is None
