"""DuckDB in this process: what serves a test run, and all that one machine can hold on its disk."""

import re
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, Self

import duckdb
import numpy as np
import pyarrow as pa

from assay.checkers.engine.base import Engine, EngineError, Row, conformed, empty

DEFAULT_MEMORY: Final = "4GB"
KEPT_ROWS: Final = 8_000_000
"""Some hundred queries of the checks look at each data set; so many rows of effects take about 1 GB."""
KEPT_TEXTS: Final = 1_000
"""The checks have some 700 texts; those that name a history's files or operations come and go."""

_read: dict[str, Any] = {}
"""Statements by their texts. The checks ask each history the same, and to parse it takes a quarter of a judgement."""


class DuckDB:
    """Spills what does not fit into ``memory`` to a temporary folder that is removed in the end.

    ``threads`` None: one per core. ``kept_rows``: a data set with at most so many is decoded once and kept in memory.
    Use as a context manager, or close it.
    """

    name = "duckdb"

    def __init__(self, *, memory: str = DEFAULT_MEMORY, threads: int | None = None, kept_rows: int = KEPT_ROWS) -> None:
        self._kept_rows = kept_rows
        # DuckDB's own choice for a database in memory is the working directory.
        self._spill = tempfile.TemporaryDirectory(prefix="assay-duckdb-")
        config: dict[str, Any] = {
            "memory_limit": memory,
            "preserve_insertion_order": "false",
            "temp_directory": self._spill.name,
        }
        if threads is not None:
            config["threads"] = threads
        self._connection = duckdb.connect(":memory:", config=config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def register(self, name: str, parts: Sequence[Path], schema: pa.Schema) -> None:
        if not parts:
            self.view(name, empty(schema))
            return
        files = ", ".join(f"'{_literally(part)}'" for part in parts)
        source = f"read_parquet([{files}], union_by_name = true)"
        rows = self.rows(f"select count(*) as total from {source}")[0]["total"]
        if rows == 0:
            self.table(name, empty(schema))
            return
        present = [row["column_name"] for row in self.rows(f"describe select * from {source}")]
        keep = self.table if rows <= self._kept_rows else self.view
        keep(name, conformed(source, present, schema))

    def view(self, name: str, sql: str) -> None:
        self._run(f"create or replace temporary view {name} as {sql}")

    def table(self, name: str, sql: str, parameters: Sequence[Any] = (), *, fine: bool = False) -> None:
        """``fine``: DuckDB finds out by itself."""
        self._run(f"create or replace temporary table {name} as {sql}", parameters)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        cursor = self._run(sql, parameters)
        names = [column[0] for column in cursor.description or ()]
        try:
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except (duckdb.Error, RuntimeError) as error:
            raise _error(error, sql) from error

    def arrow(self, sql: str) -> pa.Table:
        try:
            return self._connection.sql(sql).to_arrow_table()
        except (duckdb.Error, RuntimeError) as error:
            raise _error(error, sql) from error

    def load(self, name: str, rows: pa.Table) -> None:
        self._connection.register("loaded", rows)
        try:
            self.table(name, "select * from loaded")
        finally:
            self._connection.unregister("loaded")

    def validator(self) -> AbstractContextManager[Engine]:
        return nullcontext(self)

    def columns(self, sql: str, parameters: Sequence[Any] = ()) -> dict[str, np.ndarray[Any, Any]]:
        """A query's columns; it returns no nulls."""
        cursor = self._run(sql, parameters)
        try:
            found: dict[str, np.ndarray[Any, Any]] = cursor.fetchnumpy()
        except (duckdb.Error, RuntimeError) as error:
            raise _error(error, sql) from error
        return found

    def close(self) -> None:
        self._connection.close()
        self._spill.cleanup()

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        try:
            return self._connection.execute(self._statement(sql), list(parameters) or None)
        except (duckdb.Error, RuntimeError) as error:
            raise _error(error, sql) from error

    def _statement(self, sql: str) -> Any:
        if sql not in _read:
            (statement,) = self._connection.extract_statements(sql)
            if len(_read) >= KEPT_TEXTS:
                _read.clear()
            _read[sql] = statement
        return _read[sql]


def _error(error: Exception, sql: str) -> BaseException:
    """What to raise for it. A Ctrl-C during a query arrives as a plain ``RuntimeError``."""
    if "Query interrupted" in str(error):
        return KeyboardInterrupt(f"DuckDB was interrupted at {_short(sql)}")
    return EngineError(f"DuckDB could not run {_short(sql)}: {error}")


def _literally(part: Path) -> str:
    """A path in which no character is a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", str(part)).replace("'", "''")


def _short(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= 200 else f"{text[:200]} ..."
