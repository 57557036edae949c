"""Where the checks' SQL runs: one text, three engines.

A check is SQL in the subset that DuckDB, Spark SQL and SQLite share, so all that it needs of an engine is this
Protocol: Parquet parts as views, views and materialised tables from a text, rows back. SQLite, in process, serves most
test runs and DuckDB the longer ones; Spark serves histories beyond one machine, and clusters. ``choice`` says which
when.

The subset, as measured: NULLS FIRST or LAST written always, ORDER BY ends in ``op, sub``; equal positions are folded
first and windows use ROWS frames, never RANGE; no division, no arithmetic on an infinite ``ret``; sums are cast to
bigint; no IGNORE NULLS, distinct windows, EXCLUDE, semi joins, recursion; no max_by, any_value or string_agg for
witnesses. Names in double quotes, text in single ones; no quote and no backslash inside a text. No names that SQLite
reserves, no columns named behind a subquery (``as t (a, b)``); whether something is so is 1 or 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
"""What an operation's missing ``ret`` is coalesced to; never computed with."""

_TYPES: Final = {"int64": "bigint", "int32": "int", "bool": "boolean"}


class EngineError(Exception):
    """An engine could not run a query; the message says which, and why."""


class EngineExhausted(EngineError):
    """Memory or the disk of temporary files did not suffice for a query; the message says what to do."""


class EngineUnavailable(EngineError):
    """An engine is not available here; the message says what to install or give instead."""


class Engine(Protocol):
    """Runs the checks' SQL. Names live as long as the engine; a name made again replaces the former one.

    Every method raises ``EngineError`` when the engine could not do it, such as when it finds a damaged file.
    """

    @property
    def name(self) -> str:
        """``sqlite``, ``duckdb`` or ``spark``."""

    def register(self, name: str, parts: Sequence[Path], schema: pa.Schema) -> None:
        """Parquet files become a view with exactly the columns of ``schema``; those that a file lacks are null in it.

        Files may differ from the schema, and from each other, in the width of integers and in how text is stored.
        """

    def view(self, name: str, sql: str) -> None:
        """``sql`` may be run once for each text that reads the view. An engine may look at it only then."""

    def table(self, name: str, sql: str, *, fine: bool = False) -> None:
        """Materialised once, of what its names stand for now; an engine may wait until something reads it. A table must
        not be made of itself. ``fine``: it has nearly as many groups as rows, so that to make groups of each part of
        the rows first only costs."""

    def lacks(self, name: str) -> bool:
        """Whether a view or table has certainly no rows. False: it may have some."""

    def holds(self, name: str) -> bool:
        """Whether the engine was given a data set of this name before its judgement began."""

    def rows(self, sql: str) -> list[Row]:
        """All rows of a query that returns few."""

    def arrow(self, sql: str) -> pa.Table:
        """All rows of a query that returns many, in this process."""

    def load(self, name: str, rows: pa.Table) -> None:
        """Rows of this process become a table."""

    def validator(self) -> AbstractContextManager[Engine]:
        """What to ask whether the files can be a history at all, and of which kinds of effects: this engine, or one
        that is quicker with files."""

    def close(self) -> None:
        """Lets go of all that was made. Idempotent."""


def sql_type(kind: pa.DataType | str) -> str:
    """The name that DuckDB and Spark know this type of the format by."""
    return _TYPES.get(str(kind), "string")


def quoted(name: str) -> str:
    """A column's name as all engines take it, whatever words they reserve."""
    return f'"{name}"'


def empty(schema: pa.Schema | DataSet) -> str:
    """SQL of a relation with these columns and no rows."""
    columns = ", ".join(f"cast(null as {sql_type(field.type)}) as {quoted(field.name)}" for field in schema)
    return f"select {columns} where 1 = 0"


def conformed(
    source: str, present: Sequence[str], schema: pa.Schema, types: Mapping[str, str] = MappingProxyType({})
) -> str:
    """SQL of ``source``, which has the columns ``present``, with the columns and types of ``schema``; ``types``: those
    that an engine has for some of the columns, by name."""
    columns = ", ".join(
        f"cast({quoted(field.name) if field.name in present else 'null'} as "
        f"{types.get(field.name) or sql_type(field.type)}) "
        f"as {quoted(field.name)}"
        for field in schema
    )
    return f"select {columns} from {source}"


def shortened(sql: str) -> str:
    """The beginning of a text, for an error."""
    text = " ".join(sql.split())
    return text if len(text) <= 200 else f"{text[:200]} ..."


@runtime_checkable
class SupportsPartitioning(Protocol):
    """An engine that can partition a history by key and ask each part by itself."""

    def divided(
        self, history: HistoryReader, question: Callable[[Engine], T], progress: Callable[[int, int], None]
    ) -> list[T] | None:
        """Returns the answer to ``question`` for each part, or None if this history is not partitioned.

        ``question`` must be picklable, because other processes ask it. ``progress`` is called with the number of parts
        done and the number of all parts.
        """

    def expect(self, tables: Mapping[str, pa.Table]) -> None:
        """Sets the rows that the tables of these names have when they are made."""
