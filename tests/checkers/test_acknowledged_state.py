"""Tests what servers had when a send was acknowledged: too little, and the nearest runs in which that is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Finding, Verdict

from helpers.judging import judge
from helpers.log_histories import Book, Row, write

SECOND = 1_000_000_000
ANOMALY = "early-acknowledgement"


def seen(what: str, **given: object) -> Row:
    return {"look": 0, "time": 9 * SECOND, "ended": 9 * SECOND, "what": what, **given}


LACKING = seen("lacking", key="orders-0", node="n2", position=7, log_end=5)
UNDURABLE = seen("undurable", key="orders-0", node="n3", position=8, log_end=8)
LOOKED = seen("inspected", acknowledgements=40)


def fault(name: str, phase: str = "injected", **impact: bool | None) -> Row:
    does = {"loses_unsynced": False, "damages_files": False, **impact}
    return {"id": 1, "fault": name, "targets": '["n2"]', "phase": phase, "time": 1, "detail": "{}", **does}


def found(folder: Path, looks: list[Row], faults: list[Row] | None = None, unflushed: int = 0) -> list[Finding]:
    book = Book()
    book.send([1], 0, (0, 1))
    contract = Contract(forbidden=(ANOMALY,), minimum_operations=1, unflushed=unflushed)
    history = write(folder, book.rows, looks=[*looks, LOOKED], faults=faults or [])
    return [one for one in judge(history, contract).findings if one.anomaly == ANOMALY]


def test_each_member_that_had_too_little_is_reported_with_the_first_offset(tmp_path: Path) -> None:
    later = LACKING | {"time": 11 * SECOND, "position": 9, "log_end": 6}
    one, other = found(tmp_path, [later, LACKING, UNDURABLE], [fault("power-loss", loses_unsynced=True)])
    assert one.claim == (
        "Offset 7 of orders-0 was acknowledged by 9.000 s, when the log of n2, a member of the in-sync set, ended at 5."
    )
    assert other.claim == (
        "Offset 8 of orders-0 was acknowledged by 9.000 s, when n3, a member of the in-sync set, surely had only the "
        "records below 8 on disk, and the rest in memory, although each message is flushed."
    )


@pytest.mark.parametrize(
    ("faults", "unflushed"),
    [
        ([fault("corrupt", damages_files=True)], 0),
        ([fault("corrupt", "failed", damages_files=True) | {"stage": "inject"}], 0),
        ([fault("of the user's own", damages_files=None)], 0),
        ([fault("power-loss", loses_unsynced=True)], 9),
    ],
    ids=["files were changed", "half of them were", "perhaps they were", "unflushed records may go"],
)
def test_a_fault_that_may_have_taken_it_is_an_excuse(tmp_path: Path, faults: list[Row], unflushed: int) -> None:
    assert found(tmp_path, [LACKING, UNDURABLE], faults, unflushed) == []


@pytest.mark.parametrize(
    ("faults", "unflushed"),
    [
        ([fault("corrupt", "intended", damages_files=True)], 0),
        ([fault("corrupt", "failed", damages_files=True) | {"stage": "target"}], 0),
        ([fault("kill")], 9),
        ([fault("power-loss", "failed", loses_unsynced=True) | {"stage": "trigger"}], 9),
    ],
    ids=["files were to be changed", "no file to change was found", "no power was lost", "power was to be lost"],
)
def test_a_fault_that_cannot_have_taken_it_is_none(tmp_path: Path, faults: list[Row], unflushed: int) -> None:
    assert len(found(tmp_path, [LACKING], faults, unflushed)) == 1


def test_where_no_one_can_look_in_no_one_doubts(tmp_path: Path) -> None:
    book = Book()
    book.send([1], 0, (0, 1))
    judgement = judge(write(tmp_path, book.rows), Contract(forbidden=("duplicate", ANOMALY), minimum_operations=1))
    assert not any(ANOMALY in reason for reason in judgement.unknown)


def test_a_run_of_which_only_servers_are_known_is_not_passed(tmp_path: Path) -> None:
    looks = [LOOKED, seen("process", node="n1")]
    judgement = judge(write(tmp_path, [], looks=looks), Contract(minimum_operations=0, minimum_after_heal=0))
    assert judgement.verdict is Verdict.UNKNOWN
    assert "no check applies to this history" in judgement.unknown
