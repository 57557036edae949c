"""A FIFO in the place of a file is a usage error of each command that reads it: none waits for what never comes.

A command over many runs names the one with the FIFO, and does its work with the others.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from assay.checkers.engine.base import EngineUnavailable
from assay.checkers.engine.engine_selection import require_reachable
from assay.cluster.hosts.inventory import InventoryError
from assay.cluster.hosts.inventory import read_inventory as read_hosts
from assay.cluster.owner import current_owner
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.core.files import SpecialFileError, read_file, require_regular_below, write_output
from assay.harness.core.history import HistoryWriter
from assay.harness.run import store
from assay.harness.stored.live_check import find_running_run

from helpers.growing_run import GrowingRun
from helpers.night_cells import cell, recorded


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that came to its end, with nothing in it."""
    folder = store.create_run_folder(tmp_path / "store", "t.py::t[none]", datetime(2026, 1, 1, tzinfo=UTC))
    with HistoryWriter(folder.history):
        pass
    info = store.RunInfo(
        test="t.py::t[none]", status=store.FINISHED, started="2026-01-01T00:00:00+00:00", owner=str(current_owner()),
        seed=1,
        cluster="sim", nemesis="none", command="pytest t.py::t --seed=1",
    )  # fmt: skip
    folder.write_run(info)
    folder.write_json("settings.json", {"contract": {}})
    folder.write_json("verdict.json", {})
    return folder.path


def fifo(path: Path) -> Path:
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


FILES = (
    "run.json", "settings.json", "verdict.json", "schedule.json", "history/closed.json", "history/ops/part-9.parquet",
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_check_names_it(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = fifo(run / name)
    assert main(["check", str(run)]) == 64
    assert f"{place.name}: this is a FIFO, and reading it may never end" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "replay", "shrink", "watch"])
def test_every_command_that_takes_a_run_names_it(run: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = fifo(run / "run.json")
    assert main([command, str(run)]) == 64
    assert f"{place.name}: this is a FIFO" in capsys.readouterr().err


def huge(path: Path) -> Path:
    """A file that does not fit into the memory of many machines; it takes no space."""
    with path.open("wb") as file:
        file.truncate(20 * 10**9)
    return path


@pytest.mark.parametrize("name", ["run.json", "settings.json", "verdict.json", "history/closed.json"])
@pytest.mark.parametrize("command", ["check", "report", "replay"])
def test_a_huge_file_is_never_read(
    run: Path, name: str, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, read = huge(run / name), Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        assert path != place, "this would take all memory"
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert main([command, str(run)]) in (ExitCode.PASS, ExitCode.UNKNOWN, ExitCode.USAGE)
    err = capsys.readouterr().err
    if name == "run.json":
        assert "run.json cannot be read" in err or "there is no readable run.json" in err
    if (command, name) == ("check", "history/closed.json"):
        assert f"{place.name}: this file has 20.0 GB, so it is damaged or no file of assay" in err


@pytest.fixture
def other(run: Path) -> Path:
    """A second run of the store, in which all files are regular."""
    return Path(shutil.copytree(run, run.parents[1] / "t-u-none" / "20260102T000000.000Z"))


@pytest.mark.parametrize("name", ["run.json", "logs/n1.log"])
def test_gc_keeps_and_names_such_a_run_and_deletes_the_others(
    run: Path, other: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = fifo(run / name)
    assert main(["gc", str(run.parents[1]), "--keep=0", "--yes"]) == 0
    err = capsys.readouterr().err
    assert f"kept: the run of {place}: this is a FIFO" in err
    assert "no run.json of ours" not in err
    assert run.is_dir()
    assert not other.exists()


@pytest.mark.parametrize("name", ["run.json", "verdict.json"])
def test_a_huge_file_of_a_run_stops_no_command_over_the_store(
    run: Path, other: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    huge(run / name)
    root = run.parents[1]
    assert main(["index", str(root)]) == 0
    assert main(["gc", str(root), "--keep=0", "--yes"]) == 0
    assert "Traceback" not in capsys.readouterr().err
    assert not other.exists()


@pytest.mark.parametrize("name", ["run.json", "logs/n1.log"])
def test_nights_add_has_a_row_without_a_verdict_for_such_a_run_and_adds_the_others(
    run: Path, other: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = fifo(run / name)
    assert main(["nights", "add", str(run.parents[1]), f"--into={tmp_path / 'nights'}"]) == 0
    printed = capsys.readouterr()
    assert "2 runs added" in printed.out
    assert f"has no verdict (damaged): {place}: this is a FIFO" in printed.err
    rows = pq.ParquetDataset(tmp_path / "nights").read(["folder", "verdict", "status"]).to_pylist()
    (damaged,) = [row for row in rows if row["folder"] == f"{run.parent.name}/{run.name}"]
    assert (damaged["verdict"], damaged["status"]) == (None, "damaged")


@pytest.mark.parametrize("name", ["run.json", "logs/n1.log"])
def test_watch_skips_and_names_such_a_run_and_finds_the_one_that_goes_on(
    run: Path, other: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.RunFolder(other.parents[1], other).write_run(
        msgspec.structs.replace(msgspec.json.decode((other / "run.json").read_bytes(), type=store.RunInfo),
                                status=store.RUNNING))  # fmt: skip
    newer = Path(shutil.move(run, run.parent / "20260103T000000.000Z"))
    place = fifo(newer / name)
    skipped: list[SpecialFileError] = []
    assert find_running_run(run.parents[1], skipped.append) == other
    assert [error.filename for error in skipped] == [str(place)]
    (other / "run.json").unlink()
    assert main(["watch", str(run.parents[1])]) == 64
    err = capsys.readouterr().err
    assert f"skipped: the run of {place}: this is a FIFO" in err
    assert "no run goes on" in err


@pytest.mark.parametrize("name", ["history", "history/ops"])
def test_a_link_to_a_folder_outside_of_a_run_is_named_and_not_followed(
    run: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = Path(shutil.move(run / name, tmp_path / "elsewhere"))
    (run / name).symlink_to(elsewhere)
    fifo(elsewhere / "part-9.parquet")
    assert main(["check", str(run)]) == 64
    said = f"{run / name}: this link leads out of {(run / name).parent}, and is not followed"
    assert said in capsys.readouterr().err
    assert main(["gc", str(run.parents[1]), "--keep=0", "--yes"]) == 0
    assert f"kept: the run of {run / name}: this link leads out of {run}" in capsys.readouterr().err


def test_a_report_leaves_out_and_names_a_log_that_is_a_link_out_of_the_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("password\n")
    (run / "logs" / "n1").mkdir()
    (run / "logs" / "n1" / "own.log").write_text("one\n")
    (run / "logs" / "n1" / "again.log").symlink_to("own.log")
    (run / "logs" / "n1" / "x.log").symlink_to(tmp_path / "secret")
    assert main(["report", str(run)]) == ExitCode.PASS
    said = capsys.readouterr()
    line = "logs/n1/x.log is a link that leads out of the run, and is left out: put the file itself there"
    assert said.err.splitlines() == [f"assay: {line}"]
    page = Path(said.out.strip()).read_text()
    assert line in page
    assert [f"<dt>logs/n1/{name}.log</dt>" in page for name in ("own", "again", "x")] == [True, True, False]


def test_a_link_to_a_folder_inside_of_a_run_shows_nothing_else(run: Path) -> None:
    (run / "again").symlink_to("history")
    require_regular_below(run)
    require_regular_below(run.rename(run.with_name("moved")))


def test_a_page_over_a_store_lists_such_a_run_as_damaged(run: Path) -> None:
    fifo(run / "run.json")
    root = run.parents[1]
    assert main(["index", str(root)]) == 0
    assert "this is a FIFO" in (root / "index.html").read_text()


@pytest.mark.parametrize(("name", "commands"), [("cells.jsonl", ("summary", "index")), ("shrunk.jsonl", ("index",))])
def test_a_record_of_a_night_names_it(
    tmp_path: Path, name: str, commands: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path, "2026-11-21", [], cells=(cell("pass"),))
    fifo(tmp_path / "nights" / "2026-11-21" / name)
    for command in commands:
        assert main([command, str(tmp_path)]) == (64 if command == "summary" else 0)
        page = (tmp_path / "index.html").read_text() if command == "index" else ""
        assert f"{name}: this is a FIFO" in capsys.readouterr().err + page


@pytest.mark.parametrize("kind", ["FIFO", "symbolic link"])
def test_a_lock_of_a_data_set_is_a_file_of_its_own(run: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    into, target = run.parents[2] / "nights", run.parents[2] / "target"
    into.mkdir()
    target.write_text("precious")
    if kind == "FIFO":
        fifo(into / ".lock")
    else:
        (into / ".lock").symlink_to(target)
    assert main(["nights", "add", str(run.parents[1]), f"--into={into}"]) == 64
    assert f".lock: this is a {kind}" in capsys.readouterr().err
    assert target.read_text() == "precious"


def test_a_history_alone_names_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "run.json").unlink()
    fifo(run / "history" / "ops" / "part-9.parquet")
    assert main(["check", str(run / "history")]) == 64
    assert "this is a FIFO" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--known", ["index", "store"]),
        ("--trends", ["index", "store"]),
        ("--matrix", ["nightly", "--budget=1s"]),
        ("--contract", ["check", "history"]),
    ],
)
def test_a_file_that_an_option_names(
    run: Path, option: str, command: Sequence[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = fifo(run / "fifo")
    (run / "history").rename(run.parents[2] / "history")
    monkeypatch.chdir(run.parents[2])
    place = place.rename(run.parents[2] / "fifo")
    assert main([*command, f"{option}={place}"]) == 64
    assert "this is a FIFO" in capsys.readouterr().err


def test_machines_are_read_from_a_file(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="not a regular file"):
        read_hosts(fifo(tmp_path / "hosts.toml"))


def test_what_is_no_file_is_named_by_its_kind(tmp_path: Path) -> None:
    with pytest.raises(SpecialFileError, match="/dev/zero: this is a device"):
        read_file(Path("/dev/zero"))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        with pytest.raises(SpecialFileError, match="this is a socket"):
            require_regular_below(tmp_path)
    (tmp_path / "s").unlink()
    (tmp_path / "nowhere").symlink_to("gone")
    (tmp_path / "file").write_bytes(b"whole")
    require_regular_below(tmp_path)
    assert read_file(tmp_path / "file") == b"whole"


def test_a_spark_master_is_asked_whether_it_is_there() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        place = f"spark://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(EngineUnavailable, match=f"no Spark master answers at {place}"):
            require_reachable(place)
        bound.listen()
        require_reachable(place)
        require_reachable(f"spark://127.0.0.1:1,{place.removeprefix('spark://')}")
    for other in (None, "local[2]", "yarn"):
        require_reachable(other)
    with pytest.raises(EngineUnavailable, match="no Spark master answers"):
        require_reachable("spark://127.0.0.1:99999999")


@pytest.mark.parametrize(
    ("command", "recorded"),
    [
        (["gc", "store", "--older-than=99999999999"], "--older-than=99999999999 must be between 0 and 100,000 days"),
        (["up", "--nodes=300"], "--nodes=300 must be between 1 and 200 nodes"),
        (["up", "--zookeepers=300"], "--zookeepers=300 must be between 1 and 100 nodes"),
        (["serve", "store", "--port=99999999"], "--port=99999999 must be between 0 and 65,535"),
        (["defects", "--verify", "x", "--seeds=1000000000000"], "must be between 1 and 100,000 seeds"),
        (["generate", "log", "--out=x", "--operations=99999999999999"], "must be between 1 and 1,000,000,000"),
        (["check", "x", "--model=register", "--time-limit=1e300"], "'1e300' is not a time"),
    ],
)
def test_numbers_of_commands_have_limits(
    command: Sequence[str], recorded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 64
    assert recorded in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--markdown", "--junit"])
def test_a_fifo_that_no_one_reads_is_not_written(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "store", "2026-11-21", [], cells=(cell("pass"),))
    pipe = fifo(tmp_path / "out")
    assert main(["summary", str(tmp_path / "store"), f"{option}={pipe}"]) == 64
    assert f"{pipe}: this is a FIFO or a socket, and no process reads it" in capsys.readouterr().err


def test_a_text_about_a_night_is_no_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path / "store", "2026-11-21", [], cells=(cell("pass"),))
    notes = tmp_path / "notes.md"
    command = ["summary", str(tmp_path / "store"), f"--markdown={notes}"]
    for text in ("# Diary of the Night shift\n", "\n## \u2705 Night shifts\n"):
        notes.write_text(text)
        assert main(command) == 64
        assert "this command did not make this file" in capsys.readouterr().err
        assert notes.read_text() == text
    notes.unlink()
    assert main(command) == main(command) != 64
    assert " Night 2026-11-21: " in notes.read_text()


def test_a_pipe_that_is_read_gets_the_summary(tmp_path: Path) -> None:
    pipe = fifo(tmp_path / "out")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_output(pipe, b"# Night", re.compile(b"#"))
    assert os.read(reader, 100) == b"# Night"
    os.close(reader)


@pytest.mark.parametrize("seconds", [0.05, 60.0])
def test_a_check_that_waits_for_a_pipe_says_so_once_and_goes_on_when_it_is_written(
    tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("assay.harness.cli.command.PATIENCE", seconds)
    pipe = fifo(tmp_path / "history.edn")
    entries = "".join(f"{{:process 0, :type {kind}, :f :write, :value 1}}\n" for kind in (":invoke", ":ok"))
    writer = threading.Timer(0.5, pipe.write_text, [entries])
    writer.start()
    try:
        assert main(["check", str(pipe), "--model=register", "--format=edn"]) in (0, 2)
    finally:
        writer.join()
    printed = capsys.readouterr()
    assert "1 operation" in printed.out
    assert printed.err.count(f"assay: waiting for {pipe}, which is no regular file") == (seconds < 1)


def test_watch_escapes_the_name_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = GrowingRun(tmp_path)
    run.add(1)
    run.read(1)
    run.end()
    place = tmp_path / "line\nbreak \x1b[31m"
    run.path.parent.rename(place)
    main(["watch", str(place / run.path.name)])
    assert rf"assay: watching {tmp_path}/line\nbreak \x1b[31m/{run.path.name}" in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("verb", ["report", "check"])
def test_each_command_says_that_it_waits_for_a_pipe(tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a check of several files. The pipe is written once the command has said that it waits."""
    lines: list[str] = []
    entries = "".join(f"{{:process 0, :type {kind}, :f :write, :value 1}}\n" for kind in (":invoke", ":ok"))
    pipe, other = fifo(tmp_path / "history.edn"), tmp_path / "other.edn"
    other.write_text(entries)

    def note(line: str) -> None:
        lines.append(line)
        threading.Thread(target=pipe.write_text, args=[entries], daemon=True).start()

    monkeypatch.setattr("assay.harness.cli.command.PATIENCE", 0.05)
    monkeypatch.setattr("assay.harness.cli.command.note", note)
    paths = [str(pipe)] if verb == "report" else [str(pipe), str(other)]
    assert main([verb, *paths, "--model=register", "--format=edn"]) in (0, 2)
    assert [line.startswith(f"waiting for {pipe}, which is no regular file") for line in lines] == [True]
