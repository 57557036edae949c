"""A night that has lost an outcome is no pass, however often it is resumed and whatever the repeated attempts show."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from assay.checkers.judging.verdict import Verdict
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.nightly import night_record, night_runner
from assay.harness.nightly.carry_over import carry
from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.harness.nightly.night_record import AttemptResult, Night, NightError, NightFolder
from assay.harness.nightly.night_verdict import NightAccount, read_account
from assay.harness.nightly.store_index import read_store
from assay.reports.index.known import KnownFailures

from helpers.night_cells import cell, gone_on_with, recorded, result

Lines = list[bytes]
NAME = "2026-11-21"
CELLS = (cell("pass", name="a"), cell("pass", name="b"))
RESULTS = (
    result("a", Outcome.PASS, started="T1", log="logs/0001-a.log"),
    result("b", Outcome.FAIL, started="T2", log="logs/0002-b.log"),
)
"""The attempt of ``b`` had failed. Its repetition passes."""


def make_night(store: Path, results: Sequence[AttemptResult] = RESULTS, **fields: object) -> NightFolder:
    """Leaves the record of a night that is over, with the logs of its attempts."""
    recorded(store, NAME, results, **{"cells": CELLS, "ended": "T9", "attempts": len(results)} | fields)
    folder = night_record.night_folder(store, NAME)
    (folder.path / "logs").mkdir()
    for one in results:
        (folder.path / one.log).write_text(one.cell)
    return folder


def change_lines(folder: NightFolder, change: Callable[[Lines], Lines]) -> None:
    path = folder.path / "cells.jsonl"
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def drop_last(lines: Lines) -> Lines:
    return lines[:-1]


def drop_first(lines: Lines) -> Lines:
    return lines[1:]


def drop_all(lines: Lines) -> Lines:
    return []


def blank_last(lines: Lines) -> Lines:
    return [*lines[:-1], b"\n"]


def damage_last(lines: Lines) -> Lines:
    return [*lines[:-1], b"\0" * 9 + b"\n"]


def cut_last(lines: Lines) -> Lines:
    return [*lines[:-1], lines[-1][:-40]]


def resume(folder: NightFolder, night: Night | None = None) -> list[AttemptResult]:
    return gone_on_with(folder.path.parents[1], night or folder.read())


def get_account(folder: NightFolder) -> NightAccount:
    return read_account(folder.path.parents[1], NAME, KnownFailures())


@pytest.mark.parametrize("change", [drop_last, drop_all, blank_last, damage_last, cut_last])
def test_a_repetition_does_not_replace_a_lost_failure(
    tmp_path: Path, change: Callable[[Lines], Lines], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_night(tmp_path)
    assert get_account(folder).verdict is Verdict.FAIL
    change_lines(folder, change)
    for _ in range(2):
        resume(folder)
        found = get_account(folder)
        assert (found.verdict, len(found.lost), found.unended) == (Verdict.UNKNOWN, 1, ())
        assert {one.cell.name: one.outcomes[-1] for one in found.cells} == {"a": Outcome.PASS, "b": Outcome.PASS}
    assert main(["summary", str(tmp_path), f"--junit={tmp_path / 'junit.xml'}"]) == ExitCode.UNKNOWN
    assert "### Outcomes that are lost" in capsys.readouterr().out
    (error,) = ET.parse(tmp_path / "junit.xml").findall(".//error")
    assert error.get("message") == str(found.lost[0])
    assert str(found.lost[0]) in read_store(tmp_path, {}).problems
    assert main(["index", str(tmp_path), "--check"]) == ExitCode.UNKNOWN
    assert f"cannot be read, and may have failed: {found.lost[0]}" in capsys.readouterr().err
    assert (folder.path / "logs" / "0002-b.log").read_text() == "b", "the log of the lost attempt stays"


def test_the_command_that_resumes_a_night_says_that_an_outcome_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_night(tmp_path, cells=CELLS[:1], attempts=3)
    change_lines(folder, drop_last)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    assert main(["nightly", "--resume", f"--store={tmp_path}", "--yes"]) == ExitCode.UNKNOWN
    said = "2 outcomes had been lost when the night went on, and a repetition does not replace them: begin another"
    assert f"an outcome is lost: {NAME}/cells.jsonl: {said} night\n" in capsys.readouterr().out


def test_a_damaged_line_that_someone_removes_after_the_repetition_is_still_missing(tmp_path: Path) -> None:
    folder = make_night(tmp_path)
    change_lines(folder, damage_last)
    resume(folder)
    change_lines(folder, lambda lines: [lines[0], lines[2]])
    assert [one.what for one in get_account(folder).lost] == ["3 attempts had ended, and 2 are recorded"]
    resume(folder)
    assert get_account(folder).verdict is Verdict.UNKNOWN


def test_a_night_that_has_lost_nothing_is_resumed_and_passes(tmp_path: Path) -> None:
    interrupted = msgspec.structs.replace(RESULTS[1], outcome=Outcome.INTERRUPTED)
    folder = make_night(tmp_path, (RESULTS[0], interrupted))
    for _ in range(2):
        resume(folder)
        assert (get_account(folder).verdict, get_account(folder).lost) == (Verdict.PASS, ())
    assert (folder.read().attempts, folder.read().lost) == (3, 0)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_huge_number_of_attempts_is_damage(tmp_path: Path, numbered: bool) -> None:
    """``numbered``: the number is in the name of a log."""
    log = f"logs/{night_record.MOST_ATTEMPTS - 1}-a.log" if numbered else ""
    folder = make_night(tmp_path, [msgspec.structs.replace(RESULTS[0], log=log or RESULTS[0].log)], cells=CELLS[:1])
    if not numbered:
        folder.write(msgspec.structs.replace(folder.read(), attempts=night_record.MOST_ATTEMPTS, lost=1))
    resume(folder)
    assert get_account(folder).verdict is Verdict.UNKNOWN
    assert folder.read().lost >= night_record.MOST_ATTEMPTS - 2
    folder.write(msgspec.structs.replace(folder.read(), attempts=2**70))
    with pytest.raises(NightError, match="not the record of a night"):
        folder.read()


def test_lines_without_a_log_are_no_loss(tmp_path: Path) -> None:
    recorded(tmp_path, NAME, [result("a", Outcome.PASS)], cells=CELLS, ended="T9", attempts=1)
    folder = night_record.night_folder(tmp_path, NAME)
    resume(folder)
    assert (get_account(folder).verdict, folder.read().lost) == (Verdict.PASS, 0)


def test_the_loss_is_on_the_disk_before_an_attempt_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed night that is killed has no end, although it had one before."""
    folder = make_night(tmp_path)
    change_lines(folder, drop_last)
    with monkeypatch.context() as patch:
        patch.setattr(night_runner, "run_attempt", lambda *_: pytest.exit("killed"))
        with pytest.raises(pytest.exit.Exception):
            resume(folder)
    assert (folder.read().ended, folder.read().lost) == (msgspec.UNSET, 1)
    found = get_account(folder)
    assert (found.verdict, found.unended, len(found.lost)) == (Verdict.UNKNOWN, (NAME,), 1)
    resume(folder)
    assert get_account(folder).verdict is Verdict.UNKNOWN


def test_a_process_that_read_the_record_before_another_one_resumed_the_night_does_not_forget_the_loss(
    tmp_path: Path,
) -> None:
    """The first waits for the answer of its user meanwhile."""
    folder = make_night(tmp_path)
    change_lines(folder, drop_last)
    earlier = folder.read()
    resume(folder)
    resume(folder, earlier)
    assert (get_account(folder).verdict, folder.read().lost) == (Verdict.UNKNOWN, 1)


@pytest.mark.parametrize(
    ("change", "has_logs"), [(drop_last, True), (drop_all, True), (drop_first, True), (drop_first, False)]
)
def test_a_night_that_was_killed_and_has_lost_a_line_is_no_pass(
    tmp_path: Path, change: Callable[[Lines], Lines], has_logs: bool
) -> None:
    """It recorded no number of attempts. But its attempts are numbered, and each has a log."""
    first, second = RESULTS
    if change is drop_first:
        first = msgspec.structs.replace(first, outcome=Outcome.FAIL)
        second = msgspec.structs.replace(second, outcome=Outcome.PASS)
    folder = make_night(tmp_path, (first, second), ended=msgspec.UNSET, attempts=0)
    change_lines(folder, change)
    if not has_logs:  # as in a store that was carried
        for log in (folder.path / "logs").iterdir():
            log.unlink()
    resume(folder)
    found = get_account(folder)
    assert (found.verdict, [one.number for one in found.lost], found.unended) == (Verdict.UNKNOWN, [0], ())
    resume(folder)
    assert get_account(folder).verdict is Verdict.UNKNOWN


def test_a_night_of_an_earlier_version_that_was_resumed_and_killed_and_has_lost_a_line_is_no_pass(
    tmp_path: Path,
) -> None:
    """Its number of attempts is from its first end, so the lines are more, even without the lost one."""
    third = msgspec.structs.replace(RESULTS[1], outcome=Outcome.PASS, attempt=2, started="T3", log="logs/0003-b.log")
    folder = make_night(tmp_path, (*RESULTS, third), attempts=1)
    change_lines(folder, lambda lines: [lines[0], lines[2]])
    assert [one.what for one in get_account(folder).lost] == ["3 attempts had ended, and 2 are recorded"]
    resume(folder)
    assert (get_account(folder).verdict, folder.read().lost) == (Verdict.UNKNOWN, 1)


@contextmanager
def full_disk(method: str) -> Iterator[None]:
    """Rejects what this method of a night's folder writes."""

    def reject(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NightFolder, method, reject)
        yield


def test_outcomes_that_a_full_disk_rejected_are_lost(tmp_path: Path) -> None:
    """Only the last one is in ``running.json``."""
    folder = make_night(tmp_path, (), ended=msgspec.UNSET, cells=(cell("fail", "exit=1", name="a"), *CELLS[1:]))
    with full_disk("append_result"), pytest.raises(NightError, match="these are not recorded: a fail, b pass"):
        resume(folder)
    folder.write(msgspec.structs.replace(folder.read(), cells=CELLS))  # now the first passes, too
    resume(folder)
    assert (get_account(folder).verdict, folder.read().lost) == (Verdict.UNKNOWN, 1)


def test_a_resumed_night_whose_results_found_no_room_has_no_end(tmp_path: Path) -> None:
    failing = cell("fail", "exit=1", name="b")
    interrupted = msgspec.structs.replace(RESULTS[1], outcome=Outcome.INTERRUPTED)
    folder = make_night(tmp_path, (RESULTS[0], interrupted), cells=(CELLS[0], failing))
    with full_disk("append_result"), pytest.raises(NightError, match="not recorded: b fail"):
        resume(folder)
    assert get_account(folder).verdict is Verdict.FAIL, "the failure of the attempt that running.json names"
    folder.write_running(None)
    assert get_account(folder).verdict is Verdict.UNKNOWN


def test_a_full_disk_rejects_the_number_of_lost_outcomes_and_ends_the_resumed_night(tmp_path: Path) -> None:
    folder = make_night(tmp_path)
    change_lines(folder, drop_last)
    said = f"the disk of {re.escape(str(folder.path))} is full; make room"
    with full_disk("write"), pytest.raises(NightError, match=said):
        resume(folder)
    assert len(folder.read_results()) == 1
    assert get_account(folder).verdict is Verdict.UNKNOWN


def test_a_part_of_a_divided_night_keeps_its_loss(tmp_path: Path) -> None:
    for part, outcome in ((1, Outcome.FAIL), (2, Outcome.PASS)):
        (only,) = [one for number, one in enumerate(CELLS, 1) if number == part]
        recorded(
            tmp_path, f"n.{part}of2", [result(only.name, outcome)], started="2026-11-28T01:00:00+00:00", ended="T9",
            cells=(only,), attempts=1, whole="n", part=part, parts=2,
        )  # fmt: skip
    folder = night_record.night_folder(tmp_path, "n.1of2")
    change_lines(folder, drop_all)
    resume(folder, night_runner.find_resumable_night(tmp_path, "n", (1, 2)))
    found = read_account(tmp_path, "n", KnownFailures())
    assert (found.verdict, found.missing, len(found.lost)) == (Verdict.UNKNOWN, (), 1)


def test_a_record_that_is_carried_keeps_the_loss(tmp_path: Path) -> None:
    folder = make_night(tmp_path / "store")
    change_lines(folder, drop_last)
    carry(tmp_path / "store", tmp_path / "past")
    resume(folder)
    carry(tmp_path / "store", tmp_path / "past")
    carried = night_record.night_folder(tmp_path / "past", NAME)
    assert get_account(carried).verdict is Verdict.UNKNOWN
    resume(carried)
    assert (get_account(carried).verdict, carried.read().lost) == (Verdict.UNKNOWN, 1)


def test_a_carried_failure_is_not_replaced_by_the_record_that_has_lost_it(tmp_path: Path) -> None:
    folder = make_night(tmp_path / "store")
    carry(tmp_path / "store", tmp_path / "past")
    change_lines(folder, drop_last)
    resume(folder)
    refused: list[str] = []
    carry(tmp_path / "store", tmp_path / "past", refused=refused.append)
    assert "continue one night differently" in refused[0]
    assert get_account(night_record.night_folder(tmp_path / "past", NAME)).verdict is Verdict.FAIL


@pytest.mark.parametrize("file", ["shrunk.jsonl", "measured.jsonl"])
def test_a_damaged_line_about_shrinking_or_measuring_is_named(tmp_path: Path, file: str) -> None:
    folder = make_night(tmp_path, RESULTS[:1], cells=CELLS[:1])
    (folder.path / file).write_text('{"cell":"a"\n')
    assert get_account(folder).verdict is Verdict.PASS
    (problem,) = read_store(tmp_path, {}).problems
    assert problem.startswith(f"{NAME}/{file}, line 1, of cell a: damaged")
