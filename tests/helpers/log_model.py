"""An executable log with one bug, or none, and clients that use it: small histories of one key each.

Nothing here knows what the checks look for. A bug is a way in which a server, or a client library, goes wrong. Whether
it shows in a history is a matter of luck, and ``helpers.log_possible`` decides it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from helpers.log_histories import Book, Row

BUGS: Final = (
    "lost-tail",
    "acknowledged-not-stored",
    "stored-twice",
    "torn-batch",
    "split-batch",
    "swapped-batch",
    "wrong-offset-acknowledged",
    "record-left-out",
    "record-twice-in-poll",
    "position-jumps",
    "position-goes-back",
    "overwritten",
    "failed-but-stored",
    "made-up-record",
    "seen-then-dropped",
    "stored-late",
    "stale-end",
    "value-of-another",
    "another-create-time",
    "diverged-replica",
)


def create_time(value: int) -> int:
    """With which a value is sent (ms)."""
    return 1_000 + value


@dataclass
class Pending:
    """An operation under way. ``stored``: the offset of its first value, once it took effect."""

    kind: str
    values: list[int]
    begin: int
    called: int
    stored: int | None = None
    applied: bool = False
    answer: int | None = None
    shown: list[tuple[int, int]] = field(default_factory=list)
    retimed: int | None = None
    """The offset that a poll gives with another create time."""


@dataclass
class Model:
    """A key's log and its clients. Time is a counter; each operation has a call, an effect in between, a return."""

    key: str
    rng: random.Random
    first_op: int
    bug: str | None = None

    def __post_init__(self) -> None:
        self.book = Book(self.key, next_op=self.first_op)
        self.log: list[int] = []
        self.next_value = self.now = 0
        self.under_way: dict[int, Pending] = {}
        self.positions = {20: 0, 21: 0}
        self.assignments = {20: 1, 21: 2}
        self.processes = [0, 1, 2]
        self.late: list[Pending] = []
        self.replica: list[int] = []
        self.missed: list[int] = []
        self.ends: list[int] = [0]

    def wrong(self) -> bool:
        """Whether the bug strikes this time."""
        return self.rng.random() < 0.3

    def has(self, bug: str) -> bool:
        return self.bug == bug and self.wrong()

    def history(self, steps: int) -> list[Row]:
        for _ in range(steps):
            self.step()
        for process in list(self.under_way):
            self.finish(process)
        for pending in self.late:
            self.log += pending.values
        self.end_of_run()
        return self.book.rows

    def send(self, values: list[int], offset: int | None, when: tuple[int, int | None], **given: Any) -> None:
        first = len(self.book.rows)
        self.book.send(values, offset, when, **given)
        for row in self.book.rows[first:]:
            row["timestamp"] = create_time(row["value"])

    def poll(self, pending: Pending, when: tuple[int, int], **given: Any) -> None:
        first = len(self.book.rows)
        self.book.poll(pending.begin, pending.shown, pending.answer, when, **given)
        for row in self.book.rows[first:]:
            if row["kind"] == "observe":
                row["timestamp"] = create_time(row["value"]) + (row["position"] == pending.retimed)

    def step(self) -> None:
        self.now += 1
        if self.has("lost-tail") and self.rng.random() < 0.3 and self.log:
            del self.log[-self.rng.randint(1, min(2, len(self.log))) :]
        if self.late and self.rng.random() < 0.2:
            self.log += self.late.pop(0).values
        idle = [process for process in (*self.processes, *self.positions) if process not in self.under_way]
        if idle and self.rng.random() < 0.5:
            self.call(self.rng.choice(idle))
            return
        if not self.under_way:
            return
        process = self.rng.choice(sorted(self.under_way))
        if not self.under_way[process].applied:
            self.apply(process)
        else:
            self.answered(process)

    # -- calls -----------------------------------------------------------------------------------------------------

    def call(self, process: int) -> None:
        if process in self.positions:
            self.under_way[process] = Pending("poll", [], self.positions[process], self.now)
        elif self.rng.random() < 0.2:
            self.under_way[process] = Pending("end", [], 0, self.now)
        else:
            values = [self.next_value + rank for rank in range(self.rng.randint(1, 2))]
            self.next_value += len(values)
            self.under_way[process] = Pending("send", values, 0, self.now)

    # -- effects ---------------------------------------------------------------------------------------------------

    def apply(self, process: int) -> None:
        pending = self.under_way[process]
        pending.applied = True
        if pending.kind == "send":
            self.store(pending)
        elif pending.kind == "end":
            pending.answer = len(self.log)
            if self.has("stale-end"):
                pending.answer = self.rng.choice(self.ends)
            self.ends.append(len(self.log))
        else:
            self.read(pending)

    def store(self, pending: Pending) -> None:
        pending.stored = len(self.log)
        values = list(pending.values)
        if self.has("acknowledged-not-stored"):
            return
        if self.has("stored-late"):
            self.late.append(pending)
            return
        if self.has("torn-batch"):
            values = values[:1]
        elif self.has("swapped-batch"):
            values.reverse()
        elif self.has("overwritten") and self.log:
            pending.stored = len(self.log) - 1
            del self.log[-1]
        elif self.has("split-batch") and len(values) == 2:
            others = [one for one in self.under_way.values() if one.kind == "send" and not one.applied]
            if others:
                other = others[0]
                other.applied, other.stored = True, len(self.log) + 1
                self.log += [values[0], *other.values, values[1]]
                return
        self.log += values
        self.replicate(values)
        if self.has("stored-twice"):
            self.log += values

    def replicate(self, values: list[int]) -> None:
        """To another replica, which may miss a set and be given it after the next one."""
        if self.has("diverged-replica"):
            self.missed += values
        else:
            self.replica += values + self.missed
            self.missed = []

    def read(self, pending: Pending) -> None:
        most = self.rng.randint(0, 4)
        log = self.replica if self.has("diverged-replica") else self.log
        pending.shown = list(enumerate(log))[pending.begin : pending.begin + most]
        pending.answer = pending.begin + len(pending.shown)
        shown = pending.shown
        if not shown:
            return
        spot = self.rng.randrange(len(shown))
        offset = shown[spot][0]
        if self.has("record-left-out"):
            del shown[spot]
        elif self.has("record-twice-in-poll"):
            shown.insert(spot, shown[spot])
        elif self.has("made-up-record"):
            shown[spot] = (offset, 900)
        elif self.has("value-of-another"):
            shown[spot] = (offset, self.rng.choice(self.log))
        elif self.has("another-create-time"):
            pending.retimed = offset
        elif self.has("seen-then-dropped"):
            del self.log[offset:]

    # -- returns ---------------------------------------------------------------------------------------------------

    def answered(self, process: int) -> None:
        if self.under_way[process].kind == "send" and self.rng.random() < 0.2:
            self.lose(process)
        else:
            self.finish(process)

    def lose(self, process: int) -> None:
        """The answer does not arrive: no one knows what became of it, and the process ends."""
        pending = self.under_way.pop(process)
        self.send(pending.values, None, (pending.called, None), process=process, outcome="info")
        self.processes.remove(process)
        self.processes.append(max(self.processes, default=0) + 1 if max(self.processes, default=0) > 2 else 3)

    def finish(self, process: int) -> None:
        pending = self.under_way[process]
        if not pending.applied and pending.kind == "send" and self.rng.random() < 0.5:
            self.lose(process)
            return
        if not pending.applied:
            self.apply(process)
        self.now += 1
        self.under_way.pop(process)
        when = (pending.called, self.now)
        if pending.kind == "send":
            offset = pending.stored
            assert offset is not None
            if self.has("wrong-offset-acknowledged"):
                offset = max(0, offset + self.rng.choice([-1, 1]))
            if self.has("failed-but-stored"):
                self.send(pending.values, None, when, process=process, outcome="fail")
            else:
                self.send(pending.values, offset, when, process=process)
        elif pending.kind == "end":
            self.book.add("end", when, pending.answer, process=process)
        else:
            self.poll(pending, when, process=process, assignment=self.assignments[process])
            assert pending.answer is not None
            self.positions[process] = pending.answer
            if self.has("position-jumps"):
                self.positions[process] += 1
            elif self.has("position-goes-back") and pending.answer:
                self.positions[process] -= 1

    def end_of_run(self) -> None:
        """A last record, a reader from the beginning that reaches it, and where that left the log."""
        self.now += 10
        self.send([999], len(self.log), (self.now, self.now + 1), process=90, phase="sentinel")
        self.log.append(999)
        last = Pending("poll", [], 0, self.now + 2, answer=len(self.log), shown=list(enumerate(self.log)))
        self.poll(last, (self.now + 2, self.now + 3), process=91, assignment=9, phase="drain")
        self.book.drained(len(self.log), (self.now + 4, self.now + 5))


def history(
    number: int, bug: str | None, seed: int, steps: int, key: Callable[[int], str] = "m-{}".format
) -> list[Row]:
    """History ``number``: a key and operation numbers of its own."""
    return Model(key(number), random.Random(f"{seed}/{number}"), number * 1_000, bug).history(steps)
