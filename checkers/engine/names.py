"""What the names of a session stand for, in which order they build on each other, and which relations have few rows.

Planning a query takes Spark a tenth of a second or more however few the rows are, and of the queries of all checks,
about a large history, half are about few. So those relations are kept in this process, DuckDB answers what is asked of
them alone (the text is one for both engines), and Spark is told of a relation only when a query reads it beside others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

_WORD = re.compile(r"'[^']*'|(\w+)")
"""Texts are passed over; they hold no quote."""


@dataclass
class Relation:
    """A view has ``sql``, a table of few rows ``rows``; one with neither is where the engine put it."""

    sql: str | None = None
    rows: pa.Table | None = None
    reads: tuple[str, ...] = ()
    """The names in ``sql``, and perhaps more: a column may be called as a relation is."""
    told: set[str] = field(default_factory=set)
    """The engines that know it."""


class Names:
    """By name, the relations of a session. A name that is given again stands for the new one from then on."""

    def __init__(self) -> None:
        self._relations: dict[str, Relation] = {}

    def view(self, name: str, sql: str) -> None:
        self._define(name, Relation(sql=sql, reads=self._within(sql)))

    def few(self, name: str, rows: pa.Table) -> None:
        self._define(name, Relation(rows=rows))

    def many(self, name: str, engine: str) -> None:
        """A table that ``engine`` has made, and nobody else has."""
        self._define(name, Relation(told={engine}))

    def has_few(self, sql: str) -> bool:
        """Whether all that a query reads is here. One that names no relation may be about anything."""
        read = self._all_within(sql)
        return bool(read) and all(one.sql is not None or one.rows is not None for one in read.values())

    def untold(self, sql: str, engine: str) -> Iterator[tuple[str, Relation]]:
        """What ``engine`` must be told of before it can run a query, each before what reads it; then it counts as told.

        Tables are told by whoever made them; a query that reads one must not be given to others.
        """
        for name, relation in self._all_within(sql).items():
            if engine not in relation.told:
                yield name, relation
                relation.told.add(engine)

    def _define(self, name: str, relation: Relation) -> None:
        if name in self._relations:  # else nothing can read it yet
            for reader in self._relations.values():
                if name in self._all(reader.reads):
                    reader.told.clear()  # an engine may have bound it to the columns of the former one
        self._relations[name] = relation

    def _within(self, sql: str) -> tuple[str, ...]:
        words = dict.fromkeys(match.group(1) for match in _WORD.finditer(sql))
        return tuple(word for word in words if word in self._relations)

    def _all_within(self, sql: str) -> dict[str, Relation]:
        return self._all(self._within(sql))

    def _all(self, names: tuple[str, ...]) -> dict[str, Relation]:
        """Those and what they read, and so on; what is read first."""
        found: dict[str, Relation] = {}
        begun: set[str] = set()

        def visit(name: str) -> None:
            if name in begun:
                return
            begun.add(name)
            for read in self._relations[name].reads:
                visit(read)
            found[name] = self._relations[name]

        for name in names:
            visit(name)
        return found
