"""Tests that what searches reached is kept, summed up test by test, and shown with what they never reached."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.search.coverage_features import extract_features
from assay.harness.search.coverage_page import render_page
from assay.harness.search.coverage_report import CoverageReport, find_rarest, load_reports, merge_reports, store_report

TEST = "workloads/test_log.py::test_log[explore]"


def event(time: int, name: str, node: str = "n1") -> dict[str, object]:
    return {"time": time, "node": node, "seq": time, "event": name, "key": None, "epoch": None, "value": None}


def fault(time: int, name: str, phase: str, number: int = 1) -> dict[str, object]:
    return {"time": time, "id": number, "fault": name, "phase": phase, "targets": '["n1"]'}


EVENTS = [event(1, "elected"), event(5, "deposed"), event(9, "elected")]
FAULTS = [
    fault(3, "kill", "intended"), fault(4, "kill", "injected"), fault(6, "kill", "healed"),
    fault(7, "freeze", "intended", 2),
]  # fmt: skip


def one(states: dict[str, int] | None = None, test: str = TEST, examples: int = 1) -> CoverageReport:
    """By default what one example with the above came through."""
    found = dict.fromkeys(extract_features(EVENTS, FAULTS), 1) if states is None else states
    return CoverageReport(
        test=test, started="2026-01-02T03:04:05+00:00", seconds=2.5, examples=examples, verdicts={"pass": examples},
        states=found, events=("elected", "deposed", "merged"), faults=("freeze", "kill"),
    )  # fmt: skip


def test_the_words_for_states_say_what_came_and_what_was_in_force() -> None:
    """The words are made by one module and read by another."""
    assert one().event_counts == {"elected": 1, "deposed": 1}
    assert one().missing_events == ["merged"]
    assert one().fault_counts == {"kill": 1}
    assert one().missing_faults == ["freeze"], "it was only intended"
    assert one().events_during == {"nothing": {"elected": 1}, "kill": {"deposed": 1}}
    assert "elected > deposed > elected" in one().sequences


def test_an_event_that_came_twice_in_one_example_counts_once() -> None:
    both = merge_reports([one(), one({"elected x1": 3, "elected x2": 1}, examples=4)])
    assert both.event_counts["elected"] == 5
    assert (both.examples, both.searches, both.seconds) == (5, 2, 5.0)
    assert both.verdicts == {"pass": 5}


def test_an_event_during_two_faults_is_of_each_of_them() -> None:
    found = one({"elected during freeze+kill": 2, "elected during kill": 1}).events_during
    assert found == {"freeze": {"elected": 2}, "kill": {"elected": 2}}


def test_the_rarest_come_first() -> None:
    assert find_rarest({"b": 1, "a": 1, "c": 9}, 2) == [("a", 1), ("b", 1)]


def test_the_searches_of_a_store_are_summed_up_by_test(tmp_path: Path) -> None:
    store_report(tmp_path, one())
    store_report(tmp_path, one())
    alone = store_report(tmp_path, one(test="workloads/test_group.py::test_group[explore]"))
    group, log = load_reports(tmp_path)
    assert (group.searches, log.searches) == (1, 2)
    assert load_reports(alone) == [group]


def test_the_table_names_what_was_never_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_report(tmp_path, one())
    assert main(["search", "show", str(tmp_path)]) == ExitCode.PASS
    printed = capsys.readouterr().out
    assert "important events (turning points) that no example reached: merged" in printed
    assert "faults that were never injected: freeze" in printed
    (row,) = [line.split() for line in printed.splitlines() if line.startswith("  kill ")]
    assert row == ["kill", "1", "1", "elected,", "merged"]


def test_as_json_it_is_all_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_report(tmp_path, one())
    assert main(["search", "show", str(tmp_path), "--json"]) == ExitCode.PASS
    assert msgspec.json.decode(capsys.readouterr().out, type=list[CoverageReport]) == [merge_reports([one()])]


def test_the_page_has_every_fault_and_every_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_report(tmp_path, one())
    target = tmp_path / "reached.html"
    assert main(["search", "show", str(tmp_path), f"--html={target}"]) == ExitCode.PASS
    assert capsys.readouterr().out.strip() == str(target)
    text = target.read_text()
    assert text == render_page([merge_reports([one()])])
    for name in ("elected", "deposed", "merged", "kill", "freeze", "nothing"):
        assert f">{name}<" in text
    assert 'class="never">–<' in text


def test_a_file_of_others_is_not_replaced_by_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_report(tmp_path, one())
    (tmp_path / "notes.md").write_text("mine")
    given = ["search", "show", str(tmp_path)]
    assert main([*given, f"--html={tmp_path / 'notes.md'}"]) == ExitCode.USAGE
    assert "does not replace it" in capsys.readouterr().err
    assert (tmp_path / "notes.md").read_text() == "mine"
    for _ in range(2):
        assert main([*given, f"--html={tmp_path / 'page.html'}"]) == ExitCode.PASS, "its own page is replaced"


def test_a_page_that_cannot_be_written_is_an_error_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_report(tmp_path, one())
    assert main(["search", "show", str(tmp_path), f"--html={tmp_path / 'no' / 'page.html'}"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "page.html: No such file or directory; give a place that can be read and written" in said


@pytest.mark.parametrize("content", [None, "{}", "nonsense"])
def test_where_there_is_nothing_that_is_said(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "searches").mkdir()
        (tmp_path / "searches" / "x.json").write_text(content)
    assert main(["search", "show", str(tmp_path)]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert ("--explore=10min" if content is None else "x.json is no coverage report of a search") in error


FUNCTION = {"name": "start", "first": 1, "last": 3, "lines": 2, "branches": 1}
DAMAGED: dict[str, tuple[dict[str, object], str]] = {
    "a count of 400 digits": ({"examples": 10**400}, "$.examples"),
    "a verdict of 400 digits": ({"verdicts": {"pass": 10**400}}, "$.verdicts[...]"),
    "a negative count": ({"states": {"elected x1": -1}}, "$.states[...]"),
    "a negative time": ({"seconds": -1}, "$.seconds"),
    "lines of 400 digits": (FUNCTION | {"lines": 10**400}, "functions[0].lines"),
    "negative lines": (FUNCTION | {"lines": -1}, "functions[0].lines"),
    "more missed lines than lines": (FUNCTION | {"missed_lines": [1, 2, 3]}, "3 lines of start were missed"),
    "more missed branches than branches": (
        FUNCTION | {"missed_branches": [[1, True], [1, False]]}, "2 branches of start were missed",
    ),
}  # fmt: skip


def write_changed(folder: Path, change: dict[str, object]) -> None:
    """Writes a report with changed fields, or with a changed function if ``change`` has a name."""
    report = msgspec.to_builtins(one())
    if "name" in change:
        report["code"] = [{"file": "a.py", "digest": "0", "loaded": True, "functions": [change]}]
    else:
        report |= change
    (folder / "searches").mkdir()
    (folder / "searches" / "x.json").write_text(json.dumps(report))


@pytest.mark.parametrize(("change", "words"), DAMAGED.values(), ids=DAMAGED)
def test_impossible_numbers_of_a_report_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], words: str
) -> None:
    write_changed(tmp_path, change)
    assert main(["search", "show", str(tmp_path)]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "x.json is no coverage report of a search" in error
    assert words in error
    assert "Traceback" not in error


@pytest.mark.parametrize("change", [FUNCTION | {"missed_lines": [1, 2]}, {"examples": 2**53}, {"seconds": 0}])
def test_extreme_numbers_of_a_report_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object]
) -> None:
    write_changed(tmp_path, change)
    assert main(["search", "show", str(tmp_path)]) == ExitCode.PASS
    assert TEST in capsys.readouterr().out
