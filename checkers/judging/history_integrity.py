"""Checks that a history's files are complete and unchanged since its run. Errors name file and row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from assay.harness.core.history import CLOSED, DIGESTED, HistoryError
from assay.harness.core.history.data_sets import DATA_SETS, REPORTED
from assay.harness.core.lazy_import import LazyModule
from assay.harness.core.printable import to_plain_line

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from assay.harness.core.history import HistoryReader
else:
    pa, pq = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")


Progress = Callable[[int, int], None]
"""Called with the number of rows done, and the number of all rows."""


def require_unchanged(reader: HistoryReader, progress: Progress = lambda done, total: None) -> None:
    """Reads every value. Raises ``HistoryError`` for a damaged part, and for rows that were changed after the run."""
    note = reader.closing_note
    total = sum(map(reader.rows, DATA_SETS))
    digests = [] if note is None else [(DIGESTED, note.digest), (REPORTED, note.reported)]
    compared = [(names, digest, sum(map(reader.rows, names))) for names, digest in digests if digest is not None]
    done, last = total, total + sum(rows for _, _, rows in compared)

    def step(before: int, rows: int) -> None:
        progress(before + rows, last)

    require_readable(reader, partial(step, 0))
    for names, digest, rows in compared:
        if reader.digest(partial(step, done), names) != digest:
            raise HistoryError(
                f"{reader.folder / CLOSED}: the parts hold other rows than those that were written: the digest of "
                f"{', '.join(names)} is not {digest}; judge an unchanged copy of the run's files"
            )
        done += rows


def require_readable(reader: HistoryReader, progress: Callable[[int], None] = lambda rows: None) -> None:
    """Raises ``HistoryError`` for the first part that cannot be read to its end; the error names the part and the row.

    This includes values that do not fit the format: numbers too large for their column, and text that is not UTF-8.
    """
    from assay.harness.core.history.schema import SCHEMAS  # loads Arrow

    done = 0
    for name in DATA_SETS:
        for path in reader.paths(name):
            first = 1
            try:
                with pq.ParquetFile(path) as file:
                    for group in range(file.num_row_groups):
                        _require_fitting(path, SCHEMAS[name].remove_metadata(), file.read_row_group(group), first)
                        rows = file.metadata.row_group(group).num_rows
                        first, done = first + rows, done + rows
                        progress(done)
            except (pa.ArrowException, OSError) as error:
                raise HistoryError(
                    f"{path}: row {first} or one soon after it cannot be read: {to_plain_line(error)}"
                ) from error


def _require_fitting(path: Path, schema: pa.Schema, rows: pa.Table, first: int) -> None:
    """Raises ``HistoryError`` for a value that does not fit its column. ``first``: number of the first row in its
    file."""
    for field in schema:
        column_index = rows.schema.get_field_index(field.name)
        if column_index < 0:
            continue
        column = rows.column(column_index)
        why = _find_misfit(column, field.type)
        if why is None:
            continue
        good, bad = 0, len(column)  # the first ``good`` rows fit, and the first ``bad`` rows do not
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if _find_misfit(column.slice(0, middle), field.type) is None else (good, middle)
        raise HistoryError(f"{path}: row {first + good}: {field.name} does not fit {field.type}: {why}")


def _find_misfit(column: pa.ChunkedArray, kind: pa.DataType) -> str | None:
    try:
        column.cast(kind).validate(full=True)
    except pa.ArrowException as error:
        return to_plain_line(error)
    return None


def require_closed(reader: HistoryReader) -> None:
    """Raises ``HistoryError`` if the number of rows differs from the number written: then a part is missing."""
    if reader.closing_note is None:
        return
    for name, rows in reader.closing_note.rows.items():
        if name in DATA_SETS and rows != reader.rows(name):
            raise HistoryError(
                f"{reader.folder / name}: its parts have {reader.rows(name)} rows, but {CLOSED} says that {rows} were "
                "written; a part is missing, cut short or not of this run"
            )
