"""How long it takes to judge many transactions on lists: of a serializable store, and of two that are not.

    python benchmarks/transactions.py 100000

Each transaction has one to four micro-operations on ten keys that are in use at the time; a key takes 16 elements, then
another takes its place. Twenty clients overlap with up to seven transactions on either side. ``snapshot``: they read as
of up to 20 commits ago, and fail if what they append to has changed since; ``stale``: they do not even fail, so that
most transactions are on some cycle.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from array import array
from pathlib import Path

import numpy as np
import pyarrow as pa

from checkers.contract import Contract
from checkers.judge import judge
from harness.core.history import EFFECTS, OPS, HistoryWriter

CLIENTS = 20
REACH = 7
IN_USE = 10
ELEMENTS = 16
KINDS = pa.array(["txn-read", "txn-append"])


def generate(folder: Path, count: int, store: str, seed: int = 1) -> int:
    """Writes the history; the number of effects."""
    rng = random.Random(seed)
    rows = {name: array("q") for name in ("op", "sub", "key", "kind", "position", "value")}
    lists: list[list[int]] = [[] for _ in range(IN_USE)]
    since: list[list[int]] = [[] for _ in range(IN_USE)]
    names = list(range(IN_USE))
    fates = bytearray(count)
    value = 0
    for op in range(count):
        behind = 0 if store == "serializable" else rng.randrange(21)
        sub, mine = 0, dict[int, list[int]]()
        buffer: list[tuple[int, int, int, int]] = []
        for _ in range(rng.randint(1, 4)):
            slot = rng.randrange(IN_USE)
            if rng.random() < 0.5:
                value += 1
                mine.setdefault(slot, []).append(value)
                buffer.append((slot, 1, -1, value))
                continue
            late = 0 if slot in mine else sum(1 for when in since[slot] if when > op - 1 - behind)
            shown = len(lists[slot]) - late
            content = [*lists[slot][:shown], *mine.get(slot, ())]
            buffer += [(slot, 0, place, one) for place, one in enumerate(content)] or [(slot, 0, -1, -1)]
        failed = store == "snapshot" and any(any(when > op - 1 - behind for when in since[slot]) for slot in mine)
        fates[op] = failed
        for slot, kind, position, one in buffer:
            if failed and kind == 0:
                continue
            for name, item in zip(rows, (op, sub, names[slot], kind, position, one), strict=True):
                rows[name].append(item)
            sub += 1
        if not failed:
            for slot, appended in mine.items():
                lists[slot] += appended
                since[slot] += [op] * len(appended)
        for slot in mine:
            if len(lists[slot]) >= ELEMENTS:
                lists[slot], since[slot] = [], []
                names[slot] = max(names) + 1
    return _write(folder, count, {name: np.array(column) for name, column in rows.items()}, fates, rng)


def _write(folder: Path, count: int, rows: dict[str, np.ndarray], fates: bytearray, rng: random.Random) -> int:
    chance = np.random.default_rng(rng.randrange(2**32))
    index = np.arange(count)
    call = 1000 * (index + 2 * REACH - chance.integers(0, REACH, count)) + 2 * (index % CLIENTS)
    ret = 1000 * (index + 2 * REACH + chance.integers(1, REACH, count)) + 2 * (index % CLIENTS) + 1
    outcome = np.where(np.frombuffer(fates, np.int8) == 1, "fail", "ok").astype(object)
    writer = HistoryWriter(folder)
    ops = {
        "index": index, "process": (index % CLIENTS).astype(np.int32), "worker": np.full(count, "w", object),
        "f": np.full(count, "txn", object), "argument": np.full(count, "[]", object), "call": call, "ret": ret,
        "outcome": outcome, "phase": np.full(count, "main", object),
    }  # fmt: skip
    writer.batch("ops", _batch(OPS, ops, count))
    total = len(rows["op"])
    for begin in range(0, total, 1_000_000):
        part = {name: column[begin : begin + 1_000_000] for name, column in rows.items()}
        op = part["op"]
        names = pa.array(part["key"]).cast(pa.string())
        effects = {
            "op": op, "sub": part["sub"].astype(np.int32), "process": (op % CLIENTS).astype(np.int32), "key": names,
            "kind": KINDS.take(pa.array(part["kind"])),
            "position": pa.array(part["position"], mask=part["position"] < 0),
            "value": pa.array(part["value"], mask=part["value"] < 0),
            "call": call[op], "ret": ret[op], "outcome": outcome[op], "phase": np.full(len(op), "main", object),
        }  # fmt: skip
        writer.batch("effects", _batch(EFFECTS, effects, len(op)))
    writer.close()
    return total


def _batch(schema: pa.Schema, columns: dict[str, object], length: int) -> pa.RecordBatch:
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(length, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    for store in sys.argv[2:] or ("serializable", "snapshot", "stale"):
        with tempfile.TemporaryDirectory() as place:
            effects = generate(Path(place) / "history", count, store)
            begun, processor = time.perf_counter(), time.process_time()
            judgement = judge(Path(place) / "history", Contract())
            spent, used = time.perf_counter() - begun, time.process_time() - processor
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            f"{store}: {count} transactions, {effects} effects: {spent:.1f} s ({used:.1f} s of processors), at most "
            f"{memory} MB so far: {judgement.verdict} {judgement.anomalies}"
        )
        print("   ", "; ".join(f"{one.check} {one.seconds:.1f} s" for one in judgement.examined if one.seconds > 0.5))
        for finding in judgement.findings[:2]:
            print("   ", finding.claim)


if __name__ == "__main__":
    main()
