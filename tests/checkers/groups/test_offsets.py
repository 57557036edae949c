"""Offsets that only move forward: the anomaly, its nearest legal neighbours, and every pair of many small histories."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.groups.offsets import OFFSET_REGRESSION, OFFSETS
from assay.checkers.judging.verdict import MOST_FINDINGS, Finding

from helpers.judging import opened
from helpers.log_histories import Row, effect, write

S = 1_000_000_000


def step(
    op: int, kind: str, position: int | None, when: tuple[int, int | None], outcome: str = "ok", key: str = "g/t-0"
) -> Row:
    call, ret = when[0] * S, None if when[1] is None else when[1] * S
    return effect(op, 0, kind, key, call, ret, group="g", position=position, process=op, outcome=outcome)


def held(op: int, when: tuple[int, int], begins: int | None = None, key: str = "t-0") -> list[Row]:
    """Process ``op`` gets a partition, and is sent to begin there; None: no one says where."""
    given = {"group": "g", "process": op, "assignment": op}
    rows = [effect(op, 1, "acquire", key, when[0] * S, when[1] * S, owner=f"c{op}", **given)]
    return rows if begins is None else [*rows, step(op, "resume", begins, when, key=f"g/{key}")]


def unanswered(op: int, process: int, call: int) -> Row:
    """An operation of unknown outcome of which there is nothing but that."""
    return {"index": op, "process": process, "worker": str(process), "f": "poll", "argument": "null",
            "call": call * S, "outcome": "info", "phase": "main"}  # fmt: skip


def found(folder: Path, rows: list[Row], more: Sequence[Row] = ()) -> list[Finding]:
    """``more``: operations without effects."""
    ops = {
        row["op"]: {"index": row["op"], "process": row["process"], "worker": "0", "f": row["kind"], "argument": "null",
                    "call": row["call"], "ret": row["ret"], "outcome": row["outcome"], "phase": "main"}
        for row in rows
    }  # fmt: skip
    with opened(write(folder / "history", rows, ops=[*ops.values(), *more])) as engine:
        steps = [row for row in rows if row["kind"] in ("advance", "resume")]
        assert engine.rows(OFFSETS.applies)[0]["examined"] == len(steps)
        create_views(engine, OFFSET_REGRESSION.views)
        return read_findings(engine, OFFSET_REGRESSION)


def test_an_owner_that_begins_below_what_was_acknowledged_is_reported_with_both_operations(tmp_path: Path) -> None:
    rows = [step(1, "resume", 0, (0, 1)), step(2, "advance", 9, (2, 3)), step(3, "resume", 7, (4, 5))]
    (finding,) = found(tmp_path, rows)
    assert finding.operations == (2, 3)
    assert finding.claim == (
        "process 3 had to begin at offset 7 of g/t-0, called at 4.000 s, although 9 had been known to "
        "process 2 by 3.000 s."
    )


HAVE = {
    "a commit that goes back": [step(1, "advance", 9, (0, 1)), step(2, "advance", 8, (2, 3))],
    "two owners that begin": [step(1, "resume", 9, (0, 1)), step(2, "resume", 8, (2, 3))],
    "unknown elsewhere": [
        step(1, "advance", 9, (0, 1)), step(2, "advance", 8, (0, None), "info", "g/t-1"), step(3, "resume", 8, (4, 5)),
    ],
    "unknown at another offset": [
        step(1, "advance", 9, (0, 1)), step(2, "advance", 7, (0, None), "info"), step(3, "resume", 8, (4, 5)),
    ],
    "the commit of which no one knows where came later": [
        step(1, "advance", 9, (1, 2)), step(3, "resume", 7, (4, 5)), step(2, "advance", None, (6, None), "info"),
    ],
    "the commit of which no one knows where was refused": [
        step(1, "advance", 9, (1, 2)), step(2, "advance", None, (0, 3), "fail"), step(3, "resume", 7, (4, 5)),
    ],
    "below what was known after a late commit": [
        step(1, "advance", 7, (0, None), "info"), step(2, "advance", 9, (1, 2)), step(3, "resume", 7, (4, 5)),
        step(3, "advance", 9, (6, 7)), step(4, "resume", 8, (8, 9)),
    ],
    "before a late commit": [
        step(1, "advance", 7, (0, None), "info"), step(2, "advance", 9, (1, 2)), step(3, "resume", 8, (3, 4)),
        step(3, "resume", 7, (5, 6)),
    ],
}  # fmt: skip
HAVE_NOT = {
    "it began while the commit was under way": [step(1, "advance", 9, (0, 3)), step(2, "resume", 0, (2, 4))],
    "the commit was refused": [step(1, "advance", 9, (0, 1), "fail"), step(2, "resume", 0, (2, 3))],
    "no one knows of the commit": [step(1, "advance", 9, (0, None), "info"), step(2, "resume", 0, (2, 3))],
    "a late commit may have gone back": [
        step(1, "advance", 8, (0, None), "info"), step(2, "advance", 9, (1, 2)), step(3, "resume", 8, (4, 5)),
    ],
    "a late commit has gone back, and its owner goes on": [
        step(1, "advance", 7, (0, None), "info"), step(2, "advance", 9, (1, 2)), step(3, "resume", 7, (4, 5)),
        step(3, "advance", 8, (6, 7)), step(4, "resume", 8, (8, 9)),
    ],
    "a commit of which no one knows where may have come late": [
        step(1, "advance", 9, (1, 2)), step(2, "advance", None, (0, None), "info"), step(3, "resume", 7, (4, 5)),
    ],
    "another partition": [step(1, "advance", 9, (0, 1)), step(2, "resume", 0, (2, 3), key="g/t-1")],
    "the same offset again": [step(1, "advance", 9, (0, 1)), step(3, "advance", 9, (4, 5))],
}  # fmt: skip


LOST: Final = [*held(1, (0, 1), 5), step(2, "advance", 9, (4, 5))]
"""Process 1 held the partition from 5 on, and 9 was committed by another later."""
UNANSWERED: Final = unanswered(50, 1, 2)


@pytest.mark.parametrize("begins", [5, 7])
def test_one_whose_operation_has_no_answer_may_have_committed_what_it_had_read(tmp_path: Path, begins: int) -> None:
    late = [*LOST, step(6, "resume", begins, (6, 7)), step(7, "advance", 8, (8, 9))]
    assert not found(tmp_path / "late", late, [UNANSWERED])
    assert found(tmp_path / "all have an answer", late)
    assert found(tmp_path / "of another process", late, [unanswered(50, 2, 2)])
    assert found(tmp_path / "called afterwards", late, [unanswered(50, 1, 8)])


def test_it_cannot_have_committed_less_than_where_it_began(tmp_path: Path) -> None:
    lower = step(6, "resume", 4, (6, 7))
    assert found(tmp_path / "lower", [*LOST, lower], [UNANSWERED])
    unknown = [*held(1, (0, 1)), LOST[-1], lower]
    assert not found(tmp_path / "no one knows where it began", unknown, [UNANSWERED])
    other = [*held(1, (0, 1), 3, "t-1"), LOST[-1], lower]
    assert found(tmp_path / "of another partition", other, [UNANSWERED])


@pytest.mark.parametrize("rows", HAVE.values(), ids=HAVE)
def test_it_is_found(rows: list[Row], tmp_path: Path) -> None:
    assert [finding.anomaly for finding in found(tmp_path, rows)] == ["offset-regression"]


@pytest.mark.parametrize("rows", HAVE_NOT.values(), ids=HAVE_NOT)
def test_its_neighbour_is_not(rows: list[Row], tmp_path: Path) -> None:
    assert found(tmp_path, rows) == []


def test_it_says_what_looking_at_every_pair_says(tmp_path: Path) -> None:
    """Ten groups at a time, so that no more is found than there are findings."""
    rng = random.Random(5)
    seen = 0
    for batch in range(6):
        expected, together = Counter[str](), list[Row]()
        for number in range(10):
            key, rows = f"g/t-{number}", list[Row]()
            for op in range(10 * number, 10 * number + 8):
                call, outcome = rng.randint(0, 20), rng.choice(("ok", "ok", "ok", "info", "fail"))
                ret = None if outcome == "info" else call + rng.randint(1, 8)
                kind = "resume" if rng.random() < 0.4 and outcome == "ok" else "advance"
                position = rng.randint(0, 3) + op % 10 // 3
                known = outcome != "info" or rng.random() < 0.8
                rows.append(step(op, kind, position if known else None, (call, ret), outcome, key))
            expected[key] = times_gone_back(rows)
            seen += bool(expected[key])
            together += rows
        assert expected.total() < MOST_FINDINGS
        assert Counter(finding.key for finding in found(tmp_path / str(batch), together)) == +expected
    assert 10 < seen < 60


def times_gone_back(rows: list[Row]) -> int:
    unknown = {row["position"] for row in rows if row["outcome"] == "info"}
    below = [
        (high, low)
        for high in rows
        for low in rows
        if high["outcome"] == low["outcome"] == "ok"
        and low["position"] < high["position"]
        and high["ret"] < low["call"]
    ]
    nowhere = min((row["call"] for row in rows if row["outcome"] == "info" and row["position"] is None), default=None)
    late = [
        row
        for row in rows
        if row["kind"] == "resume" and (row["position"] in unknown or (nowhere is not None and nowhere < row["ret"]))
    ]
    resets = [row for row in late if any(low is row for _, low in below)]
    went_back = {
        (high["position"], sum(reset["ret"] < high["call"] for reset in resets))
        for high, low in below
        if low not in late
        and not any(reset["ret"] >= high["call"] and reset["call"] <= low["call"] for reset in resets)
    }
    return len(went_back)
