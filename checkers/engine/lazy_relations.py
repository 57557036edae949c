"""Relations that are made only when a query reads them, and that may be known to be empty before that.

A judgement declares some three hundred views and tables. Many are never read, because the history has no such data, or
because the reading query has no rows anyway (``empty_relations``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from assay.checkers.engine.empty_relations import IsEmpty, find_rowless_condition, find_words


@dataclass
class LazyRelation:
    """Declared relation. ``kept``: a table, made from the present meaning of its names. ``sql`` None: made by other
    means."""

    name: str
    sql: str | None
    kept: bool
    reads: tuple[str, ...] = ()
    """The names in ``sql``, and perhaps more, because a column may have the name of a relation."""
    made: bool = False
    is_surely_empty: bool | None = None
    """Whether it has no rows; None: unknown so far."""
    current: bool = True
    """Whether the relations that it reads are still those of its declaration."""


class LazyRelations:
    """The relations of a session, by name. A redefined name stands for the new relation from then on."""

    def __init__(self, make: Callable[[LazyRelation], int | None]) -> None:
        """``make`` makes a relation whose inputs exist, and returns the number of rows of a table, or None for a
        view."""
        self._make = make
        self._relations: dict[str, LazyRelation] = {}
        self._readers: dict[str, set[str]] = {}

    def declare(self, name: str, sql: str, *, kept: bool) -> None:
        """Declares a relation. An equal declaration that would have equal rows is kept."""
        name = name.lower()
        former = self._relations.get(name)
        if former is not None and former.current and (former.sql, former.kept) == (sql, kept):
            return
        reads = tuple(word for word in find_words(sql) if word != name and word in self._relations)
        self._define(LazyRelation(name, sql, kept, reads))

    def redefine(self, name: str) -> None:
        """Prepares a table made by other means: makes everything that must still read the former relation of that
        name."""
        self._release(name.lower())

    def given(self, name: str, rows: int) -> None:
        """Registers a table that was made by other means."""
        self._define(LazyRelation(name.lower(), None, kept=True, made=True, is_surely_empty=rows == 0))

    def ensure(self, sql: str) -> None:
        """Makes the relations that ``sql`` reads."""
        for word in find_words(sql):
            if word in self._relations:
                self._ensure(self._relations[word])

    def no_rows(self, sql: str) -> bool:
        """Returns whether ``sql`` certainly has no rows; may make some of the relations that it reads."""
        return find_rowless_condition(sql)(self.known) or find_rowless_condition(sql)(self.is_surely_empty)

    def known(self, name: str) -> bool:
        """Returns whether a relation is known to have no rows, without making any."""
        relation = self._relations.get(name)
        if relation is None:
            return False
        if relation.is_surely_empty is None and _is_made_of_empty(relation, self.known):
            relation.is_surely_empty = True
        return relation.is_surely_empty is True

    def is_surely_empty(self, name: str) -> bool:
        """Returns whether a relation certainly has no rows; makes a table if necessary."""
        relation = self._relations.get(name)
        if relation is None:
            return False
        if relation.is_surely_empty is None:
            if self._none(relation):
                relation.is_surely_empty = True
            elif relation.kept:
                self._ensure(relation)
        return relation.is_surely_empty is True

    def _none(self, relation: LazyRelation) -> bool:
        return _is_made_of_empty(relation, self.known) or _is_made_of_empty(relation, self.is_surely_empty)

    def _ensure(self, relation: LazyRelation) -> None:
        if relation.made or relation.sql is None:
            return
        if relation.kept and relation.is_surely_empty is None:
            relation.is_surely_empty = self._none(relation) or None
        for name in relation.reads:
            self._ensure(self._relations[name])
        rows = self._make(relation)
        relation.made = True
        if rows is not None:
            relation.is_surely_empty = rows == 0

    def _release(self, name: str) -> None:
        """Must be called before ``name`` stands for another relation."""
        readers = list(self._reading(name))
        for reader in readers:
            if reader.kept:
                self._ensure(reader)
        for reader in readers:
            reader.current = False
            if not reader.kept:
                reader.made, reader.is_surely_empty = False, None

    def _define(self, new: LazyRelation) -> None:
        former = self._relations.get(new.name)
        if former is not None:
            self._release(new.name)
            for name in former.reads:
                self._readers[name].discard(new.name)
        self._relations[new.name] = new
        for name in new.reads:
            self._readers.setdefault(name, set()).add(new.name)

    def _reading(self, name: str) -> Iterator[LazyRelation]:
        """Yields the relations that read a relation, directly or through views."""
        for reader in self._readers.get(name, ()):
            relation = self._relations[reader]
            yield relation
            if not relation.kept:
                yield from self._reading(reader)


def _is_made_of_empty(relation: LazyRelation, lacks: IsEmpty) -> bool:
    """Returns whether a relation has no rows because relations that it reads have none.

    Relations declared later do not count: if they changed, this one would not be evaluated again.
    """
    return relation.sql is not None and find_rowless_condition(relation.sql)(
        lambda name: name in relation.reads and lacks(name)
    )
