"""``assay check --certificate`` writes what ``assay verify`` replays, and a certificate of another history is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Operation, Outcome

from helpers.workload_files import Event, done, edn

REGISTERS = [
    *done(0, "txn", "[[:r :x nil] [:w :x :a]]", "[[:r :x 0] [:w :x :a]]"),
    *done(1, "txn", "[[:r :x nil] [:w :y 5]]", "[[:r :x :a] [:w :y 5]]", type="fail"),
    *done(2, "txn", '[[:w :y "b"] [:r :x nil]]', '[[:w :y "b"] [:r :x :a]]', type="info"),
    *done(3, "txn", "[[:r :y nil]]", '[[:r :y "b"]]'),
]
LISTS = [
    *done(0, "txn", "[[:append 1 :a] [:r 1 nil]]", "[[:append 1 :a] [:r 1 [:a]]]"),
    *done(1, "txn", "[[:r 1 nil] [:append 2 7]]", "[[:r 1 []] [:append 2 7]]"),
    *done(2, "txn", "[[:r 2 nil]]", "[[:r 2 [7]]]"),
]


@pytest.mark.parametrize(
    ("events", "options"),
    [
        (REGISTERS, ["--workload=rw-register", "--initial=0"]),
        (REGISTERS, ["--workload=rw-register", "--initial=0", "--all-reads", "--level=strong-snapshot-isolation"]),
        (LISTS, ["--workload=list-append"]),
        (LISTS, ["--workload=list-append", "--level=causal"]),
        (LISTS, ["--workload=append"]),
        (LISTS, ["--workload=append", "--level=causal"]),
    ],
)
def test_a_written_certificate_is_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events: list[Event], options: list[str]
) -> None:
    history, file = tmp_path / "h.edn", tmp_path / "order.json"
    history.write_text(edn(events))
    assert main(["check", str(history), *options, f"--certificate={file}"]) == ExitCode.PASS
    assert f"assay verify {file} {history} replays it" in capsys.readouterr().out
    assert main(["verify", str(file), str(history)]) == ExitCode.PASS
    assert capsys.readouterr().out.startswith("VERIFIED: ")
    certificate = json.loads(file.read_text())
    file.write_text(json.dumps({**certificate, "events": certificate["events"][::-1]}))
    assert main(["verify", str(file), str(history)]) == ExitCode.FAIL
    assert capsys.readouterr().out.startswith("WRONG: ")


def test_no_certificate_is_written_of_a_failure_and_no_other_file_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, file = tmp_path / "h.edn", tmp_path / "order.json"
    history.write_text(edn(REGISTERS))
    assert main(["check", str(history), "--workload=rw-register", f"--certificate={file}"]) == ExitCode.FAIL
    assert "no certificate is written, because the verdict is fail" in capsys.readouterr().out
    assert not file.exists()
    for text in ("", "[]", '{"level": "serializable"}', "{}"):
        file.write_text(text)
        assert main(["verify", str(file), str(history)]) == ExitCode.USAGE
        assert "is no certificate" in capsys.readouterr().err


def write_history_and_certificate(folder: Path, events: list[Event], *options: str) -> tuple[Path, Path]:
    history, file = folder / "h.edn", folder / "order.json"
    history.write_text(edn(events))
    assert main(["check", str(history), *options, f"--certificate={file}"]) == ExitCode.PASS
    return history, file


def test_only_a_certificate_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history, file = write_history_and_certificate(tmp_path, LISTS, "--workload=list-append")
    first = file.read_text()
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "link").symlink_to("notes")
    os.mkfifo(tmp_path / "fifo")
    for name in ("h.edn", "notes", "link", "fifo"):
        command = ["check", str(history), "--workload=list-append", f"--certificate={tmp_path / name}"]
        assert main(command) == ExitCode.USAGE
        assert "cannot be written" in capsys.readouterr().err
    assert history.read_text() == edn(LISTS)
    assert (tmp_path / "notes").read_text() == "mine"
    assert main(["check", str(history), "--workload=list-append", "--level=causal", f"--certificate={file}"]) == 0
    assert file.read_text() != first


def test_a_special_file_is_no_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in (str(tmp_path / "fifo"), "/dev/zero"):
        assert main(["verify", name, str(tmp_path)]) == ExitCode.USAGE
        assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"workload": "nope"},
        {"workload": "set"},
        {"workload": ["list-append"]},
        {"keys": "x"},
        {"entries": None},
        {"initial": 5},
        {"initial": [1]},
        {"all_reads": "yes"},
        {"events": 5},
        {"events": [[0]]},
        {"without_writes": None},
        {"level": 5},
    ],
    ids=str,
)
def test_a_damaged_certificate_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    history, file = write_history_and_certificate(tmp_path, LISTS, "--workload=list-append")
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert main(["verify", str(file), str(history)]) == ExitCode.USAGE
    assert "certificate" in capsys.readouterr().err


def test_what_the_certificate_assumes_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history, file = write_history_and_certificate(tmp_path, REGISTERS, "--workload=rw-register", "--initial=0")
    assert main(["verify", str(file), str(history)]) == ExitCode.PASS
    out = capsys.readouterr().out
    assert "if it is read by: --initial=0 --workload=rw-register --level=serializable" in out


def test_a_register_that_holds_an_empty_list_is_not_nil(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history, file = write_history_and_certificate(tmp_path, done(0, "txn", "[[:r :x nil]]"), "--workload=rw-register")
    history.write_text(edn(done(0, "txn", "[[:r :x nil]]", "[[:r :x []]]")))
    assert main(["verify", str(file), str(history)]) == ExitCode.FAIL
    assert "finds None" in capsys.readouterr().out


def test_no_order_of_real_time_is_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [*done(0, "txn", "[[:w :x 1]]"), *done(1, "txn", "[[:r :x nil]]", "[[:r :x 1]]")]
    options = "--workload=rw-register", "--level=strict-serializable"
    history, file = write_history_and_certificate(tmp_path, events, *options)
    lines = [line.partition(", :index")[0] + "}\n" for line in edn(events).splitlines()]
    history.write_text("".join([*lines[2:], *lines[:2]]))
    assert main(["check", str(history), *options]) == main(["verify", str(file), str(history)]) == ExitCode.USAGE
    assert capsys.readouterr().err.count("the order of real time is unknown") == 2


def test_a_history_without_success_shows_no_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history, file = write_history_and_certificate(tmp_path, LISTS, "--workload=list-append")
    history.write_text(edn(done(0, "txn", "[[:append 1 :a]]", type="info")))
    file.write_text(json.dumps({**json.loads(file.read_text()), "events": []}))
    assert main(["verify", str(file), str(history)]) == ExitCode.FAIL
    assert "no transaction succeeded" in capsys.readouterr().out


def test_a_contradictory_answer_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history, file = write_history_and_certificate(tmp_path, REGISTERS, "--workload=rw-register", "--initial=0")
    events = [*REGISTERS, *done(4, "txn", "[[:r :x nil]]", "[[:r :y 7]]")]
    history.write_text(edn(events))
    assert main(["verify", str(file), str(history)]) == ExitCode.FAIL
    assert "was called with [[:r :x nil]], and was answered [[:r :y 7]]" in capsys.readouterr().out
    other = tmp_path / "other.json"
    command = ["check", str(history), "--workload=rw-register", "--initial=0", f"--certificate={other}"]
    assert main(command) == ExitCode.FAIL
    assert "no certificate is written, because the verdict is fail" in capsys.readouterr().out
    assert not other.exists()


def test_the_certificate_of_a_history_folder_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = tmp_path / "history", tmp_path / "order.json"
    write, read = [["w", "x", 1]], [["r", "x", None]]
    with HistoryWriter(folder) as writer:
        for index, (called, answered) in enumerate([(write, write), (read, [["r", "x", 1]])]):
            completion = Completion(Outcome.OK, answered)
            call = 10 * index + 1
            writer.completed(
                Completed(index, index, "w", Operation("txn", argument=called), completion, call, call + 1), []
            )
    for path in (folder, next((folder / "ops").glob("*.parquet"))):
        assert main(["check", str(path), "--workload=rw-register", f"--certificate={file}"]) == ExitCode.PASS
        assert main(["verify", str(file), str(path)]) == ExitCode.PASS
        assert f"VERIFIED: {path} is serializable" in capsys.readouterr().out


LATE_COMMIT = """\
{:type :invoke, :process 0, :f :txn, :value [[:w :x 1]], :time 0, :index 0}
{:type :invoke, :process 1, :f :txn, :value [[:w :y 1]], :time 1, :index 1}
{:type :ok, :process 0, :f :txn, :value [[:w :x 1]], :time 1000, :index 2}
{:type :ok, :process 1, :f :txn, :value [[:w :y 1]], :time 1001, :index 3}
{:type :invoke, :process 2, :f :txn, :value [[:r :x nil] [:r :y nil]], :time 2000, :index 4}
{:type :ok, :process 2, :f :txn, :value [[:r :x nil] [:r :y 1]], :time 3000, :index 5}
"""
"""The first writer ended before the reader was called, which did not see it. So it starts first and commits last."""


def test_a_transaction_that_starts_early_and_commits_late_is_not_overlooked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, file = tmp_path / "h.edn", tmp_path / "certificate.json"
    history.write_text(LATE_COMMIT)
    check = ["check", str(history), "--workload=rw-register"]
    assert main([*check, "--level=strong-snapshot-isolation"]) == ExitCode.FAIL
    assert main([*check, "--level=snapshot-isolation", f"--certificate={file}"]) == ExitCode.PASS
    assert main(["verify", str(file), str(history)]) == ExitCode.PASS
    text = file.read_text()
    assert text.count('"level": "snapshot-isolation"') == 1
    file.write_text(text.replace('"level": "snapshot-isolation"', '"level": "strong-snapshot-isolation"'))
    capsys.readouterr()
    assert main(["verify", str(file), str(history)]) == ExitCode.FAIL
    assert "comes before" in "".join(capsys.readouterr())
