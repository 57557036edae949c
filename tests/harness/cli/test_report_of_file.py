"""``assay report`` on a file of another tool: the page of its verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Operation, Outcome

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
        f"assay: {page}: this command did not make this file, and does not replace it: move it, or name another file"
    )
    assert page.read_text() == "<p>mine</p>"
    assert "does not replace it" in refused(capsys, str(path), "--workload=rw-register", f"--out={path}")
    page.unlink()
    page.symlink_to(tmp_path / "elsewhere")
    assert "is a symbolic link" in refused(capsys, str(path), "--workload=rw-register")
    page.unlink()
    first = report(capsys, path, "--workload=rw-register")
    assert 'class="fail"' in report(capsys, path, "--workload=rw-register")
    page.write_text(f"<p>mine, with a page</p>{first}")
    assert "does not replace it" in refused(capsys, str(path), "--workload=rw-register")


def test_a_folder_takes_no_options_of_judging(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "history").mkdir()
    assert "whose verdict is stored" in refused(capsys, str(tmp_path), "--model=register")


CASE_SPLIT: list[Event] = [
    event
    for process, micros in enumerate(
        (
            "[:w :x 1] [:w :s 1]", "[:w :x 2] [:w :t 1]", "[:w :y 1] [:w :p 1]", "[:w :y 2] [:w :q 1]",
            "[:r :x 1] [:r :p 1] [:r :q 1]", "[:r :t 1] [:r :y 1]", "[:r :t 1] [:r :y 2]", "[:w :z 1] [:w :u 1]",
            "[:w :z 2] [:w :v 1]", "[:r :x 2] [:r :u 1] [:r :v 1]", "[:r :s 1] [:r :z 1]", "[:r :s 1] [:r :z 2]",
        ),
        start=NEMESIS + 1,
    )
    for event in done(process, "txn", f"[{micros}]")
]  # fmt: skip


def test_each_case_of_a_refutation_has_its_choice_and_a_drawing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in tests/checkers/isolation: either writer of x may be the first, and each order closes another circle."""
    page = report(capsys, write(tmp_path / "history.edn", CASE_SPLIT), "--workload=rw-register")
    first, second = re.findall(r"<p class=\"case\"><b>Case \d</b>: (.+?)\. Then", page)
    assert first != second
    assert all(re.fullmatch(r"transaction \d+ is before transaction \d+", each) for each in (first, second))
    assert page.count('<figure class="cycle">') == 2
    assert len(set(re.findall(r'<marker id="([^"]+)"', page))) == 2
    assert (
        "transaction 4 wrote y before transaction 6" in page.partition("<figcaption>")[2].partition("</figcaption>")[0]
    )


SMALL: dict[str, list[Event]] = {
    "bank": [
        *done(0, "read", "nil", "{:a 5, :b 5}"), *done(0, "read", "nil", "{:a 5, :b 5}"),
        *done(1, "read", "nil", "{:a 5, :b 6}"),
    ],
    "causal-reverse": [*done(0, "write", "1"), *done(0, "write", "2"), *done(1, "read", "nil", "[2]")],
    "monotonic-rows": [
        *done(0, "add", "nil", "{:val 1 :sts 2}"), *done(0, "add", "nil", "{:val 2 :sts 1}"),
        *done(1, "read", "nil", "[{:val 2 :sts 1} {:val 1 :sts 2}]"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("workload", SMALL)
def test_operations_without_a_circle_are_drawn_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workload: str
) -> None:
    page = report(capsys, write(tmp_path / "history.edn", SMALL[workload]), f"--workload={workload}")
    assert '<figure class="beside">' in page
    assert '<rect class="marked"' in page
    assert '<figure class="cycle">' not in page


def bank_folder(path: Path, *last: tuple[str, object]) -> Path:
    """A history folder of this tool with the operations of a bank."""
    with HistoryWriter(path) as writer:
        for index, (f, value) in enumerate([("read", {"a": 5, "b": 5})] * 2 + list(last), start=1):
            argument, result = (None, value) if f == "read" else (value, None)
            operation, completion = Operation(f, argument=argument), Completion(Outcome.OK, result=result)
            writer.completed(Completed(index, 0, "0", operation, completion, 10 * index, 10 * index + 5), [])
    return path


def test_a_history_of_this_tool_is_judged_by_a_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bank_folder(tmp_path / "history", ("read", {"a": 5, "b": 6}))
    part = folder / "ops" / "part-000001.parquet"
    for path in (folder, part):
        assert main(["check", str(path), "--workload=bank"]) == ExitCode.FAIL
        out = capsys.readouterr().out
        assert "bank-total 1, in 3 operations (3 ok)" in out
        assert "judged as bank" in out
    page = report(capsys, part, "--workload=bank", f"--out={tmp_path / 'page.html'}")
    assert "bank-total" in page
    assert '<figure class="beside">' in page
    assert report(capsys, folder, "--workload=bank").count("workload=bank")
    assert (tmp_path / "history.html").exists()
    assert f"{part} holds only operations: name their --model or --workload" in refused(capsys, str(part))


def test_operations_of_another_workload_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bank_folder(tmp_path / "history", ("read", 7))
    assert (
        f"{folder}: operation 3 does not belong to --workload=bank: the result of :read is a map of account to balance"
        in (refused(capsys, str(folder), "--workload=bank"))
    )
    assert "there is no :read, but enqueue, dequeue, drain" in refused(capsys, str(folder), "--workload=queue")


def test_a_circle_in_a_log_is_drawn_with_its_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        *done(0, "send", "[[:send 1 10]]", "[[:send 1 [3 10]]]"),
        *done(2, "send", "[[:send 1 11]]", "[[:send 1 [1 11]]]"),
        *done(3, "poll", "[[:poll]]", "[[:poll {1 [[1 11] [3 10]]}]]"),
    ]
    page = report(capsys, write(tmp_path / "history.edn", events), "--workload=kafka")
    assert "<b>2 → 0</b>: a log has a value of operation 2 right before one of operation 0" in page
