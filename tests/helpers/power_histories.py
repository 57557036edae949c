"""Histories with losses of power, and the contract of a log that is flushed every ``M`` messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.verdict import Judgement
from assay.checkers.log.family import LOG_ANOMALIES

from helpers.fault_rows import impact
from helpers.judging import judge
from helpers.log_histories import Book, Row, write

M = 5
SERVERS = ("n1", "n2", "n3")
MILLISECOND = 1_000_000
HEALING = 50
"""Milliseconds that a heal takes."""


@dataclass
class Log:
    """Appends a record at a time and reads each at once; None is a hole. A ``power_loss`` is over a second later."""

    book: Book = field(default_factory=Book)
    faults: list[Row] = field(default_factory=list)
    now: int = 0
    values: list[int | None] = field(default_factory=list)
    sent: int = 0
    first: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SERVERS, 0))
    """When each server has written its first event, in milliseconds."""
    written: list[tuple[str, int, int]] = field(default_factory=list)
    """Further events: who wrote them, when, and in which of its lives."""

    def run(self, records: int) -> Log:
        for _ in range(records):
            self.sent += 1
            self.book.send([self.sent], len(self.values), (self.now, self.now + 2), process=1)
            self.values.append(self.sent)
            at = len(self.values) - 1
            self.book.poll(at, [(at, self.sent)], at + 1, (self.now + 3, self.now + 5))
            self.now += 10
        return self

    def struck(
        self,
        fault: str,
        target: str,
        since: int,
        until: int | None = None,
        *,
        took_effect: bool = True,
        stage: str | None = None,
    ) -> Log:
        """Another fault was in force; without ``until`` it was never healed, with a ``stage`` it failed there."""
        detail = json.dumps({"at": since / 1000, "began": since * MILLISECOND})
        row = {"id": len(self.faults), "fault": fault, "targets": json.dumps([target]), "detail": detail}
        row |= impact(fault)
        began = {"phase": "injected" if stage is None else "failed", "stage": stage, "took_effect": None}
        self.faults.append({**row, **began, "time": since * MILLISECOND})
        if until is not None:
            healed = {"phase": "healed", "time": until * MILLISECOND, "took_effect": took_effect}
            self.faults.append({**row, **healed, "detail": json.dumps({"at": (until - HEALING) / 1000})})
        return self

    def joined(self, node: str, at: int) -> Log:
        """A further server has written its first event then."""
        self.first[node] = at
        return self

    def wrote(self, node: str, at: int, life: int = 1) -> Log:
        """It has written a further event then."""
        self.written.append((node, at, life))
        return self

    def power_loss(
        self,
        lost: Sequence[int],
        *,
        targets: Sequence[str] = SERVERS,
        took_effect: bool = True,
        at: int | None = None,
        stage: str | None = None,
        fault: str = "power-loss",
    ) -> Log:
        """``lost``: which of the records go, counted from the last (1 is the last). ``stage``: where it failed."""
        for back in lost:
            self.values[len(self.values) - back] = None
        while self.values and self.values[-1] is None:
            self.values.pop()
        injected = self.now if at is None else at
        row = {"id": len(self.faults), "fault": fault, "targets": json.dumps(targets), "detail": "{}", **impact(fault)}
        began = {"phase": "injected" if stage is None else "failed", "stage": stage, "took_effect": None}
        self.faults += [
            {**row, **began, "time": injected * MILLISECOND},
            {**row, "phase": "healed", "time": (self.now + 1_000) * MILLISECOND, "took_effect": took_effect},
        ]
        self.now += 1_100
        return self

    def judged(self, folder: Path, contract: Contract, *, read: bool = True) -> Judgement:
        """``read``: the log is read from its start to its end when all is healed."""
        book, log = self.book, self.values
        book.send([9_999], len(log), (self.now, self.now + 2), phase="sentinel", process=3)
        log.append(9_999)
        if read:
            shown = [(offset, value) for offset, value in enumerate(log) if value is not None]
            book.poll(0, shown, len(log), (self.now + 10, self.now + 20), phase="drain", process=4)
            book.drained(len(log), (self.now + 30, self.now + 31))
        book.add("end", (self.now + 32, self.now + 33), len(log), process=5)
        events = [
            {
                "time": at * MILLISECOND + 1,
                "node": node,
                "event": "registered",
                "seq": 1,
                "incarnation": 1,
                "detail": "{}",
            }
            for node, at in self.first.items()
        ]
        events += [
            {**events[0], "time": at * MILLISECOND, "node": node, "seq": seq, "incarnation": life}
            for seq, (node, at, life) in enumerate(self.written, start=2)
        ]
        return judge(write(folder / "history", book.rows, faults=self.faults, events=events), contract)


NO_DATA = ("send-skip", "high-watermark-regression")
"""Sets of one value, and one look at the end."""
PLAIN = forbid(*(name for name in LOG_ANOMALIES if name not in NO_DATA), may_stall=["power-loss"])
CONTRACT = PLAIN.tolerate_unflushed(M)
