"""Register histories for tests: by hand (``Ledger``), from a simulated correct register, and with something broken."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.log_histories import Row, effect


@dataclass
class Ledger:
    """Writes a register's history by hand. Times are milliseconds; each operation is a process of its own."""

    key: str = "r-0"
    rows: list[Row] = field(default_factory=list)
    next_op: int = 0

    def _add(self, kind: str, value: int | None, when: tuple[int, int | None], **given: Any) -> int:
        op, self.next_op = self.next_op, self.next_op + 1
        call, ret = when[0] * 1_000_000, None if when[1] is None else when[1] * 1_000_000
        given = {"process": op, "outcome": "info" if ret is None else "ok", **given}
        self.rows.append(effect(op, 0, kind, self.key, call, ret, value=value, **given))
        return op

    def write(self, value: int, when: tuple[int, int | None], **given: Any) -> int:
        return self._add("register-write", value, when, **given)

    def read(self, value: int | None, when: tuple[int, int | None], **given: Any) -> int:
        return self._add("register-read", value, when, **given)

    def cas(self, expected: int | None, value: int, when: tuple[int, int | None], **given: Any) -> int:
        return self._add("register-cas", value, when, expected=expected, **given)


@dataclass
class _Client:
    """Idle, called, applied. ``found``: what the register answered; ``done``: an open operation took effect."""

    process: int
    stage: str = "idle"
    kind: str = "register-read"
    outcome: str = "ok"
    call: int = 0
    value: int | None = None
    expected: int | None = None
    version: int | None = None
    rows: list[Row] = field(default_factory=list)


class SimulatedRegister:
    """A correct register with concurrent clients whose operations end ok, fail and info; times strictly rise."""

    def __init__(self, key: str, rng: random.Random, first_op: int, *, versions: bool = False) -> None:
        self.key, self.rng, self.versions = key, rng, versions
        self.value: int | None = None
        self.version = 0
        self.clock = self.next_process = 0
        self.next_value, self.next_op = 1, first_op
        self.rows: list[Row] = []
        self.late: list[tuple[str, int | None, int | None]] = []
        self.known: list[int | None] = [None]
        self.weights = rng.choice(((5, 3, 3), (4, 1, 6), (6, 4, 1), (2, 1, 5)))

    def run(self, operations: int) -> list[Row]:
        clients = [_Client(self._process()) for _ in range(self.rng.randint(2, 4))]
        begun = 0
        while begun < operations or any(client.stage != "idle" for client in clients):
            if self.late and self.rng.random() < 0.2:
                self._take_effect(*self.late.pop(self.rng.randrange(len(self.late))))
            idle = begun >= operations
            client = self.rng.choice([one for one in clients if not idle or one.stage != "idle"])
            begun += client.stage == "idle"
            self._step(client)
        return self.rows

    def _process(self) -> int:
        self.next_process += 1
        return self.next_process - 1

    def _tick(self) -> int:
        self.clock += 1
        return self.clock

    def _take_effect(self, kind: str, expected: int | None, value: int | None) -> bool:
        if kind == "register-cas" and self.value != expected:
            return False
        self.value, self.version = value, self.version + 1
        return True

    def _step(self, client: _Client) -> None:
        if client.stage == "idle":
            client.call, client.stage, client.rows = self._tick(), "called", []
            client.kind = self.rng.choices(("register-read", "register-write", "register-cas"), self.weights)[0]
            draw = self.rng.random()
            client.outcome = "ok" if draw < 0.7 else "fail" if draw < 0.78 else "info"
            client.expected = self.rng.choice((self.value, self.value, *self.known[-2:]))
        elif client.stage == "called":
            client.stage = "applied"
            self._apply(client)
        else:
            client.stage = "idle"
            ret = None if client.outcome == "info" else self._tick()
            for sub, row in enumerate(client.rows):
                row.update(op=self.next_op, sub=sub, call=client.call, ret=ret, process=client.process)
            self.next_op += 1
            self.rows += client.rows
            if client.outcome == "info":
                client.process = self._process()

    def _row(self, client: _Client, kind: str, value: int | None, **given: Any) -> None:
        outcome = given.pop("outcome", client.outcome)
        if self.versions and outcome == "ok" and value is not None and self.rng.random() < 0.97:
            given["version"] = self.version
        client.rows.append(effect(0, 0, kind, self.key, 0, 0, value=value, outcome=outcome, **given))

    def _apply(self, client: _Client) -> None:
        if client.kind == "register-read":
            self.known.append(self.value)
            self._row(client, "register-read", self.value if client.outcome == "ok" else None)
            return
        value, self.next_value = self.next_value, self.next_value + 1
        expected = client.expected if client.kind == "register-cas" else None
        if client.outcome == "ok" and not self._take_effect(client.kind, expected, value):
            client.outcome = "fail"
            self._row(client, "register-cas", value, expected=expected)
            if self.rng.random() < 0.7:
                self._row(client, "register-read", self.value, outcome="ok")
            return
        if client.outcome == "info":
            fate = self.rng.random()
            if fate < 0.4:
                self._take_effect(client.kind, expected, value)
            elif fate < 0.8:
                self.late.append((client.kind, expected, value))
        self._row(client, client.kind, value, expected=expected)


def broken(rows: Sequence[Row], rng: random.Random) -> list[Row]:
    """A copy in which one to three rows tell something else; written values stay unique."""
    rows = [dict(row) for row in rows]
    for _ in range(rng.randint(1, 3)):
        if rows:
            _break(rows, rng)
    return rows


def _break(rows: list[Row], rng: random.Random) -> None:
    row = rng.choice(rows)
    values = [other["value"] for other in rows] + [None]
    match rng.randrange(8):
        case 0:
            rows.remove(row)
        case 1 | 2 if row["kind"] == "register-read":
            row["value"] = rng.choice([*values, 1_000_000])
        case 3 if row["kind"] == "register-cas":
            row["expected"] = rng.choice([one for one in values if one != row["value"]])
        case 4:
            row["outcome"] = rng.choice(("ok", "fail", "info"))
            if row["ret"] is None and row["outcome"] == "ok":
                row["outcome"] = "info"
        case 5 | 6:
            _shift(rows, row["op"], rng)
        case 7 if row["version"] is not None:
            row["version"] = max(1, row["version"] + rng.choice((-1, 1, 2)))


def _shift(rows: list[Row], op: int, rng: random.Random) -> None:
    """Moves one operation in time, or one of its ends; stamps stay distinct."""
    mine = [row for row in rows if row["op"] == op]
    taken = {row[name] for row in rows if row["op"] != op for name in ("call", "ret")} - {None}
    call, ret = mine[0]["call"] + rng.randint(-9, 9), mine[0]["ret"]
    if ret is not None:
        ret = max(call + 1, ret + rng.randint(-9, 9))
    if call in taken or ret in taken:
        return
    for row in mine:
        row.update(call=call, ret=ret)
