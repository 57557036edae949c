"""Helpers for translations of older formats, in the SQL subset that SQLite, DuckDB and Spark share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """The SQL of a relation. ``keep``: it is materialised because several others read it."""

    name: str
    sql: str
    keep: bool = False


def select(columns: Iterable[str], meanings: Mapping[str, str], source: str) -> str:
    """Selects ``columns`` from the rows ``e`` of ``source``, each as its expression in ``meanings``, or unchanged."""
    chosen = ", ".join(f"{meanings.get(column, f'e.{_quoted(column)}')} as {_quoted(column)}" for column in columns)
    return f"select {chosen} from {source} e"


def listed(names: Iterable[str]) -> str:
    """Joins names to a list of SQL string literals."""
    return ", ".join(f"'{name}'" for name in names)


def _quoted(column: str) -> str:
    return f'"{column}"'
