"""How the translations of older formats write SQL: in the subset that SQLite, DuckDB and Spark share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """SQL of a relation. ``keep``: several others read it, so it is materialised."""

    name: str
    sql: str
    keep: bool = False


def select(columns: Iterable[str], meanings: Mapping[str, str], source: str) -> str:
    """The rows ``e`` of ``source`` with these columns, each as its meaning says, or as it is."""
    chosen = ", ".join(f"{meanings.get(column, f'e.{_quoted(column)}')} as {_quoted(column)}" for column in columns)
    return f"select {chosen} from {source} e"


def listed(names: Iterable[str]) -> str:
    """Texts with commas between."""
    return ", ".join(f"'{name}'" for name in names)


def _quoted(column: str) -> str:
    return f'"{column}"'
