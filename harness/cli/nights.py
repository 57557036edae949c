"""``assay nights add | show | trends | pack``: the data set of the runs of many nights."""

import argparse
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import (
    ExitCode,
    InputError,
    add_system_option,
    note,
    note_overlooked,
    parse_day,
    read_defects,
)
from assay.harness.core.printable import join_some

if TYPE_CHECKING:
    from rich.console import Console

MAX_NAMED: Final = 5
"""Maximum number of runs that a line names; it gives only the number of the others."""
OWN_TRENDS: Final = re.compile(rb'\{"format":1,"nights":\[')
"""Matches each file that ``assay nights trends --out`` writes."""
DESCRIPTION: Final = """\
Keeps the results of the runs of many nights in one partitioned data set (night=2026-11-21/<run>.parquet), and computes
tables over it, by DuckDB, or by Spark with --spark-master.

  assay nights add store --into=nights                 tonight's runs; can be repeated, also from other machines
  assay nights show nights                             verdicts, recovery times, changes, and which defects were caught
  assay nights show nights --json --require-detection  for a program; 1: the newest night missed a defect
  assay nights trends nights --out=store/trends.json   which cells got slower, or fail more often; for `assay index`
  assay nights pack nights                             one file for each night (add also does it, from 1,000 runs on)
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("nights", help="tables over the runs of many nights", description=DESCRIPTION)
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _define_add(actions)
    _define_show(actions)
    _define_trends(actions)
    _define_pack(actions)


def _define_add(actions: Any) -> None:
    parser = actions.add_parser("add", help="add the runs of stores to a data set", description=(
        "Each run becomes one row; a run that is added again replaces its row. Runs that did not end, or are damaged, "
        "become rows without a verdict, and are named on standard error."))  # fmt: skip
    parser.add_argument("stores", nargs="+", type=Path, metavar="STORE", help="a folder with <test>/<time>/ in it")
    parser.add_argument(
        "--into", type=Path, required=True, metavar="DATASET", help="the data set; it is created if it is missing"
    )
    parser.add_argument(
        "--night",
        type=parse_day,
        metavar="DATE",
        help="date of the night, such as 2026-11-21 (default: the UTC day on which each run began)",
    )
    parser.set_defaults(run=add_runs)


def _define_show(actions: Any) -> None:
    parser = actions.add_parser("show", help="show tables over a data set", description=(
        "Verdicts and recovery times of the newest night, changes since the one before, and the runs that caught "
        "each defect, over all nights."))  # fmt: skip
    parser.add_argument("dataset", type=Path, metavar="DATASET")
    parser.add_argument("--json", action="store_true", help="all tables of all nights as one JSON object")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="also write each table into this folder, as Parquet and CSV; only earlier tables are replaced",
    )
    parser.add_argument(
        "--require-detection", action="store_true",
        help="exit 1 if the newest night missed a defect that `assay defects` lists, or that an earlier night ran",
    )  # fmt: skip
    _add_computing_options(parser)
    parser.set_defaults(run=show_tables)


def _define_trends(actions: Any) -> None:
    parser = actions.add_parser("trends", help="show what got worse over the nights", description=(
        "Compares the newest nights of each cell with earlier ones: rate, latency, recovery, time to detection, and "
        "share of failures. At most 1 in 100 listed changes is noise (docs/guide/nights.md)."))  # fmt: skip
    parser.add_argument("dataset", type=Path, metavar="DATASET")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="also write them as JSON to this file; `assay index` draws them"
    )
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 when anything got worse")
    _add_computing_options(parser)
    parser.set_defaults(run=show_trends)


def _add_computing_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--spark-master", metavar="URL", help="the Spark that computes the tables (default: DuckDB on this machine)"
    )
    add_system_option(parser)


def _define_pack(actions: Any) -> None:
    parser = actions.add_parser("pack", help="merge the files of each night into one", description=(
        "Thousands of small files are slow to read. Runs keep their columns and their night."))  # fmt: skip
    parser.add_argument("dataset", type=Path, metavar="DATASET")
    parser.set_defaults(run=pack_runs)


def add_runs(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.nightly.dataset import add_stores
    from assay.harness.nightly.dataset_schema import RunRow

    def report_missing_verdict(run: RunRow) -> None:
        if run.verdict is None:
            note(f"{run.folder} has no verdict ({run.status}): {run.problem}")

    left_out: list[Path] = []
    number = add_stores(arguments.stores, arguments.into, arguments.night, report_missing_verdict, left_out.append)
    if left_out:
        names = join_some(left_out, MAX_NAMED)
        note(f"left out, because they are marked as carried from another store: {names}")
    note_overlooked("left out", arguments.stores)
    print(f"{number} run{'s' * (number != 1)} added to {arguments.into}")
    return ExitCode.PASS


def show_tables(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.nightly import table_output
    from assay.harness.nightly.tables import compute_tables

    tables = compute_tables(arguments.dataset, read_defects(arguments), arguments.spark_master)
    if arguments.out is not None:
        table_output.require_own_tables(tables, arguments.out)
    if arguments.json:
        print(table_output.to_json(tables))
    else:
        table_output.show_tables(tables, _make_console())
    if arguments.out is not None:
        for path in table_output.write_tables(tables, arguments.out):
            note(str(path))
    if not arguments.require_detection:
        return ExitCode.PASS
    _require_past(tables.night)
    if not tables.missed:
        return ExitCode.PASS
    note(f"{tables.night} did not catch {', '.join(tables.missed)}")
    return ExitCode.FAIL


def show_trends(arguments: argparse.Namespace) -> ExitCode:
    import msgspec

    from assay.harness.core.files import require_own_output, write_output
    from assay.harness.nightly import table_output
    from assay.harness.nightly.trends import compute_trends

    if arguments.out is not None:
        require_own_output(arguments.out, OWN_TRENDS)
    trends = compute_trends(arguments.dataset, read_defects(arguments), arguments.spark_master)
    content = msgspec.json.encode(trends)
    if arguments.json:
        print(content.decode())
    else:
        table_output.show_trends(trends, _make_console())
    if arguments.out is not None:
        write_output(arguments.out, content, OWN_TRENDS)
        note(str(arguments.out))
    if not arguments.check:
        return ExitCode.PASS
    _require_past(trends.nights[-1])
    return ExitCode.FAIL if trends.worse else ExitCode.PASS


def _require_past(night: str) -> None:
    """Raises ``InputError`` if the newest night is in the future, or has no date.

    A machine with a wrong clock makes such a night. The verdict would be about this night, not the last real one.
    """
    if night > (datetime.now(UTC).date() + timedelta(days=1)).isoformat():
        raise InputError(
            f"the newest night is {night}, which is in the future or no date, so which night is the newest is not "
            "known: remove its folder, or add its runs again with --night=DATE"
        )


def pack_runs(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.nightly.dataset import list_parts, lock_dataset, pack

    list_parts(arguments.dataset)  # raises for a folder that is no data set, before a lock file is created in it
    with lock_dataset(arguments.dataset, exclusive=True):
        pack(arguments.dataset)
        print(f"{len(list_parts(arguments.dataset))} files in {arguments.dataset}")
    return ExitCode.PASS


def _make_console() -> "Console":
    from rich.console import Console

    from assay.harness.nightly import table_output

    return Console(width=None if sys.stdout.isatty() else table_output.WIDTH)
