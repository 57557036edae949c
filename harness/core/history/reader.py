"""Readers for a history on disk (complete, cut short, or written by another tool) and for one in memory.

Opening reads file footers only, and reports a bad file once, with its name and the reason. Files of other tools may
differ in integer width, text encoding and nullability. Rows of older histories are translated to the current format.
``paths`` and ``digest`` refer to the files without translation.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from assay.harness.core.files import read_json, read_json_if_valid
from assay.harness.core.history import translation
from assay.harness.core.history.data_sets import (
    CLOSED,
    DIGESTED,
    FORMAT,
    FORMAT_KEY,
    MAY_BE_MISSING,
    WORKER_NODES,
    HistoryError,
)
from assay.harness.core.history.digest import HistoryDigest, hash_footer
from assay.harness.core.history.in_memory import Columns
from assay.harness.core.history.schema import SCHEMAS, to_batch
from assay.harness.core.history.translation import LAST_VERSION_OF_FORMAT_3, OLDEST, RelationSql
from assay.harness.core.operation import Completed, Completion, Operation, Outcome, Phase
from assay.harness.core.printable import to_plain_line

if TYPE_CHECKING:
    import pyarrow.dataset as ds

TRANSLATED_ROWS: Final = 65_536
"""Rows per batch of translated rows."""


_PROBE: Final = """
import sys
import pyarrow.parquet as pq

footer = pq.read_metadata(sys.argv[1])
for number in range(footer.num_row_groups):
    for column in range(footer.num_columns):
        statistics = footer.row_group(number).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            statistics.min, statistics.max
"""
"""A program that reads all statistics of a file."""


class ClosingNote(msgspec.Struct, frozen=True):
    """The content of ``closed.json``."""

    digest: str
    rows: dict[str, int]
    reported: str | None = None
    """The digest of the data sets in ``REPORTED_DATA_SETS``; None if an earlier version wrote the history."""
    footers: dict[str, str | None] = {}
    """By part, such as ``ops/part-000000.parquet``, the hash of its footer (``hash_footer``). Empty if an earlier
    version wrote the history.
    """


class HistoryReader:
    """A history on disk. ``optional`` names data sets that read as empty if their folder is missing.

    ``paths`` lists the files of each data set of a history that is still being written (``live_manifest``); None: all
    files. Raises ``HistoryError`` if a data set is missing, or if a part cannot be read or has other columns.
    """

    def __init__(
        self, folder: Path | str, *, optional: Collection[str] = (), paths: Mapping[str, Sequence[Path]] | None = None
    ) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise HistoryError(f"{self.folder} is not a folder: a history is a folder with {', '.join(SCHEMAS)}")
        self._paths = {
            name: self._find(name, name in optional or name in MAY_BE_MISSING) if paths is None else list(paths[name])
            for name in SCHEMAS
        }
        self.closing_note = self._read_closing_note()
        """None if the run was cut short, or if another tool wrote the history."""
        if paths is None and self.closing_note is None:
            self._reject_unread_entries()
        parts = {name: [_check_part(path, name) for path in self._paths[name]] for name in SCHEMAS}
        self._probe_changed_footers()
        self._rows = {name: sum(part.rows for part in parts[name]) for name in SCHEMAS}
        self._formats = {name: min((part.format for part in parts[name]), default=FORMAT) for name in SCHEMAS}
        self._loaded: dict[str, pa.Table] = {}

    @property
    def worker_nodes(self) -> Mapping[str, str]:
        """By worker, the node through which its clients reached the system, if known."""
        return read_json_if_valid(self.folder / WORKER_NODES, dict[str, str]) or {}

    def paths(self, name: str) -> list[Path]:
        """Returns the part files of a data set, in writing order."""
        return list(self._paths[name])

    def rows(self, name: str) -> int:
        """Returns the number of rows of a data set, from the footers of its files."""
        return self._rows[name]

    def format(self, name: str) -> int:
        """Returns the format of a data set's files; the oldest one if they differ."""
        return self._formats[name]

    def translation(self, name: str) -> tuple[RelationSql, ...]:
        """Returns SQL that translates the stored rows, ``stored_<name>``; empty if they have the current format."""
        return translation.translate(name, self.format(name))

    def dataset(self, name: str) -> ds.Dataset:
        """Returns a data set for scanning in batches, with exactly the columns of its schema."""
        import pyarrow.dataset as ds  # imports pandas

        if self.translation(name):
            return ds.dataset(self.table(name))
        return self._open_files(name, SCHEMAS[name])

    def load(self) -> None:
        """Reads all rows of a small history into memory. Later reads use them, except ``digest``."""
        self._loaded = {name: self.table(name) for name in SCHEMAS}

    def in_memory(self, name: str) -> pa.Table | None:
        """Returns a data set if it is already in memory, else None."""
        return self._loaded.get(name)

    def table(self, name: str) -> pa.Table:
        """Returns a whole data set in memory, in writing order."""
        if name in self._loaded:
            return self._loaded[name]
        return pa.Table.from_batches(self.batches(name), schema=SCHEMAS[name])

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yields a data set batch by batch, in order, in bounded memory."""
        if self.translation(name):
            yield from self._translated_batches(name)
        else:
            yield from self._stored_batches(name, SCHEMAS[name])

    def require_no_missing_values(self) -> None:
        """Raises ``HistoryError`` if a required column has nulls, by the statistics of the files."""
        for name, schema in SCHEMAS.items():
            needed = {field.name for field in schema if not field.nullable}
            for path in self._paths[name]:
                nulls = count_nulls(path)
                for column in sorted(needed & nulls.keys()):
                    raise HistoryError(
                        f"{path}: column {column} must have a value in every row; {nulls[column]} rows have none"
                    )

    def completed(self) -> Iterator[Completed]:
        """Yields the operations in writing order, with argument and result decoded."""
        for batch in self.batches("ops"):
            for row in batch.to_pylist():
                yield to_completed(row)

    def digest(self, progress: Callable[[int], None] = lambda rows: None, names: Sequence[str] = DIGESTED) -> str:
        """Returns the hash of the rows of some data sets; equals the writer's if nothing was lost."""
        done = 0
        digest = self.start_digest(names)
        for name in names:
            for path, rows in self.stored_batches(name):
                self.add_to_digest(digest, name, path, rows)
                done += rows.num_rows
                progress(done)
        return digest.hexdigest()

    def start_digest(self, names: Sequence[str]) -> HistoryDigest:
        """Returns the hash of no rows of these data sets, in the format of their files."""
        return HistoryDigest({name: translation.schema(name, self.format(name)) for name in names}, names)

    def add_to_digest(self, digest: HistoryDigest, name: str, path: Path, rows: pa.RecordBatch) -> None:
        """Adds rows of a file, as ``stored_batches`` yields them. Raises ``HistoryError`` if they do not fit."""
        digest.update(name, _conform(rows, translation.schema(name, self.format(name)), path))

    def stored_batches(self, name: str) -> Iterator[tuple[Path, pa.RecordBatch]]:
        """Yields the rows of each file as they are stored, in order, with the path of the file."""
        for path in self._paths[name]:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    yield path, batch

    def _open_files(self, name: str, schema: pa.Schema) -> ds.Dataset:
        import pyarrow.dataset as ds  # imports pandas

        if not self._paths[name]:
            return ds.dataset(pa.Table.from_batches([], schema=schema))
        # Other tools mark every column as nullable, and the scan must not reject their files.
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        return ds.dataset([str(path) for path in self._paths[name]], schema=nullable, format="parquet")

    def _stored_batches(self, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the files with the columns of ``schema``."""
        for path, batch in self.stored_batches(name):
            yield _conform(batch, schema, path)

    def _translated_batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yields the rows in the current format. DuckDB uses a single thread, which keeps them in order."""
        import duckdb  # loading takes as long as judging a small history

        with duckdb.connect(config={"threads": 1}) as connection:
            connection.register(f"stored_{name}", self._open_files(name, SCHEMAS[name].remove_metadata()))
            for relation in self.translation(name):
                kind = "table" if relation.keep else "view"
                connection.execute(f"create temporary {kind} {relation.name} as {relation.sql}")
            for batch in connection.sql(f"select * from {name}").to_arrow_reader(TRANSLATED_ROWS):
                yield _conform(batch, SCHEMAS[name], self.folder / name)

    def _find(self, name: str, optional: bool) -> list[Path]:
        folder = self.folder / name
        if not folder.is_dir():
            if optional:
                return []
            raise HistoryError(f"{folder} is missing: a history has a folder of Parquet parts for each data set")
        paths = sorted(path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_")))
        if not paths and not optional:
            raise HistoryError(f"{folder} has no part: each data set has at least an empty one, with its schema")
        return paths

    def _reject_unread_entries(self) -> None:
        """Raises ``HistoryError`` if a data set's folder has an entry that is not read, such as a part in a subfolder.

        A closing note would show that rows are missing. Without a note they would be left out silently. Hidden files
        and checksums are accepted, because other tools write them next to the parts.
        """
        for name, parts in self._paths.items():
            folder = self.folder / name
            for path in sorted(set(folder.iterdir()) - set(parts)) if folder.is_dir() else ():
                if not path.name.startswith((".", "_")) and path.suffix != ".crc":
                    raise HistoryError(
                        f"{path} would not be read: the parts of a data set are files in its folder itself, with names "
                        "that end in .parquet; rename or move it"
                    )

    def _read_closing_note(self) -> ClosingNote | None:
        path = self.folder / CLOSED
        if not path.exists():
            return None
        try:
            return read_json(path, ClosingNote)
        except (msgspec.MsgspecError, OSError) as error:
            raise HistoryError(f"{path} is damaged: {error}") from error

    def _probe_changed_footers(self) -> None:
        """Raises ``HistoryError`` for a damaged part that makes Arrow crash.

        A part is read in a process of its own if its footer has changed since it was written.
        """
        written = {} if self.closing_note is None else self.closing_note.footers
        for name, paths in self._paths.items():
            for path in paths:
                footer = written.get(f"{name}/{path.name}")
                if footer is not None and hash_footer(path) != footer:
                    probe = subprocess.run([sys.executable, "-I", "-c", _PROBE, path], capture_output=True, check=False)
                    if probe.returncode < 0:
                        raise HistoryError(f"{path} is damaged: reading the statistics in its footer ends the process")


def count_nulls(path: Path) -> dict[str, int]:
    """Returns the number of null values of each column that has any."""
    found: dict[str, int] = {}
    with pq.ParquetFile(path) as file:
        for group in range(file.metadata.num_row_groups):
            for column in map(file.metadata.row_group(group).column, range(file.metadata.num_columns)):
                if column.statistics is not None and column.statistics.null_count:
                    found[column.path_in_schema] = found.get(column.path_in_schema, 0) + column.statistics.null_count
    return found


class _PartFooter(NamedTuple):
    rows: int
    format: int


def _check_part(path: Path, name: str) -> _PartFooter:
    """Reads a part's footer. Raises ``HistoryError`` unless its columns are those of the data set."""
    try:
        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # a column name may be invalid UTF-8
        raise HistoryError(f"{path} is not a Parquet file: {to_plain_line(error)}") from error
    stated = (schema.metadata or {}).get(FORMAT_KEY)
    if stated is None and translation.is_format_1(name, schema.names):
        stated = b"1"
    format = FORMAT if stated is None else _parse_format(path, stated)
    duplicated = {column for column in schema.names if schema.names.count(column) > 1}
    for field in translation.schema(name, format):
        position = schema.get_field_index(field.name)
        if position < 0:
            if stated is None and field.name not in translation.REQUIRED[name].split() and field.name not in duplicated:
                continue
            raise HistoryError(f"{path} has no column {field.name} ({field.type}), or has it twice")
        if not _is_compatible(schema.field(position).type, field.type):
            raise HistoryError(
                f"{path}: column {field.name} is {schema.field(position).type} where {name} has {field.type}"
            )
    return _PartFooter(int(rows), format)


def _parse_format(path: Path, text: bytes) -> int:
    if text.isdigit() and OLDEST <= int(text) <= FORMAT:
        return int(text)
    if text.isdigit() and 1 <= int(text) < OLDEST:
        raise HistoryError(
            f"{path} has format {text.decode()}; assay {LAST_VERSION_OF_FORMAT_3} is the last version that reads "
            "formats 1 to 3"
        )
    raise HistoryError(
        f"{path} has format {text.decode(errors='replace')}, and this version reads formats {OLDEST} to {FORMAT}: use "
        "the version that wrote it, or a newer one"
    )


def _is_compatible(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_null(found):
        return True
    if pa.types.is_string(wanted):
        stored = found.value_type if pa.types.is_dictionary(found) else found
        return bool(pa.types.is_string(stored) or pa.types.is_large_string(stored) or pa.types.is_string_view(stored))
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found))
    return bool(found.equals(wanted))


def _conform(batch: pa.RecordBatch, schema: pa.Schema, path: Path) -> pa.RecordBatch:
    """Returns the batch with exactly the schema's columns, types and order."""
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        found = pa.nulls(batch.num_rows, field.type) if position < 0 else batch.column(position)
        try:
            array = found if found.type.equals(field.type) else found.cast(field.type)
        except pa.ArrowException as error:
            raise HistoryError(f"{path}: column {field.name} does not fit {field.type}: {error}") from error
        if array.null_count and not field.nullable:
            raise HistoryError(
                f"{path}: column {field.name} must have a value in every row; {array.null_count} have none"
            )
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def to_completed(row: dict[str, Any]) -> Completed:
    """Decodes a row of ``ops``."""
    result = row["result"]
    return Completed(
        index=row["index"],
        process=row["process"],
        worker=row["worker"],
        operation=Operation(row["f"], row["key"], msgspec.json.decode(row["argument"]), Phase(row["phase"])),
        completion=Completion(
            Outcome(row["outcome"]), None if result is None else msgspec.json.decode(result), row["error"]
        ),
        call=row["call"],
        ret=row["ret"],
        scheduled=row["scheduled"],
    )


class InMemoryHistoryReader(HistoryReader):
    """The history of a finished run. Raises ``HistoryError`` for a value that its column does not take."""

    def __init__(self, columns: Columns) -> None:
        self._tables = {
            name: pa.Table.from_batches([to_batch(schema, columns[name])] if columns[name] else [], schema=schema)
            for name, schema in SCHEMAS.items()
        }
        self.folder = Path("memory")
        self._paths = {name: [] for name in SCHEMAS}
        self._rows = {name: table.num_rows for name, table in self._tables.items()}
        self._formats = dict.fromkeys(SCHEMAS, FORMAT)
        self.closing_note = None

    def in_memory(self, name: str) -> pa.Table:
        return self._tables[name]

    def table(self, name: str) -> pa.Table:
        return self._tables[name]

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        yield from self._tables[name].to_batches()

    def digest(self, progress: Callable[[int], None] = lambda rows: None, names: Sequence[str] = DIGESTED) -> str:
        digest = HistoryDigest(names=names)
        for name in names:
            digest.update(name, self._tables[name])
        return digest.hexdigest()
