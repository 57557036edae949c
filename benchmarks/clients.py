"""Speed of clients in a container on the nodes' network, compared with clients in the harness's process.

    python benchmarks/clients.py [--workload test_log] [--seconds 15] [--rounds 3] [--seed 1] [--json]

Each round runs the workload once with ``--clients=here`` and once with ``--clients=container``, on the same seed and
without faults. The clients run a closed loop: each sends its next operation when the last one has ended. The order of
both runs alternates. The figures are those of the runs' ``figures.json``: successful operations per second, and the
median and the 99 % quantile of their latencies. A ratio is the figure in the container divided by the figure here.
Needs a Docker engine whose networks this machine reaches.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Final

from figures import Output, make_parser, open_folder

PLACES: Final = ("here", "container")
UNITS: Final = {"rate": "operations/s", "median_ms": "ms (median)", "p99_ms": "ms (99 %)"}
"""Names of the figures in ``figures.json``, and what they count."""


def measure(store: Path, place: str, workload: str, seconds: int, seed: int) -> dict[str, float]:
    """Runs the workload with its clients in one place, and returns the figures."""
    command = [
        sys.executable, "-m", "pytest", f"workloads/{workload}.py", "--cluster=docker", f"--clients={place}",
        f"--time-limit={seconds}", f"--seed={seed}", f"--store={store}", "--reports=never", "-q",
        "-p", "no:cacheprovider",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode != 0:
        raise SystemExit(f"{workload} with clients {place} did not pass:\n{done.stdout}{done.stderr}")
    found = json.loads((store / "latest" / "figures.json").read_text())
    return {name: found[name] for name in UNITS}


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--workload", default="test_log", help="a workload of the broker (test_log)")
    parser.add_argument("--seconds", type=int, default=15, help="of each run (15)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    output = Output(options.json)
    found: dict[str, list[dict[str, float]]] = {place: [] for place in PLACES}
    with open_folder(None) as folder:
        for turn in range(options.rounds):
            for place in PLACES if turn % 2 == 0 else reversed(PLACES):
                store = folder / f"{place}-{turn}"
                figures = measure(store, place, options.workload, options.seconds, options.seed)
                found[place].append(figures)
                output.text(f"{place}: " + ", ".join(f"{figures[name]:,.2f} {unit}" for name, unit in UNITS.items()))
    medians = {place: {name: median(one[name] for one in runs) for name in UNITS} for place, runs in found.items()}
    pairs = list(zip(found["container"], found["here"], strict=True))
    ratios = {name: round(median(there[name] / here[name] for there, here in pairs), 3) for name in UNITS}
    for name, unit in UNITS.items():
        output.text(
            f"{unit}: {medians['here'][name]:,.2f} here, {medians['container'][name]:,.2f} in a container, "
            f"ratio {ratios[name]}"
        )
    output.figures({**medians, "ratios": ratios})
    return 0


if __name__ == "__main__":
    sys.exit(main())
