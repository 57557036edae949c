"""Tests that what a system said was broken at an instant is a finding with its own words."""

from __future__ import annotations

from pathlib import Path

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Judgement, Verdict

from helpers.judging import judge
from helpers.log_histories import Book, Row, write

SECOND = 1_000_000_000
ASSERTED: Row = {"look": 0, "time": 9 * SECOND, "ended": 9 * SECOND, "what": "asserted", "invariant": "agree"}
BROKEN: Row = ASSERTED | {"what": "broken", "claim": "n2 has another record.", "node": "n2", "key": "orders-0"}


def judged(folder: Path, *looks: Row) -> Judgement:
    book = Book()
    book.send([1], 0, (0, 1))
    contract = Contract(forbidden=("broken-invariant",), minimum_operations=1)
    return judge(write(folder, book.rows, looks=[*looks, ASSERTED | {"assertions": 7}]), contract)


def test_each_that_is_broken_is_a_finding_and_cuts_the_run_short(tmp_path: Path) -> None:
    found = judged(tmp_path, BROKEN | {"position": 5, "epoch": 2})
    assert found.verdict is Verdict.FAIL
    (finding,) = found.findings
    assert finding.claim == "At 9.000 s on n2, the invariant agree was broken: n2 has another record."
    assert (finding.key, finding.time, finding.about) == ("orders-0", 9 * SECOND, ("offset 5 of orders-0",))
    assert "the run was ended at once, because an invariant was broken" in found.unknown


def test_one_that_held_is_examined_and_nothing_else(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert not found.findings
    assert not [reason for reason in found.unknown if "invariant" in reason]
    assert [one.rows for one in found.examined if one.check == "broken-invariant"] == [7]


def test_what_it_is_about_is_an_epoch_or_nothing_where_no_offset_is_known(tmp_path: Path) -> None:
    about = [one.about for one in judged(tmp_path, BROKEN | {"epoch": 2}).findings]
    assert about == [("leader epoch 2 of orders-0",)]
    assert [one.about for one in judged(tmp_path / "b", BROKEN | {"key": None}).findings] == [()]
