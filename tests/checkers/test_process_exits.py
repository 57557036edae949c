"""A server whose process ended by itself, and the nearest runs in which one is not there for a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Finding
from assay.checkers.servers.process_exits import PROCESSES

from helpers.judging import TABLES, judge
from helpers.log_histories import Book, Row, write

SECOND = 1_000_000_000
CRASH: Row = {"look": 0, "time": 12 * SECOND, "ended": 12 * SECOND, "what": "crashed", "node": "n2"}


def seen(*nodes: str, ended: tuple[str, ...] = ()) -> list[Row]:
    """The harness's rows of the servers, 30 s after the start."""
    rows = [{"what": "process", "node": node} for node in nodes] + [{"what": "ended", "node": node} for node in ended]
    return [{"look": 0, "time": 30 * SECOND, "ended": 30 * SECOND + 1, **row} for row in rows]


def fault(*phases: str, name: str = "kill", stage: str | None = None, **impact: bool | None) -> list[Row]:
    does: dict[str, Any] = {"ends_process": True, "damages_files": False, **impact}
    rows = [{"id": 1, "fault": name, "targets": '["n2"]', "phase": p, "time": at, "detail": "{}"} | does
            for at, p in enumerate(phases)]  # fmt: skip
    return [{**row, "stage": stage if row["phase"] == "failed" else None} for row in rows]


def found(folder: Path, looks: list[Row], faults: list[Row] | None = None) -> list[Finding]:
    book = Book()
    book.send([1], 0, (0, 1))
    history = write(folder, book.rows, looks=looks, faults=faults or [])
    contract = Contract(forbidden=("unexpected-exit",), minimum_operations=1)
    judged = judge(history, contract, families=(*TABLES, PROCESSES))
    return [one for one in judged.findings if one.anomaly == "unexpected-exit"]


@pytest.mark.parametrize(
    "faults",
    [
        [],
        fault("intended", "injected", "healed"),
        fault("intended", "injected", ends_process=False),
        fault("intended", damages_files=True),
        fault("intended", "failed", stage="target", damages_files=True),
    ],
    ids=["no fault", "a healed kill", "a partition that stays", "damage not come to", "damage without a target"],
)
def test_a_process_that_ended_by_itself_is_reported_once(tmp_path: Path, faults: list[Row]) -> None:
    (finding,) = found(tmp_path / "gone", seen("n1", "n3", ended=("n2",)), faults)
    assert finding.key == "n2"
    assert finding.claim.startswith("The process of n2 had ended by 30.000 s, although no fault was in force that ends")
    (finding,) = found(tmp_path / "broken", [CRASH, *seen("n1", "n3", ended=("n2",))], faults)
    assert finding.key == "n2"
    assert finding.claim.startswith("The process of n2 crashed at 12.000 s, although no fault had damaged")


@pytest.mark.parametrize(
    "faults",
    [
        fault("intended", "injected"),
        fault("intended", "injected", "failed", stage="heal"),
        fault("intended", "failed", stage="inject"),
        fault("intended", "injected", "healed", damages_files=True),
        fault("intended", "injected", "healed", name="of the user's own", damages_files=None),
    ],
    ids=["never healed", "could not be healed", "half done", "files changed", "perhaps changed"],
)
def test_a_process_that_a_fault_may_have_ended_is_not(tmp_path: Path, faults: list[Row]) -> None:
    assert found(tmp_path, seen("n1", ended=("n2",)), faults) == []


@pytest.mark.parametrize(("damages", "many"), [(False, 1), (True, 0), (None, 0)])
def test_one_that_broke_down_as_it_was_started_again_ended_by_itself(
    tmp_path: Path, damages: bool | None, many: int
) -> None:
    """The heal did not come about for that very reason; only a file that a fault changed excuses it."""
    faults = fault("intended", "injected", "failed", stage="heal", damages_files=damages)
    assert len(found(tmp_path, [CRASH, *seen("n1", "n3", ended=("n2",))], faults)) == many


@pytest.mark.parametrize(
    ("targets", "many"),
    [('["n2"]', 0), ('["n1", "n2"]', 0), ('["n1"]', 1), ('["n22"]', 1), ("[]", 0), ("n2", 0), ("whom?", 0)],
)
@pytest.mark.parametrize("gone", ["n2", "n2/agent"])
def test_a_fault_that_was_not_healed_excuses_those_alone_that_it_struck(
    tmp_path: Path, targets: str, many: int, gone: str
) -> None:
    """All of them where it is not known whom."""
    faults = [{**row, "targets": targets} for row in fault("injected", "failed", stage="heal")]
    faults += [{**row, "id": 2, "targets": "[]"} for row in fault("intended", "failed", stage="target")]
    assert len(found(tmp_path, seen("n1", "n3", ended=(gone,)), faults)) == many


def test_two_faults_excuse_whom_each_of_them_struck_and_one_that_moved_on_both(tmp_path: Path) -> None:
    of_both = [row | {"targets": f'["n{number}"]'} for number, row in enumerate(fault("injected", "failed"), start=2)]
    of_one = [row | {"id": 2, "targets": '["n4"]'} for row in fault("injected")]
    healed = [row | {"id": 3, "targets": '["n5"]'} for row in fault("injected", "healed")]
    gone = seen("n1", ended=("n2", "n3", "n4", "n5"))
    assert [one.key for one in found(tmp_path, gone, of_both + of_one + healed)] == ["n5"]


def test_servers_that_are_all_there_are_as_they_should_be(tmp_path: Path) -> None:
    assert found(tmp_path, seen("n1", "n2", "n3")) == []


def test_a_history_without_a_census_is_not_doubted_for_it(tmp_path: Path) -> None:
    book = Book()
    book.send([1], 0, (0, 1))
    judgement = judge(write(tmp_path, book.rows), Contract(minimum_operations=1))
    assert "unexpected-exit" not in judgement.forbidden
    assert not any("unexpected-exit" in reason for reason in judgement.unknown)
