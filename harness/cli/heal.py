"""``assay heal``: undoes the leftovers of killed sessions."""

import argparse
import sys
from typing import Any

from assay.harness.cli.command import ExitCode


def add(commands: Any) -> None:
    parser = commands.add_parser("heal", help="undo what killed sessions left behind", description=(
        "Replays the undo journals of dead sessions, and removes their containers and networks. Changes are undone on "
        "the Docker engine on which they were made. Changes on an engine that does not answer are kept and listed, and "
        "the exit code is 1."))  # fmt: skip
    parser.add_argument("--all", action="store_true",
                        help="also undo the changes of sessions that are still alive, and of other machines that use "
                             "this Docker engine or this home folder")  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.cluster.leftovers import heal

    report = heal(everything=arguments.all, announce=lambda line: print(line, file=sys.stderr, flush=True))
    for line in report.undone:
        print(line)
    for line in report.failed:
        print(f"failed: {line}", file=sys.stderr)
    for engine in report.unreached:
        print("\n".join(engine.describe()), file=sys.stderr)
    for line in report.possibly_alive:
        print(f"kept: {line}", file=sys.stderr)
    failed = bool(report.failed or report.unreached)
    if not report.undone and not failed:
        print("nothing to undo")
    return ExitCode.FAIL if failed else ExitCode.PASS
