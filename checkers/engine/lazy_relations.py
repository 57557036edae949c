"""Relations that are created only when a query reads them. A relation may be known to be empty before that.

A judgement declares some three hundred views and tables. Many are never read, because the history has no such data, or
because the query that reads them certainly has no rows (``empty_relations``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from assay.checkers.engine.empty_relations import IsEmpty, find_rowless_condition, find_words

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class LazyRelation:
    """A declared view or table. Names in ``sql`` keep the meaning that they had at its declaration."""

    name: str
    sql: str | None
    """None for a table that the engine has filled itself."""
    is_table: bool
    reads: tuple[str, ...] = ()
    """The relations that ``sql`` names. May have too many names, because a column may have the name of a relation."""
    exists: bool = False
    is_surely_empty: bool | None = None
    """Whether the relation has no rows. None: not yet known."""
    is_current: bool = True
    """False if a relation that it reads has been redefined since its declaration."""


class LazyRelations:
    """The relations of a session, by name. A new definition of a name replaces the earlier one."""

    def __init__(self, make: Callable[[LazyRelation], int | None]) -> None:
        """``make`` creates a relation whose inputs exist. It returns the number of rows of a table, and None for a
        view."""
        self._make = make
        self._relations: dict[str, LazyRelation] = {}
        self._readers: dict[str, set[str]] = {}
        """By name, the names of the relations that read it directly."""

    def declare(self, name: str, sql: str, *, is_table: bool) -> None:
        """Declares a relation. Does nothing if it is already declared, and no relation that it reads was redefined."""
        name = name.lower()
        former = self._relations.get(name)
        if former is not None and former.is_current and (former.sql, former.is_table) == (sql, is_table):
            return
        reads = tuple(word for word in find_words(sql) if word != name and word in self._relations)
        self._define(LazyRelation(name, sql, is_table, reads))

    def prepare_redefinition(self, name: str) -> None:
        """Creates the tables that read the present relation of this name, because they must not read the next one.

        The engine must call this method before it fills a table of this name itself, and :meth:`register_table` after.
        """
        readers = list(self._find_readers(name.lower()))
        for reader in readers:
            if reader.is_table:
                self._ensure(reader)
        for reader in readers:
            reader.is_current = False
            if not reader.is_table:
                reader.exists, reader.is_surely_empty = False, None

    def register_table(self, name: str, rows: int) -> None:
        """Registers a table that the engine has filled itself."""
        self._define(LazyRelation(name.lower(), None, is_table=True, exists=True, is_surely_empty=rows == 0))

    def ensure(self, sql: str) -> None:
        """Creates the relations that ``sql`` reads."""
        for word in find_words(sql):
            if word in self._relations:
                self._ensure(self._relations[word])

    def has_no_rows(self, sql: str) -> bool:
        """Returns whether ``sql`` certainly has no rows. May create some of the relations that it reads."""
        return find_rowless_condition(sql)(self.is_known_empty) or find_rowless_condition(sql)(self.is_surely_empty)

    def is_known_empty(self, name: str) -> bool:
        """Returns whether a relation is known to have no rows. Creates no relation."""
        relation = self._relations.get(name)
        if relation is None:
            return False
        if relation.is_surely_empty is None and _lacks_input_rows(relation, self.is_known_empty):
            relation.is_surely_empty = True
        return relation.is_surely_empty is True

    def is_surely_empty(self, name: str) -> bool:
        """Returns whether a relation certainly has no rows. Creates tables if necessary."""
        relation = self._relations.get(name)
        if relation is None:
            return False
        if relation.is_surely_empty is None:
            if self._lacks_input_rows(relation):
                relation.is_surely_empty = True
            elif relation.is_table:
                self._ensure(relation)
        return relation.is_surely_empty is True

    def _lacks_input_rows(self, relation: LazyRelation) -> bool:
        return _lacks_input_rows(relation, self.is_known_empty) or _lacks_input_rows(relation, self.is_surely_empty)

    def _ensure(self, relation: LazyRelation) -> None:
        if relation.exists or relation.sql is None:
            return
        if relation.is_table and relation.is_surely_empty is None:
            relation.is_surely_empty = self._lacks_input_rows(relation) or None
        for name in relation.reads:
            self._ensure(self._relations[name])
        rows = self._make(relation)
        relation.exists = True
        if rows is not None:
            relation.is_surely_empty = rows == 0

    def _define(self, new: LazyRelation) -> None:
        former = self._relations.get(new.name)
        if former is not None:
            self.prepare_redefinition(new.name)
            for name in former.reads:
                self._readers[name].discard(new.name)
        self._relations[new.name] = new
        for name in new.reads:
            self._readers.setdefault(name, set()).add(new.name)

    def _find_readers(self, name: str) -> Iterator[LazyRelation]:
        """Yields the relations that read a relation, directly or through views."""
        for reader in self._readers.get(name, ()):
            relation = self._relations[reader]
            yield relation
            if not relation.is_table:
                yield from self._find_readers(reader)


def _lacks_input_rows(relation: LazyRelation, is_empty: IsEmpty) -> bool:
    """Returns whether a relation has no rows because relations that it reads have none.

    Relations that were declared later do not count, because the result would not be updated when they change.
    """
    return relation.sql is not None and find_rowless_condition(relation.sql)(
        lambda name: name in relation.reads and is_empty(name)
    )


class LazyEngine(ABC):
    """Base class of engines: a context manager that creates relations when a query reads them."""

    def __init__(self) -> None:
        self._relations = LazyRelations(self._make)
        self._preset: dict[str, pa.Table] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def view(self, name: str, sql: str) -> None:
        self._relations.declare(name, sql, is_table=False)

    def table(self, name: str, sql: str, *, high_cardinality: bool = False) -> None:
        if name in self._preset:
            self.load(name, self._preset[name])
        else:
            self._relations.declare(name, sql, is_table=True)

    def preset_tables(self, tables: Mapping[str, pa.Table]) -> None:
        self._preset.update(tables)

    def has_loaded(self, name: str) -> bool:
        return False

    def is_surely_empty(self, name: str) -> bool:
        return self._relations.is_surely_empty(name)

    def validation_engine(self) -> AbstractContextManager[Any]:
        return nullcontext(self)

    @abstractmethod
    def load(self, name: str, rows: pa.Table) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _make(self, relation: LazyRelation) -> int | None:
        """Creates a relation, as :class:`LazyRelations` says."""
