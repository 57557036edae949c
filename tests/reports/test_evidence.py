"""The lines of a finding's operations and faults: times can be told apart, and links are named."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from assay.checkers.judging.contract import forbid
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Finding
from assay.reports.evidence import look_up_evidence, look_up_operations
from assay.reports.failure_text import FailureFooter, describe
from assay.reports.operations import (
    FirstOccurrence,
    find_earliest,
    find_first_occurrence,
    list_first_operations,
    sort_for_display,
)

from helpers.judging import judge
from helpers.log_histories import Book, write


@pytest.mark.parametrize(
    ("unit", "first", "second"),
    [
        (1_000_000, "1.000 - 1.001 s", "1.002 - 1.003 s"),
        (1_000, "0.001000 - 0.001001 s", "0.001002 - 0.001003 s"),
    ],
)
def test_times_have_as_many_digits_as_tell_them_apart(tmp_path: Path, unit: int, first: str, second: str) -> None:
    book = Book()
    book.send([1], 0, (1000, 1001), process=1)
    book.send([2], 0, (1002, 1003), process=2)
    rows = [{**row, "call": row["call"] // 10**6 * unit, "ret": row["ret"] // 10**6 * unit} for row in book.rows]
    folder = write(tmp_path / "history", rows)
    judgement = judge(folder, forbid("inconsistent-offset"))
    lines = look_up_evidence(open_history(folder), judgement).operations
    assert first in lines[0]
    assert second in lines[1]


@pytest.mark.parametrize("values", [1, 200])
def test_what_became_of_an_operation_is_shown_however_long_its_argument_is(tmp_path: Path, values: int) -> None:
    book = Book()
    book.send([1], 0, (1000, 1001), process=1)
    book.send([2], 0, (1002, 1003), process=2)
    folder = write(tmp_path / "history", book.rows)
    judgement = judge(folder, forbid("inconsistent-offset"))
    ops = open_history(folder).table("ops")
    said = pa.array([json.dumps([*range(values)])] * len(ops))
    ops = ops.set_column(ops.schema.get_field_index("argument"), "argument", said)
    text = describe(judgement, look_up_operations(ops, judgement), FailureFooter())
    assert "by process 1, 1.000 - 1.001 s: ok" in text
    assert "by process 2, 1.002 - 1.003 s: ok" in text


def test_the_faults_between_cause_and_effect_say_what_they_cut(tmp_path: Path) -> None:
    book = Book()
    book.send([1], 0, (1_000, 1_001), process=1)
    book.send([2], 0, (2_000, 2_001), process=2)
    detail = '{"evidence": {"cut": ["n1|n2", "n1|zk1"], "zookeeper": true}}'
    faults = [
        {"id": 1, "fault": "partition", "targets": '["n1"]', "phase": phase, "time": time, "detail": detail}
        for phase, time in (("injected", 1_500_000_000), ("healed", 1_700_000_000))
    ]
    folder = write(tmp_path / "history", book.rows, faults=faults)
    judgement = judge(folder, forbid("inconsistent-offset"))
    text = describe(judgement, look_up_evidence(open_history(folder), judgement), FailureFooter())
    at = text.splitlines().index("  faults in force between 1.000 and 2.001 s:")
    line = text.splitlines()[at + 1]
    assert line == "    partition n1 (cut n1 from n2 and zk1, ZooKeeper included) from 1.500 s at the latest to 1.700 s"


def test_the_faults_in_force_and_the_time_between_are_told_apart(tmp_path: Path) -> None:
    book = Book()
    book.send([1], 0, (1_000, 1_001), process=1)
    book.send([2], 0, (2_000, 2_001), process=2)
    texts = []
    for number, injected in enumerate((1_500_000_000, 1_000_400_000)):
        faults = [
            {"id": 1, "fault": "kill", "targets": '["n1"]', "phase": phase, "time": time, "detail": "{}"}
            for phase, time in (("injected", injected), ("healed", 1_700_000_000))
        ]
        folder = write(tmp_path / str(number), book.rows, faults=faults)
        judgement = judge(folder, forbid("inconsistent-offset"))
        texts.append(describe(judgement, look_up_evidence(open_history(folder), judgement), FailureFooter()))
    assert "between 1.000 and 2.001 s:\n    kill n1 from 1.500 s at the latest to 1.700 s" in texts[0]
    assert "between 1.000000 and 2.001000 s:\n    kill n1 from 1.000400 s at the latest to 1.700000 s" in texts[1]


@pytest.mark.parametrize(
    ("healed", "last"), [(900, "    last: kill n2, healed at 0.900 s"), (990, "    last: kill n1, healed at 0.990 s")]
)
def test_if_no_fault_was_in_force_the_last_one_before_is_named(tmp_path: Path, healed: int, last: str) -> None:
    book = Book()
    book.send([1], 0, (1_000, 1_001), process=1)
    book.send([2], 0, (2_000, 2_001), process=2)
    faults = [
        {"id": number, "fault": "kill", "targets": f'["n{number}"]', "phase": phase, "time": time * 1_000_000}
        | {"detail": "{}"}
        for number, times in ((1, (300, healed if healed == 990 else 500)), (2, (200, 900)), (3, (2_100, 2_200)))
        for phase, time in zip(("injected", "healed"), times, strict=True)
    ]
    folder = write(tmp_path / "history", book.rows, faults=faults)
    judgement = judge(folder, forbid("inconsistent-offset"))
    lines = describe(judgement, look_up_evidence(open_history(folder), judgement), FailureFooter()).splitlines()
    assert lines[lines.index("  faults in force between 1.000 and 2.001 s: none") + 1] == last


def test_a_fault_of_one_process_names_it(tmp_path: Path) -> None:
    book = Book()
    book.send([1], 0, (1_000, 1_001), process=1)
    book.send([2], 0, (2_000, 2_001), process=2)
    faults = [
        {"id": 1, "fault": "kill", "targets": '["n1"]', "phase": phase, "time": time, "detail": '{"process": "agent"}'}
        for phase, time in (("injected", 1_500_000_000), ("healed", 1_700_000_000))
    ]
    folder = write(tmp_path / "history", book.rows, faults=faults)
    judgement = judge(folder, forbid("inconsistent-offset"))
    text = describe(judgement, look_up_evidence(open_history(folder), judgement), FailureFooter())
    assert "    kill n1@agent from 1.500 s at the latest to 1.700 s" in text.splitlines()


@pytest.mark.parametrize(
    ("began", "healed", "words"),
    [
        (0.9, 1.7, "from 0.900 s (confirmed at 1.500 s) to 1.700 s"),
        (1.499_999_9, 1.7, "from 1.500 s to 1.700 s"),
        (0.9, None, "from 0.900 s (confirmed at 1.500 s), and was never healed"),
    ],
)
def test_a_fault_lasts_from_when_its_injection_began(
    tmp_path: Path, began: float, healed: float | None, words: str
) -> None:
    book = Book()
    book.send([1], 0, (1_000, 1_001), process=1)
    book.send([2], 0, (2_000, 2_001), process=2)
    phases = [("injected", 1.5), *([("healed", healed)] if healed is not None else [])]
    faults = [
        {"id": 1, "fault": "kill", "targets": '["n1"]', "phase": phase, "time": int(time * 10**9),
         "detail": json.dumps({"began": int(began * 10**9)} if phase == "injected" else {})}
        for phase, time in phases
    ]  # fmt: skip
    folder = write(tmp_path / "history", book.rows, faults=faults)
    judgement = judge(folder, forbid("inconsistent-offset"))
    text = describe(judgement, look_up_evidence(open_history(folder), judgement), FailureFooter())
    assert f"    kill n1 {words}" in text.splitlines()


def test_operations_stand_in_the_order_of_time_and_without_an_empty_argument(tmp_path: Path) -> None:
    book = Book()
    book.send([1], 0, (2000, 2001), process=1)
    book.send([2], 0, (1000, 1001), process=2)
    folder = write(tmp_path / "history", book.rows)
    judgement = judge(folder, forbid("inconsistent-offset"))
    ops = open_history(folder).table("ops")
    ops = ops.set_column(ops.schema.get_field_index("argument"), "argument", pa.array(["null"] * len(ops)))
    lines = describe(judgement, look_up_operations(ops, judgement), FailureFooter()).splitlines()
    assert [line[: line.index(",")] for line in lines[1:3]] == [
        "  op 1: append on orders-0 by process 2",
        "  op 0: append on orders-0 by process 1",
    ]


def test_the_operations_of_a_cycle_stand_in_the_order_of_its_claim() -> None:
    cycle = Finding(anomaly="G1c", key="x", claim="5 read what 3 wrote", operations=(5, 3), cycle=True)
    assert sort_for_display(cycle, cycle.operations, {3: 10, 5: 20}) == [5, 3]
    other = msgspec.structs.replace(cycle, claim="2 transactions go round in a circle: 5 read 3.", cycle=False)
    assert sort_for_display(other, other.operations, {3: 10, 5: 20}) == [3, 5]


def test_the_first_occurrence_is_named_beside_the_nearest_pair(tmp_path: Path) -> None:
    book = Book()
    book.send([1, 2], 0, (100, 110))
    book.poll(0, [(0, 1), (1, 2)], 2, (1_000, 1_010))
    first = book.poll(0, [(1, 2)], 2, (3_000, 3_010))
    book.poll(0, [(0, 1), (1, 2)], 2, (5_000, 5_010))
    book.poll(0, [(1, 2)], 2, (5_500, 5_510))
    folder = write(tmp_path / "history", book.rows)
    judgement = judge(folder, forbid("vanished"))
    for evidence in (
        look_up_evidence(open_history(folder), judgement),
        look_up_operations(open_history(folder).table("ops"), judgement),
    ):
        lines = describe(judgement, evidence, FailureFooter()).splitlines()
        (line,) = [line for line in lines if line.startswith("  first")]
        assert line.startswith(f"  first at 3.000 s: op {first}: observe")
        assert lines[lines.index(line) - 1].endswith("more operation, not listed")


def test_an_earlier_finding_is_the_first_occurrence_and_a_pair_that_is_the_first_needs_no_line(tmp_path: Path) -> None:
    book = Book()
    for process, (key, when) in enumerate((("a", 5_000), ("b", 2_000))):
        book.key = key
        book.send([1], 0, (when, when + 10), process=process)
        book.send([2], 0, (when + 100, when + 110), process=process)
    folder = write(tmp_path / "history", book.rows)
    judgement = judge(folder, forbid("inconsistent-offset"))
    assert [finding.key for finding in judgement.findings] == ["a", "b"]
    evidence = look_up_evidence(open_history(folder), judgement)
    assert evidence.first is not None
    assert evidence.first.startswith("first at 2.110 s: op 3: append")
    more = msgspec.structs.replace(judgement, anomalies={"inconsistent-offset": 3})
    first = look_up_evidence(open_history(folder), more).first
    assert first is not None
    assert first.startswith("first, among the 2 that are described, at 2.110 s: op 3: ")
    alone = msgspec.structs.replace(judgement, findings=judgement.findings[1:])
    assert look_up_evidence(open_history(folder), alone).first is None


def test_of_a_check_that_names_one_pair_the_later_operation_is_the_first_occurrence() -> None:
    late, early = (
        Finding(anomaly="stale-read", key=key, claim="it is old", operations=operations, until=until)
        for key, operations, until in (("a", (7, 6), 90), ("b", (2, 3), 50))
    )
    earliest = find_earliest([late, early], late)
    assert earliest is early
    assert list_first_operations(earliest) == (2, 3)
    assert find_first_occurrence(earliest, late, {2: 30, 3: 40}) == FirstOccurrence(40, 3)
    assert find_first_occurrence(early, early, {2: 30, 3: 40}) is None
