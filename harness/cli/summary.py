"""``assay summary STORE``: reports the results of a night as Markdown and JUnit XML, and by its exit code."""

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import EXITS, ExitCode, InputError

if TYPE_CHECKING:
    from assay.harness.nightly.night_verdict import NightAccount
    from assay.reports.index.known import KnownFailures

KNOWN: Final = Path("known-failures.toml")
"""The default file of marks of known failures."""
DESCRIPTION: Final = """\
Reports the results of the newest night of a store, with all its parts: failures, missed defects, cells without an
answer, and the commands that repeat them. Its exit code is that of `assay nightly`, so it can be the last step of a
job.

  assay summary store                                              Markdown, printed
  assay summary store --markdown=summary.md --junit=junit.xml      written, for a job's page and its list of tests
  assay summary store --night=release-1.4 --known=known.toml       of that night; marked failures do not count
"""
EPILOG: Final = """\
exit codes: 0 only marked failures, and something passed; 1 a failure that no valid mark covers, or a missed defect;
2 something has no answer, a part of the night has no record, or the night has not ended; 64 a cell or a file is wrong
"""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "summary", help="report a night as Markdown and JUnit XML", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument(
        "store", nargs="?", type=Path, default=Path("store"), metavar="STORE", help="the store (default: store)"
    )
    parser.add_argument("--night", metavar="ID", help="name of the night (default: the newest, which ended last)")
    add_known_option(parser)
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the summary to this file instead of printing it"
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML to this file")
    parser.set_defaults(run=run)


def add_known_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--known",
        type=Path,
        metavar="FILE",
        help=f"file with the marks of known failures (default: {KNOWN}, if it exists)",
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.core.files import require_own_output, write_output
    from assay.harness.nightly import junit, markdown
    from assay.harness.nightly.night_verdict import read_account

    if not arguments.store.is_dir():
        raise InputError(f"{arguments.store} is not a folder; give the store's path (default: ./store)")
    known = read_marks(arguments.known)
    for path, own in ((arguments.junit, junit.OWN), (arguments.markdown, markdown.OWN)):
        if path is not None:
            require_own_output(path, own)
    account = read_account(arguments.store.resolve(), arguments.night, known)
    if arguments.junit is not None:
        write_output(arguments.junit, junit.to_junit(account), junit.OWN)
    text = markdown.to_markdown(account)
    if arguments.markdown is None:
        print(text, end="")
    else:
        write_output(arguments.markdown, text.encode(), markdown.OWN)
    return to_exit_code(account)


def read_marks(given: Path | None) -> "KnownFailures":
    """Reads the marks of the file, or of the default file if it exists, as of today."""
    from assay.reports.index.known import KnownFailures, read_known

    today = datetime.now(UTC).date()
    path = given or (KNOWN if KNOWN.exists() else None)
    return KnownFailures(today=today) if path is None else read_known(path, today)


def to_exit_code(account: "NightAccount") -> ExitCode:
    """Returns the exit code: a failure comes first, then a broken cell, then a missing answer."""
    code = EXITS[account.verdict]
    return ExitCode.USAGE if account.broken and code is not ExitCode.FAIL else code
