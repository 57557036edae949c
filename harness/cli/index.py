"""``assay index STORE``: writes a page over all runs of a store."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import ExitCode, InputError, add_system_option, note, read_defects
from assay.harness.cli.summary import add_known_option, read_marks

if TYPE_CHECKING:
    from assay.reports.index.page import RenderedPage

TRENDS: Final = "trends.json"
"""The file in the store that ``assay nights trends --out`` writes by convention."""
DESCRIPTION: Final = """\
Writes STORE/index.html, over all runs and nights of a store: what broke, since when, how often, and the command that
repeats it.

  assay index store                                  the page
  assay index store --trends=trends.json             also shows the output of `assay nights trends`
  assay index store --check --known=known.toml       exits 1 for a failure not marked as known, 2 for a run that
                                                     is damaged, is in a wrong place of the store, or was
                                                     cut short before its verdict
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("index", help="one page over all runs of a store", description=DESCRIPTION)
    add_options(parser)
    parser.add_argument("--check", action="store_true",
        help="exit 1 when a failure is unmarked, or its mark expired; 2 when a run or a record is damaged, "
        "a run is in a wrong place of the store, or was cut short before its verdict")  # fmt: skip
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that ``assay index`` and ``assay serve`` share."""
    parser.add_argument(
        "store", nargs="?", type=Path, default=Path("store"), metavar="STORE", help="the store (default: store)"
    )
    add_known_option(parser)
    parser.add_argument("--trends", type=Path, metavar="FILE",
        help=f"the output of `assay nights trends` (STORE/{TRENDS}, if it exists)")  # fmt: skip
    add_system_option(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.core.files import write_output
    from assay.reports.index.page import OWN

    page = build_page_renderer(arguments)(False)
    target = arguments.store / "index.html"
    write_output(target, page.html.encode(), OWN)
    print(target)
    for failure in page.counting if arguments.check else ():  # failures that no valid mark excuses
        mark = f"its mark expired at {failure.mark.expires}" if failure.mark else "not marked as known"
        note(f"{failure.system}, {failure.workload}: {', '.join(failure.anomalies) or 'failed'}: {mark}")
    for damaged in page.damaged if arguments.check else ():
        note(f"the following cannot be read, and may have failed: {damaged}")
    for unjudged in page.unjudged if arguments.check else ():
        note(f"the following run has no verdict, and may have failed: {unjudged}")
    for overlooked in page.overlooked if arguments.check else ():
        note(f"the following run is left out, and may have failed: {overlooked}")
    if not arguments.check:
        return ExitCode.PASS
    if page.counting:
        return ExitCode.FAIL
    return ExitCode.UNKNOWN if page.damaged or page.unjudged or page.overlooked else ExitCode.PASS


def build_page_renderer(arguments: argparse.Namespace) -> "Callable[[bool], RenderedPage]":
    """Returns a function that renders the current page. Its argument ``live``: whether a server will serve the page."""
    from assay.harness.nightly.store_index import read_store
    from assay.reports.index.page import render_page
    from assay.reports.index.trends import read_trends

    if not arguments.store.is_dir():
        raise InputError(f"{arguments.store} is not a folder; give the store's path (default: ./store)")
    defects, default = read_defects(arguments), arguments.store / TRENDS
    trends_file = arguments.trends or (default if default.exists() else None)

    def render(live: bool) -> "RenderedPage":
        known = read_marks(arguments.known)
        trends = None if trends_file is None else read_trends(trends_file)
        return render_page(read_store(arguments.store.resolve(), defects), known, trends, live=live)

    return render
