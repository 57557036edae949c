"""DuckDB engine in this process, for test runs and all histories that one machine can hold on its disk."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.checkers.engine.base import (
    EngineError,
    EngineExhausted,
    Row,
    quote,
    select_conforming,
    select_nothing,
    shorten,
    to_sql_type,
)  # fmt: skip
from assay.checkers.engine.lazy_relations import LazyEngine, LazyRelation
from assay.checkers.engine.parquet_stats import find_columns_with_values
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pyarrow as pa
else:
    duckdb = LazyModule("duckdb")

DEFAULT_MEMORY: Final = "4GB"
RUN_MEMORY: Final = "700MB"
"""Memory limit of the engine in a session, where the cluster needs memory, too. The whole process then takes about
1 GB. A log of 3 million effects is judged as fast as without the limit. A log of 11 million takes a third longer."""
RUN_MEMORY_EFFECTS: Final = 40_000_000
"""Maximum number of effects of a history that is judged within ``RUN_MEMORY``. A query over 100 million effects of a
log ran out of memory with 600 MB."""
NO_SPACE: Final = "No space left on device"
"""Text of DuckDB's error if the disk for temporary files is full."""
KEPT_VALUES: Final = 250_000_000
"""Maximum number of values of a decoded table in memory, which takes about 1 GB. It counts rows times columns with
values. Decoding once pays, because some hundred queries of the checks read each table.
"""
STORED: Final = "stored_"
"""Prefix of the table with the decoded columns of a registered view."""
KEPT_TEXTS: Final = 1_000
"""Maximum number of parsed SQL texts in the cache. The checks have some 700 texts. Texts that name files or operations
of a history are used only once."""

SMALL_ROWS: Final = 50_000
"""Maximum number of effects of a small history, whose queries take longer to plan than to run."""
_NEEDED_OPTIMIZERS: Final = (
    "column_lifetime", "deliminator", "filter_pushdown", "in_clause", "unnest_rewriter", "unused_columns",
)  # fmt: skip
"""Optimizers that small histories need, because some plans would explode without them. All others together cost a sixth
of a small judgement."""
_WRONG_FOR_LATERAL_JOINS: Final = ("projection_pullup",)
"""Optimizers with which DuckDB 2.0 misses a column of some lateral joins. The database is unusable afterwards."""

ENUM_COLUMNS: Final = ("key", "kind", "outcome", "phase")
"""Columns of repeated texts, by which checks join, group and sort."""
MAX_ENUM_VALUES: Final = 1_000_000
"""Maximum number of different texts of a column that becomes an enum."""

_CONFIG: Final = {
    "preserve_insertion_order": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
"""Nothing is fetched from the network: the built-in extensions are enough to read Parquet files."""
MAX_SESSIONS: Final = 4
"""Maximum number of sessions per database. Sessions slow a database down: after ten of them a judgement takes a fifth
longer."""
_shared: dict[int, tuple[Any, int]] = {}
"""By process (a fork has another number), the database of small histories, and the number of sessions that it may
still have. Creating and closing a database costs as much as some thirty queries.
"""

_numbers = itertools.count()
"""Numbers for enum types, because one database may have the types of several sessions."""
_parsed_statements: dict[str, Any] = {}
"""Parsed statements by text. The checks have equal texts for each history, and parsing takes a quarter of a
judgement."""


class DuckDB(LazyEngine):
    """DuckDB engine. It spills data that does not fit into ``memory`` to a temporary folder, which is removed in the
    end.

    - ``threads``: None means one per core.
    - ``kept_values``: a table with at most this many values is decoded once and kept in memory.
    - ``small``: for at most ``SMALL_ROWS`` effects. Then the other options have no effect.
    - ``lateral``: for queries that run as lateral joins (``batch``).

    Use it as a context manager, or close it.
    """

    name = "duckdb"

    def __init__(
        self,
        *,
        memory: str = DEFAULT_MEMORY,
        threads: int | None = None,
        kept_values: int = KEPT_VALUES,
        small: bool = False,
        lateral: bool = False,
    ) -> None:
        super().__init__()
        self._kept_values = kept_values
        self._small = small
        self._spill: tempfile.TemporaryDirectory[str] | None = None
        if small:
            self._connection = _connect_small()
            return
        # By default DuckDB would spill into the working directory.
        self._spill = tempfile.TemporaryDirectory(prefix="assay-duckdb-")
        config: dict[str, Any] = {"memory_limit": memory, "temp_directory": self._spill.name, **_CONFIG}
        if threads is not None:
            config["threads"] = threads
        self._connection = duckdb.connect(":memory:", config=config)
        # Otherwise each scan of a data set reads the footers of its files again, and keeps a copy of them in memory.
        self._connection.execute("set parquet_metadata_cache = true")
        if lateral:
            _disable_optimizers(self._connection, lambda name: name in _WRONG_FOR_LATERAL_JOINS)

    def register(self, name: str, parts: Sequence[Path], schema: pa.Schema) -> None:
        if not parts:
            self.view(name, select_nothing(schema))
            return
        files = ", ".join(f"'{_escape_path(part)}'" for part in parts)
        # With Hive partitioning, a folder such as ``event=push`` above the history would become a column.
        source = f"read_parquet([{files}], union_by_name = true, hive_partitioning = false)"
        rows = self.rows(f"select count(*) as total from {source}")[0]["total"]
        if rows == 0:
            self._table(name, select_nothing(schema))
            return
        present = [row["column_name"] for row in self.rows(f"describe select * from {source}")]
        if self._small:
            self._table(name, select_conforming(source, present, schema))
            return
        columns = find_columns_with_values(parts, [field.name for field in schema if field.name in present])
        if rows * len(columns) <= self._kept_values:
            self._store(name, source, columns, schema)
        else:
            self.view(name, select_conforming(source, present, schema))

    def _create_enums(self, source: str, present: Sequence[str]) -> dict[str, str]:
        """Creates enum types for columns of repeated texts. Returns their names by column.

        The values of an enum are in the order of the texts. So such columns behave like texts, but compare and sort
        several times as fast.
        """
        types = {}
        for column in ENUM_COLUMNS:
            if column in present:
                texts = f"select distinct {quote(column)} as text from {source} where {quote(column)} is not null"
                name = f"enum_{next(_numbers)}"
                if 0 < self._create_table(f"texts_of_{name}", texts) <= MAX_ENUM_VALUES:
                    self.run(f"create type {name} as enum (select text from texts_of_{name} order by text)")
                    types[column] = name
                self.run(f"drop table texts_of_{name}")
        return types

    def register_rows(self, name: str, rows: pa.Table, schema: pa.Schema) -> None:
        """Creates a view of the rows with the columns of ``schema``. A missing column takes no memory."""
        self._connection.register("loaded", rows)
        try:
            self._store(name, "loaded", rows.column_names, schema)
        finally:
            self._connection.unregister("loaded")

    def _store(self, name: str, source: str, columns: Sequence[str], schema: pa.Schema) -> None:
        """Creates a table with only these columns, and a view of it with all columns of ``schema``."""
        types = self._create_enums(source, columns)
        kinds = {field.name: types.get(field.name) or to_sql_type(field.type) for field in schema}
        stored = ", ".join(f"cast({quote(column)} as {kinds[column]}) as {quote(column)}" for column in columns)
        self._table(f"{STORED}{name}", f"select {stored or 'null as nothing'} from {source}")
        self.view(name, select_conforming(f"{STORED}{name}", columns, schema, types))

    def table(self, name: str, sql: str, parameters: Sequence[Any] = (), *, high_cardinality: bool = False) -> None:
        """Defines a table. A table with parameters is created at once. ``high_cardinality`` only helps Spark."""
        if parameters:
            self._relations.ensure(sql)
            self._table(name, sql, parameters)
        else:
            super().table(name, sql)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        if self._relations.has_no_rows(sql):
            return []
        self._relations.ensure(sql)
        return self.fetch(sql, parameters)

    def arrow(self, sql: str) -> pa.Table:
        self._relations.ensure(sql)
        try:
            return _decode_texts(self._connection.sql(self._statement(sql)).to_arrow_table())
        except (duckdb.Error, RuntimeError) as error:
            raise _to_error(error, sql) from error

    def load(self, name: str, rows: pa.Table, *, enums: bool = False) -> None:
        """Creates a table. ``enums``: repeated texts become enums, which pays if there are many rows."""
        self._connection.register("loaded", rows)
        try:
            texts = [field.name for field in rows.schema if field.type == "string"]
            types = self._create_enums("loaded", texts) if enums else {}
            columns = [
                f"cast({quote(column)} as {types[column]}) as {quote(column)}" if column in types else quote(column)
                for column in rows.column_names
            ]
            self._table(name, f"select {', '.join(columns)} from loaded")
        finally:
            self._connection.unregister("loaded")

    def columns(self, sql: str, parameters: Sequence[Any] = ()) -> dict[str, np.ndarray[Any, Any]]:
        """Returns a query's columns; the query must not return nulls."""
        self._relations.ensure(sql)
        cursor = self.run(sql, parameters)
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
        """Creates a table at once, and registers it. ``sql`` reads only relations that exist."""
        self._relations.prepare_redefinition(name)
        self._relations.register_table(name, self._create_table(name, sql, parameters))

    def _make(self, relation: LazyRelation) -> int | None:
        """Creates a declared relation. Returns the number of rows of a table, and None for a view."""
        if not relation.is_table:
            self.run(f"create or replace temporary view {relation.name} as {relation.sql}")
            return None
        text = f"select * from ({relation.sql}) as none limit 0" if relation.is_surely_empty else str(relation.sql)
        return self._create_table(relation.name, text)

    def _create_table(self, name: str, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Creates a table. Returns its number of rows."""
        cursor = self.run(f"create or replace temporary table {name} as {sql}", parameters)
        return int(cursor.fetchall()[0][0])

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Returns the rows of a query on existing relations."""
        cursor = self.run(sql, parameters)
        names = [column[0] for column in cursor.description or ()]
        try:
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except (duckdb.Error, RuntimeError) as error:
            raise _to_error(error, sql) from error

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Executes a statement on existing relations. Returns its cursor."""
        try:
            return self._connection.execute(self._statement(sql), list(parameters) or None)
        except (duckdb.Error, RuntimeError) as error:
            raise _to_error(error, sql) from error

    def _statement(self, sql: str) -> Any:
        if sql not in _parsed_statements:
            statements = self._connection.extract_statements(sql)
            if len(statements) != 1:
                raise EngineError(f"DuckDB runs one statement at a time, not {len(statements)}: {shorten(sql)}")
            statement = statements[0]
            if len(_parsed_statements) >= KEPT_TEXTS:
                _parsed_statements.clear()
            _parsed_statements[sql] = statement
        return _parsed_statements[sql]


def _connect_small() -> Any:
    """Returns a connection, with its own temporary tables, to this process's database for small histories."""
    process = os.getpid()  # a forked process must not use its parent's
    shared, left = _shared.get(process, (None, 0))
    if left == 0:
        shared, left = _create_database(process), MAX_SESSIONS
    _shared[process] = (shared, left - 1)
    return shared.cursor()


def _create_database(process: int) -> Any:
    """Creates the database of this process for small histories."""
    database = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": DEFAULT_MEMORY, **_CONFIG})
    _disable_optimizers(database, lambda name: name not in _NEEDED_OPTIMIZERS)
    # DuckDB creates the folder when it needs one, and removes it.
    # The name is random, so that no other user can create the folder first.
    folder = f"{tempfile.gettempdir()}/assay-duckdb-{process}-{secrets.token_hex(8)}"
    database.execute("set temp_directory = ?", [folder])
    return database


def _disable_optimizers(connection: Any, disables: Callable[[str], bool]) -> None:
    """Disables the optimizers whose names fulfil ``disables``."""
    known = [name for (name,) in connection.execute("select name from duckdb_optimizers()").fetchall()]
    connection.execute(f"set disabled_optimizers = '{','.join(filter(disables, known))}'")


def _decode_texts(rows: pa.Table) -> pa.Table:
    """Converts enum values back to texts."""
    for place, field in enumerate(rows.schema):
        if hasattr(field.type, "value_type"):
            rows = rows.set_column(place, field.name, rows.column(place).cast(field.type.value_type))
    return rows


def _to_error(error: Exception, sql: str) -> BaseException:
    """Returns the exception to raise. A Ctrl-C during a query arrives as a plain ``RuntimeError``."""
    if "Query interrupted" in str(error):
        return KeyboardInterrupt(f"DuckDB was interrupted at {shorten(sql)}")
    message = f"DuckDB could not run {shorten(sql)}: {error}"
    if isinstance(error, duckdb.OutOfMemoryException) or NO_SPACE in str(error):
        return EngineExhausted(
            f"{message.splitlines()[0]}; free memory, and room in {tempfile.gettempdir()} (or set TMPDIR to a folder "
            "that has some), or judge the stored history by assay check, with a greater --memory-limit or on Spark "
            "(--engine=spark)"
        )
    return EngineError(message)


def _escape_path(part: Path) -> str:
    """Escapes a path, so that none of its characters is a wildcard."""
    return re.sub(r"([*?\[])", r"[\1]", str(part)).replace("'", "''")
