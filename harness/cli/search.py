"""``assay search show``: shows what searches reached, and what they never reached."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import ExitCode, InputError, show, show_path
from assay.harness.core.printable import join_some

if TYPE_CHECKING:
    from assay.harness.search.coverage_report import CoverageReport

RAREST: Final = 8
"""How many of the rarest events are listed, and how many of the events missing for each fault."""
DESCRIPTION: Final = """\
Sums up what the searches of a store (pytest --explore) reached. It counts the examples for each event of the system,
each fault, each event during a fault, and each sequence of events. It also shows the lines and branches of the system
that were reached, module by module, and what no example reached.

  assay search show store                      as a table, test by test
  assay search show store --html=reached.html  as a page, with every fault against every event, and all of the code
  assay search show store --json               for a program
"""


def add(commands: Any) -> None:
    search = commands.add_parser("search", help="show what searches have reached", description=DESCRIPTION)
    actions = search.add_subparsers(required=True, metavar="ACTION")
    parser = actions.add_parser("show", help="show what was reached, and what was not", description=DESCRIPTION)
    parser.add_argument("path", type=Path, nargs="?", default=Path("store"), metavar="PATH",
        help="a store, or a file of its searches/ folder (default: store)")  # fmt: skip
    parser.add_argument("--html", type=Path, metavar="FILE", help="write an HTML page to this file")
    parser.add_argument("--json", action="store_true", help="print all of it as one JSON array")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    import msgspec

    from assay.harness.search.coverage_report import load_reports

    try:
        reports = load_reports(arguments.path)
    except (FileNotFoundError, ValueError) as error:
        raise InputError(str(error)) from error
    if arguments.html is not None:
        from assay.harness.core.files import write_output
        from assay.harness.search.coverage_page import OWN, render_page

        write_output(arguments.html, render_page(reports).encode(), OWN)
        show_path(arguments.html)
    elif arguments.json:
        print(msgspec.json.encode(reports).decode())
    else:
        show("\n\n".join("\n".join(describe_report(report)) for report in reports))
    return ExitCode.PASS


def describe_report(report: "CoverageReport") -> list[str]:
    """Returns the lines about one test."""
    from assay.harness.search.code_coverage.table import make_table
    from assay.harness.search.coverage_report import NO_FAULT, find_rarest

    during, faults = report.events_during, report.fault_counts
    verdicts = ", ".join(f"{many} {verdict}" for verdict, many in sorted(report.verdicts.items()))
    searches = f" of {report.searches} searches" if report.searches > 1 else ""
    pairs = {state: many for state, many in report.sequences.items() if state.count(" > ") == 1}
    lines = [
        f"{report.test}",
        f"  {report.examples} examples{searches} in {report.seconds:.0f} s ({verdicts or 'none ended'}), "
        f"since {report.started[:16]}",
        f"  {len(report.states)} states: {len(report.event_counts)} events, {len(pairs)} pairs of events, "
        f"{len(report.sequences) - len(pairs)} triples",
        f"  important events (turning points) that no example reached: {', '.join(report.missing_events) or 'none'}",
        f"  faults that were never injected: {', '.join(report.missing_faults) or 'none'}",
        f"  rarest events: {_join_counts(find_rarest(report.event_counts, RAREST))}",
        f"  rarest pairs: {_join_counts(find_rarest(pairs, RAREST))}",
        f"  {'fault':<28} {'examples':>8} {'events':>7}  turning points that never occurred while it was in force",
    ]
    for fault in sorted(faults.keys() | during.keys() - {NO_FAULT}):
        events = during.get(fault, {})
        missing = join_some([event for event in report.events if event not in events], RAREST)
        lines.append(f"  {fault:<28} {faults.get(fault, 0):>8} {len(events):>7}  {missing or 'none'}")
    return [*lines, *(f"  {line}" for line in make_table(report.code))]


def _join_counts(counts: list[tuple[str, int]]) -> str:
    return ", ".join(f"{name} ({many})" for name, many in counts) or "none"
