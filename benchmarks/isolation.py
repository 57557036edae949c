"""Time and memory to judge the isolation level of transactions, beside that of list-append by the checks in SQL.

    python benchmarks/isolation.py [--transactions 10000,100000] [--sessions 20]
        [--levels serializable,snapshot-isolation,causal,read-committed] [--without-lists] [--seconds 300] [--json]
    python benchmarks/isolation.py --transactions=12500,25000,50000,100000 --levels=all --without-lists

The histories are those of a store that is strictly serializable. They have the mix of Jepsen's tests: one to four
micro-operations, ten active keys, of which some are chosen more often, and 32 writes to a key. Each transaction takes
effect at a random moment between its call and its return. Times are processor seconds: of a level from the history
to the verdict, and once for the history from its rows. With several sizes, the exponent of each level is printed: the
slope of the logarithm of its time over the logarithm of the number of transactions.
"""

from __future__ import annotations

import heapq
import random
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from assay.checkers.engine import Engines
from assay.checkers.isolation.level_check import check_level
from assay.checkers.isolation.levels import LEVELS, find_level
from assay.checkers.isolation.transactions import Row, make_history
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.judge import judge
from assay.harness.core import transactions
from assay.harness.core.history import HistoryReader, HistoryWriter
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from doubling import fit_exponent

from figures import Output, make_parser, names, numbers

KEYS: Final = 10
MOST_MICROS: Final = 4
WRITES_TO_A_KEY: Final = 32
TICK: Final = 100_000
"""Nanoseconds. A transaction takes 1 to 20 ticks."""
HISTORY: Final = "history from its rows"
DEFAULT_LEVELS: Final = ("serializable", "snapshot-isolation", "causal", "read-committed")


def generate(count: int, sessions: int, *, lists: bool, seed: int = 1) -> list[Completed]:
    """Returns the operations of a strictly serializable store, in the order of their calls."""
    rng = random.Random(seed)
    free = [(0, session) for session in range(sessions)]
    active, writes = list(range(KEYS)), dict[int, int]()
    drafts = []
    for op in range(count):
        tick, session = heapq.heappop(free)
        took = rng.randint(1, 20)
        call = tick * TICK + op
        micros: list[list[Any]] = []
        for _ in range(rng.randint(1, MOST_MICROS)):
            slot = min(int(rng.expovariate(0.4)), KEYS - 1)
            key = active[slot]
            if rng.random() < 0.5:
                micros.append(["r", key, None])
                continue
            writes[key] = writes.get(key, 0) + 1
            micros.append(["append" if lists else "w", key, writes[key]])
            if writes[key] == WRITES_TO_A_KEY:
                active[slot] = max(active) + 1
        drafts.append((call + rng.random() * took * TICK, op, session, call, call + took * TICK, micros))
        heapq.heappush(free, (tick + took + 1, session))
    state: dict[int, list[int]] = {}
    done = {}
    for _, op, session, call, ret, called in sorted(drafts):
        answered = [list(micro) for micro in called]
        for micro in answered:
            values = state.setdefault(micro[1], [])
            if micro[0] != "r":
                values.append(micro[2])
            else:
                micro[2] = list(values) if lists else values[-1] if values else None
        done[op] = Completed(
            index=op, process=session, worker=str(session), operation=Operation("txn", argument=called),
            completion=Completion(Outcome.OK, answered), call=call, ret=ret,
        )  # fmt: skip
    return [done[op] for op in range(count)]


def list_rows(done: Sequence[Completed]) -> list[Row]:
    """Returns the rows of ``effects`` as the level checker reads them."""
    return [
        (one.index, sub, one.process, effect.key, effect.kind, effect.list_index, effect.value, one.call, one.ret, "ok")
        for one in done
        for sub, effect in enumerate(transactions.derive_effects(one))
    ]


def judge_lists(done: Sequence[Completed]) -> float:
    """Returns the processor seconds that the checks in SQL need for a history of lists."""
    with tempfile.TemporaryDirectory() as folder:
        with HistoryWriter(Path(folder) / "history") as writer:
            for one in done:
                writer.completed(one, transactions.derive_effects(one))
        begun = time.process_time()
        reader = HistoryReader(Path(folder) / "history")
        with Engines("duckdb").open(reader) as engine:
            judge(reader, Contract(), engine, requires_exposure=False)
        return time.process_time() - begun


def measure(
    count: int, sessions: int, levels: Sequence[str], seconds: float, output: Output, *, lists: bool
) -> dict[str, Any]:
    """Returns the figures for one number of transactions."""
    rows = list_rows(generate(count, sessions, lists=False))
    found: dict[str, Any] = {"transactions": count}
    begun = time.process_time()
    history = make_history(rows)
    found[HISTORY] = {"seconds": round(time.process_time() - begun, 3)}
    for name in levels:
        begun = time.process_time()
        result = check_level(history, find_level(name), seconds)
        found[name] = {"verdict": result.verdict.value, "seconds": round(time.process_time() - begun, 3)}
        output.text(f"{count} transactions, {name}: {found[name]}")
    if lists:
        found["list-append in SQL"] = {"seconds": round(judge_lists(generate(count, sessions, lists=True)), 3)}
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    return found


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--transactions", type=numbers, default=[10_000, 100_000])
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--levels", type=names, default=list(DEFAULT_LEVELS))
    parser.add_argument("--without-lists", action="store_true", help="leave out list-append in SQL")
    parser.add_argument("--seconds", type=float, default=300)
    arguments = parser.parse_args()
    output = Output(arguments.json)
    cases = []
    levels = list(LEVELS) if arguments.levels == ["all"] else arguments.levels
    for count in arguments.transactions:
        cases.append(
            measure(count, arguments.sessions, levels, arguments.seconds, output, lists=not arguments.without_lists)
        )
        output.text(", ".join(f"{name}: {value}" for name, value in cases[-1].items()))
    exponents = {}
    if len(cases) > 1:
        for name in (HISTORY, *levels):
            times = [max(case[name]["seconds"], 0.001) for case in cases]
            exponents[name] = round(fit_exponent(arguments.transactions, times), 3)
            output.text(f"{name:40} {exponents[name]:5.2f}  {'  '.join(f'{one:.2f}' for one in times)}")
    output.figures({"cases": cases, "exponents": exponents})


if __name__ == "__main__":
    main()
