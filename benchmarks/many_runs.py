"""Time of `assay check` for many stored histories: in one pass here, as one Spark job, and one by one.

`assay generate` makes ``--different`` histories from different seeds; the rest are links to them, because only their
number matters. "One by one" is the time of the command, including its start, for a sample, extrapolated to all. All
engines judge the histories by the same command line in processes of their own; their output lines must be equal.

    python benchmarks/many_runs.py [--runs 10000] [--operations 500] [--different 100] [--sample 10]
        [--engines auto,spark] [--json]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from assay.harness.synthetic.generate import generate
from assay.harness.synthetic.plan import Plan

from figures import Output, make_parser, names

SPARK: Final = "local[2]"
ENDS: Final = (0, 1, 2)
"""Exit codes of ``assay check``: pass, fail, unknown."""


def make_runs(folder: Path, runs: int, operations: int, different: int) -> Iterator[Path]:
    """Creates the runs and yields their folders. Every second distinct history has an anomaly."""
    for number in range(runs):
        path = folder / f"{number:05}"
        if number < different:
            plant = ("lost-write",) if number % 2 else ()
            generate("log", Plan(operations=operations, clients=5, keys=2, seed=number, plant=plant), path)
        else:
            link_files(folder / f"{number % different:05}", path)
        yield path


def link_files(source: Path, target: Path) -> None:
    """Makes the folder ``target`` with hard links to the files of ``source``."""
    for root, _, files in os.walk(source):
        there = target / Path(root).relative_to(source)
        there.mkdir()
        for name in files:
            os.link(Path(root) / name, there / name)


def time_check(paths: Sequence[Path], *options: str) -> tuple[float, list[str]]:
    """Returns the seconds of a check, and its output lines."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "assay.harness.cli.main", "check", *map(str, paths), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode not in ENDS:
        sys.exit(f"assay check ended with {done.returncode}: {done.stderr}")
    return seconds, done.stdout.splitlines()


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--operations", type=int, default=500)
    parser.add_argument("--different", type=int, default=100)
    parser.add_argument("--sample", type=int, default=10, help="number of runs to check one by one")
    parser.add_argument("--engines", type=names, default=["auto", "spark"])
    options = parser.parse_args()
    out = Output(options.json)
    figures: dict[str, Any] = {"runs": options.runs}
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as folder:
        paths = list(make_runs(Path(folder), options.runs, options.operations, options.different))
        each = [time_check([path])[0] for path in paths[: options.sample]]
        alone = sum(each) / len(each) * options.runs
        out.text(f"one by one: {sum(each) / len(each):.2f} s each, so {alone:,.0f} s for {options.runs}")
        figures["one by one"] = alone
        outputs = []
        for engine in options.engines:
            seconds, lines = time_check(paths, f"--spark-master={SPARK}" if engine == "spark" else f"--engine={engine}")
            out.text(f"{engine}: {options.runs} in {seconds:.1f} s, {alone / seconds:.1f} times as fast: {lines[-1]}")
            figures[engine] = seconds
            outputs.append(lines)
        if any(lines != outputs[0] for lines in outputs):
            sys.exit("the engines differ")
    out.figures(figures)


if __name__ == "__main__":
    main()
