"""``assay shrink RUN``: makes the schedule of a failing run small."""

import argparse
from pathlib import Path
from typing import Any

from assay.harness.cli.command import Exit, count, note, reading


def add(commands: Any) -> None:
    parser = commands.add_parser("shrink", help="make a failing run's schedule small", description=(
        "Does a failing run again and again, leaving out faults, clients, nodes and time, and keeps what still fails "
        "with the same anomaly. How often it fails is estimated first, and reported with its interval."))  # fmt: skip
    parser.add_argument("path", type=Path, metavar="RUN")
    parser.add_argument("--replays", type=count, default=10, metavar="N", help="to estimate how often it fails (10)")
    parser.add_argument("--budget", type=count, metavar="S", help="seconds to go on for (default: until it is minimal)")
    parser.add_argument("--store", type=Path, metavar="DIR", help="where the runs are kept (next to the first)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    from assay.harness.search.shrunk import shrink

    shrunk = reading(lambda: shrink(arguments.path, arguments.store, arguments.replays, arguments.budget, note))
    print(shrunk.text())
    return Exit.PASS
