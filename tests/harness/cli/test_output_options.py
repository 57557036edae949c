"""Each option that names a file to write replaces only a file of its command, in one step, and no link or folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.harness.cli.main import main
from assay.harness.nightly import trends
from assay.harness.search.coverage_report import CoverageReport, store_report

from helpers.night_cells import cell, recorded
from helpers.workload_files import done, edn


def write_night(folder: Path) -> list[str]:
    recorded(folder / "store", "2026-11-21", [], cells=(cell("pass"),))
    return ["summary", str(folder / "store")]


def write_trends(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    return ["nights", "trends", str(folder), "--json"]


def write_searches(folder: Path) -> list[str]:
    report = CoverageReport(
        test="t.py::t[explore]", started="2026-01-02T03:04:05+00:00", seconds=2.5, examples=1, verdicts={"pass": 1},
        states={}, events=(), faults=(),
    )  # fmt: skip
    store_report(folder, report)
    return ["search", "show", str(folder)]


def write_history(verb: str) -> Callable[[Path], list[str]]:
    def write(folder: Path) -> list[str]:
        events = [*done(0, "txn", "[[:append 1 2]]"), *done(0, "txn", "[[:r 1 nil]]", "[[:r 1 [2]]]")]
        (folder / "h.edn").write_text(edn(events))
        return [verb, str(folder / "h.edn"), "--workload=list-append", "--level=serializable"]

    return write


OPTIONS = {
    "--junit": write_night, "--markdown": write_night, "--html": write_searches, "nights --out": write_trends,
    "report --out": write_history("report"), "--certificate": write_history("check"),
}  # fmt: skip


@pytest.fixture(params=OPTIONS)
def option(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], str]:
    """The command, and its option."""
    nothing = trends.Trends(format=1, nights=("2026-11-21",), cells=(), worse=(), asked=0, level=0.01)
    monkeypatch.setattr(trends, "compute_trends", lambda *given: nothing)
    (folder := tmp_path / "given").mkdir()
    name: str = request.param
    return OPTIONS[name](folder), name.split()[-1]


def test_its_own_file_is_replaced_and_a_text_that_quotes_it_is_not(
    option: tuple[list[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, name = option
    file = tmp_path / "file"
    codes = {main([*command, f"{name}={file}"]) for _ in range(2)}
    assert len(codes) == 1
    assert 64 not in codes
    own = file.read_bytes()
    for text in (b"how it begins:\n\n" + own, b"my notes", b"[" + own + b"]"):
        file.write_bytes(text)
        capsys.readouterr()
        assert main([*command, f"{name}={file}"]) == 64
        assert "this command did not make this file" in capsys.readouterr().err
        assert file.read_bytes() == text


def test_links_folders_and_missing_folders_are_refused(
    option: tuple[list[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, name = option
    main([*command, f"{name}={tmp_path / 'file'}"])
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "nowhere").symlink_to("gone")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    before = (tmp_path / "file").stat()
    for place, why in (
        ("link", "this is a symbolic link"), ("nowhere", "this is a symbolic link"), ("folder", "Is a directory"),
        ("missing/file", "No such file or directory"), ("fifo", "no process reads it"),
    ):  # fmt: skip
        capsys.readouterr()
        assert main([*command, f"{name}={tmp_path / place}"]) == 64
        printed = capsys.readouterr().err
        assert str(tmp_path / place) in printed
        assert why in printed
    assert (tmp_path / "file").stat() == before
    assert not (tmp_path / "gone").exists()


def test_a_full_disk_names_the_file(option: tuple[list[str], str], capfd: pytest.CaptureFixture[str]) -> None:
    command, name = option
    assert main([*command, f"{name}=/dev/full"]) == 64
    printed = capfd.readouterr().err
    assert "/dev/full" in printed
    assert "No space left on device" in printed


def hide_digits(text: str) -> str:
    """Pages say how long the judging took."""
    return re.sub(r"[0-9.]+", "0", text)


def test_standard_output_gets_the_file_and_what_is_printed_after_it(
    option: tuple[list[str], str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Standard output is a file here, as after a redirection of the shell."""
    command, name = option
    main([*command, f"{name}={tmp_path / 'file'}"])
    written = hide_digits((tmp_path / "file").read_text())
    capfd.readouterr()
    main([*command, f"{name}=/dev/stdout"])
    printed = hide_digits(capfd.readouterr().out)
    assert written in printed
    if command[0] in ("report", "search"):
        assert printed == written


MERGED = """\
<?xml version='1.0' encoding='utf-8'?>
<testsuites tests="9" failures="0" errors="0" skipped="0" time="1.000">
  <testsuite name="assay nightly 2026-11-20" tests="1"/>
  <testsuite name="tests of others" tests="8"/>
</testsuites>
"""


@pytest.mark.parametrize(
    "content",
    [
        MERGED, '<!-- see <testsuite name="assay nightly 1" -->\n<testsuites/>\n',
        MERGED.replace("assay nightly 2026-11-20", "tests of some"), MERGED.replace("</testsuites>", ""),
    ],
)  # fmt: skip
def test_a_junit_file_with_suites_of_others_is_not_replaced(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "junit.xml"
    file.write_text(content)
    assert main([*write_night(tmp_path), f"--junit={file}"]) == 64
    assert "this command did not make this file" in capsys.readouterr().err
    assert file.read_text() == content
