"""A history as the report asks it: DuckDB over the Parquet parts, so that no run is too long to be drawn.

Everything that grows with the run is counted, grouped and sampled in SQL; Python sees a bounded number of rows. A
history may be cut short, or lack data sets that it never had: those are empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import numpy as np
import pyarrow as pa

from harness.core.history import ADDED, SCHEMAS, HistoryReader

Row = Mapping[str, Any]

MEMORY: Final = "2GB"


class Recording:
    """The views ``ops``, ``effects``, ``faults``, ``events`` and ``replicas`` of one history; close it after use.

    Raises ``HistoryError`` naming the file when a part cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._reader = HistoryReader(folder, optional=tuple(SCHEMAS))
        self._connection = duckdb.connect(":memory:", config={"memory_limit": MEMORY})
        for name in SCHEMAS:
            self._connection.execute(f"create view {name} as {self._source(name)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def closed(self) -> bool:
        """Whether the run's writer came to its end."""
        return self._reader.closed is not None

    @property
    def operations(self) -> int:
        return self._reader.rows("ops")

    @property
    def effects(self) -> int:
        return self._reader.rows("effects")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows of a query that returns few."""
        result = self._connection.execute(sql, list(parameters))
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def columns(self, sql: str, parameters: Sequence[Any] = ()) -> dict[str, np.ndarray[Any, Any]]:
        """A query's columns; it returns no nulls."""
        found: dict[str, np.ndarray[Any, Any]] = self._connection.execute(sql, list(parameters)).fetchnumpy()
        return found

    def table(self, name: str, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Keeps a query's rows under a name."""
        self._connection.execute(f"create or replace temporary table {name} as {sql}", list(parameters))

    def end(self) -> int:
        """Nanoseconds from the run's begin to the last thing that its history tells of."""
        row = self.rows(
            "select greatest((select coalesce(max(coalesce(ret, call)), 0) from ops), "
            "(select coalesce(max(time), 0) from faults)) as stop"
        )[0]
        return int(row["stop"])

    def _source(self, name: str) -> str:
        paths = self._reader.paths(name)
        columns = {field.name: field.type for field in SCHEMAS[name]}
        if not paths:
            nulls = ", ".join(f'cast(null as {_sql_type(kind)}) as "{column}"' for column, kind in columns.items())
            return f"select {nulls} where false"
        literals = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
        source = f"read_parquet([{literals}], union_by_name = true)"
        present = {row["column_name"] for row in self.rows(f"describe select * from {source}")}
        lacking = [column for column in ADDED.get(name, ()) if column not in present]
        nulls = "".join(f', cast(null as {_sql_type(columns[column])}) as "{column}"' for column in lacking)
        return f"select *{nulls} from {source}"


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "bigint"
    return "boolean" if pa.types.is_boolean(kind) else "varchar"
