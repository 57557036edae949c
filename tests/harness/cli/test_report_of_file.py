"""``assay report`` on a file of another tool: the page of its verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.cli.report import PAGE_MARK

from helpers.workload_files import Event, done, edn

HOSTILE = "<script>alert(1)</script>"
WRITE_SKEW: list[Event] = [
    *done(9, "txn", "[[:w :x 1] [:w :y 1]]"),
    (8, "info", "start-partition", "nil"),
    (1, "invoke", "txn", "[[:r :x nil] [:w :y 2]]"),
    (2, "invoke", "txn", "[[:r :y nil] [:w :x 2]]"),
    (1, "ok", "txn", "[[:r :x 1] [:w :y 2]]"),
    (2, "ok", "txn", "[[:r :y 1] [:w :x 2]]"),
    (8, "info", "stop-partition", "nil"),
]
NEMESIS = 8
ONLY_RUNS = ("seed", "world", "began", "took effect", "What the nodes said", "of this run")


def write(path: Path, events: list[Event]) -> Path:
    path.write_text(edn(events).replace(f":process {NEMESIS},", ":process :nemesis,"))
    return path


def report(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> str:
    """The text of the page, which must be the file that the command prints."""
    assert main(["report", str(path), *options]) == ExitCode.PASS
    return Path(capsys.readouterr().out.strip()).read_text(encoding="utf-8")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["report", *arguments]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_page_of_a_cycle_shows_it_with_the_reasons_and_the_nemesis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "history.edn", WRITE_SKEW)
    page = report(capsys, path, "--workload=rw-register")
    assert (tmp_path / "history.edn.html").read_text(encoding="utf-8") == page
    assert 'class="fail"' in page
    assert "write skew: transaction 3 read 1 of x, which transaction 4 replaced" in page
    assert '<figure class="cycle">' in page
    assert "<li><b>3 → 4</b>: transaction 3 read 1 of x, which transaction 4 replaced</li>" in page
    assert "<code>[[:r :x 1] [:w :y 2]]</code>" in page, "values are EDN"
    assert '<span class="chip fault">partition' in page
    assert "2 events of the nemesis, which change no verdict" in page
    assert "other lines" not in page
    assert "workload=rw-register" in page
    assert 'id="plot-data"' in page
    assert not [words for words in ONLY_RUNS if words in page.partition("<script")[0]]
    assert "cannot be read" not in page


def test_the_page_of_a_model_shows_the_contradiction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [*done(0, "enqueue", "1"), *done(0, "enqueue", "2"), *done(1, "dequeue", "nil", "2")]
    page = report(
        capsys, write(tmp_path / "queue.edn", events), "--model=fifo-queue", f"--out={tmp_path / 'page.html'}"
    )
    assert 'class="fail"' in page
    assert "nonlinearizable" in page
    assert '<table class="ops">' in page
    assert "partition" not in page.partition("<script")[0]


def test_the_page_of_a_passing_file_names_the_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [*done(0, "txn", "[[:w :x 1]]"), *done(1, "txn", "[[:r :x nil]]", "[[:r :x 1]]")]
    page = report(capsys, write(tmp_path / "history.edn", events), "--workload=rw-register", "--level=read-committed")
    assert 'class="pass"' in page
    assert "level read-committed" in page
    assert 'id="findings"' not in page
    assert "nemesis, which" not in page
    assert "without faults" not in page, "the file may not say"


def test_hostile_text_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = f'"{HOSTILE}"'
    events = [
        *done(0, "txn", f"[[:w {key} 1]]"),
        *done(1, "txn", f"[[:w {key} 2]]"),
        *done(1, "txn", f"[[:r {key} nil]]", f"[[:r {key} 1]]"),
        (NEMESIS, "info", HOSTILE.replace("(1)", ""), "nil"),
    ]
    path = write(tmp_path / "<b>history.edn", events)
    path.write_text(path.read_text().replace(":type :ok,", f':type :ok, :error "{HOSTILE}",'))
    page = report(capsys, path, "--workload=rw-register", "--real-time")
    assert 'class="fail"' in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<b>history" not in page


def test_only_a_page_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "history.edn", WRITE_SKEW)
    page = tmp_path / "history.edn.html"
    page.write_text("<p>mine</p>")
    assert refused(capsys, str(path), "--workload=rw-register") == (
        f"assay: {page} is no page of `assay report`, and is not replaced; move it, or give another --out"
    )
    assert page.read_text() == "<p>mine</p>"
    assert "is no page" in refused(capsys, str(path), "--workload=rw-register", f"--out={path}")
    page.unlink()
    page.symlink_to(tmp_path / "elsewhere")
    assert "is a symbolic link" in refused(capsys, str(path), "--workload=rw-register")
    page.unlink()
    page.write_bytes(b"<head>" + PAGE_MARK)
    assert 'class="fail"' in report(capsys, path, "--workload=rw-register")


def test_a_folder_takes_no_options_of_judging(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "history").mkdir()
    assert "whose verdict is stored" in refused(capsys, str(tmp_path), "--model=register")
