"""Relations that are made when a query reads them, and that are known to be empty before they are made.

A judgement declares some three hundred views and tables, and many of them are never read: because the history has
nothing of that kind, or because what reads them has no rows anyhow (``needs``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from assay.checkers.engine.empty_relations import Lacks, rowless, words


@dataclass
class Relation:
    """``kept``: a table, made from what its names stand for now. ``sql`` None: the engine has made it otherwise."""

    name: str
    sql: str | None
    kept: bool
    reads: tuple[str, ...] = ()
    """The names in ``sql``, and perhaps more: a column may be called as a relation is."""
    made: bool = False
    lacks: bool | None = None
    """Whether it has no rows; None: not known yet."""
    current: bool = True
    """Whether what it reads is still what it was when it was declared."""


class Deferred:
    """By name, the relations of a session. A name that is given again stands for the new one from then on."""

    def __init__(self, make: Callable[[Relation], int | None]) -> None:
        """``make``: makes a relation, whose inputs are there; the number of rows of a table, None of a view."""
        self._make = make
        self._relations: dict[str, Relation] = {}
        self._readers: dict[str, set[str]] = {}

    def declare(self, name: str, sql: str, *, kept: bool) -> None:
        """What has been declared already, and would have the same rows again, is left as it is."""
        name = name.lower()
        former = self._relations.get(name)
        if former is not None and former.current and (former.sql, former.kept) == (sql, kept):
            return
        reads = tuple(word for word in words(sql) if word != name and word in self._relations)
        self._define(Relation(name, sql, kept, reads))

    def redefine(self, name: str) -> None:
        """Before a table is made by other means: makes what must be made of the former of that name."""
        self._release(name.lower())

    def given(self, name: str, rows: int) -> None:
        """A table that was made by other means."""
        self._define(Relation(name.lower(), None, kept=True, made=True, lacks=rows == 0))

    def ensure(self, sql: str) -> None:
        """Makes what ``sql`` reads."""
        for word in words(sql):
            if word in self._relations:
                self._ensure(self._relations[word])

    def no_rows(self, sql: str) -> bool:
        """Whether ``sql`` certainly has no rows; perhaps some of what it reads is made to find that out."""
        return rowless(sql)(self.known) or rowless(sql)(self.lacks)

    def known(self, name: str) -> bool:
        """Whether a relation is known to have no rows, without making any."""
        relation = self._relations.get(name)
        if relation is None:
            return False
        if relation.lacks is None and _made_of_none(relation, self.known):
            relation.lacks = True
        return relation.lacks is True

    def lacks(self, name: str) -> bool:
        """Whether a relation certainly has no rows; a table is made if need be."""
        relation = self._relations.get(name)
        if relation is None:
            return False
        if relation.lacks is None:
            if self._none(relation):
                relation.lacks = True
            elif relation.kept:
                self._ensure(relation)
        return relation.lacks is True

    def _none(self, relation: Relation) -> bool:
        return _made_of_none(relation, self.known) or _made_of_none(relation, self.lacks)

    def _ensure(self, relation: Relation) -> None:
        if relation.made or relation.sql is None:
            return
        if relation.kept and relation.lacks is None:
            relation.lacks = self._none(relation) or None
        for name in relation.reads:
            self._ensure(self._relations[name])
        rows = self._make(relation)
        relation.made = True
        if rows is not None:
            relation.lacks = rows == 0

    def _release(self, name: str) -> None:
        """Before ``name`` stands for something else."""
        readers = list(self._reading(name))
        for reader in readers:
            if reader.kept:
                self._ensure(reader)
        for reader in readers:
            reader.current = False
            if not reader.kept:
                reader.made, reader.lacks = False, None

    def _define(self, new: Relation) -> None:
        former = self._relations.get(new.name)
        if former is not None:
            self._release(new.name)
            for name in former.reads:
                self._readers[name].discard(new.name)
        self._relations[new.name] = new
        for name in new.reads:
            self._readers.setdefault(name, set()).add(new.name)

    def _reading(self, name: str) -> Iterator[Relation]:
        """What reads a relation, by itself or through views."""
        for reader in self._readers.get(name, ()):
            relation = self._relations[reader]
            yield relation
            if not relation.kept:
                yield from self._reading(reader)


def _made_of_none(relation: Relation, lacks: Lacks) -> bool:
    """Whether it has no rows for lack of those it reads. What was declared after it is none of them: when that changes,
    this one would not be asked again.
    """
    return relation.sql is not None and rowless(relation.sql)(lambda name: name in relation.reads and lacks(name))
