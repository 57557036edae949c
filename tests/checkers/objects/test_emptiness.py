"""A queue that claims to be empty: the anomaly, its legal neighbours, every instant of thousands of small histories."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding
from assay.checkers.objects.queues import LINEARIZABLE_QUEUES, QUEUE_FALSE_EMPTY, QUEUE_VIEWS

from helpers.judging import judge, opened
from helpers.log_histories import Row, effect, write
from helpers.nightly import by_night
from helpers.object_histories import broken, queue
from helpers.object_oracle import bag_linearizable, false_empties

S = 1_000_000_000
DECLARED = Contract(linearizable_queues=True)
ADD, TAKE, DRAIN = "queue-enqueue", "queue-dequeue", "queue-drained"


def step(op: int, kind: str, value: int | None, call: int, ret: int | None, outcome: str = "ok") -> Row:
    return effect(
        op, 0, kind, "q", call * S, None if ret is None else ret * S, value=value, process=op, outcome=outcome
    )


def found(folder: Path, rows: list[Row]) -> list[Finding]:
    with opened(write(folder / "history", rows)) as engine:
        register_contract(engine, DECLARED)
        assert engine.rows(LINEARIZABLE_QUEUES.applies)[0]["examined"]
        create_views(engine, (*QUEUE_VIEWS, *QUEUE_FALSE_EMPTY.views))
        return read_findings(engine, QUEUE_FALSE_EMPTY)


def test_it_is_reported_with_an_element_that_was_there(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, [step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, 4)])
    assert (finding.key, finding.operations) == ("q", (2, 1))
    assert finding.claim == (
        "process 2 found q empty between 3.000 s and 4.000 s, but at every moment of this time acknowledged elements "
        "were inside that no dequeue of unknown outcome may have taken: 1 at its end, of which 0 were dequeued later, "
        "and 0 such dequeues; one of them is 7, acknowledged to process 1 at 2.000 s."
    )


HAVE = {
    "a drain of unknown outcome was called later": [
        step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, 4), step(3, DRAIN, None, 5, None, "info"),
    ],
    "taken later": [step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, 4), step(3, TAKE, 7, 5, 6)],
    "by cover": [
        step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, 10), step(3, ADD, 8, 4, 5), step(4, TAKE, 7, 6, 7),
        step(5, TAKE, 8, 11, 12),
    ],
    "two, and one of them may have been taken": [
        step(1, ADD, 7, 1, 2), step(2, ADD, 8, 1, 2), step(3, TAKE, None, 3, None, "info"), step(4, TAKE, None, 4, 5),
    ],
    "what may have been taken was taken by another": [
        step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, 4), step(3, TAKE, None, 5, None, "info"),
    ],
    "one of two equal elements was taken": [
        step(1, ADD, 7, 1, 2), step(2, ADD, 7, 1, 2), step(3, TAKE, 7, 3, 4), step(4, TAKE, None, 5, 6),
    ],
    "one of unknown outcome did not take it, since it was taken later": [
        step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, None, "info"), step(3, TAKE, None, 4, 5), step(4, TAKE, 7, 6, 7),
    ],
    "one of two equal elements was taken later": [
        step(1, ADD, 7, 1, 2), step(2, ADD, 7, 1, 2), step(3, TAKE, None, 3, None, "info"),
        step(4, TAKE, None, 4, 5), step(5, TAKE, 7, 6, 7),
    ],
    "a dequeue that failed took nothing": [
        step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, 4, "fail"), step(3, TAKE, None, 5, 6),
    ],
}  # fmt: skip
HAVE_NOT = {
    "one of unknown outcome may have taken it, and another was enqueued later": [
        step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, None, "info"), step(3, TAKE, None, 4, 5), step(4, ADD, 7, 6, 7),
        step(5, TAKE, 7, 8, 9),
    ],
    "a drain of unknown outcome may have taken both": [
        step(1, ADD, 7, 1, 2), step(2, ADD, 8, 1, 2), step(3, DRAIN, None, 3, None, "info"), step(4, TAKE, None, 4, 5),
    ],
    "its dequeue was called first": [step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, 5), step(3, TAKE, 7, 4, 6)],
    "its enqueue was not acknowledged yet": [step(1, ADD, 7, 1, 4), step(2, TAKE, None, 3, 5)],
    "its enqueue is of unknown outcome": [step(1, ADD, 7, 1, None, "info"), step(2, TAKE, None, 3, 5)],
    "its enqueue failed": [step(1, ADD, 7, 1, 2, "fail"), step(2, TAKE, None, 3, 5)],
    "one of unknown outcome may have taken it": [
        step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, None, "info"), step(3, TAKE, None, 4, 5),
    ],
    "one of unknown outcome may have taken it meanwhile": [
        step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, 6), step(3, TAKE, None, 4, None, "info"),
    ],
    "between two elements": [
        step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, 10), step(3, TAKE, 7, 4, 5), step(4, ADD, 8, 6, 7),
    ],
    "one equal element, dequeued twice": [
        step(1, ADD, 7, 1, 2), step(2, TAKE, 7, 3, 4), step(3, TAKE, 7, 5, 6), step(4, TAKE, None, 7, 8),
    ],
}  # fmt: skip


@pytest.mark.parametrize("rows", HAVE.values(), ids=HAVE)
def test_it_is_found(rows: list[Row], tmp_path: Path) -> None:
    assert [finding.anomaly for finding in found(tmp_path, rows)] == ["queue-false-empty"]


@pytest.mark.parametrize("rows", HAVE_NOT.values(), ids=HAVE_NOT)
def test_its_neighbour_is_not(rows: list[Row], tmp_path: Path) -> None:
    assert found(tmp_path, rows) == []


def test_an_element_that_is_given_out_and_put_back_accuses_no_queue_that_is_not_declared(tmp_path: Path) -> None:
    rows = [step(1, ADD, 7, 1, 2), step(2, TAKE, None, 3, 4), step(3, TAKE, 7, 5, 6)]
    judged = judge(write(tmp_path / "history", rows), Contract())
    assert judged.anomalies == {}
    assert "queue-false-empty" not in {one.check for one in judged.examined}


def said_empty(rows: list[Row], rng: random.Random) -> list[Row]:
    """Makes one of the dequeues, if there is any, find nothing."""
    takes = [row for row in rows if row["kind"] == TAKE and row["outcome"] == "ok"]
    if takes:
        rng.choice(takes)["value"] = None
    return rows


@pytest.mark.parametrize("many", [600, by_night(2000)])
def test_it_says_what_every_instant_says_and_accuses_no_linearizable_history(tmp_path: Path, many: int) -> None:
    histories = []
    for index in range(many):
        rng = random.Random(f"empty/{index}")
        one = [row for row in queue(f"k-{index}", rng, index * 100) if row["op"] % 100 < 50]
        histories.append(one if index % 3 == 0 else said_empty(broken(one, rng), rng))
    with opened(write(tmp_path / "history", [row for one in histories for row in one])) as engine:
        create_views(engine, (*QUEUE_VIEWS, *QUEUE_FALSE_EMPTY.views))
        by_sql = Counter(row["op"] for row in engine.rows(f"select * from {QUEUE_FALSE_EMPTY.found}"))
    wrong = 0
    for one in histories:
        false = {row["op"] for row in false_empties(one)}
        assert false == {row["op"] for row in one if by_sql[row["op"]]}, one
        assert not false or not bag_linearizable(one), one
        wrong += bool(false)
    assert wrong > many // 40
