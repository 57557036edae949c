"""Transactional histories for tests: by hand, and from a small store at several isolation levels."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.checkers.check import create_views
from assay.checkers.isolation.levels import CYCLE_CLASSES
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.transactions.cycles import prepare_cycles
from assay.checkers.transactions.family import TRANSACTION_FAMILIES

from helpers.judging import opened
from helpers.log_histories import Row, effect, write

OPS = 1000
"""Operation numbers of each history, where there are several in one."""

Micro = tuple[str, str, Any]


@dataclass
class Txn:
    """``micros``: ("append" | "w" | "r", key, value); a read's value is what it found, a list or a number or None."""

    op: int
    micros: Sequence[Micro]
    call: int
    ret: int | None
    outcome: str = "ok"
    process: int = 0

    def rows(self) -> list[Row]:
        rows: list[Row] = []

        def add(kind: str, key: str, value: Any, list_index: int | None = None) -> None:
            given = {"value": value, "list_index": list_index, "outcome": self.outcome, "process": self.process}
            rows.append(effect(self.op, len(rows), kind, key, self.call, self.ret, **given))

        for f, key, value in self.micros:
            if f != "r":
                add({"append": "txn-append", "w": "txn-write"}[f], key, value)
            elif self.outcome == "ok" and isinstance(value, list | tuple) and value:
                for index, element in enumerate(value):
                    add("txn-read", key, element, index)
            elif self.outcome == "ok":
                add("txn-read", key, None if isinstance(value, list | tuple) else value)
        return rows


@dataclass
class Store:
    """Writes a history by hand: transactions one after the other in time, unless asked otherwise, each by a process of
    its own. ``"ax1"`` appends 1 to x, ``"wx1"`` writes it, ``"rx"`` read nothing, ``"rx12"`` read [1, 2], ``"rx=1"``
    the register's 1."""

    txns: list[Txn] = field(default_factory=list)

    def add(
        self, *micros: str, outcome: str = "ok", when: tuple[int, int] | None = None, process: int | None = None
    ) -> int:
        op = len(self.txns)
        call, ret = when or (10 * op + 1, 10 * op + 6)
        self.txns.append(
            Txn(op, [_micro(one) for one in micros], call * 1000, None if outcome == "info" else ret * 1000, outcome,
                op if process is None else process)
        )  # fmt: skip
        return op

    @property
    def rows(self) -> list[Row]:
        return [row for txn in self.txns for row in txn.rows()]


def _micro(text: str) -> Micro:
    f, key, rest = text[0], text[1], text[2:]
    if f == "r":
        return "r", key, int(rest[1:]) if rest.startswith("=") else [int(one) for one in rest]
    return {"a": "append", "w": "w"}[f], key, int(rest)


SERIALIZABLE = "serializable"
SNAPSHOT = "snapshot isolation"
COMMITTED = "read committed"
UNCOMMITTED = "read uncommitted"
NOTHING = "nothing"
LEVELS = (SERIALIZABLE, SNAPSHOT, COMMITTED, UNCOMMITTED, NOTHING)

Values = dict[str, list[int]]


@dataclass
class _Running:
    """A transaction at work. ``left``: micro-operations not yet done; ``base``: the snapshot that it reads, if any."""

    process: int
    call: int
    left: list[tuple[str, str]]
    base: Values | None
    versions: dict[str, int]
    done: list[Micro] = field(default_factory=list)
    mine: list[tuple[str, int]] = field(default_factory=list)


class SimulatedStore:
    """Lists, or registers, with concurrent clients. Each key's content is a list; of a register it is the last element.

    Below snapshot isolation a write holds its key until its transaction ends, and one that finds it held fails; a level
    of ``NOTHING`` has no such locks. From ``COMMITTED`` up writes are kept aside until the commit. Some end info;
    where writes are visible at once those are committed.
    """

    def __init__(
        self, level: str, rng: random.Random, *, first_op: int = 0, name: str = "", registers: bool = False
    ) -> None:
        self.level, self.rng, self.registers = level, rng, registers
        self.keys = [f"{name}{key}" for key in "xyz"[: rng.randint(1, 3)]]
        self.values: Values = {key: [] for key in self.keys}
        self.versions = dict.fromkeys(self.keys, 0)
        self.locks: dict[str, _Running] = {}
        self.clock, self.next_op, self.next_process, self.next_value = first_op * 1000, first_op, 0, 1
        self.txns: list[Txn] = []

    def run(self, transactions: int, clients: int = 3, most: int = 4) -> list[Txn]:
        running: dict[int, _Running | None] = {self._process(): None for _ in range(clients)}
        begun = 0
        while begun < transactions or any(running.values()):
            process = self.rng.choice([one for one, txn in running.items() if txn or begun < transactions])
            txn = running[process]
            if txn is None:
                begun += 1
                running[process] = self._begin(process, most)
            elif txn.left:
                if not self._step(txn):
                    running[process] = self._end(txn, "fail")
            else:
                draw = self.rng.random()
                outcome = "ok" if draw < 0.8 else "fail" if draw < 0.9 else "info"
                running[process] = self._end(txn, outcome)
                if outcome == "info":
                    del running[process]
                    running[self._process()] = None
        return self.txns

    def _process(self) -> int:
        self.next_process += 1
        return self.next_process - 1

    def _tick(self) -> int:
        self.clock += 1
        return self.clock

    def _begin(self, process: int, most: int) -> _Running:
        verbs = ("r", "r", "w" if self.registers else "append")
        micros = [(self.rng.choice(verbs), self.rng.choice(self.keys)) for _ in range(self.rng.randint(1, most))]
        base = {key: list(values) for key, values in self.values.items()} if self.level == SNAPSHOT else None
        return _Running(process, self._tick(), micros, base, dict(self.versions))

    def _step(self, txn: _Running) -> bool:
        """Does one micro-operation, or in a serializable store all of them. Whether the transaction may go on."""
        while txn.left:
            f, key = txn.left.pop(0)
            if f == "r":
                txn.done.append((f, key, self._shown(self._content(txn, key))))
            else:
                locked = self.level in (COMMITTED, UNCOMMITTED)
                if locked and self.locks.setdefault(key, txn) is not txn:
                    txn.done.append((f, key, self._value()))
                    return False
                value = self._value()
                txn.done.append((f, key, value))
                txn.mine.append((key, value))
                if self.level in (UNCOMMITTED, NOTHING):
                    self.values[key].append(value)
            if self.level != SERIALIZABLE:
                return True
        return True

    def _content(self, txn: _Running, key: str) -> list[int]:
        if self.level in (UNCOMMITTED, NOTHING):
            return list(self.values[key])
        base = self.values if txn.base is None else txn.base
        return [*base[key], *(value for name, value in txn.mine if name == key)]

    def _shown(self, content: list[int]) -> Any:
        return (content[-1] if content else None) if self.registers else content

    def _value(self) -> int:
        self.next_value += 1
        return self.next_value - 1

    def _end(self, txn: _Running, outcome: str) -> None:
        at_once = self.level in (UNCOMMITTED, NOTHING)
        commits = outcome == "ok" or (outcome == "info" and (at_once or self.rng.random() < 0.5))
        if self.level == SNAPSHOT and commits:
            written = {key for key, _ in txn.mine}
            if any(self.versions[key] != txn.versions[key] for key in written):
                commits, outcome = False, "fail" if outcome == "ok" else outcome
            else:
                for key in written:
                    self.versions[key] += 1
        if self.level == SERIALIZABLE and commits and outcome == "ok" and txn.done != self._again(txn):
            commits, outcome = False, "fail"
        if commits and not at_once:
            for key, value in txn.mine:
                self.values[key].append(value)
        if not commits and at_once:
            for key, value in txn.mine:
                self.values[key].remove(value)
        for key in [key for key, holder in self.locks.items() if holder is txn]:
            del self.locks[key]
        ret = None if outcome == "info" else self._tick()
        micros = [*txn.done, *((f, key, self._value()) for f, key in txn.left if f != "r")]
        self.txns.append(Txn(self.next_op, micros, txn.call, ret, outcome, txn.process))
        self.next_op += 1

    def _again(self, txn: _Running) -> list[Micro]:
        """Returns what the transaction would see if it were done as a whole now."""
        mine: list[tuple[str, int]] = []
        seen: list[Micro] = []
        for f, key, value in txn.done:
            if f == "r":
                seen.append((f, key, self._shown([*self.values[key], *(one for name, one in mine if name == key)])))
            else:
                mine.append((key, value))
                seen.append((f, key, value))
        return seen


def broken(txns: Sequence[Txn], rng: random.Random) -> list[Txn]:
    """A copy in which some reads tell something else, or an outcome is another; written values stay unique."""
    txns = [Txn(t.op, list(t.micros), t.call, t.ret, t.outcome, t.process) for t in txns]
    for _ in range(rng.randint(1, 2)):
        txn = rng.choice(txns)
        reads = [number for number, micro in enumerate(txn.micros) if micro[0] == "r"]
        if not reads or rng.random() < 0.15:
            if txn.ret is not None:
                txn.outcome = rng.choice(("ok", "fail"))
            continue
        number = rng.choice(reads)
        _, key, found = txn.micros[number]
        others = [micro[2] for t in txns for micro in t.micros if micro[1] == key and micro[0] == "r"]
        written = [micro[2] for t in txns for micro in t.micros if micro[1] == key and micro[0] != "r"]
        if isinstance(found, list):
            found = list(found)
            match rng.randrange(5):
                case 0:
                    found = found[:-1]
                case 1 if written:
                    found.append(rng.choice([*written, 999]))
                case 2:
                    rng.shuffle(found)
                case 3:
                    found = list(rng.choice(others))
                case 4 if found:
                    found.pop(rng.randrange(len(found)))
        else:
            found = rng.choice([None, *others, *written, 999 if rng.random() < 0.1 else None])
        micros = list(txn.micros)
        micros[number] = ("r", key, found)
        txn.micros = micros
    return txns


def numbered(number: int, txns: Sequence[Txn]) -> list[Txn]:
    """A history with keys, operation numbers and times of its own, to lie in one with others."""
    return [
        replace(
            txn,
            op=txn.op + number * OPS,
            micros=[(f, f"{number}/{key}", value) for f, key, value in txn.micros],
            call=txn.call + number * OPS * 1000,
            ret=None if txn.ret is None else txn.ret + number * OPS * 1000,
        )
        for txn in txns
    ]


def merge_values(txns: Sequence[Txn]) -> list[Txn]:
    """Returns the history with the values 1 and 2 as one, and 5 and 6, so that they have several writers."""
    merged = {2: 1, 6: 5}

    def merge(value: Any) -> Any:
        return [merged.get(one, one) for one in value] if isinstance(value, list | tuple) else merged.get(value, value)

    return [replace(txn, micros=[(f, key, merge(value)) for f, key, value in txn.micros]) for txn in txns]


def by_sql(
    folder: Path, histories: Sequence[Sequence[Txn]], order: str = "none", *, is_doubtful: bool = False
) -> dict[int, set[str]]:
    """The anomalies of each history, by its number. ``is_doubtful``: whether there are reasons not to pass."""
    found: dict[int, set[str]] = {}
    rows = [row for history in histories for txn in history for row in txn.rows()]
    with opened(write(folder, rows)) as engine:
        register_contract(engine, Contract(transaction_order=order))  # type: ignore[arg-type]
        create_views(engine, TRANSACTION_FAMILIES[0].views)
        examined = engine.rows(TRANSACTION_FAMILIES[0].applies)  # known by the kinds of effects alone
        assert examined == engine.rows("select count(*) as examined from txn_rows")
        assert bool(prepare_cycles(engine)) is is_doubtful
        for check in (check for family in TRANSACTION_FAMILIES for check in family.checks):
            create_views(engine, check.views)
            cycle = check.anomaly.startswith(CYCLE_CLASSES)
            for row in engine.rows(f"select {'first_op' if cycle else 'key'} as place from {check.found}"):
                index = row["place"] // OPS if cycle else int(row["place"].split("/")[0])
                found.setdefault(index, set()).add(check.anomaly)
    return found
