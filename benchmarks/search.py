"""Examples that a search judges per second of processor time, alone or compared with another checkout.

This checkout and the other one draw equal numbers of examples from the same seeds, lengths and faults. A search with a
fork server starts most examples from forks of other runs. Two figures count: examples that are not unknown, and
injected faults, including those that a fork inherited. Seconds are processor time of all processes, so other load
on the machine does not count. The two checkouts alternate.

    python benchmarks/search.py [--workloads test_log,...] [--examples 40] [--seeds 1,2]
        [--against PATH|COMMIT] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from explorers import ROOT, open_checkout, open_explorer, run_in_checkout
from figures import Output, make_parser, names, numbers

CHILD = "--here"
SUMMED = ("known", "failed", "injected", "examples", "processor seconds")


def run_search(workload: str, examples: int, seed: int) -> dict[str, float]:
    """Runs one search in this process. The package ``assay`` may come from an older checkout."""
    began = time.perf_counter()
    with open_explorer(workload, seed, examples=examples) as (search, spent):
        search.run()
        seconds = spent()
    verdicts = search.tally.verdicts
    return {
        "examples": search.tally.examples,
        "known": sum(count for verdict, count in verdicts.items() if verdict != "unknown"),
        "failed": verdicts.get("fail", 0),
        "injected": sum(len(outcome.injected) for outcome in search._outcomes.values()),
        "processor seconds": seconds,
        "wall seconds": time.perf_counter() - began,
        "states": search.tally.states,
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--workloads", type=names, default=["test_log", "test_group", "test_controller"])
    parser.add_argument("--examples", type=int, default=40)
    parser.add_argument("--seeds", type=numbers, default=[1])
    parser.add_argument("--against", help="the folder of another checkout, or an older commit")
    options = parser.parse_args()
    with ExitStack() as stack:
        sides = {"this": ROOT}
        if options.against is not None:
            sides["other"] = stack.enter_context(open_checkout(options.against))
        compare(options, sides)


def compare(options: argparse.Namespace, sides: Mapping[str, Path]) -> None:
    """Prints the rates of each side, a checkout."""
    output = Output(options.json)
    figures: dict[str, Any] = {}
    for workload in options.workloads:
        totals = {side: dict.fromkeys(SUMMED, 0.0) for side in sides}
        for turn, seed in enumerate(options.seeds):
            for side in sorted(sides, reverse=bool(turn % 2)):
                found = json.loads(run_in_checkout(__file__, sides[side], [CHILD, workload, options.examples, seed]))
                for name in totals[side]:
                    totals[side][name] += found[name]
        rates = {side: total["known"] / total["processor seconds"] for side, total in totals.items()}
        for side, total in totals.items():
            output.text(
                f"{workload} {side}: {total['known']:.0f} of {total['examples']:.0f} examples known, with "
                f"{total['injected']:.0f} faults injected in all, in {total['processor seconds']:.1f} s of processor "
                f"time, {rates[side]:.2f} known a second"
            )
            if total["failed"]:
                output.text(f"{workload} {side}: a failure was found, so the time includes shrinking it")
        if len(rates) > 1:
            output.text(f"{workload}: {rates['this'] / rates['other']:.2f} times as many")
        figures[workload] = {"totals": totals, "rates": rates}
    output.figures(figures)


if __name__ == "__main__":
    if CHILD in sys.argv:
        name, examples, seed = sys.argv[2:]
        print(json.dumps(run_search(name, int(examples), int(seed))))
    else:
        main()
