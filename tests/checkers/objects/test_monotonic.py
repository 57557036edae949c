"""Values that only grow: each anomaly and its nearest neighbour, and every order of a few operations as the oracle."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from assay.checkers.check import Check, create_views, read_findings
from assay.checkers.engine import Engine
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding, Verdict
from assay.checkers.objects.monotonic import (
    MONOTONIC,
    MONOTONIC_ANOMALIES,
    MONOTONIC_CYCLE_REAL_TIME,
)

from helpers.judging import judge, opened
from helpers.log_histories import Row, effect, write

S = 1_000_000_000


@dataclass(frozen=True)
class Saw:
    """An operation of a process, and what it saw."""

    process: int
    call: int
    ret: int
    seen: Mapping[str, int | None]
    outcome: str = "ok"
    add: bool = False

    def rows(self, op: int) -> list[Row]:
        kind, ret = f"monotonic-{'add' if self.add else 'read'}", None if self.outcome == "info" else self.ret * S
        return [
            effect(op, sub, kind, key, self.call * S, ret, value=value, process=self.process, outcome=self.outcome)
            for sub, (key, value) in enumerate(self.seen.items())
        ]


@contextmanager
def asked(operations: Sequence[Saw], *, real_time: bool) -> Iterator[tuple[Engine, tuple[Check, ...]]]:
    """An engine with the tables of all checks."""
    rows = [row for op, one in enumerate(operations) for row in one.rows(op)]
    checks: tuple[Check, ...] = (*MONOTONIC.checks, *([MONOTONIC_CYCLE_REAL_TIME] if real_time else []))
    with tempfile.TemporaryDirectory() as folder, opened(write(Path(folder) / "history", rows)) as engine:
        register_contract(engine, Contract(transaction_order="real-time" if real_time else "none"))
        assert MONOTONIC.prepare is not None
        assert MONOTONIC.prepare(engine) == []
        for check in checks:
            create_views(engine, check.views)
        yield engine, checks


def found(operations: Sequence[Saw], *, real_time: bool = False) -> list[Finding]:
    with asked(operations, real_time=real_time) as (engine, checks):
        return [finding for check in checks for finding in read_findings(engine, check)]


def names(operations: Sequence[Saw], *, real_time: bool = False) -> dict[str, int]:
    return dict(Counter(finding.anomaly for finding in found(operations, real_time=real_time)))


MORE_X, MORE_Y = {"x": 2, "y": 1}, {"x": 1, "y": 2}
WRONG = {
    "a value falls": ([Saw(0, 0, 1, {"x": 2}), Saw(0, 2, 3, {"x": 1})], {"nonmonotonic-read": 1}),
    "it falls below what was added": (
        [Saw(0, 0, 1, {"x": 2}, add=True), Saw(0, 2, 3, {"x": 1})], {"nonmonotonic-read": 1},
    ),
    "it is gone": ([Saw(0, 0, 1, {"x": 2}), Saw(0, 2, 3, {"x": None})], {"nonmonotonic-read": 1}),
    "it falls twice": (
        [Saw(0, 0, 1, {"x": 5}), Saw(0, 2, 3, {"x": 3}), Saw(0, 4, 5, {"x": 4}), Saw(0, 6, 7, {"x": 1})],
        {"nonmonotonic-read": 2},
    ),
    "two reads of two values": ([Saw(0, 0, 9, MORE_X), Saw(1, 0, 9, MORE_Y)], {"monotonic-cycle": 1}),
    "three reads of three values": (
        [Saw(0, 0, 9, {"x": 1, "z": 2}), Saw(1, 0, 9, {"x": 2, "y": 1}), Saw(2, 0, 9, {"y": 2, "z": 1})],
        {"monotonic-cycle": 1},
    ),
    "two processes that look at one value after the other": (
        [Saw(0, 0, 1, {"x": 2}), Saw(0, 2, 3, {"y": 1}), Saw(1, 0, 1, {"y": 2}), Saw(1, 2, 3, {"x": 1})],
        {"monotonic-cycle": 1},
    ),
}  # fmt: skip
RIGHT = {
    "it grows": [Saw(0, 0, 1, {"x": 1}), Saw(0, 2, 3, {"x": 2}), Saw(0, 4, 5, {"x": 2})],
    "another process saw less": [Saw(0, 0, 1, {"x": 2}), Saw(1, 2, 3, {"x": 1})],
    "another value": [Saw(0, 0, 1, {"x": 2}), Saw(0, 2, 3, {"y": 1})],
    "the second read failed": [Saw(0, 0, 1, {"x": 2}), Saw(0, 2, 3, {"x": 1}, "fail")],
    "of the first no one knows": [Saw(0, 0, 1, {"x": 2}, "info", add=True), Saw(1, 2, 3, {"x": 1})],
    "it is not known what an add made it": [Saw(0, 0, 1, {"x": 2}), Saw(0, 2, 3, {"x": None}, add=True)],
    "nothing was there": [Saw(0, 0, 1, {"x": None}), Saw(0, 2, 3, {"x": 1})],
    "one saw more of one, and as much of the other": [Saw(0, 0, 9, MORE_X), Saw(1, 0, 9, {"x": 1, "y": 1})],
    "two processes that looked in the same order": [
        Saw(0, 0, 1, {"x": 2}), Saw(0, 2, 3, {"y": 1}), Saw(1, 0, 1, {"x": 1}), Saw(1, 2, 3, {"y": 2}),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("operations", "anomalies"), WRONG.values(), ids=WRONG)
def test_it_is_found(operations: list[Saw], anomalies: dict[str, int]) -> None:
    assert names(operations) == anomalies


@pytest.mark.parametrize("operations", RIGHT.values(), ids=RIGHT)
def test_its_neighbour_is_not(operations: list[Saw]) -> None:
    assert names(operations) == {}


def test_with_real_time_another_process_must_not_see_less_afterwards() -> None:
    stale = [Saw(0, 0, 1, {"x": 2}), Saw(1, 2, 3, {"x": 1})]
    assert names(stale, real_time=True) == {"monotonic-cycle-real-time": 1}
    assert names([Saw(0, 0, 2, {"x": 2}), Saw(1, 1, 3, {"x": 1})], real_time=True) == {}
    by_another = [Saw(0, 0, 1, {"x": 1}), Saw(1, 2, 3, {"y": 1}), Saw(2, 0, 9, {"x": 0, "y": 2})]
    assert names(by_another) == {}
    assert names(by_another, real_time=True) == {"monotonic-cycle-real-time": 1}
    assert names([Saw(0, 0, 9, MORE_X), Saw(1, 0, 9, MORE_Y)], real_time=True) == {"monotonic-cycle": 1}


def test_each_says_who_saw_what() -> None:
    (fall,) = found([Saw(0, 0, 1, {"x": 2}), Saw(0, 2, 3, {"x": 1})])
    assert (fall.key, fall.operations, fall.cycle) == ("x", (1, 0), False)
    assert fall.claim == "x: process 0 saw 2 at 1.000 s, and only 1 in an operation that it called at 2.000 s."
    (circle,) = found([Saw(0, 0, 9, MORE_X), Saw(1, 0, 9, MORE_Y)])
    assert (circle.key, circle.operations, circle.cycle) == ("y", (0, 1), True)
    assert circle.claim == (
        "2 operations come before each other in a circle: operation 0 saw 1 of y, and operation 1 saw 2; operation 1 "
        "saw 1 of x, and operation 0 saw 2."
    )
    assert f": {'; '.join(circle.reasons)}." in circle.claim
    (by_process,) = found(WRONG["two processes that look at one value after the other"][0])
    assert "process 0 made operation 1 after 0; operation 1 saw 1 of y, and operation 2 saw 2" in by_process.claim
    assert by_process.cycle
    (late,) = found([Saw(0, 0, 1, {"x": 2}), Saw(1, 2, 3, {"x": 1})], real_time=True)
    assert late.cycle
    assert "operation 0 had returned at 1.000 s, before 1 was called at 2.000 s" in late.claim


def test_a_whole_history_is_judged_by_its_contract(tmp_path: Path) -> None:
    right = [row for op in range(20) for row in Saw(op % 2, 2 * op, 2 * op + 1, {"x": op, "y": op}).rows(op)]
    promised = forbid(*MONOTONIC_ANOMALIES)
    assert judge(write(tmp_path / "right", right), promised).verdict is Verdict.PASS
    stale = [*right, *Saw(9, 50, 51, {"x": 3, "y": 3}).rows(20)]
    assert judge(write(tmp_path / "stale", stale), promised).verdict is Verdict.PASS
    judgement = judge(write(tmp_path / "stale-now", stale), Contract(transaction_order="real-time"))
    assert (judgement.verdict, judgement.anomalies) == (Verdict.FAIL, {"monotonic-cycle-real-time": 1})


def possible(operations: Sequence[Saw], *, real_time: bool) -> bool:
    """Whether some order keeps that of each process, or of time, and no value falls in it."""
    known = [one for one in operations if one.outcome == "ok"]

    def before(one: Saw, other: Saw) -> bool:
        return (real_time and one.ret < other.call) or (one.process == other.process and one.call < other.call)

    def fits(order: Sequence[Saw]) -> bool:
        held: dict[str, int] = {}
        for place, one in enumerate(order):
            if any(before(later, one) for later in order[place + 1 :]):
                return False
            for key, value in one.seen.items():
                if one.add and value is None:  # what it made it is not known
                    continue
                level = -1 if value is None else value
                if level < held.get(key, level):
                    return False
                held[key] = level
        return True

    return any(fits(order) for order in permutations(known))


def some(number: int, drawn: Sequence[tuple[int, int, dict[str, int | None], str, bool]]) -> list[Saw]:
    """Each process makes one operation after the other; those of different ones overlap or do not.

    Each history has a time of its own: else circles of two of them may be parts of one, by the order of real time.
    """
    ends, begin = dict[int, int](), 100 * number
    operations = []
    for place, (process, length, seen, outcome, add) in enumerate(drawn):
        call = max(ends.get(process, begin) + 1, begin + 2 * place)
        ends[process] = call + length
        named = {f"{key}-{number}": value for key, value in seen.items()}
        operations.append(Saw(10 * number + process, call, ends[process], named, outcome, add))
    return operations


histories = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(1, 6),
            st.dictionaries(st.sampled_from("xyz"), st.one_of(st.none(), st.integers(0, 2)), min_size=1),
            st.sampled_from(["ok", "ok", "ok", "ok", "info", "fail"]),
            st.booleans(),
        ),
        min_size=2,
        max_size=5,
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("real_time", [False, True])
@settings(max_examples=8, phases=set(Phase) - {Phase.shrink})
@given(histories)
def test_something_is_found_iff_no_order_of_the_operations_is_possible(
    real_time: bool, drawn: list[list[tuple[int, int, dict[str, int | None], str, bool]]]
) -> None:
    each = [some(number, one) for number, one in enumerate(drawn)]
    wrong = {number for number, one in enumerate(each) if not possible(one, real_time=real_time)}
    owner = [number for number, one in enumerate(each) for _ in one]
    with asked([saw for one in each for saw in one], real_time=real_time) as (engine, _):
        fallen = [row["op"] for row in engine.rows("select op from found_nonmonotonic_read")]
        circles = [row["ops"] for row in engine.rows("select ops from monotonic_found")]
    assert {owner[op] for op in (*fallen, *(int(op) for ops in circles for op in ops.split(",")))} == wrong
