"""Growth of the cost of a run with its length: effects, checks, validation, coverage, timeline and page.

    python benchmarks/doubling.py [--workload test_log] [--seconds 60] [--doublings 4] [--rate 80] [--engine duckdb]
        [--rounds 3] [--folder DIR] [--json]

1. The simulation runs a workload of the broker under kills, partitions and stops for 60, 120, ... 960 seconds. So the
   histories have the rows of real runs: faults, events, looks, and readers that seek.
2. Each run is judged, and its page is written, ``--rounds`` times. The shortest time of each part counts.
3. The exponent of each part is printed; 1 is linear. It is the slope of the logarithm of the part's time over the
   logarithm of the run's length, by least squares, in the ``FITTED_RUNS`` longest runs. A part that takes less than
   ``MIN_SECONDS`` in the longest run has no exponent, because fixed costs hide it.

``--folder`` keeps the runs for the next time; without it they are deleted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any, Final

from assay.checkers.engine import Engines
from assay.harness.run.registry import Registry
from assay.harness.stored.by_contract import judge_again, open_stored
from assay.reports.page import render

from figures import Output, make_parser

FAULTS: Final = "kill,partition,stop"
MIN_SECONDS: Final = 0.05
FITTED_RUNS: Final = 3


def simulate(folder: Path, workload: str, seconds: int, rate: float) -> Path:
    """Runs the workload on first use, and returns the run's folder."""
    store = folder / f"{workload}-{seconds}-{rate:g}"
    if not (store / "latest" / "verdict.json").exists():  # missing, or killed before its end
        command = [
            sys.executable, "-m", "pytest", f"workloads/{workload}.py", "--cluster=sim", f"--nemesis={FAULTS}",
            f"--time-limit={seconds}", f"--rate={rate:g}", "--seed=5", f"--store={store}", "--reports=never", "-q",
            "-p", "no:cacheprovider",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
        if done.returncode != 0:
            raise SystemExit(f"{workload} of {seconds} s did not pass:\n{done.stdout}")
    return (store / "latest").resolve()


def measure(run: Path, engine: str) -> tuple[dict[str, float], dict[str, int]]:
    """Returns the seconds of each part, and the sizes of the history."""
    registry = Registry.with_modules(())
    stored = open_stored(run)
    history = stored.open_complete_part()
    with Engines(engine) as engines:
        judgement = judge_again(stored, history, engines, registry)
    began = time.perf_counter()
    render(run)
    parts = {f"check {one.check}": one.seconds for one in judgement.examined}
    parts |= {f"all {stage}": seconds for stage, seconds in judgement.stages.items()}
    parts["page"] = time.perf_counter() - began
    return parts, {"operations": judgement.operations, "effects": judgement.effects}


def fit_exponent(lengths: Sequence[float], seconds: Sequence[float]) -> float:
    """Returns the slope of the line through the logarithms, or 0 if the slope is negative."""
    xs, ys = [log(length) for length in lengths], [log(max(one, 1e-6)) for one in seconds]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return max(0.0, sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs))


def compute_exponents(lengths: Sequence[int], times: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the exponents of the parts that take at least ``MIN_SECONDS`` seconds in the longest run."""
    return {
        part: fit_exponent(lengths[-FITTED_RUNS:], [one[part] for one in times[-FITTED_RUNS:]])
        for part, seconds in times[-1].items()
        if seconds >= MIN_SECONDS and all(part in one for one in times[-FITTED_RUNS:])
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--workload", default="test_log", help="a workload of the broker (test_log)")
    parser.add_argument("--seconds", type=int, default=60, help="of the shortest run (60)")
    parser.add_argument("--doublings", type=int, default=4)
    parser.add_argument("--rate", type=float, default=80, help="operations per second (80)")
    parser.add_argument("--engine", default="duckdb", help="duckdb or spark")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keeps the runs")
    options = parser.parse_args()
    out = Output(options.json)
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as temporary:
        found = run(options, options.folder or Path(temporary), out)
    out.figures(found)


def run(options: argparse.Namespace, folder: Path, out: Output) -> dict[str, Any]:
    lengths = [options.seconds << doubling for doubling in range(options.doublings + 1)]
    times: list[dict[str, float]] = []
    sizes: list[dict[str, int]] = []
    for length in lengths:
        path = simulate(folder, options.workload, length, options.rate)
        rounds = [measure(path, options.engine) for _ in range(options.rounds)]
        times.append({part: min(one[part] for one, _ in rounds) for part in rounds[0][0]})
        sizes.append(rounds[0][1])
        size, last = sizes[-1], times[-1]
        out.text(
            f"{length:,} s: {size['operations']:,} operations, {size['effects']:,} effects "
            f"({size['effects'] / size['operations']:.2f} each), "
            + ", ".join(f"{name} {last[name]:.2f} s" for name in ("all validating", "all checking", "page"))
        )
    exponents = compute_exponents(lengths, times)
    exponents["effects"] = fit_exponent(lengths[-FITTED_RUNS:], [size["effects"] for size in sizes[-FITTED_RUNS:]])
    for part, exponent in sorted(exponents.items(), key=lambda item: -item[1]):
        row = " ".join(f"{one.get(part, 0):8.3f}" for one in times) if part in times[-1] else ""
        out.text(f"{part:32} {exponent:5.2f}  {row}")
    return {"lengths": lengths, "sizes": sizes, "seconds": times, "exponents": exponents}


if __name__ == "__main__":
    main()
