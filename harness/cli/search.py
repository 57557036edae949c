"""``assay search show``: shows what searches reached, and what they never reached."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import ExitCode, InputError

if TYPE_CHECKING:
    from assay.harness.search.coverage_report import CoverageReport

RAREST: Final = 8
DESCRIPTION: Final = """\
Sums up what the searches of a store (pytest --explore) reached. It counts the examples for each event of the system,
each fault, each event during a fault, and each sequence of events. It also shows the lines and branches of the system
that were reached, module by module, and what no example reached.

  assay search show store                      as a table, test by test
  assay search show store --html=reached.html  as a page, with every fault against every event, and all of the code
  assay search show store --json               for a program
"""


def add(commands: Any) -> None:
    about = commands.add_parser("search", help="show what searches have reached", description=DESCRIPTION)
    actions = about.add_subparsers(required=True, metavar="ACTION")
    parser = actions.add_parser("show", help="show what was reached, and what was not", description=DESCRIPTION)
    parser.add_argument("path", type=Path, nargs="?", default=Path("store"), metavar="PATH",
        help="a store, or a file of its searches/ folder (store)")  # fmt: skip
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page")
    parser.add_argument("--json", action="store_true", help="print all of it as one JSON array")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    import msgspec

    from assay.harness.search.coverage_report import load_reports

    try:
        everything = load_reports(arguments.path)
    except (FileNotFoundError, ValueError) as error:
        raise InputError(str(error)) from error
    if arguments.html is not None:
        from assay.harness.core.files import write_atomically
        from assay.harness.search.coverage_page import render_page

        try:
            write_atomically(arguments.html, render_page(everything).encode())
        except OSError as error:
            why = error.strerror or error
            raise InputError(
                f"--html={arguments.html} cannot be written: {why}; give a file in an existing folder"
            ) from error
        print(arguments.html)
    elif arguments.json:
        print(msgspec.json.encode(everything).decode())
    else:
        print("\n\n".join("\n".join(describe_report(one)) for one in everything))
    return ExitCode.PASS


def describe_report(one: "CoverageReport") -> list[str]:
    """Returns the table of one test."""
    from assay.harness.search.code_coverage.table import make_table
    from assay.harness.search.coverage_report import NOTHING, find_rarest

    seen, during, struck = one.seen, one.during, one.struck
    verdicts = ", ".join(f"{many} {verdict}" for verdict, many in sorted(one.verdicts.items()))
    searches = f" of {one.searches} searches" if one.searches > 1 else ""
    pairs = {state: many for state, many in one.sequences.items() if state.count(" > ") == 1}
    found = [
        f"{one.test}",
        f"  {one.examples} examples{searches} in {one.seconds:.0f} s ({verdicts or 'none ended'}), "
        f"since {one.started[:16]}",
        f"  {len(one.states)} states: {len(seen)} events, {len(pairs)} pairs of events, "
        f"{len(one.sequences) - len(pairs)} in threes",
        f"  important events (turning points) that no example reached: {', '.join(one.never_seen) or 'none'}",
        f"  faults that were never injected: {', '.join(one.never_struck) or 'none'}",
        f"  rarest events: {_join_counts(find_rarest(seen, RAREST))}",
        f"  rarest pairs: {_join_counts(find_rarest(pairs, RAREST))}",
        f"  {'fault':<28} {'examples':>8} {'events':>7}  turning points that never occurred while it was in force",
    ]
    for fault in sorted(struck.keys() | during.keys() - {NOTHING}):
        came = during.get(fault, {})
        missing = [event for event in one.events if event not in came]
        found.append(f"  {fault:<28} {struck.get(fault, 0):>8} {len(came):>7}  {_join_names(missing)}")
    return [*found, *(f"  {line}" for line in make_table(one.code))]


def _join_counts(pairs: list[tuple[str, int]]) -> str:
    return ", ".join(f"{name} ({many})" for name, many in pairs) or "none"


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:RAREST]) + (f" and {len(names) - RAREST} more" if len(names) > RAREST else "") or "none"
