"""What the names of a session stand for, in which order they build on each other, and which relations have few rows.

Planning a query takes Spark a tenth of a second or more however few the rows are. Of all queries about a large history,
half read few rows. So relations of few rows are kept in this process, and DuckDB answers the queries that read nothing
else (the text is one for both engines). Spark gets a relation only when a query reads it together with others.
"""

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
    known_to: set[str] = field(default_factory=set)
    """The engines that have it."""


class Names:
    """By name, the relations of a session. A name that is given again stands for the new one from then on."""

    def __init__(self) -> None:
        self._relations: dict[str, Relation] = {}

    def view(self, name: str, sql: str) -> None:
        self._define(name, Relation(sql=sql, reads=self._within(sql)))

    def few(self, name: str, rows: pa.Table) -> None:
        self._define(name, Relation(rows=rows))

    def many(self, name: str, engine: str) -> None:
        """A table that ``engine`` has made, and that no other engine has."""
        self._define(name, Relation(known_to={engine}))

    def has_few(self, sql: str) -> bool:
        """Whether all that a query reads is here. One that names no relation may be about anything."""
        read = self._all_within(sql)
        return bool(read) and all(one.sql is not None or one.rows is not None for one in read.values())

    def lacks(self, name: str) -> bool:
        """Whether a table has no rows, as far as that is known here."""
        relation = self._relations.get(name)
        return relation is not None and relation.rows is not None and relation.rows.num_rows == 0

    def missing(self, sql: str, engine: str) -> Iterator[tuple[str, Relation]]:
        """What ``engine`` must get before it can run a query, in an order in which it can be made; then it has it.

        A table stays with the engine that made it; a query that reads one must not be given to another engine.
        """
        for name, relation in self._all_within(sql).items():
            if engine not in relation.known_to:
                yield name, relation
                relation.known_to.add(engine)

    def _define(self, name: str, relation: Relation) -> None:
        if name in self._relations:  # else nothing can read it yet
            for reader in self._relations.values():
                if name in self._all(reader.reads):
                    reader.known_to.clear()  # an engine may have bound it to the columns of the former one
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
