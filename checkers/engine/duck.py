"""DuckDB in this process: serves test runs, and all histories that one machine can hold on its disk."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from assay.checkers.engine.base import (
    Engine,
    EngineError,
    EngineExhausted,
    Row,
    quote,
    select_conforming,
    select_nothing,
    shorten,
    to_sql_type,
)  # fmt: skip
from assay.checkers.engine.lazy_relations import LazyRelation, LazyRelations
from assay.checkers.engine.parquet_stats import has_values
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pyarrow as pa
else:
    duckdb = LazyModule("duckdb")

DEFAULT_MEMORY: Final = "4GB"
NO_SPACE: Final = "No space left on device"
KEPT_CELLS: Final = 250_000_000
"""Maximum of values of a table that is kept decoded, counted as rows times columns with any values. They take about 1
GB. Some hundred queries of the checks read each table.
"""
STORED: Final = "stored_"
KEPT_TEXTS: Final = 1_000
"""The checks have some 700 texts; those that name a history's files or operations come and go."""

SMALL_ROWS: Final = 50_000
"""Histories with at most this many effects take longer to plan a query than to run it."""
_NEEDED_OPTIMIZERS: Final = (
    "column_lifetime", "deliminator", "filter_pushdown", "in_clause", "unnest_rewriter", "unused_columns",
)  # fmt: skip
"""Optimizers without which a plan over few rows may become a large one. The others cost a sixth of a small
judgement."""
_WRONG_LATERALLY: Final = ("projection_pullup",)
"""With it DuckDB 2.0 fails to find a column of some lateral joins, and the database is unusable afterwards."""

CODED: Final = ("key", "kind", "outcome", "phase")
"""Columns of repeated texts, by which checks join, group and sort."""
MOST_CODES: Final = 1_000_000

_CONFIG: Final = {"preserve_insertion_order": "false"}
MOST_SESSIONS: Final = 4
"""Sessions per database: each leaves something behind, and after ten of them a judgement takes a fifth longer."""
_shared: dict[int, tuple[Any, int]] = {}
"""For each process, the database of small histories, and how many more sessions it takes. Creating and closing a
database costs as much as some thirty queries.
"""

_numbers = itertools.count()
"""Numbers for types, because one database may hold those of several sessions."""
_read: dict[str, Any] = {}
"""Parsed statements by text. The checks send the same texts for each history, and parsing takes a quarter of a
judgement."""


class DuckDB:
    """Spills data that does not fit into ``memory`` to a temporary folder, which is removed in the end.

    - ``threads``: None means one per core.
    - ``kept_cells``: a table with at most this many values is decoded once and kept in memory.
    - ``small``: for at most ``SMALL_ROWS`` effects, where none of the other options matter.
    - ``lateral``: for queries that run as lateral joins.

    Use it as a context manager, or close it.
    """

    name = "duckdb"

    def __init__(
        self,
        *,
        memory: str = DEFAULT_MEMORY,
        threads: int | None = None,
        kept_cells: int = KEPT_CELLS,
        small: bool = False,
        lateral: bool = False,
    ) -> None:
        self._kept_cells = kept_cells
        self._small = small
        self._expected: dict[str, pa.Table] = {}
        self._deferred = LazyRelations(self._make)
        self._spill: tempfile.TemporaryDirectory[str] | None = None
        if small:
            self._connection = _connect_small()
            return
        # DuckDB's own choice for a database in memory is the working directory.
        self._spill = tempfile.TemporaryDirectory(prefix="assay-duckdb-")
        config: dict[str, Any] = {"memory_limit": memory, "temp_directory": self._spill.name, **_CONFIG}
        if threads is not None:
            config["threads"] = threads
        self._connection = duckdb.connect(":memory:", config=config)
        if lateral:
            _disable_optimizers(self._connection, lambda name: name in _WRONG_LATERALLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def register(self, name: str, parts: Sequence[Path], schema: pa.Schema) -> None:
        if not parts:
            self.view(name, select_nothing(schema))
            return
        files = ", ".join(f"'{_escape_path(part)}'" for part in parts)
        # DuckDB would take a folder such as ``event=push`` above the history for a column of the files.
        source = f"read_parquet([{files}], union_by_name = true, hive_partitioning = false)"
        rows = self.rows(f"select count(*) as total from {source}")[0]["total"]
        if rows == 0:
            self._table(name, select_nothing(schema))
            return
        present = [row["column_name"] for row in self.rows(f"describe select * from {source}")]
        if self._small:
            self._table(name, select_conforming(source, present, schema))
            return
        columns = [field.name for field in schema if field.name in present and has_values(parts, field.name)]
        if rows * len(columns) <= self._kept_cells:
            self._store(name, source, columns, schema)
        else:
            self.view(name, select_conforming(source, present, schema))

    def _coded(self, source: str, present: Sequence[str]) -> dict[str, str]:
        """Returns enum types for columns of repeated texts, by column. The codes are in the order of the texts.

        Such columns compare, sort and read like texts, several times as fast. Comparisons with other texts compare
        texts.
        """
        types = {}
        for column in CODED:
            if column in present:
                texts = f"select distinct {quote(column)} as text from {source} where {quote(column)} is not null"
                name = f"code_{next(_numbers)}"
                if 0 < self._filled(f"texts_of_{name}", texts) <= MOST_CODES:
                    self.run(f"create type {name} as enum (select text from texts_of_{name} order by text)")
                    types[column] = name
                self.run(f"drop table texts_of_{name}")
        return types

    def take(self, name: str, rows: pa.Table, schema: pa.Schema) -> None:
        """Creates a view of rows with the columns of ``schema``; nothing is stored for missing columns."""
        self._connection.register("loaded", rows)
        try:
            self._store(name, "loaded", rows.column_names, schema)
        finally:
            self._connection.unregister("loaded")

    def _store(self, name: str, source: str, columns: Sequence[str], schema: pa.Schema) -> None:
        """Creates a table of these columns alone, and a view of it."""
        types = self._coded(source, columns)
        kinds = {field.name: types.get(field.name) or to_sql_type(field.type) for field in schema}
        stored = ", ".join(f"cast({quote(column)} as {kinds[column]}) as {quote(column)}" for column in columns)
        self._table(f"{STORED}{name}", f"select {stored or 'null as nothing'} from {source}")
        self.view(name, select_conforming(f"{STORED}{name}", columns, schema, types))

    def view(self, name: str, sql: str) -> None:
        self._deferred.declare(name, sql, kept=False)

    def table(self, name: str, sql: str, parameters: Sequence[Any] = (), *, high_cardinality: bool = False) -> None:
        """Defines a table. DuckDB needs no hint ``high_cardinality``. A table with parameters is made at once."""
        if name in self._expected:
            self.load(name, self._expected[name])
        elif parameters:
            self._deferred.ensure(sql)
            self._table(name, sql, parameters)
        else:
            self._deferred.declare(name, sql, kept=True)

    def preset_tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Sets the rows that the tables of these names have when they are made."""
        self._expected.update(tables)

    def has_loaded(self, name: str) -> bool:
        return False

    def is_surely_empty(self, name: str) -> bool:
        return self._deferred.is_surely_empty(name)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        if self._deferred.no_rows(sql):
            return []
        self._deferred.ensure(sql)
        return self.fetched(sql, parameters)

    def arrow(self, sql: str) -> pa.Table:
        self._deferred.ensure(sql)
        try:
            return _decode_texts(self._connection.sql(sql).to_arrow_table())
        except (duckdb.Error, RuntimeError) as error:
            raise _to_error(error, sql) from error

    def load(self, name: str, rows: pa.Table, *, coded: bool = False) -> None:
        """Creates a table. ``coded``: there are so many rows that repeated texts are better kept as numbers."""
        self._connection.register("loaded", rows)
        try:
            texts = [field.name for field in rows.schema if field.type == "string"]
            types = self._coded("loaded", texts) if coded else {}
            columns = [
                f"cast({quote(column)} as {types[column]}) as {quote(column)}" if column in types else quote(column)
                for column in rows.column_names
            ]
            self._table(name, f"select {', '.join(columns)} from loaded")
        finally:
            self._connection.unregister("loaded")

    def validation_engine(self) -> AbstractContextManager[Engine]:
        return nullcontext(self)

    def columns(self, sql: str, parameters: Sequence[Any] = ()) -> dict[str, np.ndarray[Any, Any]]:
        """Returns a query's columns; the query must not return nulls."""
        cursor = self._asked(sql, parameters)
        try:
            found: dict[str, np.ndarray[Any, Any]] = cursor.fetchnumpy()
        except (duckdb.Error, RuntimeError) as error:
            raise _to_error(error, sql) from error
        return found

    def close(self) -> None:
        self._connection.close()
        if self._spill is not None:
            self._spill.cleanup()

    def _table(self, name: str, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Creates a table from relations that exist already."""
        self._deferred.redefine(name)
        self._deferred.given(name, self._filled(name, sql, parameters))

    def _make(self, relation: LazyRelation) -> int | None:
        if not relation.kept:
            self.run(f"create or replace temporary view {relation.name} as {relation.sql}")
            return None
        text = f"select * from ({relation.sql}) as none limit 0" if relation.is_surely_empty else str(relation.sql)
        return self._filled(relation.name, text)

    def _filled(self, name: str, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Creates a table. Returns its number of rows."""
        cursor = self.run(f"create or replace temporary table {name} as {sql}", parameters)
        return int(cursor.fetchall()[0][0])

    def _asked(self, sql: str, parameters: Sequence[Any]) -> Any:
        self._deferred.ensure(sql)
        return self.run(sql, parameters)

    def fetched(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Returns the rows of a query on existing relations. Fetching them may fail or be interrupted, too."""
        cursor = self.run(sql, parameters)
        names = [column[0] for column in cursor.description or ()]
        try:
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except (duckdb.Error, RuntimeError) as error:
            raise _to_error(error, sql) from error

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Returns the cursor of a statement on existing relations."""
        try:
            return self._connection.execute(self._statement(sql), list(parameters) or None)
        except (duckdb.Error, RuntimeError) as error:
            raise _to_error(error, sql) from error

    def _statement(self, sql: str) -> Any:
        if sql not in _read:
            (statement,) = self._connection.extract_statements(sql)
            if len(_read) >= KEPT_TEXTS:
                _read.clear()
            _read[sql] = statement
        return _read[sql]


def _connect_small() -> Any:
    """Returns a connection, with its own temporary tables, to this process's database for small histories."""
    process = os.getpid()  # a forked process must not use its parent's
    shared, left = _shared.get(process, (None, 0))
    if left == 0:
        shared, left = _create_database(process), MOST_SESSIONS
    _shared[process] = (shared, left - 1)
    return shared.cursor()


def _create_database(process: int) -> Any:
    made = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": DEFAULT_MEMORY, **_CONFIG})
    _disable_optimizers(made, lambda name: name not in _NEEDED_OPTIMIZERS)
    # DuckDB creates the folder when it needs one, and removes it.
    made.execute("set temp_directory = ?", [f"{tempfile.gettempdir()}/assay-duckdb-small-{process}"])
    return made


def _disable_optimizers(connection: Any, spared: Callable[[str], bool]) -> None:
    """Disables these optimizers."""
    known = [name for (name,) in connection.execute("select name from duckdb_optimizers()").fetchall()]
    connection.execute(f"set disabled_optimizers = '{','.join(filter(spared, known))}'")


def _decode_texts(rows: pa.Table) -> pa.Table:
    """Converts enum codes back to texts."""
    for place, field in enumerate(rows.schema):
        if hasattr(field.type, "value_type"):
            rows = rows.set_column(place, field.name, rows.column(place).cast(field.type.value_type))
    return rows


def _to_error(error: Exception, sql: str) -> BaseException:
    """Returns the exception to raise. A Ctrl-C during a query arrives as a plain ``RuntimeError``."""
    if "Query interrupted" in str(error):
        return KeyboardInterrupt(f"DuckDB was interrupted at {shorten(sql)}")
    said = f"DuckDB could not run {shorten(sql)}: {error}"
    if isinstance(error, duckdb.OutOfMemoryException) or NO_SPACE in str(error):
        return EngineExhausted(
            f"{said.splitlines()[0]}; free memory, and room in {tempfile.gettempdir()} (or set TMPDIR to a folder that "
            "has some), or judge it on Spark: assay check --engine=spark"
        )
    return EngineError(said)


def _escape_path(part: Path) -> str:
    """Escapes a path so that no character of it is a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", str(part)).replace("'", "''")
