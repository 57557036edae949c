"""Effects rows for tests: by hand (``Book``), from a simulated correct log, and with something broken on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from assay.harness.core.history import EFFECTS, FORMAT, OPS, SCHEMAS, translation
from assay.harness.core.history.data_sets import FORMAT_KEY, ORIGIN_KEY, ORIGIN_OTHER

Row = dict[str, Any]


def effect(op: int, sub: int, kind: str, key: str, call: int, ret: int | None, **given: Any) -> Row:
    """Returns a row of ``effects``; an ok one of process 0 in the main phase unless given otherwise."""
    assert not given.keys() - {*EFFECTS.names, "worker", "op_outcome", "scheduled"}, "there is no such column"
    row: Row = dict.fromkeys(EFFECTS.names)
    row.update(op=op, sub=sub, kind=kind, key=key, call=call, ret=ret, process=0, outcome="ok", phase="main")
    row.update(given)
    return row


@dataclass
class Book:
    """Writes a history by hand. Times are milliseconds; offsets of sends follow from the first."""

    key: str = "orders-0"
    rows: list[Row] = field(default_factory=list)
    next_op: int = 0

    def _op(self) -> int:
        self.next_op += 1
        return self.next_op - 1

    def add(self, kind: str, when: tuple[int, int | None], position: int | None, **given: Any) -> int:
        op = self._op()
        self.rows.append(effect(op, 0, kind, self.key, _ns(when[0]), _ns(when[1]), position=position, **given))
        return op

    def send(self, values: Sequence[int], offset: int | None, when: tuple[int, int | None], **given: Any) -> int:
        op = self._op()
        for rank, value in enumerate(values):
            position = None if offset is None else offset + rank
            self.rows.append(
                effect(
                    op,
                    rank,
                    "append",
                    self.key,
                    _ns(when[0]),
                    _ns(when[1]),
                    position=position,
                    value=value,
                    request=op,
                    **given,
                )
            )
        return op

    def poll(
        self,
        begin: int,
        records: Iterable[tuple[int, int | None]],
        end: int | None,
        when: tuple[int, int | None],
        **given: Any,
    ) -> int:
        given = {"assignment": 1, "process": 9, **given}
        op, sub = self._op(), 0

        def row(kind: str, position: int, value: int | None = None) -> None:
            nonlocal sub
            self.rows.append(
                effect(op, sub, kind, self.key, _ns(when[0]), _ns(when[1]), position=position, value=value, **given)
            )
            sub += 1

        row("observe-begin", begin)
        for offset, value in records:
            row("observe", offset, value)
        if end is not None:
            row("observe-end", end)
        return op

    def drained(self, settled: int, when: tuple[int, int]) -> int:
        return self.add("drained", when, settled, phase="drain")


def _ns(time: int | None) -> Any:
    return None if time is None else time * 1_000_000


def make_ops(rows: Sequence[Row]) -> list[Row]:
    """The operations to which these effects belong."""
    ops = {
        row["op"]: {
            "index": row["op"],
            "process": row["process"],
            "worker": row.get("worker", "0"),
            "f": row["kind"],
            "key": row["key"],
            "argument": "null",
            "call": row["call"],
            "ret": row["ret"],
            "outcome": row.get("op_outcome", row["outcome"]),
            "error": row["error"],
            "phase": row["phase"],
            "scheduled": row.get("scheduled"),
        }
        for row in rows
    }
    return list(ops.values())


def write(folder: Path, rows: Sequence[Row], *, format: int | None = FORMAT, **others: Sequence[Row]) -> Path:
    """A history folder with these effects, the operations that they belong to, and other data sets by name.

    In an older format rows have the kinds and columns of that time.
    """
    parts: dict[str, Sequence[Row]] = {"effects": rows, "ops": make_ops(rows), **others}
    said = {ORIGIN_KEY: ORIGIN_OTHER, **({} if format is None else {FORMAT_KEY: str(format).encode()})}
    for name in SCHEMAS:
        schema = translation.schema(name, format or FORMAT).with_metadata(said)
        (folder / name).mkdir(parents=True)
        plain = [{column: row.get(column) for column in schema.names} for row in parts.get(name, ())]
        pq.write_table(pa.Table.from_pylist(plain, schema=schema), folder / name / "part-000000.parquet")
    assert OPS is SCHEMAS["ops"]
    return folder


@dataclass
class _Client:
    """A state machine: idle, called, applied. ``pending``: what becomes of the open operation."""

    process: int
    stage: str = "idle"
    action: str = ""
    call: int = 0
    rows: list[Row] = field(default_factory=list)
    apply: Callable[[], None] = lambda: None
    outcome: str = "ok"
    position: int | None = None
    assignment: int = 0
    new_assignment: bool = False


class SimulatedLog:
    """A correct log with concurrent clients whose operations end ok, fail and info; one key, times strictly rising."""

    def __init__(self, key: str, rng: random.Random, first_op: int, *, compacted: bool = False) -> None:
        self.key, self.rng, self.compacted = key, rng, compacted
        self.log: list[tuple[int, int, str | None]] = []
        self.end = self.start = 0
        self.clock = self.next_value = self.next_process = self.next_assignment = 0
        self.next_op, self.epoch = first_op, 1
        self.rows: list[Row] = []
        self.late: list[tuple[list[int], str | None]] = []
        self.retry: list[tuple[list[int], str | None]] = []
        self.gaps = rng.random() < 0.4
        self.retention = rng.random() < 0.25
        self.retries = rng.random() < 0.3

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def process(self) -> int:
        self.next_process += 1
        return self.next_process - 1

    def append(self, values: list[int], owner: str | None) -> int:
        if self.gaps and self.rng.random() < 0.3:
            self.end += self.rng.randint(1, 3)
        base = self.end
        for value in values:
            self.log.append((self.end, value, owner))
            self.end += 1
        return base

    def background(self) -> None:
        """Indeterminate sends land late, old records are retired, leaders change."""
        if self.late and self.rng.random() < 0.3:
            self.append(*self.late.pop(self.rng.randrange(len(self.late))))
        if self.retention and self.log and self.rng.random() < 0.05:
            self.start = max(self.start, self.rng.choice(self.log)[0])
            self.log = [record for record in self.log if record[0] >= self.start]
        if self.compacted and self.rng.random() < 0.2:
            last = {owner: offset for offset, _, owner in self.log}
            self.log = [one for one in self.log if one[0] == last[one[2]] or self.rng.random() < 0.5]
        if self.rng.random() < 0.05:
            self.epoch += 1

    def run(self, steps: int) -> list[Row]:
        clients = [_Client(self.process()) for _ in range(self.rng.randint(2, 4))]
        for _ in range(steps):
            self.background()
            self.step(self.rng.choice(clients))
        self.settle(clients)
        return self.rows

    def step(self, client: _Client) -> None:
        if client.stage == "idle":
            client.call, client.stage = self.tick(), "called"
            draw = self.rng.random()
            client.outcome = "ok" if draw < 0.75 else "fail" if draw < 0.87 else "info"
            client.action = self.rng.choices(("send", "poll", "end", "seek"), (45, 40, 10, 5))[0]
        elif client.stage == "called":
            client.stage = "applied"
            client.rows = getattr(self, f"_{client.action}")(client)
        else:
            self.complete(client)

    def complete(self, client: _Client) -> None:
        ret = None if client.outcome == "info" else self.tick()
        op, self.next_op = self.next_op, self.next_op + 1
        for sub, row in enumerate(client.rows):
            row.update(op=op, sub=sub, call=client.call, ret=ret, process=client.process)
            if row["kind"] == "append":
                row["request"] = op
            self.rows.append(row)
        if client.outcome == "info":
            client.process, client.position = self.process(), None
        client.stage, client.rows = "idle", []

    def row(self, kind: str, client: _Client, position: int | None, value: int | None = None, **given: Any) -> Row:
        return effect(
            0,
            0,
            kind,
            self.key,
            0,
            0,
            position=position,
            value=value,
            outcome=client.outcome,
            assignment=client.assignment if kind not in ("append", "end") else None,
            **given,
        )

    def _send(self, client: _Client) -> list[Row]:
        if self.retry and self.rng.random() < 0.5:
            values, owner = self.retry.pop()
        else:
            values = list(range(self.next_value, self.next_value + self.rng.randint(1, 3)))
            self.next_value += len(values)
            owner = f"k{self.rng.randint(0, 2)}" if self.compacted else None
        base: int | None = None
        if client.outcome == "ok":
            base = self.append(values, owner)
            if self.rng.random() < 0.05:
                base = None
        elif client.outcome == "info":
            fate = self.rng.random()
            if fate < 0.4:
                self.append(values, owner)
            elif fate < 0.8:
                self.late.append((values, owner))
            if self.retries and self.rng.random() < 0.5:
                self.retry.append((values, owner))
        return [
            self.row("append", client, None if base is None else base + rank, value, message_key=owner)
            for rank, value in enumerate(values)
        ]

    def _end(self, client: _Client) -> list[Row]:
        return [self.row("end", client, self.end, leader_epoch=self.epoch if self.rng.random() < 0.9 else None)]

    def _seek(self, client: _Client) -> list[Row]:
        """A seek and nothing else; the next poll begins there."""
        if client.outcome != "ok":
            return []
        return [self.seek(client, self.rng.randint(self.start, self.end))]

    def seek(self, client: _Client, position: int, kind: str = "seek") -> Row:
        self.next_assignment += 1
        client.assignment, client.position = self.next_assignment, position
        return self.row(kind, client, position)

    def _poll(self, client: _Client) -> list[Row]:
        rows: list[Row] = []
        if client.position is None:
            rows.append(self.seek(client, self.rng.choice((self.start, self.end)), "seek"))
            if self.rng.random() < 0.5:
                rows.insert(0, self.row("start", client, self.start))
        for _ in range(2 if self.rng.random() < 0.1 else 1):
            rows += self.fetch(client, self.rng.randint(1, 4))
        return rows

    def fetch(self, client: _Client, limit: int) -> list[Row]:
        rows: list[Row] = []
        assert client.position is not None
        if client.position < self.start:
            rows = [self.row("start", client, self.start), self.seek(client, self.start, "reset")]
        begin = client.position
        there = [record for record in self.log if record[0] >= begin]
        taken = there[:limit]
        end = taken[-1][0] + 1 if taken else begin
        if len(there) <= limit and self.rng.random() < 0.3:
            end = self.end  # past a gap at the very end
        rows.append(self.row("observe-begin", client, begin))
        if client.outcome == "ok":
            rows += [self.row("observe", client, offset, value) for offset, value, _ in taken]
            rows.append(self.row("observe-end", client, end))
            client.position = end
        elif self.rng.random() < 0.4:
            # Broke off in the middle: some records known, the position moved or not.
            some = taken[: self.rng.randint(0, len(taken))]
            rows += [self.row("observe", client, offset, value) for offset, value, _ in some]
            if self.rng.random() < 0.5:
                rows.append(self.row("observe-end", client, end))
            if self.rng.random() < 0.5 and some:
                client.position = end
        return rows

    def settle(self, clients: list[_Client]) -> None:
        """Ends open operations as info or late answers, then sentinel and drain; neither is certain to work out."""
        for client in clients:
            if client.stage == "called":
                client.outcome = "info"
                self.step(client)
            if client.stage == "applied":
                self.complete(client)
        ending = self.rng.random()
        if ending < 0.1:
            return
        sender, reader = _Client(self.process()), _Client(self.process())
        racing = _Client(self.process(), action="send", call=self.tick(), stage="called")
        sender.call = self.tick()
        value, self.next_value = self.next_value, self.next_value + 1
        sentinel = self.append([value], "sentinel" if self.compacted else None)
        sender.rows = [self.row("append", sender, sentinel, value, message_key="sentinel" if self.compacted else None)]
        sender.rows[0]["phase"] = "sentinel"
        self.complete(sender)
        self.step(racing)
        self.complete(racing)
        if self.late and self.rng.random() < 0.5:
            self.append(*self.late.pop())
        while ending < 0.9 or self.rng.random() < 0.5:
            reader.call, reader.outcome = self.tick(), "ok"
            rows = []
            if reader.position is None:
                rows = [self.row("start", reader, self.start), self.seek(reader, self.start)]
            rows += self.fetch(reader, 4)
            if reader.position is not None and reader.position > sentinel:
                rows.append(self.row("drained", reader, sentinel + 1))
            for row in rows:
                row["phase"] = "drain"
            reader.rows = rows
            self.complete(reader)
            if rows[-1]["kind"] == "drained":
                break


def broken(rows: Sequence[Row], rng: random.Random) -> list[Row]:
    """A copy in which one to three rows tell something else."""
    rows = [dict(row) for row in rows]
    for _ in range(rng.randint(1, 3)):
        if rows:
            _break(rows, rng)
    return rows


def _break(rows: list[Row], rng: random.Random) -> None:
    kind = rng.choice(("append", "observe", "observe", "end", "any"))
    some = [row for row in rows if kind in ("any", row["kind"])]
    if not some:
        return
    row = rng.choice(some)
    values = [other["value"] for other in rows if other["value"] is not None]
    match rng.randrange(10):
        case 0:
            rows.remove(row)
        case 1 if row["position"] is not None:
            least = -2 if row["kind"] == "append" else 0
            row["position"] = max(least, row["position"] + rng.randint(-3, 3))
        case 2 if row["value"] is not None:
            row["value"] = rng.choice([*values, 1_000_000])
        case 3:
            row["outcome"] = rng.choice(("ok", "fail", "info"))
        case 4 if (other := rng.choice(some))["position"] is not None and row["position"] is not None:
            row["position"], other["position"] = other["position"], row["position"]
        case 5:
            _shift(rows, row["op"], rng)
        case 6 if row["kind"] == "observe":
            row["value"] = None
        case 7 if row["kind"] == "observe":
            position = row["position"]
            for one in [one for one in rows if one["kind"] == "observe" and one["position"] == position]:
                rows.remove(one)
        case 8:
            for end in [one for one in rows if one["kind"] == "end" and one["leader_epoch"] is not None]:
                end["leader_epoch"] = max(0, end["leader_epoch"] + rng.choice((-1, 0, 1)))
                end["position"] = max(0, end["position"] + rng.choice((-2, 0, 0, 1)))
        case 9 if row["kind"] == "append":
            for one in [one for one in rows if one["op"] == row["op"]]:
                one["outcome"] = "fail"


def _shift(rows: list[Row], op: int, rng: random.Random) -> None:
    """Moves one operation in time; stamps stay distinct, since halves come from elsewhere than the rest."""
    by = rng.randint(-20, 20)
    mine = [row for row in rows if row["op"] == op]
    taken = {row[name] for row in rows if row["op"] != op for name in ("call", "ret")}
    call, ret = mine[0]["call"] + by, None if mine[0]["ret"] is None else mine[0]["ret"] + by
    if call in taken or ret in taken - {None}:
        return
    for row in mine:
        row.update(call=call, ret=ret)
