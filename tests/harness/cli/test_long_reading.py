"""``assay check --time-limit``: the limit is for the search. Reading the file does not count, and a line says so."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from assay.harness.cli import time_estimate
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.cli.time_estimate import LongReading

from helpers.workload_files import done, edn

LINE = "assay: reading history.edn: 100%; --time-limit counts from the end of the reading\n"


@pytest.mark.parametrize(
    ("events", "options"),
    [
        ([*done(0, "write", "1"), *done(0, "read", "nil", "1")], ["--model=register"]),
        (
            [*done(0, "txn", "[[:w :x 1]]"), *done(1, "txn", "[[:r :x nil]]", "[[:r :x 1]]")],
            ["--workload=rw-register", "--level=read-committed"],
        ),
    ],
    ids=["model", "level"],
)
def test_reading_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events: list[tuple[int, str, str, str]], options: list[str]
) -> None:
    path = tmp_path / "history.edn"
    path.write_text(edn(events))
    assert main(["check", str(path), *options, "--time-limit=0.000001"]) == ExitCode.PASS
    printed = capsys.readouterr()
    assert printed.out.startswith("PASS")
    assert printed.err == LINE
    assert main(["check", str(path), *options]) == ExitCode.PASS
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("verb", ["check", "report"])
def test_other_commands_say_so_for_each_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    paths = [tmp_path / f"{name}.edn" for name in ("a", "b")]
    for path in paths:
        path.write_text(edn([*done(0, "write", "1"), *done(0, "read", "nil", "1")]))
    given = list(map(str, paths)) if verb == "check" else [str(paths[0])]
    assert main([verb, *given, "--model=register", "--time-limit=0.000001"]) == ExitCode.PASS
    lines = capsys.readouterr().err.splitlines()
    for path in paths[: len(given)]:
        assert f"assay: reading {path.name}: 100%; --time-limit counts from the end of the reading" in lines


def test_the_line_is_printed_once_and_only_about_reading(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 4.0, 6.0])
    reading = LongReading(5.0, lambda: next(times))
    reading.step("searching 1 key", 0, 10)
    reading.step("reading history.edn", 4, 10)
    assert capsys.readouterr().err == ""
    reading.step("reading history.edn", 5, 10)
    reading.step("reading history.edn", 6, 10)
    line = "assay: reading history.edn: 50%, about 6 s left; --time-limit counts from the end of the reading\n"
    assert capsys.readouterr().err == line


def test_long_work_without_a_terminal_prints_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_estimate, "QUIET_INTERVAL", 0.01)
    before = threading.active_count()
    text = ""
    with time_estimate.show_estimate() as estimate:
        estimate.step("checking lost writes", 1, 4)
        while "checking lost writes: 25% (0 s so far) ..." not in text:  # ended by the time limit of the test
            text += capsys.readouterr().err
    while threading.active_count() > before:  # the thread that prints ends
        time.sleep(0.001)
