"""``assay check --certificate`` writes what ``assay verify`` replays, and a certificate of another history is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main

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
