"""How many examples a search judges in a second of processor time, alone or in a pair with another checkout.

The same number of examples is drawn from the same seeds, of the same lengths and with the same faults; a search that
leaves runs plays most of them from moments of others. Counted are those that are not unknown, and the faults that were
injected in all, those of the run that was left with each that left it. Seconds are of the processor, of all processes
together, so that what else runs on the machine does not count; turns alternate.

    python benchmarks/search.py [--workloads test_log,...] [--examples 40] [--seeds 1,2] [--against PATH] [--json]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from figures import Output, arguments, names, numbers

ROOT = Path(__file__).parent.parent
CHILD = "--here"


def here(workload: str, examples: int, seed: int) -> dict[str, float]:
    """One search in this process, with what this process imports as ``assay``: it may be an older one."""
    from assay.checkers.engine import Engines
    from assay.harness.run.experiment import experiment_of
    from assay.harness.run.registry import Registry
    from assay.harness.run.settings import Budget, Settings
    from assay.harness.search.exploration import terrain
    from assay.harness.search.explore import Explorer
    from assay.harness.search.player import Player

    experiment = experiment_of(getattr(import_module(f"assay.workloads.{workload}"), workload))
    assert experiment is not None
    registry = Registry.standard()
    with tempfile.TemporaryDirectory() as folder:
        base = Settings(seed, time_limit=10.0, store=Path(folder))
        plain: Any = Player(experiment, base, base.store / "schedules", Engines(threads=1), registry)
        player, spent = plain, lambda: 0.0
        try:
            quick = import_module("assay.harness.search.quick")
        except ImportError:
            pass
        else:
            player = quick.QuickPlayer(plain)
            spent = lambda: player.seconds  # noqa: E731 - of the process that plays
        explorer = Explorer(player, terrain(experiment.deployed(), base, registry.faults), Budget(examples=examples))
        began, processor = time.perf_counter(), time.process_time()
        explorer.run()
        seconds = time.process_time() - processor + spent()
        verdicts = explorer.tally.verdicts
        if player is not plain:
            player.close()
    injected = sum(len(outcome.injected) for outcome in explorer._seen.values())
    known = sum(count for verdict, count in verdicts.items() if verdict != "unknown")
    return {
        "examples": explorer.tally.examples,
        "known": known,
        "injected": injected,
        "processor seconds": seconds,
        "wall seconds": time.perf_counter() - began,
        "states": explorer.tally.states,
    }


def of(checkout: Path, workload: str, examples: int, seed: int) -> dict[str, float]:
    """The same by the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, __file__, CHILD, workload, str(examples), str(seed)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--workloads", type=names, default=["test_log", "test_group", "test_controller"])
    parser.add_argument("--examples", type=int, default=40)
    parser.add_argument("--seeds", type=numbers, default=[1])
    parser.add_argument("--against", type=Path, help="another checkout, such as a worktree of an older commit")
    options = parser.parse_args()
    output = Output(options.json)
    sides = {"this": ROOT} | ({"other": options.against.resolve()} if options.against else {})
    figures: dict[str, Any] = {}
    for workload in options.workloads:
        totals = {side: dict.fromkeys(("known", "injected", "examples", "processor seconds"), 0.0) for side in sides}
        for turn, seed in enumerate(options.seeds):
            for side in sorted(sides, reverse=bool(turn % 2)):
                found = of(sides[side], workload, options.examples, seed)
                for name in totals[side]:
                    totals[side][name] += found[name]
        rates = {side: total["known"] / total["processor seconds"] for side, total in totals.items()}
        for side, total in totals.items():
            output.text(
                f"{workload} {side}: {total['known']:.0f} of {total['examples']:.0f} examples known, with "
                f"{total['injected']:.0f} faults injected in all, in {total['processor seconds']:.1f} s of processor "
                f"time, {rates[side]:.2f} known a second"
            )
        if len(rates) > 1:
            output.text(f"{workload}: {rates['this'] / rates['other']:.2f} times as many")
        figures[workload] = {"totals": totals, "rates": rates}
    output.figures(figures)


if __name__ == "__main__":
    if CHILD in sys.argv:
        name, examples, seed = sys.argv[2:]
        print(json.dumps(here(name, int(examples), int(seed))))
    else:
        main()
