"""Tests what a group committed.

The two anomalies, their nearest legal neighbours, and every pair of many small histories.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.groups.commits import COMMITS
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding
from assay.checkers.log.family import LOG

from helpers.commit_histories import Members, beyond, commit, end, fetched, mismatched, poll, row
from helpers.judging import opened
from helpers.log_histories import Row, write

LINEARIZABLE = Contract(linearizable_ends=True)
S = 1_000_000_000


def found(folder: Path, rows: list[Row], contract: Contract = LINEARIZABLE) -> list[Finding]:
    with opened(write(folder / "history", rows)) as engine:
        register_contract(engine, contract)
        create_views(engine, LOG.views)
        reported = []
        for family in COMMITS:
            for check in family.checks:
                create_views(engine, check.views)
                reported += read_findings(engine, check)
        return reported


def test_another_position_is_reported_with_fetch_and_commit(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, [commit(1, 7, 15, (0, 1)), fetched(2, 7, 17, (2, 3))])
    assert (finding.anomaly, finding.operations) == ("commit-mismatch", (2, 1))
    assert finding.claim == (
        "process 2 fetched offset 17 of g/t-0 with the number 7, called at 2.000 s, but process 1 had committed offset "
        "15 under that number."
    )


def test_a_commit_beyond_what_was_read_is_reported(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, [*poll(1, 0, 3, (0, 1)), commit(2, 7, 4, (2, 3), process=1, assignment=1)])
    assert (finding.anomaly, finding.operations) == ("commit-beyond-log", (2,))
    assert finding.claim == (
        "process 1 committed offset 4 of g/t-0 at 2.000 s, but had read no further than to offset 3."
    )


def poll_without_rows(op: int, process: int, call: int, outcome: str = "fail") -> Row:
    return {"index": op, "process": process, "worker": str(process), "f": "observe-begin", "argument": "null",
            "call": call * S, "ret": (call + 1) * S, "outcome": outcome, "phase": "main"}  # fmt: skip


def test_a_poll_that_failed_and_left_no_row_may_have_moved_its_reader(tmp_path: Path) -> None:
    made = commit(6, 7, 4, (6, 7), process=1, assignment=1)

    def reported(name: str, more: Row, *later: Row) -> list[Finding]:
        rows = [*poll(1, 0, 3, (0, 1)), *later, made]
        ops = {row["op"]: {**poll_without_rows(row["op"], 1, 0, "ok"), "f": row["kind"], "call": row["call"]}
               for row in reversed(rows)}  # fmt: skip
        with opened(write(tmp_path / name, rows, ops=[*ops.values(), more])) as engine:
            register_contract(engine, LINEARIZABLE)
            create_views(engine, LOG.views)
            check = COMMITS[1].checks[0]
            create_views(engine, check.views)
            return read_findings(engine, check)

    failed = poll_without_rows(2, 1, 2)
    assert not reported("failed", failed)
    assert reported("ok", poll_without_rows(2, 1, 2, "ok"))
    assert reported("of another process", poll_without_rows(2, 2, 2))
    assert reported("not a poll", failed | {"f": "commit"})
    assert reported("after the commit", poll_without_rows(2, 1, 8))
    assert reported("one that says where it began comes after it", failed, *poll(4, 3, 3, (4, 5)))


def test_an_end_below_a_commit_is_reported_with_both(tmp_path: Path) -> None:
    rows = [*poll(1, 0, 3, (0, 1)), commit(2, 7, 3, (2, 3), process=1, assignment=1), end(3, 2, (4, 5))]
    (finding,) = found(tmp_path, rows)
    assert (finding.anomaly, finding.operations) == ("commit-beyond-log", (2, 3))
    assert finding.claim == (
        "process 1 committed offset 3 of g/t-0 by 3.000 s, but process 3, which called at 4.000 s, found the log's end "
        "at offset 2."
    )


def member(op: int, position: int, when: tuple[int, int | None], **given: object) -> Row:
    return commit(op, op, position, when, **{"process": 1, "assignment": 1, **given})


READ = poll(1, 0, 3, (0, 1))
HAVE = {
    "commit-mismatch": {
        "of an unknown outcome": [commit(1, 7, 15, (0, None), outcome="info"), fetched(2, 7, 17, (2, 3))],
        "with another number's position": [
            commit(1, 7, 15, (0, 1)), commit(2, 8, 17, (2, 3)), fetched(3, 7, 17, (4, 5)),
        ],
    },
    "commit-beyond-log": {
        "after another assignment had read further": [
            *READ, *poll(2, 0, 2, (2, 3), assignment=2), member(3, 3, (4, 5), assignment=2),
        ],
        "before it read on": [member(3, 5, (4, 5)), *READ, *poll(4, 3, 9, (6, 7))],
        "after a seek": [row(1, "seek", 2, (0, 1)), member(2, 3, (2, 3))],
        "unknown whether it was accepted": [*READ, member(2, 4, (2, None), outcome="info")],
        "of offsets that only move forward": [
            commit(1, None, 9, (0, 1), kind="advance"), end(2, 8, (2, 3)),
        ],
    },
}  # fmt: skip
SETTLED = [
    row(8, "append", 5, (10, 11), key="t-0", value=8, phase="sentinel"),
    row(9, "drained", 6, (12, 13), key="t-0", phase="drain"),
]
HAVE_NOT = {
    "the offset of an earlier commit of the number": [
        commit(1, 7, 15, (0, 1)), commit(1, 7, 16, (0, 1)), fetched(2, 7, 16, (2, 3)),
    ],
    "which position was committed is not known": [
        commit(1, 7, None, (0, None), outcome="info"), fetched(2, 7, 16, (2, 3)),
    ],
    "the number of another partition": [
        commit(1, 7, 15, (0, 1)), commit(1, 7, 17, (0, 1), key="g/t-1"), fetched(2, 7, 17, (2, 3), key="g/t-1"),
    ],
    "nothing was committed": [fetched(2, None, -1, (2, 3))],
    "all that was read": [*READ, member(2, 3, (2, 3))],
    "a stranger commits anything": [*READ, commit(2, 2, 99, (2, 3)), end(3, 2, (4, 5))],
    "refused": [*READ, member(2, 4, (2, 3), outcome="fail")],
    "a poll of unknown outcome may have shown more": [
        *READ, *poll(2, 3, 5, (2, 3), outcome="info"), member(3, 5, (4, 5)),
    ],
    "a poll that failed may have shown more": [*READ, *poll(2, 3, 5, (2, 3), outcome="fail"), member(3, 5, (4, 5))],
    "where it began to read": [row(1, "seek", 7, (0, 1)), member(2, 7, (2, 3))],
    "reset to a later place": [*READ, row(2, "reset", 9, (2, 3), assignment=2), member(3, 9, (4, 5))],
    "the end was asked for before the commit returned": [*READ, member(2, 3, (2, 5)), end(3, 2, (4, 6))],
    "the end of the topic's next incarnation": [*READ, member(2, 3, (2, 3)), end(3, 0, (4, 5), key="t#2-0")],
    "the commit is of the next incarnation": [
        *READ, commit(2, 2, 3, (2, 3), key="g/t#2-0", process=1, assignment=1), end(3, 2, (4, 5)),
    ],
    "settled above": [*READ, member(2, 3, (2, 3)), *SETTLED],
    "committed when the sentinel had been sent": [*poll(1, 0, 9, (0, 1)), member(2, 9, (2, 11)), *SETTLED],
}  # fmt: skip


@pytest.mark.parametrize(
    ("anomaly", "rows"),
    [(anomaly, rows) for anomaly, some in HAVE.items() for rows in some.values()],
    ids=[name for some in HAVE.values() for name in some],
)
def test_it_is_found(anomaly: str, rows: list[Row], tmp_path: Path) -> None:
    assert [finding.anomaly for finding in found(tmp_path, rows)] == [anomaly]


@pytest.mark.parametrize("rows", HAVE_NOT.values(), ids=HAVE_NOT)
def test_its_neighbour_is_not(rows: list[Row], tmp_path: Path) -> None:
    assert found(tmp_path, rows) == []


BELOW = [*READ, member(2, 3, (2, 3)), end(3, 2, (4, 5))]


@pytest.mark.parametrize(
    "contract", [Contract(), Contract(linearizable_ends=True, unflushed=3)], ids=["not declared", "may be cut"]
)
def test_ends_prove_nothing_where_they_may_be_old_or_the_log_cut(contract: Contract, tmp_path: Path) -> None:
    assert found(tmp_path, BELOW, contract) == []


def test_a_settled_end_does_where_they_are_not_declared(tmp_path: Path) -> None:
    rows = [*poll(1, 0, 9, (0, 1)), member(2, 9, (2, 3)), *SETTLED]
    (finding,) = found(tmp_path, rows, Contract())
    assert (finding.anomaly, finding.operations) == ("commit-beyond-log", (2, 8))


def test_it_says_what_looking_at_every_pair_says(tmp_path: Path) -> None:
    histories = [Members(f"g{number}", random.Random(number), number * 1000).run(24) for number in range(400)]
    with opened(write(tmp_path / "history", [one for rows in histories for one in rows])) as engine:
        register_contract(engine, LINEARIZABLE)
        create_views(engine, LOG.views)
        for family, expected in zip(COMMITS, (mismatched, beyond), strict=True):
            (check,) = family.checks
            create_views(engine, check.views)
            columns = ("key", "value", "position") if expected is mismatched else ("key", "why", "op")
            rows = [
                one | {"op": one.get("other_op") if one.get("why") == "end" else one.get("commit_op")}
                for one in engine.rows(f"select * from {check.found}")
            ]
            by_sql = {tuple(one[column] for column in columns) for one in rows}
            assert len(by_sql) == len(rows)
            by_force = [expected(rows) for rows in histories]
            assert by_sql == set().union(*by_force)
            assert 50 < sum(map(bool, by_force)) < 390, check.anomaly
