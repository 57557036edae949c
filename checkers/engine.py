"""Where the checks' SQL runs: one text, two engines.

A check is SQL in the subset that DuckDB and Spark SQL share, so all that it needs of an engine is this Protocol:
Parquet folders as views, views and materialised tables from a text, rows back. DuckDB, in process, serves a test run.

The subset, as measured: NULLS FIRST or LAST written always, ORDER BY ends in ``op, sub``; equal positions are folded
first and windows use ROWS frames, never RANGE; no division, no arithmetic on an infinite ``ret``; sums are cast to
bigint; no IGNORE NULLS, distinct windows, EXCLUDE, semi joins, recursion; no max_by, any_value or string_agg for
witnesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import duckdb

Row = Mapping[str, Any]

INFINITY: Final = 9223372036854775807
"""What an operation's missing ``ret`` is coalesced to; never computed with."""

DEFAULT_MEMORY: Final = "4GB"


class Engine(Protocol):
    """Runs the checks' SQL. Names live as long as the engine; a name made again replaces the former one."""

    @property
    def name(self) -> str:
        """``duckdb`` or ``spark``."""
        ...

    def register(self, name: str, folder: Path, added: Mapping[str, str]) -> None:
        """A folder of Parquet part files becomes a view; ``added`` columns (with SQL type) it may lack are null then.

        Raises FileNotFoundError when the folder holds no part.
        """
        ...

    def view(self, name: str, sql: str) -> None: ...

    def table(self, name: str, sql: str) -> None:
        """Materialised at once."""
        ...

    def rows(self, sql: str) -> list[Row]:
        """All rows of a query that returns few."""
        ...

    def close(self) -> None: ...


class DuckDB:
    """DuckDB in this process; spills beyond ``memory`` into ``spill``, if given."""

    name = "duckdb"

    def __init__(self, *, memory: str = DEFAULT_MEMORY, threads: int | None = None, spill: Path | None = None) -> None:
        config: dict[str, Any] = {"memory_limit": memory, "preserve_insertion_order": "false"}
        if threads is not None:
            config["threads"] = threads
        if spill is not None:
            config["temp_directory"] = str(spill)
        self._connection = duckdb.connect(":memory:", config=config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def register(self, name: str, folder: Path, added: Mapping[str, str]) -> None:
        if not any(folder.glob("*.parquet")):
            raise FileNotFoundError(f"{folder} holds no Parquet part; a history folder has at least an empty one")
        pattern = str(folder / "*.parquet").replace("'", "''")
        source = f"read_parquet('{pattern}', union_by_name = true)"
        present = {row["column_name"] for row in self.rows(f"describe select * from {source}")}
        lacking = [f", cast(null as {kind}) as {column}" for column, kind in added.items() if column not in present]
        self.view(name, f"select *{''.join(lacking)} from {source}")

    def view(self, name: str, sql: str) -> None:
        self._connection.execute(f"create or replace temporary view {name} as {sql}")

    def table(self, name: str, sql: str) -> None:
        self._connection.execute(f"create or replace temporary table {name} as {sql}")

    def rows(self, sql: str) -> list[Row]:
        cursor = self._connection.execute(sql)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def close(self) -> None:
        self._connection.close()
