"""A finding of a lasting contradiction names the two operations nearest in time, not the first and the last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from assay.checkers.engine import DuckDB, SQLite
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.judge import judge as judge_with

from helpers.judging import judge
from helpers.log_histories import Book, Row, effect, write
from helpers.register_histories import Ledger

SECOND: Final = 1_000_000_000

Case = tuple[list[Row], set[int]]
"""Rows, and the two operations that should be named first."""


def vanished() -> Case:
    """Shown by three polls, missed by the next two."""
    book = Book()
    book.send([1, 2], 0, (100, 110))
    polls = [book.poll(0, [(0, 1), (1, 2)], 2, (when, when + 10)) for when in (1_000, 2_000, 3_000)]
    missed = [book.poll(0, [(1, 2)], 2, (when, when + 10)) for when in (5_000, 6_000)]
    return book.rows, {polls[-1], missed[0]}


def flickered() -> Case:
    """Missed twice in between: the second time sooner after it was shown."""
    book = Book()
    book.send([1, 2], 0, (100, 110))
    book.poll(0, [(0, 1), (1, 2)], 2, (1_000, 1_010))
    book.poll(0, [(1, 2)], 2, (3_000, 3_010))
    shown = book.poll(0, [(0, 1), (1, 2)], 2, (5_000, 5_010))
    return book.rows, {shown, book.poll(0, [(1, 2)], 2, (5_500, 5_510))}


def passed_before_it_was_acknowledged() -> Case:
    """No poll was called after the acknowledgement: the last one before it."""
    book = Book()
    for when in (100, 300):
        poll = book.poll(0, [(1, 2)], 2, (when, when + 10))
    send = book.send([1, 2], 0, (50, 1_000))
    return book.rows, {poll, send}


def replaced() -> Case:
    """Offset 0 holds 1 until a poll at 3.0 s, and 2 from a send at 4.0 s on."""
    book = Book()
    book.send([1], 0, (100, 110))
    for when in (1_000, 3_000):
        poll = book.poll(0, [(0, 1)], 1, (when, when + 10))
    send = book.send([2], 0, (4_000, 4_010))
    book.poll(0, [(0, 2)], 1, (6_000, 6_010))
    return book.rows, {poll, send}


def filled_late() -> Case:
    """Offset 1 was there at 0.1 s, and read again and again; offset 0 was filled by a send at 4.0 s."""
    book = Book()
    book.send([1], 1, (100, 110))
    for when in (1_000, 3_000):
        poll = book.poll(1, [(1, 1)], 2, (when, when + 10))
    send = book.send([2], 0, (4_000, 4_010))
    return book.rows, {poll, send}


def read_again() -> Case:
    """An old value of a register is read at 6.0 s; the newer one was last read at 5.0 s."""
    book = Ledger()
    book.write(1, (10, 20))
    book.write(2, (30, 40))
    reads = [book.read(2, (when, when + 10)) for when in (1_000, 3_000, 5_000)]
    return book.rows, {book.read(1, (6_000, 6_010)), reads[-1]}


def read_again_by_version() -> Case:
    book = Ledger()
    book.write(1, (10, 20), version=1)
    book.write(2, (30, 40), version=2)
    reads = [book.read(2, (when, when + 10), version=2) for when in (1_000, 3_000, 5_000)]
    return book.rows, {book.read(1, (6_000, 6_010), version=1), reads[-1]}


def replaced_three_times() -> Case:
    book = Ledger()
    book.write(1, (10, 20))
    book.cas(1, 2, (100, 110))
    near = {book.cas(1, 3, (1_000, 1_010)), book.cas(1, 4, (1_100, 1_110))}
    return book.rows, near


def counted_back() -> Case:
    rows = [effect(op, 0, "counter-add", "c-0", op * 10, op * 10 + 5, value=op) for op in range(6)]
    rows += [effect(op, 0, "counter-read", "c-0", op * 100, op * 100 + 5, value=6) for op in (6, 7, 8)]
    return [*rows, effect(9, 0, "counter-read", "c-0", 2_000, 2_005, value=3)], {8, 9}


def counted_twice() -> Case:
    times = {0: 10, 1: 1_000, 2: 1_100}
    rows = [effect(op, 0, "counter-add", "c-0", call, call + 5, value=0) for op, call in times.items()]
    return rows, {1, 2}


def missing_from_a_set() -> Case:
    rows = [effect(0, 0, "set-add", "s-0", 10, 20, value=7)]
    rows += [effect(op, 0, "set-read", "s-0", op * 100, op * 100 + 5, value=7) for op in (1, 2, 3)]
    rows += [effect(op, 0, "set-read", "s-0", op * 1_000, op * 1_000 + 5, value=None) for op in (4, 5)]
    return rows, {3, 4}


def went_back_and_stayed() -> Case:
    """A group's offset: 9 was acknowledged three times; then 5 and 6 were committed."""
    times = {0: (9, 10), 1: (9, 100), 2: (9, 200), 3: (5, 1_000), 4: (6, 2_000)}
    rows = [
        effect(op, 0, "advance", "g/t-0", call, call + 5, group="g", position=position, process=op)
        for op, (position, call) in times.items()
    ]
    return rows, {2, 3}


def owned_by_three() -> Case:
    owners = {0: ("a", 10), 1: ("c", 1_000), 2: ("b", 1_100)}
    rows = [
        effect(op, 0, "acquire", "t-0", call, call + 5, group="g", owner=owner, generation=1, assignment=op, process=op)
        for op, (owner, call) in owners.items()
    ]
    return rows, {1, 2}


def used_after_a_newer_token() -> Case:
    def step(op: int, kind: str, token: int) -> Row:
        return effect(op, 0, kind, "lease", op * 100, op * 100 + 5, token=token, owner=f"o{token}", process=token)

    newer = [step(2, "acquire", 2), step(3, "guarded", 2), step(4, "guarded", 2)]
    return [step(1, "acquire", 1), *newer, step(7, "guarded", 1)], {4, 7}


def end_went_back() -> Case:
    book = Book()
    for when, end in ((100, 9), (1_000, 9), (2_000, 8)):
        former = book.add("end", (when, when + 10), end, leader_epoch=1)
    return book.rows, {former, book.add("end", (3_000, 3_010), 5, leader_epoch=1)}


CASES: tuple[tuple[str, Callable[[], Case]], ...] = (
    ("vanished", vanished),
    ("vanished", flickered),
    ("lost-write", passed_before_it_was_acknowledged),
    ("inconsistent-offset", replaced),
    ("real-time-order", filled_late),
    ("stale-read", read_again),
    ("stale-read", read_again_by_version),
    ("lost-update", replaced_three_times),
    ("counter-order", counted_back),
    ("counter-duplicate", counted_twice),
    ("set-vanished", missing_from_a_set),
    ("offset-regression", went_back_and_stayed),
    ("double-ownership", owned_by_three),
    ("fencing-violation", used_after_a_newer_token),
    ("high-watermark-regression", end_went_back),
)


def test_the_cause_lies_before_the_first_contradiction_not_only_before_the_nearest(tmp_path: Path) -> None:
    rows, near = flickered()
    findings = judge(write(tmp_path / "history", rows), Contract()).findings
    (finding,) = [finding for finding in findings if finding.anomaly == "vanished"]
    assert set(finding.operations[:2]) == near
    assert (finding.since, finding.until) == (1_010_000_000, 5_510_000_000)


@pytest.mark.parametrize("kind", [DuckDB, SQLite])
@pytest.mark.parametrize(
    ("anomaly", "make", "first"),
    [
        ("vanished", flickered, (3 * SECOND, 2)),
        ("vanished", vanished, (5 * SECOND, 4)),
        ("lost-write", passed_before_it_was_acknowledged, (SECOND, 2)),
        ("inconsistent-offset", replaced, (4 * SECOND + SECOND // 100, 3)),
        ("real-time-order", filled_late, (4 * SECOND, 3)),
        ("lost-update", replaced_three_times, (SECOND, 2)),
        ("counter-duplicate", counted_twice, (1_000, 1)),
        ("set-vanished", missing_from_a_set, (4_000, 4)),
        ("offset-regression", went_back_and_stayed, (1_000, 3)),
        ("double-ownership", owned_by_three, (1_005, 1)),
        ("fencing-violation", used_after_a_newer_token, (700, 7)),
        ("stale-read", read_again, (None, None)),
    ],
)
def test_the_first_occurrence_is_named_as_well(
    tmp_path: Path,
    anomaly: str,
    make: Callable[[], Case],
    first: tuple[int | None, int | None],
    kind: type[DuckDB | SQLite],
) -> None:
    history = open_history(write(tmp_path / "history", make()[0]))
    with kind() as engine:
        findings = judge_with(history, Contract(), engine).findings
    assert first in [(one.first_time, one.first_operation) for one in findings if one.anomaly == anomaly]


@pytest.mark.parametrize(("anomaly", "make"), CASES, ids=[make.__name__ for _, make in CASES])
def test_the_two_nearest_in_time_are_named(tmp_path: Path, anomaly: str, make: Callable[[], Case]) -> None:
    rows, near = make()
    findings = judge(write(tmp_path / "history", rows), Contract()).findings
    named = [set(finding.operations[:2]) for finding in findings if finding.anomaly == anomaly]
    assert near in named
