"""Interface of the engines that run the checks' SQL: one SQL text, three engines.

A check is SQL in the subset that DuckDB, Spark SQL and SQLite share. So an engine needs only this Protocol: Parquet
files as views, views and materialised tables from SQL, rows as results. SQLite judges most test runs, and DuckDB the
longer ones, both in process. Spark is for histories too large for one machine. ``engine_selection`` chooses the engine.

Rules of the subset, each of which avoids a difference between the engines:

- Every ORDER BY has NULLS FIRST or NULLS LAST. An order of effects ends in ``op, sub`` (operation, and number of the
  effect in it), which no two effects share.
- Rows that the order of a window does not distinguish are first grouped into one row. Windows use ROWS frames, never
  RANGE.
- There is no division and no arithmetic on an infinite ``ret``. Sums are cast to bigint.
- There is no IGNORE NULLS, distinct window, EXCLUDE, semi join or recursion. To pick an example row, use row_number,
  because max_by, any_value and string_agg are missing.
- Names are in double quotes. String literals are in single quotes and contain no quote and no backslash.
- Use no name that SQLite reserves. No column list follows a subquery's alias (``as t (a, b)``). Truth values are 1
  and 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from assay.harness.core.history import HistoryReader
    from assay.harness.core.history.data_sets import DataSet

Row = Mapping[str, Any]
T = TypeVar("T")

INFINITY: Final = 9223372036854775807
"""Replaces the missing ``ret`` (time of the return) of an operation. Arithmetic with it would overflow."""

_TYPES: Final = {"int64": "bigint", "int32": "int", "bool": "boolean"}


class EngineError(Exception):
    """An engine could not run a query. The message names the query and the reason."""


class EngineExhausted(EngineError):
    """A query ran out of memory, or of disk space for temporary files. The message says what to do."""


class EngineUnavailable(EngineError):
    """An engine is not available on this machine. The message says what to install or choose instead."""


class Engine(Protocol):
    """Runs the checks' SQL. Views and tables live as long as the engine; a new definition replaces an earlier one.

    Every method raises ``EngineError`` if the engine fails, for example because of a damaged file.
    """

    @property
    def name(self) -> str:
        """``sqlite``, ``duckdb`` or ``spark``."""

    def register(self, name: str, parts: Sequence[Path], schema: pa.Schema) -> None:
        """Creates a view of Parquet files with exactly the columns of ``schema``. Columns that a file lacks are null.

        Files may differ from the schema, and from each other, in the width of integers and in how text is stored.
        """

    def view(self, name: str, sql: str) -> None:
        """Defines a view. ``sql`` may run once for each query that reads the view. Its errors may appear only then."""

    def table(self, name: str, sql: str, *, high_cardinality: bool = False) -> None:
        """Defines a table, which is materialised once. Names in ``sql`` have their meaning at the time of this call.

        An engine may wait until a query reads the table. ``sql`` must not read a table of the same name.
        ``high_cardinality``: the result has nearly as many groups as rows, so partial aggregation is not worth it.
        """

    def is_surely_empty(self, name: str) -> bool:
        """Returns whether a view or table certainly has no rows."""

    def has_loaded(self, name: str) -> bool:
        """Returns whether a table of this name was loaded into the engine before the judgement began (``batch``)."""

    def rows(self, sql: str) -> list[Row]:
        """Returns all rows of a query with few rows."""

    def arrow(self, sql: str) -> pa.Table:
        """Returns all rows of a query with many rows, as an Arrow table."""

    def load(self, name: str, rows: pa.Table) -> None:
        """Creates a table from rows in this process's memory."""

    def validation_engine(self) -> AbstractContextManager[Engine]:
        """Returns the engine that validates the history and counts its kinds of effects: this engine, or another one
        that reads files faster.
        """

    def close(self) -> None:
        """Releases everything. Idempotent."""


def to_sql_type(kind: pa.DataType | str) -> str:
    """Returns the SQL name, in DuckDB and Spark, of a column type of the history format."""
    return _TYPES.get(str(kind), "string")


def quote(name: str) -> str:
    """Returns a column's name in double quotes, which all engines accept even for reserved words."""
    return f'"{name}"'


def quote_texts(texts: Iterable[str]) -> str:
    """Returns SQL: a list of literals. Raises ``ValueError`` for a text with a quote, a backslash or a NUL.

    No text of a history may become SQL; load such texts into a table (``Engine.load``).
    """
    given = list(texts)
    if wrong := [text for text in given if any(letter in text for letter in "'\\\0")]:
        raise ValueError(f"{wrong[0]!r} is no literal that all engines read alike")
    return ", ".join(f"'{text}'" for text in given)


def select_nothing(schema: pa.Schema | DataSet) -> str:
    """Returns SQL of a relation with these columns and no rows."""
    columns = ", ".join(f"cast(null as {to_sql_type(field.type)}) as {quote(field.name)}" for field in schema)
    return f"select {columns} where 1 = 0"


def select_conforming(
    source: str, present: Sequence[str], schema: pa.Schema, types: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Returns SQL that selects the columns of ``schema``, with its types, from ``source``. A missing column is null.

    ``present``: the columns that ``source`` has. ``types`` overrides the types of some columns, by name.
    """
    columns = ", ".join(
        f"cast({quote(field.name) if field.name in present else 'null'} as "
        f"{types.get(field.name) or to_sql_type(field.type)}) "
        f"as {quote(field.name)}"
        for field in schema
    )
    return f"select {columns} from {source}"


def shorten(sql: str) -> str:
    """Returns the beginning of an SQL text, for an error."""
    text = " ".join(sql.split())
    return text if len(text) <= 200 else f"{text[:200]} ..."


@runtime_checkable
class SupportsPartitioning(Protocol):
    """An engine that can partition a history by key and query each part by itself."""

    def ask_each_part(
        self, history: HistoryReader, question: Callable[[Engine], T], progress: Callable[[int, int], None]
    ) -> list[T] | None:
        """Calls ``question`` with an engine for each part. Returns the answers, or None if it does not partition this
        history.

        ``question`` must be picklable, because other processes call it. ``progress`` is called with the number of parts
        done and the number of all parts.
        """

    def preset_tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Sets the rows of tables in advance: when a table of this name is defined, its SQL is not run."""
