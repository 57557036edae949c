"""A night divided is the same night; its summary counts what no mark covers; what it writes is only text."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checkers.judging.sensitivity import PlantedShare, Sensitivity
from assay.checkers.judging.verdict import Verdict
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.nightly import night_record, night_runner
from assay.harness.nightly.dataset_schema import UNKNOWN
from assay.harness.nightly.junit import to_junit
from assay.harness.nightly.markdown import escape, make_code_block, make_code_span, to_markdown
from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.harness.nightly.night_record import CellKind, MatrixCell, NightError
from assay.harness.nightly.night_verdict import NightAccount, read_account
from assay.harness.nightly.store_index import read_store
from assay.reports.index.known import KnownFailures, Mark

from helpers.morning_store import HOSTILE, LAST
from helpers.morning_store import night as recorded_night
from helpers.morning_store import result as ended
from helpers.night_cells import PROGRAM, cell, recorded, result

TODAY = date(2026, 11, 24)
CANARY: dict[str, Any] = {"kind": CellKind.CANARY, "defect": "d", "expected": ("phantom",)}


def known(*anomalies: str, expires: date = TODAY, workload: str = "t") -> KnownFailures:
    if not anomalies:
        return KnownFailures(today=TODAY)
    mark = Mark(system=UNKNOWN, workload=workload, anomalies=anomalies, reason="being repaired", expires=expires)
    return KnownFailures((mark,), TODAY)


def performed(store: Path, cells: Sequence[MatrixCell], name: str = "n", share: tuple[int, int] = (1, 1)) -> None:
    one = night_runner.begin_night(store, name, cells, 100.0, store.parent, None, share)
    night_runner.NightRunner(
        store, night_record.night_folder(store, one.folder_name), one, 100.0, program=PROGRAM, grace=5.0
    ).run()


def test_a_night_whose_record_is_damaged_is_not_hidden_by_an_older_one(tmp_path: Path) -> None:
    begun = [night_runner.begin_night(tmp_path, name, [cell("pass")], 1.0, tmp_path, None) for name in ("n", "o")]
    (tmp_path / "nights" / "unbegun").mkdir()
    assert of_night(tmp_path).name == begun[-1].name
    (tmp_path / "nights" / "o" / "night.json").write_text("{")
    with pytest.raises(NightError, match=r"o/night.json is not the record of a night.*--night=ID"):
        of_night(tmp_path)
    assert read_account(tmp_path, "n", known()).name == "n"
    (tmp_path / "nights" / "n").rename(tmp_path / "elsewhere")
    with pytest.raises(NightError, match=r"o/night.json is not the record of a night"):
        of_night(tmp_path)


def of_night(store: Path, marked: KnownFailures | None = None) -> NightAccount:
    return read_account(store, None, marked or known())


@given(st.integers(1, 9), st.integers(0, 20))
def test_the_parts_of_a_night_are_the_whole_night_each_cell_once_with_its_seed(
    tmp_path_factory: pytest.TempPathFactory, parts: int, more: int
) -> None:
    store = tmp_path_factory.mktemp("store")
    cells = [cell("pass", name=f"cell {number}") for number in range(parts + more)]
    whole = night_runner.begin_night(store, "n", cells, 1.0, store, None)
    shares = [
        night_runner.begin_night(store, "m", cells, 1.0, store, None, (part, parts)) for part in range(1, parts + 1)
    ]
    assert sorted(one.name for share in shares for one in share.cells) == sorted(one.name for one in whole.cells)
    assert max(len(one.cells) for one in shares) - min(len(one.cells) for one in shares) <= 1
    assert {one.name for one in shares} == {"m"}
    assert len({one.seed for one in shares}) == 1
    assert len({one.folder_name for one in shares}) == parts


def test_a_part_has_the_seeds_of_the_whole_night(tmp_path: Path) -> None:
    cells = [cell("pass", name=name) for name in "abcd"]
    seeds = []
    for folder, shares in (("whole", [(1, 1)]), ("parts", [(1, 3), (2, 3), (3, 3)])):
        store = tmp_path / folder
        for share in shares:
            performed(store, cells, "n", share)
        seeds.append(
            sorted((one.cell, one.seed) for path, _ in night_record.read_nights(store) for one in path.read_results())
        )
    assert seeds[0] == seeds[1]
    assert len(seeds[0]) == 4


def damage_last(content: bytes) -> bytes:
    return content[:-40]


def damage_middle(content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    lines[1] = lines[1][:-60] + b"\n"
    return b"".join(lines)


def overwrite_middle(content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    lines[1] = bytes(len(lines[1]) - 1) + b"\n"
    return b"".join(lines)


def rename_cell(content: bytes) -> bytes:
    return content.replace(b'{"cell":"b"', b'{"cell":"x"')


def cut_a_whole_line(content: bytes) -> bytes:
    return b"".join(content.splitlines(keepends=True)[:-1])


@pytest.mark.parametrize(
    ("names", "damage", "said"),
    [
        ("ab", damage_last, "n/cells.jsonl, line 2, of cell b: half a line"),
        ("abc", damage_middle, "n/cells.jsonl, line 2, of cell b: damaged"),
        ("abc", overwrite_middle, "n/cells.jsonl, line 2: damaged"),
        ("abc", rename_cell, "n/cells.jsonl, line 2, of cell x: the night has no such cell"),
        ("ab", cut_a_whole_line, "n/cells.jsonl, line 2: 2 attempts had ended, and 1 are recorded"),
    ],
    ids=["half", "middle", "overwritten", "renamed", "whole line"],
)
def test_a_lost_outcome_is_no_pass_and_its_line_is_named(
    tmp_path: Path, names: str, damage: Callable[[bytes], bytes], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    performed(tmp_path, [cell("exit=1" if name == "b" else "pass", name=name) for name in names])
    lines = tmp_path / "nights" / "n" / "cells.jsonl"
    lines.write_bytes(damage(lines.read_bytes()))
    capsys.readouterr()
    assert main(["summary", str(tmp_path), f"--junit={tmp_path / 'junit.xml'}"]) == ExitCode.UNKNOWN
    printed = capsys.readouterr().out
    assert escape(said) in printed
    assert "for want of time: b" not in printed
    found = of_night(tmp_path)
    assert any(said in str(one) for one in found.lost)
    assert any(said in error.get("message", "") for error in ET.parse(tmp_path / "junit.xml").findall(".//error"))
    assert any(said in one for one in read_store(tmp_path, {}).problems)


def test_a_failure_counts_beside_a_lost_outcome(tmp_path: Path) -> None:
    performed(tmp_path, [cell("fail", "exit=1", name="a"), cell("pass", name="b")])
    lines = tmp_path / "nights" / "n" / "cells.jsonl"
    lines.write_bytes(damage_last(lines.read_bytes()))
    found = of_night(tmp_path)
    assert (found.verdict, [one.cell for one in found.lost]) == (Verdict.FAIL, ["b"])


def test_half_a_line_whose_attempt_was_recorded_again_is_not_lost(tmp_path: Path) -> None:
    performed(tmp_path, [cell("pass", name="a"), cell("pass", name="b")])
    lines = tmp_path / "nights" / "n" / "cells.jsonl"
    whole = lines.read_bytes()
    lines.write_bytes(damage_last(whole) + b"\n" + whole.splitlines()[1] + b"\n")
    found = of_night(tmp_path)
    assert (found.verdict, found.lost) == (Verdict.PASS, ())


@pytest.mark.parametrize(
    ("second", "verdict", "lost"),
    [
        ({}, Verdict.UNKNOWN, 1),
        ({"seconds": 99.0}, Verdict.UNKNOWN, 1),
        ({"outcome": Outcome.FAIL}, Verdict.FAIL, 1),
        ({"outcome": Outcome.MISSED}, Verdict.FAIL, 1),
        ({"outcome": Outcome.CRASHED}, Verdict.UNKNOWN, 1),
    ],
    ids=["equal", "another pass", "fail", "missed", "crashed"],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_second_result_of_an_attempt_is_no_pass_and_hides_no_failure(
    tmp_path: Path, second: dict[str, Any], verdict: Verdict, lost: int, is_first: bool
) -> None:
    performed(tmp_path, [cell("pass", name="a"), cell("pass", name="b")])
    folder = night_record.night_folder(tmp_path, "n")
    (of_a, of_b) = sorted(folder.read_results(), key=lambda one: one.cell)
    other = msgspec.structs.replace(of_a, **second)
    (folder.path / "cells.jsonl").unlink()
    for one in (of_b, *((other, of_a) if is_first else (of_a, other))):
        folder.append_result(one)
    found = of_night(tmp_path)
    assert (found.verdict, len(found.lost)) == (verdict, lost)


def test_an_interrupted_attempt_is_repeated_and_its_second_result_counts(tmp_path: Path) -> None:
    performed(tmp_path, [cell("pass", name="a")])
    folder = night_record.night_folder(tmp_path, "n")
    (result,) = folder.read_results()
    (folder.path / "cells.jsonl").unlink()
    folder.append_result(msgspec.structs.replace(result, outcome=Outcome.INTERRUPTED))
    folder.append_result(result)
    found = of_night(tmp_path)
    assert (found.verdict, found.lost) == (Verdict.PASS, ())


def test_a_repeated_line_does_not_stand_for_a_lost_failure(tmp_path: Path) -> None:
    one = result("a", Outcome.PASS, started="T1")
    recorded(tmp_path, "2026-11-21", [one, one], cells=(cell("pass", name="a", repeat=2),), ended="T9", attempts=2)
    found = of_night(tmp_path)
    assert found.verdict is Verdict.UNKNOWN
    assert [line.what for line in found.lost] == [
        "2 attempts had ended, and 1 are recorded",
        "this line repeats line 1",
    ]


@pytest.mark.parametrize("written", ["fail", "missed", "fa", "pass"])
def test_half_a_line_with_a_failure_is_excused_only_by_a_failure(tmp_path: Path, written: str) -> None:
    others = [
        result("a", Outcome.INTERRUPTED, attempt=2, started="T2"),
        result("a", Outcome.PASS, attempt=2, started="T3"),
    ]
    first = result("a", Outcome.PASS, started="T1")
    recorded(tmp_path, "2026-11-21", [first], cells=(cell("pass", name="a", repeat=2),), ended="T9", attempts=3)
    folder = night_record.night_folder(tmp_path, "2026-11-21")
    with (folder.path / "cells.jsonl").open("a") as file:
        file.write(f'{{"cell":"a","attempt":2,"started":"T2","seconds":5.0,"outcome":"{written}')
        file.write('","deta' if len(written) > 2 else "")
    for one in others:
        folder.append_result(one)
    found = of_night(tmp_path)
    assert (found.verdict, len(found.lost)) == ((Verdict.PASS, 0) if written == "pass" else (Verdict.UNKNOWN, 1))
    folder.append_result(result("a", Outcome.FAIL, attempt=2, started="T2"))
    assert of_night(tmp_path).verdict is Verdict.FAIL
    assert not any("half" in line.what or "damaged" in line.what for line in of_night(tmp_path).lost)


def test_more_parts_than_cells_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(NightError, match="too few for 3 parts"):
        night_runner.begin_night(tmp_path, "n", [cell("pass"), cell("fail")], 1.0, tmp_path, None, (1, 3))
    cells = [cell("pass", name=str(number)) for number in range(10_001)]
    with pytest.raises(NightError, match="at most 10000 parts"):
        night_runner.begin_night(tmp_path, "n", cells, 1.0, tmp_path, None, (1, 10_001))


def test_parts_are_one_night_for_the_page_and_the_summary(tmp_path: Path) -> None:
    cells = [cell("pass"), cell("fail", "exit=1"), cell("unknown", "exit=1"), cell("signal=9")]
    for part in (1, 2):
        performed(tmp_path, cells, "n", (part, 2))
    found = of_night(tmp_path)
    assert (found.name, found.missing, found.parts) == ("n", (), 2)
    assert sorted(one.cell.name for one in found.cells) == sorted(one.name for one in cells)
    stored = read_store(tmp_path, {})
    (one,) = stored.nights
    assert (one.name, one.planned, one.done) == ("n", 4, 4)
    assert {entry.night for entry in stored.entries} == {"n"}
    crashed = next(entry for entry in stored.entries if entry.status == "crashed")
    assert all((tmp_path / address).exists() for _, address in crashed.extra_links)


def test_a_part_without_a_record_is_no_pass(tmp_path: Path) -> None:
    cells = [cell("pass", name=name) for name in "abc"]
    for part in (1, 3):
        performed(tmp_path, cells, "n", (part, 3))
    found = of_night(tmp_path)
    assert (found.missing, found.verdict) == ((2,), Verdict.UNKNOWN)
    assert "No record of part 2 of 3" in to_markdown(found)
    assert ET.fromstring(to_junit(found)).findall(".//error[@message='this part of the night left no record']")
    assert any("part 2 of 3" in one for one in read_store(tmp_path, {}).problems)
    performed(tmp_path, cells, "n", (2, 3))
    assert of_night(tmp_path).verdict is Verdict.PASS


def kill_during(store: Path, name: str) -> None:
    """Leaves the record as if the night had been killed during the attempt of this cell."""
    folder = night_record.night_folder(store, "n")
    results = folder.read_results()
    (killed,) = [one for one in results if one.cell == name]
    made_by = msgspec.json.decode((store / killed.runs[0] / "run.json").read_bytes())["owner"]
    folder.write(msgspec.structs.replace(folder.read(), ended=msgspec.UNSET, attempts=0))
    (folder.path / "cells.jsonl").unlink()
    for one in results:
        if one is not killed:
            folder.append_result(one)
    begun = msgspec.structs.replace(killed, outcome=Outcome.INTERRUPTED, detail="killed", runs=(), seconds=0.0)
    folder.write_running(night_record.RunningAttempt(result=begun, owner=made_by))


@pytest.mark.parametrize(
    ("acts", "fields", "verdict", "code"),
    [
        (("pass",), {}, Verdict.UNKNOWN, ExitCode.UNKNOWN),
        (("fail", "exit=1"), {}, Verdict.FAIL, ExitCode.FAIL),
        (("fail=phantom", "exit=1"), CANARY, Verdict.UNKNOWN, ExitCode.UNKNOWN),
    ],
    ids=["pass", "fail", "canary"],
)
def test_a_night_that_was_killed_is_no_pass_and_what_its_last_run_found_counts(
    tmp_path: Path,
    acts: tuple[str, ...],
    fields: dict[str, Any],
    verdict: Verdict,
    code: ExitCode,
    capsys: pytest.CaptureFixture[str],
) -> None:
    performed(tmp_path, [cell("pass", name="a"), cell(*acts, name="b", **fields), cell("pass", name="c")])
    kill_during(tmp_path, "b")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    found = of_night(tmp_path)
    assert (found.verdict, found.unended) == (verdict, ("n",))
    assert [one.cell.name for one in found.cells] == (["a", "c"] if acts == ("pass",) else ["a", "b", "c"])
    capsys.readouterr()
    assert main(["summary", str(tmp_path)]) == code
    printed = capsys.readouterr().out
    assert "**Has not ended: n.**" in printed
    assert ("**lost-write** in t" in printed) is (verdict is Verdict.FAIL)
    suite = ET.fromstring(to_junit(found))[0]
    assert suite.findall("testcase/error[@message='this night has not ended: it goes on, or was killed']")
    assert suite.get("failures") == str(int(verdict is Verdict.FAIL))
    assert {path: path.read_bytes() for path in before} == before, "a summary changes nothing"


def test_a_night_that_was_killed_between_two_cells_is_no_pass(tmp_path: Path) -> None:
    performed(tmp_path, [cell("pass", name="a"), cell("pass", name="b")])
    kill_during(tmp_path, "b")
    night_record.night_folder(tmp_path, "n").write_running(None)
    found = of_night(tmp_path)
    assert (found.verdict, [one.name for one in found.idle]) == (Verdict.UNKNOWN, ["b"])
    assert "Not begun, or not ended" in to_markdown(found)


@pytest.mark.parametrize(
    ("acts", "marked", "verdict"),
    [
        (("fail",), known(), Verdict.FAIL),
        (("fail",), known("lost-write"), Verdict.PASS),
        (("fail",), known("lost-write", expires=date(2026, 11, 23)), Verdict.FAIL),
        (("fail",), known("lost-write", workload="u"), Verdict.FAIL),
        (("fail",), known("lost-write", "phantom"), Verdict.FAIL),
        (("fail=phantom",), known("lost-write"), Verdict.FAIL),
        (("fail", "fail=phantom"), known("lost-write"), Verdict.FAIL),
        (("fail", "pass"), known("lost-write"), Verdict.PASS),
    ],
)
def test_marked_failures_do_not_count_and_all_others_do(
    tmp_path: Path, acts: tuple[str, ...], marked: KnownFailures, verdict: Verdict
) -> None:
    performed(tmp_path, [cell(*acts, "exit=1", name="c")])
    found = of_night(tmp_path, marked)
    assert found.verdict is verdict
    assert bool(found.cells[0].marks) is (verdict is Verdict.PASS)
    assert len(found.failures) == sum(act.startswith("fail") for act in acts)


def remove_last_run(store: Path) -> None:
    shutil.rmtree(max((store / "test_fake").iterdir()))


def damage_last_verdict(store: Path) -> None:
    (max((store / "test_fake").iterdir()) / "verdict.json").write_text("{")


def skip_last_run(store: Path) -> None:
    """Makes the last run one whose test was skipped, as the log says."""
    path = max((store / "test_fake").iterdir()) / "run.json"
    said = {"status": "error", "problem": "the simulation has no threads"}
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) | said))
    path.with_name("verdict.json").unlink()


def interrupt_last_run(store: Path) -> None:
    skip_last_run(store)
    path = max((store / "test_fake").iterdir()) / "run.json"
    said = {"status": "interrupted", "problem": None}
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) | said))
    folder = night_record.night_folder(store, "n")
    (one,) = folder.read_results()
    (folder.path / "cells.jsonl").unlink()
    folder.append_result(msgspec.structs.replace(one, detail=f"{one.detail}; then interrupted: the budget is used up"))


@pytest.mark.parametrize(
    ("acts", "change", "verdict", "said"),
    [
        (("fail", "unknown"), None, Verdict.UNKNOWN, "neither passed nor failed"),
        (("fail", "none"), None, Verdict.UNKNOWN, "neither passed nor failed"),
        (("fail", "pass"), damage_last_verdict, Verdict.UNKNOWN, "neither passed nor failed"),
        (("fail", "fail=phantom"), damage_last_verdict, Verdict.UNKNOWN, "neither passed nor failed"),
        (("fail", "fail=phantom"), remove_last_run, Verdict.UNKNOWN, "is gone"),
        (("fail", "signal=9"), None, Verdict.UNKNOWN, "it was cut short (killed by SIGKILL)"),
        (("fail", "exit=3"), None, Verdict.UNKNOWN, "it was cut short (exit code 3)"),
        (("fail", "deaf"), None, Verdict.UNKNOWN, "it was cut short (hung: "),
        (("fail", "none", "say=SKIPPED [1] w.py:20: the simulation has no threads"), skip_last_run, Verdict.PASS, ""),
        (("fail", "none"), skip_last_run, Verdict.UNKNOWN, "neither passed nor failed (the simulation has no threads)"),
        (("fail", "none"), interrupt_last_run, Verdict.PASS, ""),
    ],
)
def test_a_known_failure_excuses_nothing_else_of_its_attempt(
    tmp_path: Path, acts: tuple[str, ...], change: Callable[[Path], None] | None, verdict: Verdict, said: str
) -> None:
    ends = ("exit=1",) if acts[-1] in ("unknown", "none", "pass", "fail=phantom") else ()
    performed(tmp_path, [cell(*acts, *ends, name="c", timeout=2.0 if "deaf" in acts else 60.0)])
    if change is not None:
        change(tmp_path)
    found = of_night(tmp_path, known("lost-write"))
    assert (found.verdict, bool(found.cells[0].marks)) == (verdict, verdict is Verdict.PASS)
    assert said in found.cells[0].results[0].detail
    written = to_markdown(found)
    assert "### Known failures" in written
    assert ("repeat the attempt, because in night n " in written) is (verdict is Verdict.UNKNOWN)
    suite = ET.fromstring(to_junit(found))[0]
    assert suite.get("errors") == str(int(verdict is Verdict.UNKNOWN))


def test_a_mark_covers_neither_a_missed_defect_nor_what_has_no_answer(tmp_path: Path) -> None:
    performed(tmp_path / "missed", [cell("fail", "exit=1", **CANARY)])
    assert of_night(tmp_path / "missed", known("lost-write")).verdict is Verdict.FAIL
    performed(tmp_path / "crashed", [cell("fail", "exit=1", name="f"), cell("signal=9")])
    assert of_night(tmp_path / "crashed", known("lost-write")).verdict is Verdict.UNKNOWN


def test_a_failure_whose_run_is_gone_counts_in_spite_of_a_mark(tmp_path: Path) -> None:
    performed(tmp_path, [cell("fail", "exit=1")])
    for path in (tmp_path / "test_fake").iterdir():
        (path / "run.json").unlink()
    assert of_night(tmp_path, known("lost-write")).verdict is Verdict.FAIL


def test_a_night_is_summed_up_as_it_was_when_it_was_the_newest(tmp_path: Path) -> None:
    performed(tmp_path, [cell("fail", "exit=1", name="c")], "first")
    performed(tmp_path, [cell("pass", name="c")], "second")
    assert read_account(tmp_path, None, known()).verdict is Verdict.PASS
    found = read_account(tmp_path, "first", known())
    assert found.verdict is Verdict.FAIL
    assert [one.new for one in found.failures] == [True]
    with pytest.raises(NightError, match="There are: first, second"):
        read_account(tmp_path, "third", known())


def test_each_attempt_is_a_case_with_what_repeats_it(tmp_path: Path) -> None:
    cells = [
        cell("pass"), cell("fail", "exit=1"), cell("fail=phantom", "exit=1", name="marked"), cell("signal=9"),
        cell("unknown", "exit=1"), cell("fail=phantom", "exit=1", name="canary", **CANARY),
    ]  # fmt: skip
    performed(tmp_path, cells)
    for path in (tmp_path / "test_fake").iterdir():
        if b'"lost-write": 1' in (path / "verdict.json").read_bytes():
            (path / "report.html").touch()
    found = of_night(tmp_path, known("phantom"))
    suite = ET.fromstring(to_junit(found))[0]
    assert [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["6", "1", "2", "1"]
    cases = {str(case.get("name")): case for case in suite.findall("testcase")}
    failed = cases["fail-exit=1"]
    said = {one.get("name"): one.get("value") for one in failed.findall("properties/property")}
    (result,) = next(one.results for one in found.cells if one.cell.name == "fail-exit=1")
    assert said == {
        "seed": str(result.seed), "nemesis": "none", "cluster": "sim", "outcome": "fail", "verdict": "fail",
        "anomaly": "lost-write", "run": result.runs[0], "report": f"{result.runs[0]}/report.html",
        "command": result.command,
    }  # fmt: skip
    assert (tmp_path / str(said["report"])).is_file()
    others = [case.find("properties/property[@name='report']") for case in cases.values() if case is not failed]
    assert others == [None] * 5, "a run without a page has none"
    failure = failed.find("failure")
    assert failure is not None
    assert failure.get("message") == "lost-write"
    assert result.command in str(failure.text)
    skipped = cases["marked"].find("skipped")
    assert skipped is not None
    assert str(skipped.get("message")).startswith("known until 2026-11-24")
    assert cases["signal=9"].find("error") is not None
    assert cases["canary"].find("failure") is cases["canary"].find("error") is None


def test_a_case_has_the_operations_of_its_run_by_kind_and_outcome(tmp_path: Path) -> None:
    performed(tmp_path, [cell("pass")])
    (path,) = tmp_path.glob("test_fake/*/verdict.json")
    kinds = {"add": {"ok": 1381, "fail": 0, "info": 3, "answered": 1381}, "read\u200b": {"ok": 20, "fail": 1}}
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) | {"kinds": kinds}))
    properties = ET.fromstring(to_junit(of_night(tmp_path))).iter("property")
    said = {str(one.get("name")): str(one.get("value")) for one in properties}
    counts = {name.partition("\\")[0]: value for name, value in said.items() if name.startswith("operations")}
    assert counts == {
        "operations": "1,401 ok, 1 failed, 3 unknown",
        "operations.add": "1,381 ok, 3 unknown",
        "operations.read": "20 ok, 1 failed",
    }


def test_what_is_written_first_is_what_broke_and_how_to_repeat_it(tmp_path: Path) -> None:
    performed(tmp_path, [cell("pass"), cell("fail", "exit=1"), cell("signal=9")])
    said = to_markdown(of_night(tmp_path))
    assert said.startswith("## ❌ Night n: fail\n")
    assert said.index("### New failures") < said.index("### Without an answer")
    assert f"**lost-write** in t of {UNKNOWN}" in said
    assert ": 1 of 2 runs" in said  # the one that passed is of the same cell
    assert "**crashed** signal=9: killed by SIGKILL" in said
    assert "--seed=" in said


@given(st.text())
def test_nothing_that_a_run_says_is_markup(words: str) -> None:
    assert "\n" not in escape(words)
    left = escape(words).replace("\\\\", "")
    assert all(left[place - 1] == "\\" for place, char in enumerate(left) if char in "`*_[]<>|~#&@!")
    fence, line, end = make_code_block(words).split("\n")
    assert fence == end
    assert set(fence) == {"`"}
    assert fence not in line
    span = make_code_span(words or "v")
    ticks = span[: len(span) - len(span.lstrip("`"))]
    assert "\n" not in span
    assert ticks
    assert span.endswith(ticks)
    assert max((len(run) for run in re.findall("`+", span[len(ticks) : -len(ticks)])), default=0) < len(ticks)


@pytest.mark.parametrize("words", [HOSTILE, "\x00\x1b[31m]]>\u202e\uffff", "x" * 100_000])
def test_hostile_words_leave_a_document_that_can_be_read(tmp_path: Path, words: str) -> None:
    one, at = cell("pass"), LAST
    made = recorded_night(tmp_path, at, [one], [ended(one, Outcome.CRASHED, detail=words)])
    found = read_account(tmp_path, made.path.name, known())
    assert ET.fromstring(to_junit(found))[0].get("errors") == "1"
    assert "<" not in to_markdown(found).replace("\\<", "")


def test_a_version_does_not_leave_its_code_span(tmp_path: Path) -> None:
    performed(tmp_path, [cell("pass")])
    folder = night_record.night_folder(tmp_path, "n")
    folder.write(msgspec.structs.replace(folder.read(), version="x`<img src=x>`"))
    assert ", at `` x`<img src=x>` ``." in to_markdown(of_night(tmp_path))


def test_low_sensitivity_and_missed_violations_are_named(tmp_path: Path) -> None:
    performed(tmp_path, [cell("pass", name="a|b"), cell("fail", "exit=1")])
    assert "sensitivity" not in to_markdown(of_night(tmp_path))
    fine = PlantedShare(
        anomaly="set-lost", meaning="", claims=40, exposed=40, planted=30, caught=30, planted_exposed=30,
        caught_exposed=30,
    )  # fmt: skip
    low = msgspec.structs.replace(fine, anomaly="stale-read", caught=15, missed="value <7> of k: no read followed")
    escaped = msgspec.structs.replace(fine, anomaly="set-phantom", caught_exposed=29, escaped=("s: element 3",))
    measured = Sensitivity(
        shares=(fine, low, escaped), not_planted=(), seed=0, seconds=1.0, judging_seconds=1.0, copies=90
    )
    (passed,) = (one for one in of_night(tmp_path).cells if one.cell.name == "a|b")
    path = tmp_path / passed.results[0].runs[0] / "sensitivity.json"
    path.write_bytes(msgspec.json.encode(measured))
    said = to_markdown(of_night(tmp_path))
    assert "- a\\|b: stale-read 50 % of 30 (33 to 67 %); missed, for example: value \\<7\\> of k" in said
    assert "- a\\|b: set-phantom: s: element 3" in said
    assert (
        said.index("### New failures") < said.index("### Low sensitivity") < said.index("### Violations that a check")
    )
    assert "set-lost" not in said
    path.write_bytes(b'{"shares": 1}')
    assert "sensitivity" not in to_markdown(of_night(tmp_path)), "a damaged file counts as none"
    measurement = night_record.Measurement(
        cell="a|b", run="t/r", started="", seconds=0.0, detail="not begun, because <why>"
    )
    night_record.night_folder(tmp_path, "n").append_measurement(measurement)
    said = to_markdown(of_night(tmp_path))
    assert "### Sensitivity that is not known\n\n- a\\|b: not begun, because \\<why\\>" in said
    path.write_bytes(msgspec.json.encode(measured))
    assert "that is not known" not in to_markdown(of_night(tmp_path)), "it was measured later"


def test_the_command_writes_both_and_has_the_exit_code_of_the_night(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, marks = tmp_path / "store", tmp_path / "known.toml"
    performed(store, [cell("pass"), cell("fail", "exit=1")])
    assert main(["summary", str(store)]) == ExitCode.FAIL
    assert "New failures" in capsys.readouterr().out
    marks.write_text(
        f'[[failure]]\nsystem = "{UNKNOWN}"\nworkload = "t"\nanomalies = ["lost-write"]\nreason = "r"\n'
        "expires = 2999-01-01\n"
    )
    paths = [f"--markdown={tmp_path / 'm.md'}", f"--junit={tmp_path / 'j.xml'}", f"--known={marks}"]
    assert main(["summary", str(store), *paths]) == ExitCode.PASS
    assert capsys.readouterr().out == ""
    assert "### Known failures" in (tmp_path / "m.md").read_text()
    assert ET.parse(tmp_path / "j.xml").getroot().get("skipped") == "1"
    assert main(["summary", str(store), *paths]) == ExitCode.PASS, "its own files are replaced"
    for option, other in (("junit", "j.xml"), ("markdown", "m.md")):
        (tmp_path / "notes").write_text("mine")
        given = [f"--{option}={tmp_path / 'notes'}", *(one for one in paths if other not in one)]
        assert main(["summary", str(store), *given]) == ExitCode.USAGE
        assert (tmp_path / "notes").read_text() == "mine"
    marks.write_text(marks.read_text().replace("2999", "1999"))
    assert main(["summary", str(store), f"--known={marks}"]) == ExitCode.FAIL
    marks.write_text("[[failure]]\n")
    assert main(["summary", str(store), f"--known={marks}"]) == ExitCode.USAGE
    assert main(["summary", str(tmp_path)]) == ExitCode.USAGE
    assert main(["summary", str(store), "--night=other"]) == ExitCode.USAGE
    assert main(["summary", str(tmp_path / "none")]) == ExitCode.USAGE


@pytest.mark.parametrize("share", ["0/2", "3/2", "2", "a/b", "1/0", "1/-2", "/"])
def test_what_is_no_part_is_wrong_usage(share: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["nightly", "--budget=1min", f"--split={share}"])
    assert left.value.code == ExitCode.USAGE
    assert "the second of five" in capsys.readouterr().err


def record_part(store: Path, folder: str, part: int, parts: int, day: int = 28, version: str = "v1") -> None:
    """Leaves the record of a part of the night ``weekly`` whose only cell passed."""
    recorded(
        store, folder, [result(folder, Outcome.PASS)], started=f"2026-11-{day}T01:00:00+00:00", ended="",
        cells=(cell("pass", name=folder),), attempts=1, whole="weekly" if parts > 1 else "", part=part, parts=parts,
        version=version,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("others", "missing", "named"),
    [
        ([("weekly.1of3", 1, 3, 21), ("weekly.2of3", 2, 3, 21), ("weekly.3of3", 3, 3, 21)], (2,), 3),
        ([("weekly", 1, 1, 27)], (2,), 1),
        ([("weekly.2of2", 2, 2, 21)], (2,), 1),
        ([("weekly.2of2", 2, 2, 28, "v2")], (1,), 1),
        ([("weekly.2of2", 2, 2, 27)], (), 0),
    ],
    ids=["another split", "undivided", "last week", "another version", "yesterday"],
)
def test_a_part_of_another_night_of_this_name_does_not_stand_in_for_a_missing_one(
    tmp_path: Path, others: list[Any], missing: tuple[int, ...], named: int
) -> None:
    record_part(tmp_path, "weekly.1of2", 1, 2)
    for other in others:
        record_part(tmp_path, *other)
    found = of_night(tmp_path)
    assert (found.missing, len(found.strays)) == (missing, named)
    assert found.verdict is (Verdict.UNKNOWN if named else Verdict.PASS)
    problems = read_store(tmp_path, {}).problems
    said = [to_markdown(found), to_junit(found).decode(), " ".join(problems)]
    assert [" belongs to another night than " in text for text in said] == [bool(named)] * 3
    alone = read_account(tmp_path, "weekly", known(), "weekly.1of2")
    assert (alone.verdict, alone.strays, [one.cell.name for one in alone.cells]) == (Verdict.PASS, (), ["weekly.1of2"])


def test_no_text_of_a_night_makes_its_junit_file_invalid(tmp_path: Path) -> None:
    performed(tmp_path, [cell("pass")], "n")
    folder = night_record.night_folder(tmp_path, "n")
    odd = '\x01\x02<&"\ufffe'
    night = folder.read()
    cells = [msgspec.structs.replace(one, name=odd, workload=odd) for one in night.cells]
    folder.write(msgspec.structs.replace(night, started=odd, host=odd, version=odd, cells=tuple(cells)))
    suite = ET.fromstring(to_junit(read_account(tmp_path, "n", known())))[0]
    assert suite.get("timestamp") == '\ufffd\ufffd<&"\ufffd'


@pytest.mark.parametrize("began", ["2130-01-01T00:00:00+00:00", "1970-01-01T00:00:09+00:00", "yesterday"])
def test_a_night_that_was_begun_while_the_clock_was_wrong_is_not_taken_for_the_newest(
    tmp_path: Path, began: str
) -> None:
    performed(tmp_path, [cell("pass")], "wrong")
    performed(tmp_path, [cell("fail", "exit=1")], "today")
    assert of_night(tmp_path).name == "today"
    folder = night_record.night_folder(tmp_path, "wrong")
    folder.write(msgspec.structs.replace(folder.read(), started=began))
    with pytest.raises(NightError, match=f"the night wrong began at {re.escape(began)}.*--night=ID"):
        of_night(tmp_path)
    assert [read_account(tmp_path, name, known()).verdict for name in ("wrong", "today")] == [
        Verdict.PASS, Verdict.FAIL,
    ]  # fmt: skip


def test_a_night_that_ended_by_a_wrong_clock_is_not_taken_for_the_newest(tmp_path: Path) -> None:
    ends = "2130-01-01T00:00:00+00:00"
    performed(tmp_path, [cell("pass")], "wrong")
    folder = night_record.night_folder(tmp_path, "wrong")
    folder.write(msgspec.structs.replace(folder.read(), ended=ends))
    for find in (of_night, lambda store: night_runner.find_resumable_night(store, None)):
        with pytest.raises(NightError, match=f"the night wrong ended at {re.escape(ends)}.*--night=ID"):
            find(tmp_path)
    assert [ends in problem for problem in read_store(tmp_path, {}).problems] == [True]


def test_the_newest_night_is_that_which_ended_last_or_still_goes_on(tmp_path: Path) -> None:
    """The clock was behind when the failed night began, and was set right before its end."""
    times = {"passed": ("01:00", "02:00"), "failed": ("00:00", "03:00"), "killed": ("00:30", None)}
    for name, (began, ends) in times.items():
        performed(tmp_path, [cell("fail", "exit=1") if name == "failed" else cell("pass")], name)
        folder, day = night_record.night_folder(tmp_path, name), "2026-11-24T"
        folder.write(
            msgspec.structs.replace(
                folder.read(),
                started=f"{day}{began}:00+00:00",
                ended=f"{day}{ends}:00+00:00" if ends else msgspec.UNSET,
            )
        )
        if name == "failed":
            assert (of_night(tmp_path).name, of_night(tmp_path).verdict) == ("failed", Verdict.FAIL)
            assert find_newest_elsewhere(tmp_path) == ("failed", "failed")
    assert of_night(tmp_path).name == "killed"
    assert find_newest_elsewhere(tmp_path) == ("killed", "killed")


def find_newest_elsewhere(store: Path) -> tuple[str, str]:
    """Returns the names of the newest night on the page, and of the night that is resumed."""
    tonight = read_store(store, {}).tonight
    assert tonight is not None
    return tonight.name, night_runner.find_resumable_night(store, None).name


def test_nights_of_two_time_zones_are_in_the_order_of_time(tmp_path: Path) -> None:
    for name in ("first", "second"):
        performed(tmp_path, [cell("pass")], name)
    for name, began in (("first", "2026-11-28T09:00:00+09:00"), ("second", "2026-11-28T01:00:00+00:00")):
        folder = night_record.night_folder(tmp_path, name)
        folder.write(msgspec.structs.replace(folder.read(), started=began))
    assert of_night(tmp_path).name == "second"
