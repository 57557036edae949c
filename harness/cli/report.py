"""``assay report PATH``: writes the HTML report of a run again."""

import argparse
from pathlib import Path
from typing import Any

from assay.harness.cli.command import Exit, InputError, reading


def add(commands: Any) -> None:
    parser = commands.add_parser("report", help="write a run's HTML report again")
    parser.add_argument("path", type=Path, metavar="PATH")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    from assay.checkers.judging.history_views import open_history
    from assay.harness.stored.by_contract import open_stored
    from assay.reports.page import render

    stored = reading(lambda: open_stored(arguments.path))
    if stored.run is None:
        raise InputError(f"{arguments.path} is a bare history; a report needs the run folder around it")
    history = reading(lambda: open_history(stored.history))
    reading(history.require_values)
    print(render(stored.run, history))
    return Exit.PASS
