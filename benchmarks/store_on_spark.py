"""Cost of judging a store of long runs on a standalone Spark of two workers, and its estimate for larger ones.

    PYTHONPATH=tests python benchmarks/store_on_spark.py [--effects 500000000] [--run-effects 2500000]
        [--different 8] [--large 50000000] [--keys 200] [--memory 1g] [--folder DIR] [--json]

1. The store has one run of ``--large`` effects, and runs of ``--run-effects`` effects, about an hour of the broker's
   workload each, until there are ``--effects``. ``--different`` of these are made; the others are links to their files.
2. A master and two workers of one core each are started. ``assay check`` judges the store as one job, with a task for
   each run, and then the large run alone, divided by key.
3. The figures of each stage come from Spark's event log: tasks, their time, and bytes shuffled and spilled. The skew is
   the longest task over the median one. The memory is that of an executor with its Python.
4. DuckDB reads and sorts the effects of a run on one core. That is the machine's limit, and the time of a task is
   printed as a ratio to it.
5. The terms of the estimate are printed, and the result for 10^10 effects on fifty workers of one core. The driver's
   own time is measured for a tenth of the work and for all of it. So its fixed part is known, and the rest is taken to
   grow with the work.

``--folder`` keeps the store for the next time; without it, it is deleted.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from assay.checkers.judging.history_views import open_history
from assay.harness.synthetic.generate import HISTORY, generate
from assay.harness.synthetic.plan import Plan
from checks import read_and_sort
from many_runs import link_files

from figures import Output, make_parser
from helpers.standalone import WORKERS, Cluster, standalone_cluster

EFFECTS_PER_OPERATION: Final = 3.7
"""Approximately, for the model ``log``; the effects are counted afterwards."""
TENTH: Final = 10
TARGET_EFFECTS: Final = 10**10
TARGET_CORES: Final = 50
NETWORK: Final = 125_000_000
"""Bytes per second of a worker's network, 1 Gbit/s, for the estimate."""
METRICS: Final = """\
spark.eventLog.logStageExecutorMetrics true
spark.executor.processTreeMetrics.enabled true
spark.executor.metrics.pollingInterval 500ms
"""


@dataclass
class Stage:
    """Figures of one stage. Times are in seconds, ``peak`` is in bytes."""

    seconds: list[float] = field(default_factory=list)
    written: int = 0
    """Bytes written for a shuffle."""
    read: int = 0
    spilled: int = 0
    begin: float = float("inf")
    end: float = 0.0

    @property
    def span(self) -> float:
        return self.end - self.begin

    @property
    def skew(self) -> float:
        """The longest task over the median one."""
        return max(self.seconds) / max(median(self.seconds), 0.001)

    def describe(self) -> str:
        busy = sum(self.seconds) / (self.span * WORKERS)
        return (
            f"{len(self.seconds)} tasks, {sum(self.seconds):,.0f} s of tasks in {self.span:,.0f} s (workers busy "
            f"{busy:.0%}), longest {max(self.seconds):.1f} s, skew {self.skew:.2f}, shuffled {self.written / 1e6:,.0f} "
            f"MB written and {self.read / 1e6:,.0f} MB read, spilled {self.spilled / 1e6:,.0f} MB"
        )


def make_store(folder: Path, options: Any, out: Output) -> tuple[list[Path], list[Path], dict[Path, int]]:
    """Makes the runs that are missing. Returns the runs, the two large runs, and the effects of each."""
    effects: dict[Path, int] = {}
    runs: list[Path] = []
    tenth = _make_run(folder / "large-tenth", options.large // TENTH, options, 0, out)
    large = _make_run(folder / "large", options.large, options, 0, out)
    for path in (tenth, large):
        effects[path] = open_history(path / HISTORY).rows("effects")
    while sum(effects.values()) < options.effects:
        number = len(runs)
        path = folder / "store" / f"{number:05}"
        if number < options.different:
            _make_run(path, options.run_effects, options, number + 1, out)
        elif not path.exists():
            link_files(folder / "store" / f"{number % options.different:05}", path)
        same = runs[number % options.different] if number >= options.different else None
        effects[path] = open_history(path / HISTORY).rows("effects") if same is None else effects[same]
        runs.append(path)
    return runs, [tenth, large], effects


def _make_run(path: Path, effects: int, options: Any, seed: int, out: Output) -> Path:
    if not path.exists():
        plan = Plan(
            operations=round(effects / EFFECTS_PER_OPERATION), clients=20, keys=options.keys, seed=seed,
            plant=("lost-write",) if seed % 2 else (),
        )  # fmt: skip
        made = generate("log", plan, path)
        out.text(f"made {path.name}: {made.effects:,} effects in {made.seconds:.0f} s")
    return path


def read_stages(events: Path) -> tuple[list[Stage], int]:
    """Returns the stages of an application in their order, and the greatest memory of an executor with its Python."""
    stages: dict[int, Stage] = defaultdict(Stage)
    peak = 0
    with events.open() as lines:
        for line in lines:
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
                _add_task(stages[event["Stage ID"]], event["Task Info"], event["Task Metrics"])
            elif event["Event"] == "SparkListenerStageExecutorMetrics" and event["Executor ID"] != "driver":
                metrics = event["Executor Metrics"]
                peak = max(peak, metrics["ProcessTreeJVMRSSMemory"] + metrics["ProcessTreePythonRSSMemory"])
    return [stages[number] for number in sorted(stages)], peak


def _add_task(stage: Stage, info: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
    begin, end = info["Launch Time"] / 1000, info["Finish Time"] / 1000
    stage.seconds.append(end - begin)
    stage.begin, stage.end = min(stage.begin, begin), max(stage.end, end)
    stage.written += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    read = metrics["Shuffle Read Metrics"]
    stage.read += read["Remote Bytes Read"] + read["Local Bytes Read"]
    stage.spilled += metrics["Disk Bytes Spilled"]


def judge_on(cluster: Cluster, paths: Sequence[Path]) -> tuple[float, list[Stage], int, str]:
    """Judges the paths by one command. Returns its seconds, stages, memory and output."""
    before = set(cluster.events.iterdir())
    began = time.perf_counter()
    code, text, _ = cluster.asked("check", *map(str, paths))
    seconds = time.perf_counter() - began
    if code not in (0, 1):
        sys.exit(f"assay check ended with {code}: {text[-2000:]}")
    (events,) = set(cluster.events.iterdir()) - before
    return seconds, *read_stages(events), text


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--effects", type=int, default=500_000_000)
    parser.add_argument("--run-effects", type=int, default=2_500_000)
    parser.add_argument("--different", type=int, default=8)
    parser.add_argument("--large", type=int, default=50_000_000)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--memory", default="1g", help="memory of an executor's JVM")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    out = Output(options.json)
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        runs, large, effects = make_store(folder, options, out)
        many = sum(effects[run] for run in runs)
        settings, events = Path(temporary) / "cluster", Path(temporary) / "events"
        for one in (settings, events):
            one.mkdir()
        with standalone_cluster(settings, events, memory=options.memory, java="", settings=METRICS) as cluster:
            figures = _judge_store(cluster, runs, many, out)
            figures |= _judge_large(cluster, large, [effects[one] for one in large], out)
        sorting = read_and_sort(runs[0])[0] / effects[runs[0]]
        figures["sort"] = sorting
        out.text(
            f"one core reads and sorts a million effects in {sorting * 1e6:.2f} s; judging in a task takes "
            f"{figures['task'] / sorting:.1f} times that, divided by key {figures['divided'] / sorting:.1f} times"
        )
        _estimate(figures, out)
    out.figures(figures)


def _judge_store(cluster: Cluster, runs: Sequence[Path], effects: int, out: Output) -> dict[str, Any]:
    few = runs[: max(1, len(runs) // TENTH)]
    seconds, stages, _, _ = judge_on(cluster, few)
    alone = seconds - stages[-1].span
    seconds, stages, peak, text = judge_on(cluster, runs)
    stage = stages[-1]
    lines = text.splitlines()
    failed = sum('"verdict":"fail"' in line for line in lines)
    out.text(f"store: {len(runs)} runs, {effects:,} effects: {seconds:,.0f} s, {failed} of {len(lines)} runs failed")
    out.text(f"  judging: {stage.describe()}; largest executor {peak / 1e9:.2f} GB; answers {len(text) / 1e6:.2f} MB")
    growth = max(0.0, seconds - stage.span - alone) / max(1, len(runs) - len(few))
    return {
        "runs": len(runs), "effects": effects, "seconds": seconds, "failed": failed, "peak": peak,
        "task": sum(stage.seconds) / effects, "skew": stage.skew, "longest": max(stage.seconds),
        "start": alone - growth * len(few), "driver per run": growth,
    }  # fmt: skip


def _judge_large(cluster: Cluster, large: Sequence[Path], effects: Sequence[int], out: Output) -> dict[str, Any]:
    alone = []
    for path, many in zip(large, effects, strict=True):
        seconds, stages, peak, text = judge_on(cluster, [path])
        verdict = json.loads(text)["verdict"]
        out.text(f"large run: {many:,} effects: {seconds:,.0f} s, {verdict}; largest executor {peak / 1e9:.2f} GB")
        for stage in sorted(stages, key=lambda stage: sum(stage.seconds), reverse=True)[:3]:
            out.text(f"  stage: {stage.describe()}")
        alone.append(seconds - sum(stage.span for stage in stages))
    growth = max(0.0, alone[1] - alone[0]) / (effects[1] - effects[0])
    return {
        "large": effects[1], "large seconds": seconds, "large peak": peak,
        "divided": sum(sum(stage.seconds) for stage in stages) / effects[1],
        "shuffled": sum(stage.written for stage in stages) / effects[1],
        "spilled": sum(stage.spilled for stage in stages) / effects[1],
        "large start": alone[1] - growth * effects[1], "driver per effect": growth,
    }  # fmt: skip


def _estimate(figures: Mapping[str, Any], out: Output) -> None:
    """Prints the terms of the estimate for ``TARGET_EFFECTS``, as a store of runs and as one run."""
    runs = TARGET_EFFECTS / (figures["effects"] / figures["runs"])
    work = TARGET_EFFECTS * figures["task"] / TARGET_CORES
    driver = figures["start"] + runs * figures["driver per run"]
    out.text(
        f"estimate, {TARGET_EFFECTS:.0e} effects in {runs:,.0f} runs on {TARGET_CORES} cores: tasks {work:,.0f} s "
        f"({figures['task'] * 1e6:.2f} s a million effects) + last task {figures['longest']:.0f} s + driver "
        f"{driver:,.0f} s ({figures['start']:.0f} s, and {figures['driver per run'] * 1e3:.0f} ms a run) = "
        f"{(work + figures['longest'] + driver) / 60:,.0f} minutes"
    )
    divided, growth = figures["divided"], figures["driver per effect"]
    work = TARGET_EFFECTS * divided / TARGET_CORES
    network = TARGET_EFFECTS * figures["shuffled"] / TARGET_CORES / NETWORK
    driver = figures["large start"] + TARGET_EFFECTS * growth
    out.text(
        f"estimate, one run of {TARGET_EFFECTS:.0e} effects: tasks {work:,.0f} s "
        f"({divided * 1e6:.2f} s a million effects) + shuffle {network:,.0f} s "
        f"({figures['shuffled']:.1f} B an effect at 1 Gbit/s a worker) + driver {driver:,.0f} s "
        f"({growth * 1e6:.2f} s a million effects) = {(work + network + driver) / 60:,.0f} minutes"
    )


if __name__ == "__main__":
    main()
