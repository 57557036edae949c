"""Histories of counters, max registers, sets and queues at random, right and wrong ones, with ties of their stamps."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.log_histories import Row, effect

Recorded = list[tuple[str, int | None]]
"""(kind, value) of each effect of one operation."""


@dataclass
class _Operation:
    kind: str
    value: int | None
    call: int
    ret: int
    moment: float
    outcome: str
    recorded: Recorded = field(default_factory=list)


def history(
    key: str, rng: random.Random, first_op: int, length: int, draw: Callable[[random.Random], tuple[str, int | None]],
    apply: Callable[[_Operation], Recorded],
) -> list[Row]:  # fmt: skip
    """Operations that take effect in the order of moments between their calls and returns."""
    operations = []
    for _ in range(length):
        kind, value = draw(rng)
        call = rng.randint(0, 3 * length)
        ret = call + rng.randint(1, 8)
        outcome = rng.choices(("ok", "info", "fail"), (8, 2, 1))[0]
        late = ret if outcome == "ok" else ret + rng.choice((0, 0, 30))
        operations.append(_Operation(kind, value, call, ret, rng.uniform(call, late), outcome))
    for operation in sorted(operations, key=lambda one: one.moment):
        if operation.outcome == "ok" or (operation.outcome == "info" and rng.random() < 0.5):
            operation.recorded = apply(operation)
        if operation.outcome != "ok":
            operation.recorded = [
                (operation.kind, None if operation.kind.endswith(("-read", "-dequeue")) else operation.value)
            ]
    rows = []
    for number, operation in enumerate(operations):
        ret = None if operation.outcome == "info" else operation.ret
        for sub, (kind, value) in enumerate(operation.recorded):
            given: dict[str, Any] = {"value": value, "outcome": operation.outcome, "process": number}
            rows.append(effect(first_op + number, sub, kind, key, operation.call, ret, **given))
    return rows


def some_ids(key: str, rng: random.Random, first_op: int) -> list[Row]:
    """Returns ids. About every third key has an id that was handed out twice."""
    given, rows = 0, []
    for number in range(rng.randint(2, 9)):
        call, outcome = 3 * number + rng.randint(0, 2), rng.choices(("ok", "info", "fail"), (8, 2, 1))[0]
        given += rng.random() < 0.9
        ident: dict[str, Any] = {"value": given} if number % 2 else {"name": f"n-{given // 2}"}
        times = call, None if outcome == "info" else call + rng.randint(1, 4)
        rows.append(effect(first_op + number, 0, "id-generate", key, *times, outcome=outcome, process=number, **ident))
    return rows


def growing(key: str, rng: random.Random, first_op: int) -> list[Row]:
    """Two counters, seen alone or together, mostly as they grow; at a time of their own."""
    held, rows = [0, 0], list[Row]()
    for number in range(rng.randint(2, 9)):
        call, outcome = first_op + 5 * number + rng.randint(0, 4), rng.choices(("ok", "info", "fail"), (8, 2, 1))[0]
        times, add = (call, None if outcome == "info" else call + rng.randint(1, 4)), rng.random() < 0.4
        held[number % 2] += add
        for sub in (number % 2,) if add else (0, 1):
            value = None if rng.random() < 0.05 else held[sub] - (rng.random() < 0.1)
            given = {"value": value, "outcome": outcome, "process": 10 * first_op + number % 3}
            rows.append(
                effect(first_op + number, sub, f"monotonic-{'add' if add else 'read'}", f"{key}-{sub}", *times, **given)
            )
    return rows


def counter(key: str, rng: random.Random, first_op: int) -> list[Row]:
    count = 0

    def apply(operation: _Operation) -> Recorded:
        nonlocal count
        count += operation.kind == "counter-add"
        return [(operation.kind, count - (operation.kind == "counter-add"))]

    return history(
        key,
        rng,
        first_op,
        rng.randint(2, 8),
        lambda r: (r.choice(("counter-add", "counter-add", "counter-read")), None),
        apply,
    )


def max_register(key: str, rng: random.Random, first_op: int) -> list[Row]:
    largest: int | None = None

    def apply(operation: _Operation) -> Recorded:
        nonlocal largest
        if operation.kind == "max-write" and operation.value is not None:
            largest = operation.value if largest is None else max(largest, operation.value)
            return [("max-write", operation.value)]
        return [("max-read", largest)]

    def draw(rng: random.Random) -> tuple[str, int | None]:
        return ("max-write", rng.randint(1, 5)) if rng.random() < 0.5 else ("max-read", None)

    return history(key, rng, first_op, rng.randint(2, 8), draw, apply)


def some_set(key: str, rng: random.Random, first_op: int) -> list[Row]:
    there: set[int] = set()
    removes = rng.random() < 0.2

    def apply(operation: _Operation) -> Recorded:
        if operation.kind == "set-read":
            return [("set-read", value) for value in sorted(there)] or [("set-read", None)]
        assert operation.value is not None
        (there.add if operation.kind == "set-add" else there.discard)(operation.value)
        return [(operation.kind, operation.value)]

    def draw(rng: random.Random) -> tuple[str, int | None]:
        draw = rng.random()
        return (
            ("set-read", None)
            if draw < 0.5
            else ("set-remove" if removes and draw < 0.6 else "set-add", rng.randint(1, 3))
        )

    return history(key, rng, first_op, rng.randint(2, 9), draw, apply)


def queue(key: str, rng: random.Random, first_op: int) -> list[Row]:
    """With a drain at the end, mostly, and something enqueued after it, sometimes."""
    there: list[int] = []
    values = rng.choice((2, 50))

    def apply(operation: _Operation) -> Recorded:
        if operation.kind == "queue-dequeue":
            return [("queue-dequeue", there.pop(rng.randrange(len(there))) if there else None)]
        assert operation.value is not None
        there.append(operation.value)
        return [("queue-enqueue", operation.value)]

    def draw(rng: random.Random) -> tuple[str, int | None]:
        return ("queue-enqueue", rng.randint(1, values)) if rng.random() < 0.5 else ("queue-dequeue", None)

    length = rng.randint(2, 9)
    rows = history(key, rng, first_op, length, draw, apply)
    end = 3 * length + 45
    for number, value in enumerate(there):
        rows.append(effect(first_op + 50 + number, 0, "queue-dequeue", key, end, end + 1, value=value, process=50))
    if rng.random() < 0.9:
        rows.append(effect(first_op + 80, 0, "queue-drained", key, end + 2, end + 3, process=80))
    if rng.random() < 0.1:
        rows.append(
            effect(first_op + 81, 0, "queue-enqueue", key, end + rng.randint(1, 4), end + 6, value=99, process=81)
        )
    return rows


def broken(rows: Sequence[Row], rng: random.Random) -> list[Row]:
    """A copy in which one or two things are reported otherwise."""
    rows = [dict(row) for row in rows]
    for _ in range(rng.randint(1, 2)):
        if rows:
            _break(rows, rng)
    return rows


def _break(rows: list[Row], rng: random.Random) -> None:
    row = rng.choice(rows)
    mine = [one for one in rows if one["op"] == row["op"]]
    match rng.randrange(5):
        case 0:
            rows.remove(row)
        case 1 if row["value"] is not None and row["outcome"] == "ok":
            row["value"] += rng.choice((-1, 1, 2, -2))
        case 2:
            call, ret = row["call"] + rng.randint(-6, 6), row["ret"]
            for one in mine:
                one.update(call=call, ret=ret if ret is None else max(call + 1, ret + rng.randint(-6, 6)))
        case 3 if not row["kind"].endswith(("-read", "-dequeue", "-drained")):
            outcome = rng.choice(("fail", "info"))
            ret = None if outcome == "info" else row["call"] + 3
            for one in mine:
                one.update(outcome=outcome, ret=ret)
        case 4:
            other = rng.choice(rows)
            if other["kind"] == row["kind"] and row["outcome"] == other["outcome"] == "ok":
                row["value"], other["value"] = other["value"], row["value"]
