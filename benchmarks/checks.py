"""How long DuckDB takes to judge a large log history, beside a plain sort of the same rows in the same run.

    python benchmarks/checks.py [--operations 1000000] [--partitions 16] [--memory 4GB] [--threads 2]

The history is that of a correct log, made column by column in numpy: half the operations are sends of two values each,
half are polls of four records each, from the beginning of each partition; one in twenty of the polls is a look at the
log end instead. The ratio to the sort says how far the checks are from the least that any ordered check must do.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.contract import forbid
from checkers.engine import DuckDB
from checkers.judge import judge
from checkers.log import LOG_ANOMALIES
from harness.core.history import SCHEMAS

PER_SEND, PER_POLL = 2, 4


def generate(folder: Path, operations: int, partitions: int) -> int:
    """Writes the history; returns the number of effects."""
    index = np.arange(operations, dtype=np.int64)
    kind = np.where(index % 2 == 0, 0, np.where(index // 2 % 20 == 7, 2, 1))  # send, poll, end
    partition = (index // 2) % partitions
    process = partition * 4 + (kind == 1)  # one sender and one reader per partition
    call, ret = index * 2000 + 1, index * 2000 + 1500
    sends = _running(kind == 0, partition, partitions)
    polls = _running(kind == 1, partition, partitions)
    written = (sends + (kind == 0)) * PER_SEND
    begin, end = _progress(kind == 1, polls, written, partition, partitions)
    parts = [
        *_appends(index[kind == 0], sends[kind == 0]),
        *_polls(index[kind == 1], begin, end),
        _rows(index[kind == 2], 0, "end", written[kind == 2]),
    ]
    totals = [int(written[partition == number].max()) for number in range(partitions)]
    last = operations
    for number, total in enumerate(totals):
        parts += _ending(last, total)
        partition = np.append(partition, [number, number])
        process = np.append(process, [number * 4, number * 4 + 3])  # the drain's reader is another
        call = np.append(call, [last * 2000 + 1, last * 2000 + 2001])
        ret = np.append(ret, [last * 2000 + 1500, last * 2000 + 3500])
        last += 2
    names = np.array([f"bench-{number}" for number in range(partitions)])
    effects = pa.concat_tables(_table(part, process, names[partition], call, ret) for part in parts)
    ops = _ops(process, names[partition], call, ret, partitions)
    for name, schema in SCHEMAS.items():
        (folder / name).mkdir(parents=True)
        table = {"effects": effects, "ops": ops}.get(name, schema.empty_table())
        pq.write_table(table.cast(schema), folder / name / "part-000000.parquet", compression="zstd")
    return int(effects.num_rows)


def _running(mine: np.ndarray, partition: np.ndarray, partitions: int) -> np.ndarray:
    """How many of mine came before each operation in its partition."""
    count = np.zeros(len(mine), dtype=np.int64)
    for number in range(partitions):
        here = partition == number
        count[here] = np.cumsum(mine[here]) - mine[here]
    return count


def _rows(op: np.ndarray, sub: int | np.ndarray, kind: str, position: np.ndarray, **more: object) -> dict[str, object]:
    return {
        "op": op,
        "sub": np.broadcast_to(np.asarray(sub, np.int32), op.shape),
        "kind": kind,
        "position": position,
        "phase": "main",
        **more,
    }


def _appends(op: np.ndarray, before: np.ndarray) -> list[dict[str, object]]:
    return [
        _rows(op, rank, "append", before * PER_SEND + rank, value=before * PER_SEND + rank, request=op)
        for rank in range(PER_SEND)
    ]


def _progress(
    mine: np.ndarray, before: np.ndarray, written: np.ndarray, partition: np.ndarray, partitions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Where each poll begins and ends: it goes on where its partition's former one ended, and reads what is there."""
    begin, end = np.zeros(len(mine), dtype=np.int64), np.zeros(len(mine), dtype=np.int64)
    for number in range(partitions):
        here = mine & (partition == number)
        behind = np.minimum.accumulate(written[here] - PER_POLL * (before[here] + 1))
        end[here] = np.minimum(behind, 0) + PER_POLL * (before[here] + 1)
        begin[here] = np.concatenate([[0], end[here][:-1]])
    return begin[mine], end[mine]


def _polls(op: np.ndarray, begin: np.ndarray, end: np.ndarray) -> list[dict[str, object]]:
    parts = [_rows(op, 0, "observe-begin", begin), _rows(op, PER_POLL + 1, "observe-end", end)]
    for rank in range(PER_POLL):
        there = begin + rank < end
        position = begin[there] + rank
        parts.append(_rows(op[there], rank + 1, "observe", position, value=position))
    return parts


def _ending(op: int, total: int) -> list[dict[str, object]]:
    """The sentinel of one partition, and a drain in one poll."""
    one, offsets = np.array([op], dtype=np.int64), np.arange(total + 1, dtype=np.int64)
    sentinel = _rows(one, 0, "append", np.array([total]), value=np.array([total]), request=one)
    drain = np.full(total + 1, op + 1, dtype=np.int64)
    parts = [
        _rows(one + 1, 0, "observe-begin", np.array([0])),
        _rows(drain, (offsets + 1).astype(np.int32), "observe", offsets, value=offsets),
        _rows(one + 1, total + 2, "observe-end", np.array([total + 1])),
        _rows(one + 1, total + 3, "drained", np.array([total + 1])),
    ]
    return [{**sentinel, "phase": "sentinel"}, *({**part, "phase": "drain"} for part in parts)]


def _table(
    part: dict[str, object], process: np.ndarray, keys: np.ndarray, call: np.ndarray, ret: np.ndarray
) -> pa.Table:
    op = np.asarray(part["op"])
    reads = str(part["kind"]).startswith("observe")
    given: dict[str, object] = {
        **part,
        "process": process[op].astype(np.int32),
        "key": keys[op],
        "call": call[op],
        "ret": ret[op],
        "outcome": "ok",
        "epoch": np.ones(len(op), dtype=np.int64),
        "assignment": np.ones(len(op), dtype=np.int64) if reads else None,
    }
    columns = []
    for column in SCHEMAS["effects"]:
        value = given.get(column.name)
        if value is None:
            columns.append(pa.nulls(len(op), column.type))
        elif isinstance(value, str):
            columns.append(pa.array(np.full(len(op), value), column.type))
        else:
            columns.append(pa.array(value, column.type))
    return pa.Table.from_arrays(columns, schema=SCHEMAS["effects"])


def _ops(process: np.ndarray, keys: np.ndarray, call: np.ndarray, ret: np.ndarray, endings: int) -> pa.Table:
    """The last ``endings`` pairs are sentinels and drains."""
    total = len(process)
    plain = {"worker": "0", "f": "x", "argument": "null", "outcome": "ok"}
    columns = {name: pa.array(np.full(total, text)) for name, text in plain.items()}
    phases = np.concatenate([np.full(total - 2 * endings, "main"), np.tile(["sentinel", "drain"], endings)])
    columns |= {"index": pa.array(np.arange(total)), "process": pa.array(process.astype(np.int32))}
    columns |= {"key": pa.array(keys), "call": pa.array(call), "ret": pa.array(ret), "phase": pa.array(phases)}
    return pa.Table.from_arrays(
        [columns.get(field.name, pa.nulls(total, field.type)) for field in SCHEMAS["ops"]], names=SCHEMAS["ops"].names
    )


def sort_seconds(folder: Path, memory: str, threads: int) -> float:
    """DuckDB's time to sort all effects by key and position into a table."""
    connection = duckdb.connect(":memory:", config={"memory_limit": memory, "threads": threads})
    begun = time.perf_counter()
    connection.execute(
        "create temporary table sorted as select op, sub, process, key, kind, position, value, call, ret, outcome "
        f"from read_parquet('{folder / 'effects' / '*.parquet'}') order by key, position, call, op, sub"
    )
    connection.close()
    return time.perf_counter() - begun


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--operations", type=int, default=1_000_000)
    arguments.add_argument("--partitions", type=int, default=16)
    arguments.add_argument("--memory", default="4GB")
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "history"
        effects = generate(folder, options.operations, options.partitions)
        contract = forbid(*LOG_ANOMALIES)
        with DuckDB(memory=options.memory, threads=options.threads) as engine:
            judged = judge(folder, contract, engine=engine)
        plain = sort_seconds(folder, options.memory, options.threads)
        print(f"verdict {judged.verdict}: {judged.operations} operations, {effects} effects {dict(judged.anomalies)}")
        for reason in judged.unknown:
            print("unknown:", reason)
        for one in judged.examined:
            print(f"  {one.check:28} {one.rows:>10} rows {one.seconds:7.2f} s")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"judged in {judged.seconds:.2f} s; plain sort {plain:.2f} s; ratio {judged.seconds / plain:.1f}; "
            f"peak memory {peak:.0f} MB"
        )


if __name__ == "__main__":
    main()
