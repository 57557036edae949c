"""Tests that what was reached of a system's code is kept, united over searches, and shown with what never was."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import msgspec
import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.search.code_coverage.counter import CodePlace
from assay.harness.search.code_coverage.coverage_file import ModuleCoverage, compute_coverage, merge_searches
from assay.harness.search.code_coverage.points import find_functions
from assay.harness.search.code_coverage.source import SourceModule
from assay.harness.search.code_coverage.table import NOT_COUNTED, NOTHING_RAN, make_table
from assay.harness.search.coverage_page import render_page
from assay.harness.search.coverage_report import CoverageReport, load_reports, store_report

SOURCE = textwrap.dedent(
    """\
    def elect(isr):
        for node in isr:
            if node.alive:
                return node
        return None

    def elect_unclean(replicas):
        if replicas:
            return replicas[0]
        return None
    """
)
NAME = "toy.controller.election"
FILE = "toy/controller/election.py"


def module(text: str = SOURCE, name: str = NAME) -> SourceModule:
    return SourceModule(
        name, f"{name.replace('.', '/')}.py", f"/{name}.py", text.encode(), find_functions(ast.parse(text))
    )


def places(*points: tuple[int, bool | None], name: str = NAME) -> list[CodePlace]:
    return [CodePlace(name, line, outcome) for line, outcome in points]


def after(*points: tuple[int, bool | None], text: str = SOURCE) -> tuple[ModuleCoverage, ...]:
    return compute_coverage([module(text)], places(*points))


FIRST_IS_ALIVE = ((2, None), (2, True), (3, None), (3, True), (4, None))
SECOND_IS_ALIVE = (*FIRST_IS_ALIVE, (3, False))


def test_what_was_never_reached_is_by_function_and_by_branch() -> None:
    (found,) = after(*FIRST_IS_ALIVE)
    assert (found.reached_lines, found.lines, found.reached_branches, found.branches) == (3, 7, 2, 6)
    assert [function.name for function in found.uncalled] == ["elect_unclean"]
    assert found.untaken == ((2, False), (3, False))
    assert [function.missed_lines for function in found.functions if not function.uncalled] == [(5,)]


def test_several_searches_have_reached_what_one_of_them_has() -> None:
    one, other = after(*SECOND_IS_ALIVE), after(*FIRST_IS_ALIVE, (2, False), (5, None))
    (both,) = merge_searches([one, other])
    assert both.untaken == ()
    assert [function.missed_lines for function in both.functions if not function.uncalled] == [()]
    assert [function.name for function in both.uncalled] == ["elect_unclean"]
    assert merge_searches([one, one]) == one


def test_of_a_source_that_has_changed_only_the_latest_counts() -> None:
    changed = after((2, None), text=SOURCE.replace("alive", "running"))
    assert merge_searches([after(*SECOND_IS_ALIVE), changed]) == changed


def test_a_module_that_is_gone_counts_no_more_and_a_search_that_counted_nothing_changes_nothing() -> None:
    gone = compute_coverage([module(), module(name="toy.gone")], ())
    assert [one.file for one in gone] == [FILE, "toy/gone.py"]
    now = after(*FIRST_IS_ALIVE)
    assert merge_searches([gone, now]) == now
    assert merge_searches([now, ()]) == now
    assert merge_searches([(), ()]) == ()


def test_a_function_with_nothing_to_reach_is_not_said_to_be_never_called() -> None:
    (found,) = after(text=f"{SOURCE}\ndef declared():\n    what: int\n")
    assert (found.functions[-1].lines, found.functions[-1].branches) == (0, 0)
    assert [function.name for function in found.uncalled] == ["elect", "elect_unclean"]


def test_the_table_says_what_was_reached_and_names_what_never_was() -> None:
    summary, row = make_table(after(*FIRST_IS_ALIVE))
    assert summary == "3 of 7 lines and 2 of 6 branches of the system; never loaded: none"
    assert row == (
        f"{FILE}  3 of 7 lines, 2 of 6 branches; never: elect_unclean (lines 7-10); "
        "branches: 2 never false, 3 never false"
    )


def test_modules_that_no_one_loaded_are_named_and_the_least_reached_come_first() -> None:
    several = [module(), module(name="toy.whole"), module(name="toy.unloaded")]
    whole = places(*((point.line, point.branch) for f in module().functions for point in f.points), name="toy.whole")
    summary, first, second = make_table(compute_coverage(several, [*places(*FIRST_IS_ALIVE), *whole]))
    assert summary == "10 of 14 lines and 8 of 12 branches of the system; never loaded: toy/unloaded.py"
    assert first.startswith(FILE)
    assert second.split("  ")[-1] == "7 of 7 lines, 6 of 6 branches; never: none"


def test_where_nothing_was_counted_or_nothing_ran_that_is_said() -> None:
    assert make_table(()) == [NOT_COUNTED]
    assert make_table(after()) == [NOTHING_RAN]


def search(code: tuple[ModuleCoverage, ...], started: str = "2026-01-02T03:04:05+00:00") -> CoverageReport:
    return CoverageReport(
        test="test_log.py::test_log[explore]", started=started, seconds=1.0, examples=1, verdicts={"pass": 1},
        states={}, events=(), faults=(), code=code,
    )  # fmt: skip


def test_the_searches_of_a_store_are_united_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_report(tmp_path, search(after(*FIRST_IS_ALIVE, (2, False), (5, None))))
    store_report(tmp_path, search(after(*SECOND_IS_ALIVE)))
    assert main(["search", "show", str(tmp_path)]) == ExitCode.PASS
    assert f"{FILE}  4 of 7 lines, 4 of 6 branches; never: elect_unclean (lines 7-10)\n" in capsys.readouterr().out
    assert main(["search", "show", str(tmp_path), "--json"]) == ExitCode.PASS
    (as_json,) = msgspec.json.decode(capsys.readouterr().out, type=list[CoverageReport])
    assert [function.name for function in as_json.code[0].uncalled] == ["elect_unclean"]
    text = render_page(load_reports(tmp_path))
    assert "<td>elect_unclean (lines 7-10)</td>" in text
    assert "4 of 7 lines, 4 of 6 branches" in text


def test_the_latest_search_is_the_one_that_began_last(tmp_path: Path) -> None:
    changed = after((2, None), text=SOURCE.replace("alive", "running"))
    store_report(tmp_path, search(changed, "2026-01-03T00:00:00+00:00"))
    store_report(tmp_path, search(after(*SECOND_IS_ALIVE)))
    assert load_reports(tmp_path)[0].code == changed


def test_a_search_of_before_lines_were_counted_can_be_read(tmp_path: Path) -> None:
    path = store_report(tmp_path, search(()))
    old = msgspec.json.decode(path.read_bytes())
    del old["code"]
    path.write_bytes(msgspec.json.encode(old))
    assert load_reports(path)[0].code == ()
