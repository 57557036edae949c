"""``assay replay RUN``: repeats a stored run and compares the two."""

import argparse
from pathlib import Path
from typing import Any

from assay.harness.cli.command import ExitCode, add_yes_option, confirm, note, show


def add(commands: Any) -> None:
    parser = commands.add_parser("replay", help="repeat a stored run and compare", description=(
        "Repeats a run. In the simulation the repetition is exact: the history's digest must be equal. On real nodes "
        "it injects the same faults at the same times, and compares the anomalies. It executes the run's test, so it "
        "asks first. Exit codes: 0 same result, 1 another result, 2 not confirmed."))  # fmt: skip
    parser.add_argument("path", type=Path, metavar="RUN")
    parser.add_argument(
        "--store", type=Path, metavar="DIR", help="store for the new run (default: the store of the first run)"
    )
    add_yes_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.stored.repeat_arguments import RepetitionDeclined
    from assay.harness.stored.replay import replay

    def confirm_command(command: str) -> bool:
        return confirm(f"run `{command}` in {Path.cwd()}?", arguments)

    try:
        compared = replay(arguments.path, arguments.store, confirm_command)
    except RepetitionDeclined:
        note("nothing was run")
        return ExitCode.UNKNOWN
    show(f"assay: {compared.summary}\nassay: replayed as {compared.again}")
    return ExitCode.PASS if compared.same else ExitCode.FAIL
