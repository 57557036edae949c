"""Time and memory to decide a register's linearizability, as clients and operations grow.

    python benchmarks/linearizability.py [--operations 1000,10000,100000] [--clients 5,10,20,50] [--seconds 60]
        [--memory-mb 1000] [--widest] [--json]

The history is that of a register with five values, so that values recur and only a search can decide. Each client reads
or writes, and calls again as soon as it has an answer. There are three kinds of history:

- ``legal``: the history of a correct register.
- ``illegal``: a sixth value, written once early, is read again near the end.
- ``info``: one operation in a hundred has no known end.

Each case runs in a separate process, which measures the growth of its peak memory. The case may use ``--seconds`` of
processor time.

``--widest`` measures how many clients can be decided for each number of operations, legal and illegal: 50, 100, 200,
400 and so on, until a case is undecided.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from assay.checkers.linearizability import MODELS, Limits, search
from assay.harness.core.history import SCHEMAS

from figures import Output, make_parser, names, numbers

VALUES: Final = 5
INFO_SHARE: Final = 0.01
KINDS: Final = ("legal", "illegal", "info")


def generate(operations: int, clients: int, kind: str, seed: int = 1) -> pa.Table:
    """Returns the ``ops`` of a register. Operations take 50 to 150 us, and take effect in their middle half."""
    rng = np.random.default_rng([seed, operations, clients])
    rounds = -(-operations // clients)
    took = rng.integers(50_000, 150_000, (rounds, clients))
    ends = np.cumsum(took + 1_000, axis=0) + rng.integers(0, 100_000, clients)
    call, ret = (ends - took).reshape(-1)[:operations], ends.reshape(-1)[:operations]
    point = call + ((ret - call) * rng.uniform(0.25, 0.75, operations)).astype(np.int64)
    reads = rng.random(operations) < 0.5
    value = rng.integers(1, VALUES + 1, operations)
    info = (rng.random(operations) < INFO_SHARE) & (kind == "info")
    happened = ~info | (rng.random(operations) < 0.5)
    order = np.argsort(point, kind="stable")
    if kind == "illegal":
        value[order[np.flatnonzero(~reads[order])[operations // 20]]] = VALUES + 1
    effective = np.where(~reads & happened, np.arange(operations), -1)[order]
    latest = np.maximum.accumulate(np.where(effective >= 0, np.arange(operations), -1))
    held = np.where(latest >= 0, value[order[np.maximum(latest, 0)]], 0)
    seen = np.empty(operations, dtype=np.int64)
    seen[order] = held
    if kind == "illegal":
        seen[order[np.flatnonzero(reads[order])[-operations // 20]]] = VALUES + 1
    known = np.array(["null", *map(str, range(1, VALUES + 2))])
    columns: dict[str, Any] = {
        "index": np.arange(operations),
        "process": (np.arange(operations) % clients).astype(np.int32),
        "worker": np.full(operations, "0"),
        "f": np.where(reads, "read", "write"),
        "key": np.full(operations, "x"),
        "argument": np.where(reads, "null", known[value]),
        "result": pa.array(known[seen], mask=~reads | info),
        "call": call,
        "ret": pa.array(ret, mask=info),
        "outcome": np.where(info, "info", "ok"),
        "phase": np.full(operations, "main"),
    }
    arrays = [
        pa.array(columns[field.name]).cast(field.type) if field.name in columns else pa.nulls(operations, field.type)
        for field in SCHEMAS["ops"]
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMAS["ops"])


def read_peak_kilobytes() -> int:
    """Returns the peak resident size in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run_case(operations: int, clients: int, kind: str, options: argparse.Namespace, answer: Any) -> None:
    """Judges a case in a separate process, which the kernel kills when its processor time is used up."""
    table = generate(operations, clients, kind)
    before, begun, used = read_peak_kilobytes(), time.perf_counter(), time.process_time()
    limit = int(used + options.seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    judged = search(table, MODELS["register"], limits=Limits(seconds=None, bytes=options.memory_mb * 1_000_000))
    took = (time.perf_counter() - begun, time.process_time() - used)
    answer.send((str(judged.verdict), *took, (read_peak_kilobytes() - before) // 1000, judged.examined[-1].note))


def measure(operations: int, clients: int, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Runs one case and describes it."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe()
    process = context.Process(target=run_case, args=(operations, clients, kind, options, sender))
    process.start()
    sender.close()
    try:
        verdict, seconds, processor, grown, note = receiver.recv()
    except EOFError:
        verdict, seconds, processor, grown, note = "unknown", 0.0, options.seconds, 0, "out of processor time"
    process.join()
    Output(options.json).text(
        f"{operations:>8} operations {clients:>5} clients {kind:8} {verdict:8} {processor:8.2f} s of processor time "
        f"({seconds:.1f} s by the clock) {grown:>6} MB more; {note}"
    )
    return {
        "operations": operations,
        "clients": clients,
        "kind": kind,
        "verdict": verdict,
        "seconds": seconds,
        "processor_seconds": processor,
        "megabytes": grown,
        "note": note,
    }


def measure_widest(operations: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures cases with more and more clients, until a case is undecided."""
    clients = 50
    while clients < operations:
        for kind in ("legal", "illegal"):
            found = measure(operations, clients, kind, options)
            yield found
            if found["verdict"] == "unknown":
                return
        clients *= 2


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--operations", type=numbers, default=[1_000, 10_000, 100_000])
    parser.add_argument("--clients", type=numbers, default=[5, 10, 20, 50])
    parser.add_argument("--kinds", type=names, default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--memory-mb", type=int, default=1000)
    parser.add_argument("--widest", action="store_true")
    options = parser.parse_args()
    out = Output(options.json)
    begun = time.perf_counter()
    search(generate(100, 5, "info"), MODELS["register"])
    first = time.perf_counter() - begun
    out.text(f"first use: {first:.1f} s (import, and compilation without a cache)")
    cases: list[dict[str, Any]] = []
    for operations in options.operations:
        if options.widest:
            cases += measure_widest(operations, options)
        else:
            cases += [
                measure(operations, clients, kind, options) for clients in options.clients for kind in options.kinds
            ]
    out.figures({"first_use_seconds": first, "cases": cases})


if __name__ == "__main__":
    main()
