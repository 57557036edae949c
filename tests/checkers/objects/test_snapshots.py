"""Reads of a set that disagree on the order of its elements: by hand, and pair by pair in thousands of histories."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding
from assay.checkers.objects.sets import LINEARIZABLE_SETS, SET_FORK, SET_VIEWS

from helpers.judging import judge, opened
from helpers.log_histories import Row, effect, write
from helpers.object_histories import broken, some_set
from helpers.object_oracle import Impossible, linearizable

S = 1_000_000_000
COUNT = 2000
DECLARED = Contract(linearizable_sets=True)
ADDS = [(1, "set-add", [1], 0, 20), (2, "set-add", [2], 1, 21)]
Step = tuple[int, str, list[int], int, int]


def rows_of(steps: list[Step], outcome: str = "ok") -> list[Row]:
    return [
        effect(op, sub, kind, "s", call * S, ret * S, value=value, process=op, outcome=outcome)
        for op, kind, values, call, ret in steps
        for sub, value in enumerate(values or [None])
    ]


def found(folder: Path, rows: list[Row]) -> list[Finding]:
    with opened(write(folder / "history", rows)) as engine:
        register_contract(engine, DECLARED)
        assert engine.rows(LINEARIZABLE_SETS.applies)[0]["examined"]
        create_views(engine, (*SET_VIEWS, *SET_FORK.views))
        return read_findings(engine, SET_FORK)


def read(op: int, *values: int) -> Step:
    return (op, "set-read", list(values), op, op + 10)


def test_both_reads_are_named_with_an_element_that_each_lacks(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, rows_of([*ADDS, read(3, 1), read(4, 2)]))
    assert (finding.key, finding.operations) == ("s", (3, 4))
    assert finding.claim == (
        "s: the read by process 3, called at 3.000 s, shows 1 and not 2; that by process 4, called at 4.000 s, shows "
        "2 and not 1, and neither was removed."
    )


@pytest.mark.parametrize(
    "steps",
    [
        [*ADDS, read(3, 1), read(4, 1, 2)],
        [*ADDS, read(3, 1), read(4, 1), read(5, 1, 2)],
        [*ADDS, read(3), read(4, 2)],
        [*ADDS, (6, "set-remove", [1], 2, 22), read(3, 1), read(4, 2)],
    ],
    ids=["one contains the other", "equal ones", "an empty one", "what is missing was removed"],
)
def test_its_neighbour_is_not(steps: list[Step], tmp_path: Path) -> None:
    assert found(tmp_path, rows_of(steps)) == []


def test_a_read_that_failed_says_nothing(tmp_path: Path) -> None:
    assert found(tmp_path, [*rows_of([*ADDS, read(3, 1)]), *rows_of([read(4, 2)], "fail")]) == []


def test_snapshots_that_may_be_torn_accuse_no_set_that_is_not_declared(tmp_path: Path) -> None:
    judged = judge(write(tmp_path / "history", rows_of([*ADDS, read(3, 1), read(4, 2)])), Contract())
    assert judged.anomalies == {}
    assert "set-fork" not in {one.check for one in judged.examined}


def forked(rows: list[Row]) -> bool:
    """Whether of any two reads neither shows all that the other shows, but for what may have been removed."""
    removed = {row["value"] for row in rows if row["kind"] == "set-remove" and row["outcome"] != "fail"}
    reads = {row["op"]: set() for row in rows if row["kind"] == "set-read" and row["outcome"] == "ok"}
    for row in rows:
        if row["op"] in reads and row["value"] is not None and row["value"] not in removed:
            reads[row["op"]].add(row["value"])
    return any(not a <= b and not b <= a for a, b in combinations(reads.values(), 2))


def in_some_order(rows: list[Row]) -> bool:
    """Whether a set that adds, removes and reads at one moment each can have given this history."""
    reads: dict[int, Row] = {}
    operations = []
    for row in rows:
        if row["kind"] != "set-read":
            operations.append(row)
        elif row["outcome"] == "ok" and row["op"] not in reads:
            shown = frozenset(one["value"] for one in rows if one["op"] == row["op"] and one["value"] is not None)
            reads[row["op"]] = row | {"shown": shown}

    def step(there: frozenset[int], row: Row) -> frozenset[int]:
        if row["kind"] == "set-read":
            if row["shown"] != there:
                raise Impossible
            return there
        return there | {row["value"]} if row["kind"] == "set-add" else there - {row["value"]}

    return linearizable([*operations, *reads.values()], frozenset(), step)


def test_it_says_what_all_pairs_say_and_accuses_no_linearizable_history(tmp_path: Path) -> None:
    histories = []
    for index in range(COUNT):
        rng = random.Random(f"fork/{index}")
        one = some_set(f"k-{index}", rng, index * 100)
        histories.append(one if index % 3 == 0 else broken(one, rng))
    with opened(write(tmp_path / "history", [row for one in histories for row in one])) as engine:
        create_views(engine, (*SET_VIEWS, *SET_FORK.views))
        by_sql = {row["key"] for row in engine.rows(f"select key from {SET_FORK.found}")}
    wrong = 0
    for one in filter(None, histories):
        assert forked(one) is (one[0]["key"] in by_sql), one
        if forked(one):
            assert not in_some_order(one), one
            wrong += 1
    assert wrong > 50
