"""Small random histories of each model, tables of them, and folders."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from assay.harness.core.history import SCHEMAS, HistoryWriter

from helpers.linearizability_oracle import MEANING, Op, next_states

LONGEST = 7
LOCKS = ("mutex", "owner-mutex", "reentrant-mutex", "fenced-mutex", "fenced-reentrant-mutex", "lease-mutex")
SEMAPHORES = ("semaphore", "owner-semaphore")
OF_LOCKS = (*LOCKS, *SEMAPHORES)


def operation(
    f: str,
    argument: Any = None,
    result: Any = None,
    *,
    call: int,
    ret: int | None,
    outcome: str = "ok",
    process: int | None = None,
) -> Op:
    """An operation; without a process, ``table`` gives it one."""
    op = {"f": f, "argument": argument, "result": result, "call": call, "ret": ret, "outcome": outcome}
    return op if process is None else {**op, "process": process}


def table(histories: Iterable[tuple[str | None, Sequence[Op]]]) -> pa.Table:
    """The ``ops`` of several keys; indexes run through."""
    rows = [(key, op) for key, ops in histories for op in ops]
    columns: dict[str, list[Any]] = {
        "index": list(range(len(rows))),
        "process": [op.get("process", index % 5) for index, (_, op) in enumerate(rows)],
        "worker": ["0"] * len(rows),
        "f": [op["f"] for _, op in rows],
        "key": [key for key, _ in rows],
        "argument": [json.dumps(op["argument"]) for _, op in rows],
        "result": [None if op["result"] is None else json.dumps(op["result"]) for _, op in rows],
        "call": [op["call"] for _, op in rows],
        "ret": [None if op["outcome"] == "info" else op["ret"] for _, op in rows],
        "outcome": [op["outcome"] for _, op in rows],
        "error": [None] * len(rows),
        "phase": ["main"] * len(rows),
        "scheduled": [None] * len(rows),
    }
    return pa.table(columns, schema=SCHEMAS["ops"])


def asked(model: str, rng: random.Random, number: int) -> tuple[str, Any]:
    """Returns what a client may ask of the object."""
    value = rng.randint(1, 3)
    draw = rng.random()
    if model == "register":
        return ("read", None) if draw < 0.5 else ("write", value)
    if model == "cas-register":
        return (
            ("read", None) if draw < 0.3 else ("write", value) if draw < 0.55 else ("cas", [rng.randint(1, 3), value])
        )
    if model == "kv":
        return ("get", None) if draw < 0.4 else ("put" if draw < 0.6 else "append", "abc"[value - 1])
    if model in OF_LOCKS:
        return ("acquire" if draw < 0.5 else "renew" if model == "lease-mutex" and draw < 0.7 else "release"), None
    if model.endswith("queue"):
        return ("dequeue", None) if draw < 0.5 else ("enqueue", value if draw < 0.75 else number + 10)
    return ("read", None) if draw < 0.5 else ("add", rng.randint(1, 4))


def recorded(model: str, state: Any, f: str) -> Any:
    """Returns what a correct object answers in this state."""
    if model.endswith("queue") and f == "dequeue":
        return state[0] if state else None
    if f in ("read", "get"):
        return (state or []) if model == "set" else state
    if model.startswith("fenced") and f == "acquire":
        _, count, fence, last = state or [None, 0, 0, 0]
        return fence if count else max(last, 0) + 1
    return None


def history(
    model: str, rng: random.Random, *, longest: int = LONGEST, spread: int = 12, initial: Any = None
) -> list[Op]:
    """That of a correct object, or, half of the time, with some answers changed. Times tie often."""
    state: Any = initial
    ops: list[Op] = []
    for number in range(rng.randint(1, longest)):
        point = number * rng.randint(1, 3)
        f, argument = asked(model, rng, number)
        op = operation(
            f,
            argument,
            call=point - rng.randint(0, spread),
            ret=point + rng.randint(0, spread),
            outcome=rng.choice(OUTCOMES),
            process=rng.randint(0, 2) if model in OF_LOCKS else None,
        )
        op["result"] = recorded(model, state, f)
        if f == "cas" and op["outcome"] == "ok":
            op["result"] = state == argument[0]
        after = next_states(state, op, MEANING[model])
        if op["outcome"] == "ok" and not after:
            op["outcome"] = "fail"
        if op["outcome"] == "ok" or (op["outcome"] == "info" and after and rng.random() < 0.5):
            state = rng.choice(after)
        ops.append(op)
    if rng.random() < 0.5:
        for op in rng.sample(ops, min(len(ops), 2)):
            op["result"] = changed(model, op, rng)
            if model in OF_LOCKS:
                op["f"] = rng.choice(["acquire", "release"])
                op["process"] = rng.randint(0, 2)
    for op in ops:
        if op["outcome"] == "info":
            op["ret"] = op["result"] = None
    rng.shuffle(ops)
    return ops


def changed(model: str, op: Op, rng: random.Random) -> Any:
    if op["f"] in ("read", "get", "dequeue"):
        if model == "set":
            twice = op["result"] and rng.random() < 0.5
            return [*op["result"], op["result"][-1]] if twice else sorted(rng.sample(range(1, 5), rng.randint(0, 3)))
        return rng.choice(["", "a", "ab", "b", "ba", None]) if model == "kv" else rng.choice([None, 1, 2, 3])
    if model.startswith("fenced") and op["f"] == "acquire":
        return rng.choice([None, 1, 2, 3])
    return rng.random() < 0.5 if op["f"] == "cas" else op["result"]


OUTCOMES = ("ok", "ok", "ok", "ok", "ok", "info", "info", "fail")


def stored(folder: Path, ops: pa.Table) -> Path:
    """As the format asks for it: a process for each operation, from time 0 on, and no stamp twice."""
    rows, earliest = ops.to_pylist(), min(ops["call"].to_pylist())
    for number, row in enumerate(rows):
        row["process"] = number
        row["call"] = (row["call"] - earliest) * 10_000 + 2 * number
        if row["ret"] is not None:
            row["ret"] = (row["ret"] - earliest) * 10_000 + 2 * number + 1
    ops = pa.Table.from_pylist(rows, schema=ops.schema)
    with HistoryWriter(folder) as writer:
        for batch in ops.to_batches(max_chunksize=50):
            writer.batch("ops", batch)
    return folder
