"""Shows the tables over many nights (``tables``) as text, as one JSON object, and as files."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from csv import reader as read_csv
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.core.files import reject_links, replace_atomically
from assay.harness.core.printable import to_printable
from assay.harness.nightly.dataset import DataSetError
from assay.harness.nightly.tables import NightTables
from assay.reports.index.trends import Trends

WIDTH: Final = 500
"""Maximum number of characters of a line if there is no terminal, because truncated tables are useless."""

NEWEST: Final = ("verdicts", "recovery", "unjudged")
"""Tables that show only the newest night; JSON and files have all nights."""

TITLES: Final[Mapping[str, str]] = {
    "verdicts": "verdicts of {night}",
    "detection": "defects: what caught them, over all nights (seconds to the first finding)",
    "defects": "defects on {night}",
    "recovery": "recovery on {night}: seconds from a heal to the first change and look; trend: against earlier nights",
    "changes": "{night} against {before}",
    "unjudged": "runs of {night} without a verdict",
}


def to_json(tables: NightTables) -> str:
    """Returns ``{"night", "before", "missed": [...], "tables": {name: [row, ...]}}``.

    ``missed``: the defects that no run caught.
    """
    content = {
        "night": tables.night,
        "before": tables.before,
        "missed": tables.missed,
        "tables": {name: table.to_pylist() for name, table in tables.tables.items()},
    }
    return msgspec.json.encode(content).decode()


def show_tables(tables: NightTables, console: Console) -> None:
    """Prints the tables that have rows; for those in ``NEWEST`` only the newest night."""
    for name, title in TITLES.items():
        rows = tables.tables[name].to_pylist()
        if name in NEWEST:
            rows = [{key: value for key, value in row.items() if key != "night"} for row in rows
                    if row["night"] == tables.night]  # fmt: skip
        if rows:
            nights = {"night": _format_cell(tables.night), "before": _format_cell(tables.before)}
            console.print(_make_table(title.format(**nights), rows))


def show_trends(trends: Trends, console: Console) -> None:
    rows = [
        {
            "cell": ", ".join(part for part in one.cell if part),
            "what": one.figure,
            "before": f"{one.before:.3g} {one.unit}",
            "now": f"{one.now:.3g} {one.unit}",
            "since": one.since,
            "nights": f"{one.nights} against {one.nights_before}",
            "p": f"{one.probability:.1g}",
            # the last version before the change, and the first one after it
            "versions": f"{one.last_version or '?'} to {one.first_version or '?'}",
        }
        for one in trends.worse
    ]
    if rows:
        console.print(_make_table(f"worse than before, by {_format_cell(trends.nights[-1])}", rows))
    console.print(
        f"{len(rows)} of {trends.asked} figures of cells got worse; at most {trends.level:.0%} of these are noise"
    )


def write_tables(tables: NightTables, out: Path) -> list[Path]:
    """Writes each table as ``NAME.parquet`` and ``NAME.csv`` into this folder; earlier tables are replaced."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for path, table in _list_files(tables, out):
        str(path).encode()  # raises UnicodeEncodeError: Arrow cannot read such a path
        with replace_atomically(path) as file:
            WRITERS[path.suffix](table, file)
        written.append(path)
    return written


def require_own_tables(tables: NightTables, out: Path) -> None:
    """Raises :class:`DataSetError` if :func:`write_tables` would replace anything but a table with these columns."""
    for path, table in _list_files(tables, out):
        if os.path.lexists(path) and _read_columns(path) != table.column_names:
            raise DataSetError(f"{path} is no table of this command: move it away, or give another folder by --out")


def _list_files(tables: NightTables, out: Path) -> Iterator[tuple[Path, pa.Table]]:
    for name, table in tables.tables.items():
        yield from ((out / f"{name}{suffix}", table) for suffix in WRITERS)


def _read_columns(path: Path) -> list[str] | None:
    """Returns the columns of a regular file that is a table; None for anything else."""
    try:
        reject_links(path)
        if path.suffix == ".parquet":
            return list(pq.read_schema(path).names)
        with path.open("rb") as file:
            header = file.readline(LONGEST_HEADER).decode()
    except (OSError, pa.ArrowException, UnicodeDecodeError):
        return None
    return next(iter(read_csv([header])), [])


WRITERS: Final[Mapping[str, Callable[[pa.Table, BinaryIO], None]]] = {".parquet": pq.write_table, ".csv": csv.write_csv}
LONGEST_HEADER: Final = 4096
"""Bytes of the first line of a CSV file that are read."""


def _make_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        numbers = any(isinstance(row[column], int | float) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(_format_cell(value) for value in row.values()))
    return table


def _format_cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else escape(to_printable(str(value)))
