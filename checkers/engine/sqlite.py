"""SQLite engine in this process, for small histories.

A judgement runs some three hundred queries. DuckDB needs one or two milliseconds to plan each query, even for few rows,
and SQLite a tenth of that. SQLite runs a plan row by row and joins with at most one index, so it is slower for many
rows (``engine_selection`` has the limit).

``translate`` replaces the words of the common SQL that SQLite spells differently. Functions that SQLite lacks are
written in Python.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.checkers.engine.base import EngineError, EngineUnavailable, Row, quote, shorten, to_sql_type
from assay.checkers.engine.lazy_relations import LazyEngine, LazyRelation
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = LazyModule("pyarrow")
    pq = LazyModule("pyarrow.parquet")

KEPT_TEXTS: Final = 2_000
"""Number of SQL texts whose translation and prepared statement are cached."""
PROGRESS_STEPS: Final = 1_000_000
"""Number of steps of a query, about a hundredth of a second, after which Ctrl-C takes effect."""

OLDEST: Final = (3, 39)
"""The first version with ``is distinct from``."""

_TRANSLATED: Final = re.compile(r"'[^']*'|\bas (string)\b|\.(group|index)\b")
"""Matches words that SQLite spells differently, and quoted texts, so that nothing in them is replaced."""


class SQLite(LazyEngine):
    """SQLite engine. It keeps all data in memory. Whole numbers and their sums have 64 bits.

    Use it as a context manager, or close it. Raises ``EngineUnavailable`` if SQLite is too old.
    """

    name = "sqlite"

    def __init__(self) -> None:
        require_sqlite()
        super().__init__()
        self._connection = _connect()
        self._kinds: dict[str, str] = {}
        """``table`` or ``view``, by name of a relation."""

    def register(self, name: str, parts: Sequence[Path], schema: pa.Schema) -> None:
        wanted = set(schema.names)
        try:
            tables = [_read_part(part, wanted) for part in parts]
        except (OSError, pa.ArrowException) as error:
            raise EngineError(f"SQLite could not load {name}: {error}") from error
        self._fill(name, tables, schema)

    def load(self, name: str, rows: pa.Table) -> None:
        self._fill(name, [rows], rows.schema)

    def _fill(self, name: str, tables: Sequence[pa.Table], schema: pa.Schema) -> None:
        """Creates a table with exactly the columns of ``schema``; missing columns are null."""
        name = name.lower()
        self._relations.prepare_redefinition(name)
        self._drop(name)
        types = (to_sql_type(field.type).replace("string", "text") for field in schema)
        columns = ", ".join(f"{quote(name)} {kind}" for name, kind in zip(schema.names, types, strict=True))
        self._run(f"create table {name} ({columns})")
        parameters = ", ".join("?" * len(schema))
        for table in filter(len, tables):
            try:
                values = [_read_values(table, field.name) for field in schema]
            except UnicodeDecodeError as error:
                raise EngineError(f"SQLite could not load {name}: {error}") from error
            self._connection.executemany(f"insert into {name} values ({parameters})", zip(*values, strict=True))
        self._kinds[name] = "table"
        self._relations.register_table(name, sum(table.num_rows for table in tables))

    def rows(self, sql: str) -> list[Row]:
        if self._relations.has_no_rows(sql):
            return []
        names, found = self._fetch(sql)
        return [dict(zip(names, row, strict=True)) for row in found]

    def arrow(self, sql: str) -> pa.Table:
        names, found = self._fetch(sql)
        columns = zip(*found, strict=True) if found else [()] * len(names)
        return pa.table(dict(zip(names, columns, strict=True)))

    def close(self) -> None:
        self._connection.close()

    def _fetch(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Returns the names of the columns, and the rows."""
        self._relations.ensure(sql)
        cursor = self._run(sql)
        try:
            return [column[0] for column in cursor.description], cursor.fetchall()
        except sqlite3.Error as error:
            raise self._to_error(error, sql) from error

    def _make(self, relation: LazyRelation) -> int | None:
        self._drop(relation.name)
        kind = "table" if relation.is_table else "view"
        is_empty = relation.is_table and relation.is_surely_empty
        text = f"select * from ({relation.sql}) as none limit 0" if is_empty else str(relation.sql)
        self._run(f"create {kind} {relation.name} as {text}")
        self._kinds[relation.name] = kind
        if not relation.is_table:
            return None
        (has_rows,) = self._run(f"select exists (select 1 from {relation.name})").fetchone()
        return int(has_rows)

    def _drop(self, name: str) -> None:
        kind = self._kinds.pop(name, None)
        if kind is not None:
            self._run(f"drop {kind} {name}")

    def _run(self, sql: str) -> sqlite3.Cursor:
        try:
            return self._connection.execute(translate(sql))
        except sqlite3.Error as error:
            raise self._to_error(error, sql) from error

    def _to_error(self, error: sqlite3.Error, sql: str) -> BaseException:
        """Returns the exception to raise. Ctrl-C during a query ends the query.

        If Ctrl-C comes while SQLite calls a Python function, SQLite reports an error of this function.
        """
        in_function = str(error).startswith("user-defined ")
        if str(error) == "interrupted" or (in_function and not self._fails(sql)):
            return KeyboardInterrupt(f"SQLite was interrupted at {shorten(sql)}")
        return EngineError(f"SQLite could not run {shorten(sql)}: {error}")

    def _fails(self, sql: str) -> bool:
        """Runs a statement again, undoes it, and returns whether it failed again."""
        self._connection.execute("savepoint tried")
        try:
            self._connection.execute(translate(sql)).fetchall()
        except sqlite3.Error:
            return True
        finally:
            self._connection.execute("rollback to tried")
            self._connection.execute("release tried")
        return False


def is_sqlite_available() -> bool:
    """Returns whether this Python's SQLite understands the checks."""
    return sqlite3.sqlite_version_info >= OLDEST


def require_sqlite() -> None:
    """Raises ``EngineUnavailable`` if SQLite is too old for the checks."""
    if not is_sqlite_available():
        needed = ".".join(map(str, OLDEST))
        raise EngineUnavailable(
            f"the checks need SQLite {needed} or later, this Python has {sqlite3.sqlite_version}; use --engine=duckdb"
        )


@lru_cache(KEPT_TEXTS)
def translate(sql: str) -> str:
    """Translates a query for SQLite.

    In SQLite ``string`` names a numeric type, and a column named like a keyword needs quotes.
    """
    return _TRANSLATED.sub(_translate_match, sql)


def _translate_match(found: re.Match[str]) -> str:
    if found[1]:
        return "as text"
    return f'."{found[2]}"' if found[2] else found[0]


def _connect() -> sqlite3.Connection:
    # Threads use a connection one after the other.
    database = sqlite3.connect(":memory:", isolation_level=None, cached_statements=KEPT_TEXTS, check_same_thread=False)
    for setting in ("secure_delete = off", "case_sensitive_like = on"):
        database.execute(f"pragma {setting}")
    for name, function in _FUNCTIONS.items():
        database.create_function(name, -1, function, deterministic=True)
    database.create_aggregate("bit_or", 1, _BitOr)
    database.set_progress_handler(lambda: 0, PROGRESS_STEPS)  # a call of Python code lets Ctrl-C take effect
    return database


def _greatest(*values: Any) -> Any:
    return max((value for value in values if value is not None), default=None)


def _least(*values: Any) -> Any:
    return min((value for value in values if value is not None), default=None)


def _concat(*values: Any) -> str | None:
    return None if None in values else "".join(map(str, values))


def _regexp_extract(text: str | None, pattern: str, group: int) -> str | None:
    if text is None:
        return None
    found = re.search(_to_python(pattern), text)
    return found[group] if found else ""


def _regexp_replace(text: str | None, pattern: str, by: str) -> str | None:
    """Replaces the first match, as DuckDB does."""
    return None if text is None else re.sub(_to_python(pattern), by, text, count=1)


@lru_cache(KEPT_TEXTS)
def _to_python(pattern: str) -> str:
    r"""Replaces ``\z``, the end of the text, by Python's ``\Z``."""
    return pattern.replace(r"\z", r"\Z")


def _bit_count(value: int | None) -> int | None:
    return None if value is None else value.bit_count()


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "greatest": _greatest, "least": _least, "concat": _concat, "bit_count": _bit_count, "chr": chr,
    "regexp_extract": _regexp_extract, "regexp_replace": _regexp_replace,
}  # fmt: skip


class _BitOr:
    """Aggregate of bits; 0 if all values are null."""

    def __init__(self) -> None:
        self._all = 0

    def step(self, value: int | None, /) -> None:
        self._all |= value or 0

    def finalize(self) -> int:
        return self._all


def _read_part(part: Path, wanted: set[str]) -> pa.Table:
    with pq.ParquetFile(part) as file:
        return file.read([name for name in file.schema_arrow.names if name in wanted])


def _read_values(table: pa.Table, name: str) -> Sequence[Any]:
    place = table.schema.get_field_index(name)
    column = None if place < 0 else table.column(place)
    if column is None or column.null_count == len(column):
        return [None] * table.num_rows
    values: Sequence[Any] = column.to_pylist()
    return values
