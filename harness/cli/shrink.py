"""``assay shrink RUN``: minimises the schedule of a failing run."""

import argparse
from pathlib import Path
from typing import Any

from assay.harness.cli.command import ExitCode, add_yes_option, confirm, note, parse_count, show


def add(commands: Any) -> None:
    parser = commands.add_parser("shrink", help="minimise a failing run's schedule", description=(
        "Repeats a failing run, leaving out faults, clients, nodes and time, and keeps the variants that still fail "
        "with the same anomaly. The failure rate is estimated first, and reported with its interval. "
        "It executes the run's test, so it asks you first. Exit code 2: you declined."))  # fmt: skip
    parser.add_argument("path", type=Path, metavar="RUN")
    parser.add_argument(
        "--replays",
        type=parse_count,
        default=10,
        metavar="N",
        help="number of runs that estimate the failure rate (default: 10)",
    )
    parser.add_argument(
        "--budget", type=parse_count, metavar="S", help="seconds for all runs (default: until the schedule is minimal)"
    )
    parser.add_argument("--store", type=Path, metavar="DIR", help="store for the runs (default: the store of RUN)")
    add_yes_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.search.shrink_run import shrink
    from assay.harness.stored.repeat_arguments import RepetitionDeclined

    def confirm_command(command: str) -> bool:
        return confirm(f"run `{command}`, and variants of it, in {Path.cwd()}?", arguments)

    try:
        shrunk = shrink(arguments.path, arguments.store, arguments.replays, arguments.budget, note, confirm_command)
    except RepetitionDeclined:
        note("nothing was run")
        return ExitCode.UNKNOWN
    show(shrunk.text())
    return ExitCode.PASS
