"""``assay replay RUN``: does a stored run again and compares."""

import argparse
from pathlib import Path
from typing import Any

from assay.harness.cli.command import Exit, confirmed, note, reading, yes_option


def add(commands: Any) -> None:
    parser = commands.add_parser("replay", help="do a stored run again and compare", description=(
        "Does the run again: in the simulation exactly, so that the history's digest must be the same; on real nodes "
        "with the faults as they came out, and compares what is found. It executes the run's test, so it asks "
        "first. Exit code 0: the same, 1: not, 2: it was not confirmed."))  # fmt: skip
    parser.add_argument("path", type=Path, metavar="RUN")
    parser.add_argument("--store", type=Path, metavar="DIR", help="where the new run is kept (next to the first)")
    yes_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    from assay.harness.stored.repeat_arguments import Declined
    from assay.harness.stored.replay import replay

    def agreed(command: str) -> bool:
        return confirmed(f"run `{command}` in {Path.cwd()}?", arguments)

    try:
        compared = reading(lambda: replay(arguments.path, arguments.store, agreed))
    except Declined:
        note("nothing was run")
        return Exit.UNKNOWN
    print(f"assay: {compared.summary}\nassay: replayed as {compared.again}")
    return Exit.PASS if compared.same else Exit.FAIL
