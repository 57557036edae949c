"""``assay report PATH``: writes the HTML report of a run again."""

import argparse
from pathlib import Path
from typing import Any

from assay.harness.cli.command import ExitCode, InputError, note


def add(commands: Any) -> None:
    parser = commands.add_parser("report", help="write a run's HTML report again")
    parser.add_argument("path", type=Path, metavar="PATH")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.checkers.judging.history_views import open_history
    from assay.harness.stored.by_contract import open_stored
    from assay.reports.files import describe_outside_logs
    from assay.reports.page import render

    stored = open_stored(arguments.path)
    if stored.run is None:
        raise InputError(f"{arguments.path} is a bare history; a report needs the run folder around it")
    history = open_history(stored.history)
    history.require_values()
    for line in describe_outside_logs(stored.run):
        note(line)
    print(render(stored.run, history))
    return ExitCode.PASS
