"""How long DuckDB and Spark take to judge large histories, beside merely reading and sorting the same files.

    python benchmarks/checks.py [--models log,register,group] [--effects 10000000] [--keys 1,1000] [--clients 5,50]
        [--engines duckdb,spark] [--plant [1]] [--order none] [--folder DIR] [--duckdb-memory 4GB] [--spark-memory 4g]

Each history is made by ``assay generate``, and judged by each engine in a process of its own, for its peak memory: of
that process and those that it started, such as Spark's JVM, together, looked at twice a second. The limit is the same
engine's time to read the effects and sort them by key, position and call, in the same process, right after. Ratios to
it: of the costliest single check, and of all together: validation, shared views, checks. ``--plant``: with an anomaly
of each history's own in it, or so many, all of which must be found, and nothing else. ``--order``: what transactions
(``txn``, ``txn-register``) must respect besides: none, process or real-time. ``--folder`` keeps the histories for the
next time; else they go.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from assay.checkers.contract import Contract
from assay.checkers.engine import DuckDB, Engine
from assay.checkers.judge import judge
from assay.checkers.source import open_history, register_history
from assay.checkers.transactions.cycles import ORDERS
from assay.harness.core.history import HistoryReader
from assay.harness.synthetic.generate import HISTORY, PLANTED, generate
from assay.harness.synthetic.plan import Plan

SAMPLE: Final = 20
"""A history of a twentieth tells how many effects an operation has, which models, keys and clients decide, and
somewhat its length: a history that is too far off is made again."""
CLOSE: Final = 0.05
TRIES: Final = 4
PLANT: Final = {
    "log": "lost-write", "register": "stale-read", "group": "double-ownership", "txn": "G-nonadjacent",
    "txn-register": "G-nonadjacent",
}  # fmt: skip
COLUMNS: Final = "op, sub, process, key, kind, position, value, call, ret, outcome"
SORTED: Final = f"select {COLUMNS} from effects order by key, position, call, op, sub"


def history(folder: Path, model: str, effects: int, keys: int, clients: int, plant: int) -> Path:
    """Made at the first use. Returns its folder."""
    anomaly = (f"{plant}-" if plant > 1 else "") + PLANT[model] if plant else "sound"
    out = folder / f"{model}-{effects}-{keys}-{clients}-{anomaly}"
    if not (out / PLANTED).exists():
        planted = (PLANT[model],) * plant if plant else ()
        plan = Plan(operations=effects // SAMPLE, clients=clients, keys=keys, seed=7, plant=planted)
        made = generate(model, plan, out)
        for _ in range(TRIES):
            if abs(made.effects - effects) <= CLOSE * effects:
                break
            shutil.rmtree(out)
            plan = replace(plan, operations=round(plan.operations * effects / made.effects))
            made = generate(model, plan, out)
        print(f"{out.name}: {made.operations} operations, {made.effects} effects in {made.seconds:.0f} s", flush=True)
    return out


def resident(process: int) -> int:
    """Bytes of a process and of those that it started, which are in memory now."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        tasks = [task.read_text() for task in Path(f"/proc/{process}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return 0
    return pages * resource.getpagesize() + sum(resident(int(child)) for one in tasks for child in one.split())


def one(folder: Path, engine: str, contract: Contract, memory: str) -> dict[str, Any]:
    """Judges, then reads and sorts."""
    path = folder / HISTORY
    if engine == "duckdb":
        with DuckDB(memory=memory) as duck:
            told = _judged(path, duck, contract)
        with DuckDB(memory=memory, kept_rows=0) as duck:
            register_history(duck, path)
            begun = time.perf_counter()
            duck.table("sorted", SORTED)
            return told | {"sort": time.perf_counter() - begun}
    from assay.checkers.engine.spark import SparkApplication

    rows = HistoryReader(path).rows("effects")
    with SparkApplication(memory=memory) as application:
        with application.engine(effects=rows) as spark:
            told = _judged(path, spark, contract)
        with application.engine(effects=rows) as spark:
            register_history(spark, path)
            session = application.session(effects=rows)
            session.read.parquet(str(path / "effects")).createOrReplaceTempView("effects")
            begun = time.perf_counter()
            session.sql(SORTED).write.format("noop").mode("overwrite").save()
            told["sort"] = time.perf_counter() - begun
    return told


def _judged(path: Path, engine: Engine, contract: Contract) -> dict[str, Any]:
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


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--models", default="log,register,group")
    arguments.add_argument("--effects", type=int, default=10_000_000)
    arguments.add_argument("--keys", default="1,1000")
    arguments.add_argument("--clients", default="5,50")
    arguments.add_argument("--engines", default="duckdb,spark")
    arguments.add_argument("--plant", type=int, nargs="?", const=1, default=0)
    arguments.add_argument("--order", choices=("none", *ORDERS), default="none")
    arguments.add_argument("--folder", type=Path)
    arguments.add_argument("--duckdb-memory", default="4GB")
    arguments.add_argument("--spark-memory", default="4g")
    arguments.add_argument("--one", nargs=2, metavar=("HISTORY", "ENGINE"), help=argparse.SUPPRESS)
    options = arguments.parse_args()
    memory = {"duckdb": options.duckdb_memory, "spark": options.spark_memory}
    if options.one is not None:
        contract = Contract(transaction_order=options.order)
        print(json.dumps(one(Path(options.one[0]), options.one[1], contract, memory[options.one[1]])))
        return
    folder = options.folder or Path(tempfile.mkdtemp(prefix="assay-bench-"))
    print("| history | effects | engine | judged | read and sort | all, ratio | costliest check | ratio | peak |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for model in options.models.split(","):
        for keys in map(int, options.keys.split(",")):
            for clients in map(int, options.clients.split(",")):
                made = history(folder, model, options.effects, keys, clients, options.plant)
                answers = {name: _ask(made, name, options) for name in options.engines.split(",")}
                for name, told in answers.items():
                    _print(f"{model}, {keys} key{'s' if keys > 1 else ''}, {clients} clients", name, told)
                said = {(told["verdict"], *told["claims"]) for told in answers.values()}
                if len(said) > 1:
                    sys.exit(f"{made}: the engines differ: {answers}")
                planted = {PLANT[model]: options.plant} if options.plant else {}
                if next(iter(answers.values()))["anomalies"] != planted:
                    sys.exit(f"{made}: {planted} was planted, but not found, or more: {answers}")
                if options.folder is None:
                    shutil.rmtree(made)


def _ask(made: Path, engine: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", str(made), engine]
    command += ["--order", options.order]
    command += ["--duckdb-memory", options.duckdb_memory, "--spark-memory", options.spark_memory]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asked:
        while True:
            try:
                out, errors = asked.communicate(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, resident(asked.pid))
    if asked.returncode != 0:
        sys.exit(f"{made} by {engine}: {errors}")
    told: dict[str, Any] = json.loads(out)
    return told | {"peak": peak}


def _print(name: str, engine: str, told: dict[str, Any]) -> None:
    limit = told["sort"]
    print(
        f"| {name} | {told['effects'] / 1e6:.1f} M | {engine} | {told['seconds']:.0f} s | {limit:.1f} s "
        f"| {told['seconds'] / limit:.1f} | {told['costliest']} {told['costs']:.1f} s | {told['costs'] / limit:.1f} "
        f"| {told['peak'] / 2**30:.1f} GB | {told['verdict']} {told['anomalies'] or ''}",
        flush=True,
    )


if __name__ == "__main__":
    main()
