"""What may go when all servers lose power, and its nearest neighbours, which may not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from log_histories import Book, Row, write

from checkers.contract import Contract, forbid
from checkers.judge import judge
from checkers.log import LOG_ANOMALIES
from checkers.unflushed import UNFLUSHED_LOSS
from checkers.verdict import Judgement, Verdict

M = 5
SERVERS = ("n1", "n2", "n3")
MILLISECOND = 1_000_000


@dataclass
class Log:
    """One record at a time, each read at once; None is a hole. A ``power_loss`` is over a second later."""

    book: Book = field(default_factory=Book)
    faults: list[Row] = field(default_factory=list)
    now: int = 0
    values: list[int | None] = field(default_factory=list)
    sent: int = 0

    def run(self, records: int) -> Log:
        for _ in range(records):
            self.sent += 1
            self.book.send([self.sent], len(self.values), (self.now, self.now + 2), process=1)
            self.values.append(self.sent)
            at = len(self.values) - 1
            self.book.poll(at, [(at, self.sent)], at + 1, (self.now + 3, self.now + 5))
            self.now += 10
        return self

    def power_loss(
        self, lost: Sequence[int], *, targets: Sequence[str] = SERVERS, bit: bool = True, at: int | None = None
    ) -> Log:
        """``lost``: which of the records go, counted from the last (1 is the last)."""
        for back in lost:
            self.values[len(self.values) - back] = None
        while self.values and self.values[-1] is None:
            self.values.pop()
        injected = self.now if at is None else at
        row = {"id": len(self.faults), "fault": "power-loss", "targets": json.dumps(targets), "detail": "{}"}
        self.faults += [
            {**row, "phase": "injected", "time": injected * MILLISECOND, "bit": None},
            {**row, "phase": "healed", "time": (self.now + 1_000) * MILLISECOND, "bit": bit},
        ]
        self.now += 1_100
        return self

    def judged(self, folder: Path, contract: Contract) -> Judgement:
        book, log = self.book, self.values
        book.send([9_999], len(log), (self.now, self.now + 2), phase="sentinel", process=3)
        log.append(9_999)
        shown = [(offset, value) for offset, value in enumerate(log) if value is not None]
        book.poll(0, shown, len(log), (self.now + 10, self.now + 20), phase="drain", process=4)
        book.drained(len(log), (self.now + 30, self.now + 31))
        book.add("end", (self.now + 32, self.now + 33), len(log), process=5)
        events = [
            {"time": 1, "node": node, "event": "registered", "seq": 1, "incarnation": 1, "detail": "{}"}
            for node in SERVERS
        ]
        return judge(write(folder / "history", book.rows, faults=self.faults, events=events), contract)


NO_DATA = ("send-skip", "high-watermark-regression")
"""Sets of one value, and one look at the end."""
PLAIN = forbid(*(name for name in LOG_ANOMALIES if name not in NO_DATA), may_stall=["power-loss"])
CONTRACT = PLAIN.tolerate_unflushed(M)


def test_the_unflushed_tail_may_go_with_the_power_of_all(tmp_path: Path) -> None:
    judged = Log().run(20).power_loss([1, 2, 3, 4]).run(10).judged(tmp_path, CONTRACT)
    assert judged.unknown == ()
    assert judged.verdict is Verdict.PASS
    assert judged.anomalies == {UNFLUSHED_LOSS: 4}
    first = judged.findings[0].claim
    assert "value 17 at offset 16 of orders-0 was acknowledged to process 1" in first
    assert "the log was cut at offset 16" in first


def test_the_same_history_fails_where_every_record_is_flushed(tmp_path: Path) -> None:
    judged = Log().run(20).power_loss([1, 2, 3, 4]).run(10).judged(tmp_path, PLAIN)
    assert judged.verdict is Verdict.FAIL
    assert "vanished" in judged.anomalies
    assert UNFLUSHED_LOSS not in judged.anomalies


def test_nothing_is_told_where_nothing_was_lost(tmp_path: Path) -> None:
    judged = Log().run(20).power_loss([]).run(10).judged(tmp_path, CONTRACT)
    assert (judged.verdict, judged.anomalies) == (Verdict.PASS, {})


@pytest.mark.parametrize("again", [0, 2, 30])
def test_each_of_two_losses_may_take_its_tail(tmp_path: Path, again: int) -> None:
    log = Log().run(20).power_loss([1, 2]).run(again).power_loss([1, 2][:again]).run(10)
    judged = log.judged(tmp_path, CONTRACT)
    assert judged.unknown == ()
    assert judged.verdict is Verdict.PASS
    assert judged.anomalies == {UNFLUSHED_LOSS: 4 if again else 2}


@pytest.mark.parametrize(
    ("why", "make"),
    [
        ("an older one", lambda: Log().run(20).power_loss([12])),
        ("a hole: what came after it is there", lambda: Log().run(20).power_loss([2])),
        ("one server kept its power", lambda: Log().run(20).power_loss([1, 2], targets=["n1", "n2"])),
        ("no power was lost, by the evidence", lambda: Log().run(20).power_loss([1, 2], bit=False)),
        ("it was acknowledged after the loss", lambda: Log().run(20).power_loss([1, 2], at=100)),
    ],
)
def test_nothing_else_may_go(tmp_path: Path, why: str, make: object) -> None:
    assert callable(make)
    log: Log = make()
    judged = log.run(10).judged(tmp_path, CONTRACT)
    assert judged.verdict is Verdict.FAIL, why
    assert UNFLUSHED_LOSS not in judged.anomalies
    assert {"vanished", "inconsistent-offset"} & set(judged.anomalies)


def test_one_more_than_is_in_memory_may_not_go(tmp_path: Path) -> None:
    judged = Log().run(20).power_loss([1, 2, 3, 4, 5]).run(10).judged(tmp_path, CONTRACT)
    assert judged.verdict is Verdict.FAIL
    assert judged.anomalies[UNFLUSHED_LOSS] == 4
    assert any("offset 15 of orders-0" in one.claim for one in judged.findings if one.anomaly == "vanished")


def test_a_record_that_moved_has_not_gone(tmp_path: Path) -> None:
    log = Log().run(20).power_loss([1, 2])
    log.values.append(20)
    judged = log.run(10).judged(tmp_path, CONTRACT)
    assert judged.verdict is Verdict.FAIL
    assert UNFLUSHED_LOSS not in judged.anomalies


def test_what_else_is_wrong_before_and_after_the_cut_is_found(tmp_path: Path) -> None:
    before = Log().run(10)
    before.book.send([500], 3, (before.now - 4, before.now - 1), process=7)
    judged = before.run(10).power_loss([1, 2]).run(10).judged(tmp_path / "a", CONTRACT)
    assert judged.anomalies.keys() >= {UNFLUSHED_LOSS, "inconsistent-offset"}
    after = Log().run(20).power_loss([1, 2]).run(10)
    after.book.send([500], 19, (after.now - 4, after.now - 1), process=7)
    judged = after.run(2).judged(tmp_path / "b", CONTRACT)
    assert judged.anomalies.keys() >= {UNFLUSHED_LOSS, "inconsistent-offset"}


def test_a_contract_that_flushes_each_message_allows_nothing() -> None:
    assert PLAIN.tolerate_unflushed(1) == PLAIN
    assert CONTRACT.tolerates(UNFLUSHED_LOSS)
    assert CONTRACT.unflushed == M - 1
    with pytest.raises(ValueError, match="number of records"):
        Contract(unflushed=-1)
