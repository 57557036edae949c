"""Tests where new owners begin: the anomaly in both designs, its nearest legal neighbours, and many small histories."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.groups.starts import MISPLACED_START, STARTS
from assay.checkers.judging.verdict import Finding

from helpers.judging import opened
from helpers.log_histories import Row, write
from helpers.start_histories import Owners, begun, misplaced, operations, silent


def found(folder: Path, rows: list[Row], more: Sequence[Row] = (), **others: Sequence[Row]) -> list[Finding]:
    """``more``: operations that no row is of."""
    with opened(write(folder / "history", rows, ops=operations(rows, more), **others)) as engine:
        assert engine.rows(STARTS.applies)[0]["examined"]
        create_views(engine, MISPLACED_START.views)
        return read_findings(engine, MISPLACED_START)


SKIPPED = begun(2, [("acquire", None), ("fetched", 3), ("seek", 4)])
SENT = begun(1, [("acquire", None), ("resume", 0)], (0, 1)), begun(3, [("acquire", None), ("resume", 4)], (6, 7))


def test_a_member_that_begins_beside_what_is_committed_is_reported(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, SKIPPED)
    assert (finding.anomaly, finding.key, finding.operations) == ("misplaced-start", "g/t-0", (2,))
    assert finding.claim == (
        "process 2 was given t-0 and found offset 3 of g/t-0 committed, by 3.000 s, but began to read at 4."
    )


def test_an_owner_that_is_sent_where_no_one_ever_was_is_reported(tmp_path: Path) -> None:
    rows = [*SENT[0], *begun(2, [("advance", 3)]), *SENT[1]]
    (finding,) = found(tmp_path, rows)
    assert (finding.anomaly, finding.key, finding.operations) == ("misplaced-start", "g/t-0", (3,))
    assert finding.claim == (
        "process 3 was sent to begin at offset 4 of g/t-0, by 7.000 s, but no one had ever committed that offset."
    )


HAVE: dict[str, list[Row]] = {
    "begins before it": begun(2, [("acquire", None), ("fetched", 3), ("seek", 2)]),
    "the second time in one operation": begun(
        2, [("acquire", None), ("fetched", 3), ("seek", 3), ("lost", 3),
            ("acquire", None), ("fetched", 3), ("seek", 0)],
    ),
    "and is sent away later": begun(
        2, [("acquire", None), ("fetched", 3), ("seek", 4), ("out-of-range", 4), ("reset", 0)],
    ),
    "one of two partitions": [
        *begun(2, [("acquire", None), ("fetched", 3), ("seek", 3)]),
        *[row | {"sub": row["sub"] + 3}
          for row in begun(2, [("acquire", None), ("fetched", 3), ("seek", 5)], log="t-1")],
    ],
    "what was committed elsewhere": [*SENT[1], *begun(2, [("advance", 4)], log="t-1")],
    "what failed to be committed": [*SENT[1], *begun(2, [("advance", 4)], outcome="fail")],
}  # fmt: skip
HAVE_NOT: dict[str, list[Row]] = {
    "at what is committed": begun(2, [("acquire", None), ("fetched", 3), ("seek", 3)]),
    "nothing is committed": begun(2, [("acquire", None), ("fetched", -1), ("start", 2), ("seek", 2)]),
    "nothing is committed, and it asked for the end": begun(2, [("acquire", None), ("fetched", -1), ("seek", 9)]),
    "what is committed is no longer in the log": begun(
        2, [("acquire", None), ("fetched", 3), ("out-of-range", 3), ("start", 5), ("seek", 5)],
    ),
    "what is committed was found to be gone after it began": begun(
        2, [("acquire", None), ("fetched", 3), ("seek", 3), ("out-of-range", 3), ("start", 5), ("reset", 5)],
    ),
    "a rewind after it began": begun(2, [("acquire", None), ("fetched", 3), ("seek", 3), ("seek", 1)]),
    "a rewind of one that looked at what is committed": [
        *SENT[0], *begun(2, [("fetched", 3), ("seek", 1)]),
    ],
    "another hold": begun(2, [("acquire", None), ("fetched", 3), ("lost", 3), ("acquire", None), ("seek", 5)]),
    "another partition": [
        *begun(2, [("acquire", None), ("fetched", 3)]), *begun(2, [("acquire", None), ("seek", 5)], log="t-1"),
    ],
    "a hold that was kept": [*begun(2, [("acquire", None), ("seek", 5)]), *SENT[0]],
    "sent to begin at the log's start": SENT[0],
    "sent to begin at a commit": [*begun(2, [("advance", 4)]), *SENT[1]],
    "sent to begin at one of unknown outcome": [*begun(2, [("advance", 4)], (2, None), outcome="info"), *SENT[1]],
    "sent to begin at one that is reported later": [*SENT[1], *begun(4, [("advance", 4)], (9, None), outcome="info")],
    "a commit of which it is not known where": [*begun(2, [("advance", None)], (2, None), outcome="info"), *SENT[1]],
    "the log began there once": [*begun(2, [("acquire", None), ("start", 4)]), *SENT[1]],
}  # fmt: skip
for rows in (HAVE["one of two partitions"], HAVE_NOT["another partition"]):
    for rank, row in enumerate(rows):
        row["sub"] = rank


@pytest.mark.parametrize("rows", HAVE.values(), ids=HAVE)
def test_it_is_found(rows: list[Row], tmp_path: Path) -> None:
    assert [finding.anomaly for finding in found(tmp_path, rows)] == ["misplaced-start"]


@pytest.mark.parametrize("rows", HAVE_NOT.values(), ids=HAVE_NOT)
def test_its_neighbour_is_not(rows: list[Row], tmp_path: Path) -> None:
    assert found(tmp_path, rows) == []


@pytest.mark.parametrize(
    ("process", "when", "outcome", "accused"),
    [
        (1, (4, None), "info", False),
        (9, (4, None), "info", True),
        (1, (8, None), "info", True),
        (1, (4, 5), "fail", True),
    ],
    ids=["an owner may have committed", "another process did not", "nor one that asked later", "nor one that failed"],
)
def test_an_owner_without_an_answer_may_have_committed_anywhere(
    process: int, when: Any, outcome: str, accused: bool, tmp_path: Path
) -> None:
    assert bool(found(tmp_path, [*SENT[0], *SENT[1]], [silent(5, process, when, outcome)])) is accused


def test_where_something_was_deleted_owners_may_begin_at_the_new_start(tmp_path: Path) -> None:
    deleted = {"time": 1, "node": "n1", "incarnation": 1, "seq": 1, "event": "segment-deleted", "detail": "{}"}
    for key, accused in (("t-0", False), ("t-1", True)):
        assert bool(found(tmp_path / key, SENT[1], events=[deleted | {"key": key}])) is accused


def test_nothing_is_claimed_of_a_topic_that_was_deleted(tmp_path: Path) -> None:
    gone = begun(2, [("topic-delete", None)])
    for topic, accused in (("t", False), ("u", True)):
        rows = [*SENT[1], *({**row, "key": topic} for row in gone)]
        assert bool(found(tmp_path / topic, rows)) is accused


def test_it_says_what_looking_at_every_row_says(tmp_path: Path) -> None:
    histories = [Owners(number, random.Random(number), 1 + 1000 * number) for number in range(500)]
    for number, one in enumerate(histories):
        for row in (*one.rows, *one.ops):
            row["process"] += 10 * number
    rows = [row for one in histories for row in one.rows]
    with opened(write(tmp_path / "history", rows, ops=[op for one in histories for op in one.ops])) as engine:
        create_views(engine, MISPLACED_START.views)
        by_sql = engine.rows(f"select * from {MISPLACED_START.found}")
    by_force = [misplaced(one.rows, one.ops) for one in histories]
    assert {(one["key"], one["why"], one["begun_op"], one["sub"]) for one in by_sql} == set().union(*by_force)
    assert len(by_sql) == sum(map(len, by_force))
    for why in ("fetched", "resume"):
        assert 50 < sum(any(one[1] == why for one in each) for each in by_force) < 450, why
