"""Checks that a history's files are complete and unchanged since its run. Errors name file and row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from assay.harness.core.history import CLOSED, DIGESTED, HistoryError
from assay.harness.core.history.data_sets import DATA_SETS, REPORTED_DATA_SETS
from assay.harness.core.lazy_import import LazyModule
from assay.harness.core.printable import to_plain_line

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from assay.harness.core.history import HistoryReader
else:
    pa, pq = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with the number of rows done, and the number of all rows."""


def require_unchanged(reader: HistoryReader, progress: Progress = lambda done, total: None) -> None:
    """Reads every value once. Raises ``HistoryError`` for a damaged part, and for rows that were changed after the run.

    If a part cannot be read, ``require_readable`` reads all parts again, to name the row.
    """
    # The closing note has a digest of each of two groups of data sets: those of the clients, and what servers reported.
    note, total = reader.closing_note, sum(map(reader.rows, DATA_SETS))
    expected = {} if note is None else {DIGESTED: note.digest, REPORTED_DATA_SETS: note.reported}
    try:
        found = _compute_digests(reader, expected, lambda done: progress(done, total))
    except (pa.ArrowException, OSError, _Misfit) as error:
        require_readable(reader)
        raise HistoryError(f"{reader.folder} cannot be read: {to_plain_line(error)}") from error
    for names, digest in expected.items():
        if digest is not None and found[names] != digest:
            raise HistoryError(
                f"{reader.folder / CLOSED}: the parts hold other rows than those that were written: the digest of "
                f"{', '.join(names)} is not {digest}; judge an unchanged copy of the run's files"
            )


class _Misfit(Exception):
    """A value does not fit its column."""


def _compute_digests(
    reader: HistoryReader, groups: Collection[Sequence[str]], progress: Callable[[int], None]
) -> dict[Sequence[str], str]:
    """Reads all data sets. Returns the digest of each group of data sets. Raises ``_Misfit`` and Arrow's exceptions."""
    from assay.harness.core.history.schema import SCHEMAS  # loads Arrow

    digests = {tuple(names): reader.start_digest(names) for names in groups}
    done = 0
    for name in DATA_SETS:
        schema = SCHEMAS[name].remove_metadata()
        concerned = [digest for names, digest in digests.items() if name in names]
        for path, rows in _read_ahead(reader.stored_batches(name)):
            for field in schema:
                place = rows.schema.get_field_index(field.name)
                if place >= 0 and (why := _find_misfit(rows.column(place), field.type)) is not None:
                    raise _Misfit(why)
            for digest in concerned:
                reader.add_to_digest(digest, name, path, rows)
            done += rows.num_rows
            progress(done)
    return {names: digest.hexdigest() for names, digest in digests.items()}


def _read_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yields the items. A thread reads the next item meanwhile."""
    with ThreadPoolExecutor(1) as reading:
        pending = reading.submit(next, items, None)
        while (item := pending.result()) is not None:
            pending = reading.submit(next, items, None)
            yield item


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


def _find_misfit(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> str | None:
    """Returns why a value of the column does not fit the type, or None if all values fit."""
    if column.type.equals(kind) and not pa.types.is_string(kind):
        return None  # each value of the column's own type fits
    if column.null_count == len(column):
        return None
    try:
        column.cast(kind).validate(full=True)
    except pa.ArrowException as error:
        return to_plain_line(error)
    return None


def require_all_rows(reader: HistoryReader) -> None:
    """Raises ``HistoryError`` if a data set has more or fewer rows than the closing note says: then a part is missing.

    A history without a closing note is accepted.
    """
    if reader.closing_note is None:
        return
    for name, rows in reader.closing_note.rows.items():
        if name in DATA_SETS and rows != reader.rows(name):
            raise HistoryError(
                f"{reader.folder / name}: its parts have {reader.rows(name)} rows, but {CLOSED} says that {rows} were "
                "written; a part is missing, cut short or not of this run"
            )
