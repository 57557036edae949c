"""``assay watch``: what it prints, and how it ends."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from assay.cluster import owner
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.run.live_judging import LiveJudgement
from assay.harness.stored import live_check

from helpers.growing_run import GrowingRun
from helpers.stored_runs import TODAY

LARGE = TODAY / "log-pass-mixed"
"""Some 1,500 operations."""


def test_of_a_run_that_is_over_there_is_the_last_judgement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = GrowingRun(tmp_path)
    run.add(1)
    run.read()
    run.end()
    assert main(["watch", str(run.path)]) == ExitCode.FAIL
    printed = capsys.readouterr()
    assert printed.out.startswith("FAIL set-lost: ")
    assert "assay: 0.0 s: 2 operations judged in " in printed.err
    assert printed.err.rstrip().endswith("set-lost 1")


@pytest.mark.parametrize("memory", ["2MB", "12MB"], ids=["too little to read it", "too little to check it"])
def test_where_memory_does_not_suffice_that_is_said_with_the_remedy(
    memory: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("assay.harness.stored.live_check.MEMORY", memory)
    assert main(["watch", str(LARGE)]) == ExitCode.USAGE
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("assay: DuckDB could not run ")
    assert "Out of Memory" in last
    assert "; free memory, and room in " in last
    assert last.endswith("or on Spark (--engine=spark)")


def test_as_json_each_judgement_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = GrowingRun(tmp_path)
    run.add(1)
    run.read(1)
    run.end()
    assert main(["watch", str(run.path), "--json"]) == ExitCode.UNKNOWN
    printed = capsys.readouterr()
    (seen,) = [msgspec.json.decode(line, type=LiveJudgement) for line in printed.out.splitlines()]
    assert (seen.operations, seen.found, seen.ended) == (2, {}, True)
    assert printed.err == ""


def test_a_store_in_which_no_run_goes_on_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path)]) == ExitCode.USAGE
    assert "no run goes on in" in capsys.readouterr().err


def test_with_fail_fast_the_first_one_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run goes on: without it the watch would wait for its end."""
    run = GrowingRun(tmp_path)
    run.add(1)
    run.read()
    run.history.flush()
    assert main(["watch", str(tmp_path), "--fail-fast"]) == ExitCode.FAIL
    printed = capsys.readouterr()
    assert printed.out.startswith("FAIL set-lost: ")
    assert f"assay: watching {run.path}" in printed.err


def test_a_silent_run_of_another_machine_ends_the_watch_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = GrowingRun(tmp_path)
    run.folder.write_run(msgspec.structs.replace(run.info, machine="elsewhere"))
    monkeypatch.setattr(owner, "read_machine_id", lambda: "here")
    monkeypatch.setattr(live_check, "SILENCE", 0.4)
    assert main(["watch", str(tmp_path)]) == ExitCode.UNKNOWN
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"assay: {run.path} has written nothing for 0 s; it is the run of process {os.getpid()} of ")
    assert last.endswith("machine elsewhere; look there whether it still runs, and watch it again")
