"""Price of ``assay check``: its time divided by that of an engine that only reads and sorts the same files.

    python benchmarks/price.py [--models log] [--effects 11000000] [--keys 1000] [--clients 50] [--engines duckdb,spark]
        [--rounds 3] [--columns all] [--memory-limit 4GB] [--folder DIR] [--json]

1. ``assay generate`` makes a sound history. ``--folder`` keeps it for the next time.
2. In each round, a new process of the engine reads the effects and sorts them by key, position and call. Then
   ``assay check`` judges the history in a new process, as from the command line.
3. Both are measured by the clock and by the processor, with all child processes: the check from the start of its
   process to the end, the peer without its imports. Memory is sampled twice a second.
4. The ratio of each round is printed, and their median. For the last round, the parts of the check are printed: its
   stages, and the costliest checks.

- ``--columns``: the peer reads and sorts ``all`` columns of the effects, or the ``ten`` that most checks read.
- ``--memory-limit``: memory of DuckDB, for the peer and for the check.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from assay.checkers.engine import DuckDB
from assay.harness.core.history import HistoryReader
from assay.harness.synthetic.generate import HISTORY
from checks import COLUMNS, make_history

from figures import SAMPLE_SECONDS, Output, make_parser, names, open_folder, read_resident_bytes

SELECTED: Final = {"all": "*", "ten": COLUMNS}
"""The columns that the peer reads."""
ORDER: Final = "key, position, call, op, sub"
COSTLIEST: Final = 5
"""Number of checks that are printed."""
TICKS: Final = os.sysconf("SC_CLK_TCK")


def read_and_sort(run: Path, engine: str, columns: str, memory: str) -> None:
    """Reads the effects of a run and sorts them. DuckDB keeps the result, and Spark discards it.

    Prints the seconds that this took, and the processor seconds that this process had used before.
    """
    imports, began = time.process_time(), time.perf_counter()
    _sort(run, engine, columns, memory)
    print(json.dumps({"seconds": time.perf_counter() - began, "imports": imports}))


def _sort(run: Path, engine: str, columns: str, memory: str) -> None:
    sorted_rows = f"select {SELECTED[columns]} from effects order by {ORDER}"
    if engine == "duckdb":
        with DuckDB(memory=memory) as duck:
            duck.run(f"create view effects as select * from read_parquet('{run / HISTORY / 'effects'}/*.parquet')")
            duck.run(f"create temporary table sorted as {sorted_rows}")
        return
    from assay.checkers.engine.spark_application import SparkApplication

    with SparkApplication() as application:
        session = application.session(effects=HistoryReader(run / HISTORY).rows("effects"))
        session.read.parquet(str(run / HISTORY / "effects")).createOrReplaceTempView("effects")
        session.sql(sorted_rows).write.format("noop").mode("overwrite").save()


def read_processor_seconds(process: int) -> float:
    """Returns the processor time of a process, its descendants and its former children."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        tasks = [task.read_text() for task in Path(f"/proc/{process}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return 0.0
    children = (int(child) for one in tasks for child in one.split())
    return sum(map(int, fields[11:15])) / TICKS + sum(map(read_processor_seconds, children))


def measure(command: Sequence[str]) -> tuple[dict[str, float], str]:
    """Runs a command. Returns its seconds, its processor seconds and its peak memory in bytes, and its output."""
    before, began = _read_ended_seconds(), time.perf_counter()
    sampled, peak = 0.0, 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asked:
        while True:
            try:
                text, errors = asked.communicate(timeout=SAMPLE_SECONDS)
                break
            except subprocess.TimeoutExpired:
                sampled = max(sampled, read_processor_seconds(asked.pid))
                peak = max(peak, read_resident_bytes(asked.pid))
    seconds = time.perf_counter() - began
    if asked.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {asked.returncode}: {text[:2000]}{errors}")
    # Spark's JVM is no longer a child when it ends, so its time is only in the samples.
    processor = max(_read_ended_seconds() - before, sampled)
    return {"seconds": seconds, "processor": processor, "peak": peak}, text


def _read_ended_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(run: Path, engine: str, options: argparse.Namespace, out: Output) -> dict[str, Any]:
    """Measures the pairs of an engine."""
    peer = [sys.executable, __file__, "--peer", str(run), engine, f"--columns={options.columns}"]
    check = [sys.executable, "-m", "assay.harness.cli.main", "check", str(run), f"--engine={engine}", "--json"]
    if engine == "duckdb":
        peer.append(f"--memory-limit={options.memory_limit}")
        check.append(f"--memory-limit={options.memory_limit}")
    rounds: list[dict[str, Any]] = []
    for _ in range(options.rounds):
        sorting, text = measure(peer)
        own = json.loads(text.splitlines()[-1])
        sorting |= {"seconds": own["seconds"], "processor": sorting["processor"] - own["imports"]}
        checking, text = measure(check)
        judged = json.loads(text)
        ratios = {name: checking[name] / sorting[name] for name in ("seconds", "processor")}
        rounds.append({"sort": sorting, "check": checking, "ratio": ratios})
        out.text(
            f"{run.name} {engine}: check {_describe(checking)}; read and sort {_describe(sorting)}; "
            f"ratio {ratios['seconds']:.2f} by the clock, {ratios['processor']:.2f} by the processor"
        )
    middle = {name: median(one["ratio"][name] for one in rounds) for name in ("seconds", "processor")}
    ratio = f"{middle['seconds']:.2f} by the clock, {middle['processor']:.2f} by the processor"
    out.text(f"{run.name} {engine}: median ratio {ratio}")
    parts = read_parts(judged)
    out.text("; ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items()))
    return {"run": run.name, "engine": engine, "effects": judged["effects"], "rounds": rounds, "parts": parts} | {
        f"ratio_{name}": value for name, value in middle.items()
    }


def _describe(measured: Mapping[str, float]) -> str:
    return f"{measured['seconds']:.1f} s ({measured['processor']:.1f} s, {measured['peak'] / 2**30:.1f} GB)"


def read_parts(judged: Mapping[str, Any]) -> dict[str, float]:
    """Returns the seconds of the stages of a judgement, and of its costliest checks."""
    costs = {one["check"]: one["seconds"] for one in judged["examined"]}
    costliest = sorted(costs, key=lambda check: -costs[check])[:COSTLIEST]
    return {**judged["stages"], **{check: costs[check] for check in costliest}}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--models", type=names, default=["log"])
    parser.add_argument("--effects", type=int, default=11_000_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--engines", type=names, default=["duckdb", "spark"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--columns", choices=SELECTED, default="all")
    parser.add_argument("--memory-limit", default="4GB")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--peer", nargs=2, metavar=("RUN", "ENGINE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer is not None:
        path, engine = options.peer
        read_and_sort(Path(path), engine, options.columns, options.memory_limit)
        return
    out = Output(options.json)
    rows = []
    with open_folder(options.folder) as folder:
        for model in options.models:
            run = make_history(folder, model, options.effects, options.keys, options.clients, 0, out)
            rows += [compare(run, engine, options, out) for engine in options.engines]
    out.figures({"rows": rows})


if __name__ == "__main__":
    main()
