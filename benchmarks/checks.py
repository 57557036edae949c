"""Time of DuckDB and Spark to judge large histories, compared with reading and sorting the same files.

    python benchmarks/checks.py [--models log,register,group] [--effects 10000000] [--keys 1,1000] [--clients 5,50]
        [--engines duckdb,spark] [--plant [1]] [--order none] [--folder DIR] [--duckdb-memory 4GB] [--spark-memory 4g]
        [--json]

1. ``assay generate`` makes each history.
2. Each engine judges it in a separate process. The peak memory includes child processes, such as Spark's JVM; it is
   sampled twice a second.
3. That process then reads the effects and sorts them by key, position and call, as the baseline.
4. Ratios to the baseline are printed for the costliest check, and for everything (validation, shared views, checks).

- ``--plant``: plants this many anomalies (default 1); exactly these must be found.
- ``--order``: an order that transactions (``txn``, ``txn-register``) must respect: none, process or real-time.
- ``--folder`` keeps the histories for the next time; without it they are deleted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from assay.checkers.engine import DuckDB, Engine
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.judge import judge
from assay.checkers.transactions.cycles import ORDERS
from assay.harness.core.history import HistoryReader
from assay.harness.synthetic.generate import HISTORY, PLANTED, generate
from assay.harness.synthetic.plan import Plan

from figures import Output, make_parser, names, numbers, open_folder, read_resident_bytes

SAMPLE: Final = 20
"""Estimated effects per operation. The real number depends on the model, keys and clients, and a little on the length.
So a history is generated again, with the measured number, until its size is within ``TOLERANCE``.
"""
TOLERANCE: Final = 0.05
TRIES: Final = 4
PLANTED_ANOMALIES: Final = {
    "log": "lost-write", "register": "stale-read", "group": "double-ownership", "txn": "G-nonadjacent",
    "txn-register": "G-nonadjacent",
}  # fmt: skip
COLUMNS: Final = "op, sub, process, key, kind, position, value, call, ret, outcome"
SORTED: Final = f"select {COLUMNS} from effects order by key, position, call, op, sub"


def make_history(folder: Path, model: str, effects: int, keys: int, clients: int, plant: int, out: Output) -> Path:
    """Generates the history on first use, and returns its folder."""
    anomaly = (f"{plant}-" if plant > 1 else "") + PLANTED_ANOMALIES[model] if plant else "sound"
    path = folder / f"{model}-{effects}-{keys}-{clients}-{anomaly}"
    if not (path / PLANTED).exists():
        planted = (PLANTED_ANOMALIES[model],) * plant if plant else ()
        plan = Plan(operations=effects // SAMPLE, clients=clients, keys=keys, seed=7, plant=planted)
        made = generate(model, plan, path)
        for _ in range(TRIES):
            if abs(made.effects - effects) <= TOLERANCE * effects:
                break
            shutil.rmtree(path)
            plan = replace(plan, operations=round(plan.operations * effects / made.effects))
            made = generate(model, plan, path)
        out.text(f"{path.name}: {made.operations} operations, {made.effects} effects in {made.seconds:.0f} s")
    return path


def judge_and_sort(folder: Path, engine: str, contract: Contract, memory: str) -> dict[str, Any]:
    """Judges a history, then reads and sorts it."""
    path = folder / HISTORY
    if engine == "duckdb":
        with DuckDB(memory=memory) as duck:
            judged = _judge(path, duck, contract)
        with DuckDB(memory=memory) as duck:
            duck.run(f"create view effects as select * from read_parquet('{path / 'effects'}/*.parquet')")
            begun = time.perf_counter()
            duck.run(f"create temporary table sorted as {SORTED}")
            return judged | {"sort": time.perf_counter() - begun}
    from assay.checkers.engine.spark_application import SparkApplication

    rows = HistoryReader(path).rows("effects")
    with SparkApplication(memory=memory) as application:
        with application.judging_engine(effects=rows, readable=True) as spark:
            judged = _judge(path, spark, contract)
        session = application.session(effects=rows)
        session.read.parquet(str(path / "effects")).createOrReplaceTempView("effects")
        begun = time.perf_counter()
        session.sql(SORTED).write.format("noop").mode("overwrite").save()
        judged["sort"] = time.perf_counter() - begun
    return judged


def _judge(path: Path, engine: Engine, contract: Contract) -> dict[str, Any]:
    judged = judge(open_history(path), contract, engine)
    costliest = max(judged.examined, key=lambda examined: examined.seconds)
    return {
        "verdict": judged.verdict,
        "anomalies": judged.anomalies,
        "effects": judged.effects,
        "seconds": judged.seconds,
        "costliest": costliest.check,
        "costs": costliest.seconds,
        "claims": [finding.claim for finding in judged.findings],
    }


def read_and_sort(run: Path) -> tuple[float, float]:
    """Reads the effects of a run and sorts them on one core. Returns the seconds by the clock and by the processor."""
    with DuckDB(threads=1) as duck:
        duck.run(f"create view effects as select * from read_parquet('{run / HISTORY / 'effects'}/*.parquet')")
        began, used = time.perf_counter(), time.process_time()
        duck.run(f"create temporary table sorted as {SORTED}")
        return time.perf_counter() - began, time.process_time() - used


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--models", type=names, default=["log", "register", "group"])
    parser.add_argument("--effects", type=int, default=10_000_000)
    parser.add_argument("--keys", type=numbers, default=[1, 1000])
    parser.add_argument("--clients", type=numbers, default=[5, 50])
    parser.add_argument("--engines", type=names, default=["duckdb", "spark"])
    parser.add_argument("--plant", type=int, nargs="?", const=1, default=0)
    parser.add_argument("--order", choices=("none", *ORDERS), default="none")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--duckdb-memory", default="4GB")
    parser.add_argument("--spark-memory", default="4g")
    parser.add_argument("--one", nargs=2, metavar=("HISTORY", "ENGINE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        memory = {"duckdb": options.duckdb_memory, "spark": options.spark_memory}
        path, engine = options.one
        print(json.dumps(judge_and_sort(Path(path), engine, Contract(transaction_order=options.order), memory[engine])))
        return
    out = Output(options.json)
    out.text("| history | effects | engine | judged | read and sort | all, ratio | costliest check | ratio | peak |")
    out.text("|---|---|---|---|---|---|---|---|---|")
    rows = []
    with open_folder(options.folder) as folder:
        for model, keys, clients in itertools.product(options.models, options.keys, options.clients):
            made = make_history(folder, model, options.effects, keys, clients, options.plant, out)
            planted = {PLANTED_ANOMALIES[model]: options.plant} if options.plant else {}
            answers = {engine: _run_engine(made, engine, options) for engine in options.engines}
            for engine, answer in answers.items():
                out.text(_row(f"{model}, {keys} key{'s' if keys > 1 else ''}, {clients} clients", engine, answer))
                rows.append({"model": model, "keys": keys, "clients": clients, "engine": engine, **answer})
            _compare(made, answers, planted)
            if options.folder is None:
                shutil.rmtree(made)
    out.figures({"rows": rows})


def _compare(made: Path, answers: Mapping[str, Mapping[str, Any]], planted: Mapping[str, int]) -> None:
    """Exits if the engines differ, or did not find exactly the planted anomalies."""
    if len({(answer["verdict"], *answer["claims"]) for answer in answers.values()}) > 1:
        sys.exit(f"{made}: the engines differ: {answers}")
    if next(iter(answers.values()))["anomalies"] != planted:
        sys.exit(f"{made}: expected the planted anomalies {planted} and no others, found: {answers}")


def _run_engine(made: Path, engine: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", str(made), engine]
    command += ["--order", options.order]
    command += ["--duckdb-memory", options.duckdb_memory, "--spark-memory", options.spark_memory]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asked:
        while True:
            try:
                text, errors = asked.communicate(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, read_resident_bytes(asked.pid))
    if asked.returncode != 0:
        sys.exit(f"{made} by {engine}: {errors}")
    answer: dict[str, Any] = json.loads(text)
    return answer | {"peak": peak}


def _row(name: str, engine: str, answer: Mapping[str, Any]) -> str:
    baseline = answer["sort"]
    return (
        f"| {name} | {answer['effects'] / 1e6:.1f} M | {engine} | {answer['seconds']:.0f} s | {baseline:.1f} s "
        f"| {answer['seconds'] / baseline:.1f} | {answer['costliest']} {answer['costs']:.1f} s "
        f"| {answer['costs'] / baseline:.1f} | {answer['peak'] / 2**30:.1f} GB "
        f"| {answer['verdict']} {answer['anomalies'] or ''}"
    )


if __name__ == "__main__":
    main()
