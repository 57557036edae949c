"""Time of the verdict after an hour's run, for every model that `assay generate` has.

    python benchmarks/hour.py [--rates 80,250] [--models log,txn] [--clients 20] [--keys 1000] [--json]

A history has the operations of an hour at the given rate. The command ``assay check`` judges it; its start is included.
As the baseline, a single core reads and sorts the effects. Times are wall clock, with processor time in brackets. The
ratio compares processor times.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from assay.harness.synthetic.generate import MODELS, generate
from assay.harness.synthetic.plan import Plan
from checks import read_and_sort

from figures import Output, make_parser, names, numbers

HOUR: Final = 3600


def check(run: Path) -> tuple[float, float]:
    """Returns the seconds of ``assay check``, by the clock and by the processor."""
    before, began = _children_seconds(), time.perf_counter()
    command = [sys.executable, "-m", "assay.harness.cli.main", "check", str(run), "--engine=duckdb"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        sys.exit(f"assay check ended with {done.returncode}: {done.stdout[:2000]}{done.stderr}")
    return seconds, _children_seconds() - before


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rates", type=numbers, default=[80, 250], help="operations per second")
    parser.add_argument("--models", type=names, default=list(MODELS))
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--keys", type=int, default=1000)
    options = parser.parse_args()
    out, found = Output(options.json), []
    for model in options.models:
        for rate in options.rates:
            with tempfile.TemporaryDirectory(prefix="assay-bench-") as folder:
                run = Path(folder) / "made"
                plan = Plan(operations=rate * HOUR, clients=options.clients, keys=options.keys, seed=1)
                made = generate(model, plan, run)
                seconds, used = check(run)
                sort = read_and_sort(run)[1]
            out.text(
                f"{model}, {rate} per second: {made.operations:,} operations, {made.effects:,} effects: verdict in "
                f"{seconds:.1f} s ({used:.1f} s), {used / sort:.1f} times reading and sorting"
            )
            row: dict[str, Any] = {"model": model, "rate": rate, "effects": made.effects, "sort": sort}
            found.append(row | {"seconds": seconds, "processor": used})
    out.figures({"hours": found})


if __name__ == "__main__":
    main()
