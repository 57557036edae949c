"""Judges many small histories in one database, so that a query common to them all runs once.

A query on a few thousand rows costs as much as its planning, and each history needs some three hundred queries.

1. The tables hold the rows of all histories, with the run's number as an additional column.
2. An unchanged SQL text runs for all runs at once, as a lateral join with a table of the runs' numbers. Names stand for
   the rows of one run each. DuckDB turns it into joins and windows over all runs.
3. Each history has an engine of its own (:class:`RunEngine`), which judges as if it were alone.
4. A relation is identified by its text and by the relations that it reads. Equal declarations of two runs are one
   relation, made once. A declaration that differs, or reads rows that only one run has, belongs to that run.
5. A query that a second run repeats is run for all runs; a query of a single run is run for that run alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from assay.checkers.engine.base import Engine, EngineError, Row
from assay.checkers.engine.duck import SMALL_ROWS, DuckDB
from assay.checkers.engine.empty_relations import find_rowless_condition, find_words
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LazyModule("pyarrow")

KEPT_TEXTS: Final = 4_000
RUN: Final = "run_in_batch"
"""The column with a run's number. No check may have a column of this name."""
_ORDERED: Final = re.compile(r"\border\s+by\b", re.IGNORECASE)
_asked_again: set[str] = set()
"""Texts that more than one run of this process has queried."""


@dataclass(eq=False)
class Node:
    """A relation of all runs or of one. Once made, ``table`` has its rows, with the column :data:`RUN`."""

    number: int
    sql: str
    kept: bool
    reads: Mapping[str, Node]
    run: int | None = None
    """The only run that has it; None: all have."""
    made: bool = False
    is_surely_empty: bool | None = None
    """Whether it has no rows of any run; None: unknown so far."""
    filled: frozenset[int] = frozenset()
    """The runs that have rows in it, once it is made and kept."""

    @property
    def table(self) -> str:
        return f"together_{self.number}"


class HistoryBatch:
    """The histories of a batch, by number from 0. Load their tables first, and close the object.

    ``effects`` is the total number. With few of them DuckDB plans quickly, with many it plans well.
    """

    def __init__(self, runs: int, effects: int) -> None:
        self._small = effects <= SMALL_ROWS
        self._duck = DuckDB(small=True) if self._small else DuckDB(threads=1, lateral=True)
        self._runs = runs
        self._nodes: dict[tuple[object, ...], Node] = {}
        self._made = 0
        self._answers: dict[tuple[object, ...], dict[int, list[Row]]] = {}
        self._for_all: set[tuple[object, ...]] = set()
        """Queries already run for all runs; an answer that is missing then is queried for its run alone."""
        self._base: dict[str, Node] = {}
        self._duck.run(f"create or replace temporary table together_runs as select range as {RUN} from range({runs})")

    def load(self, name: str, tables: Sequence[pa.Table]) -> None:
        """Loads the table ``name`` of each run, in their order."""
        numbered = [
            table.add_column(0, RUN, pa.array([run] * table.num_rows, pa.int64())) for run, table in enumerate(tables)
        ]
        self._base[name] = self._loaded(pa.concat_tables(numbered), None)

    def engine(self, run: int) -> RunEngine:
        """Returns the engine for the judgement of one run."""
        return RunEngine(self, run, dict(self._base))

    def close(self) -> None:
        self._duck.close()

    def _loaded(self, rows: pa.Table, run: int | None) -> Node:
        node = Node(self._next(), "", True, {}, run, made=True)
        self._duck.load(node.table, rows, coded=run is None and not self._small)
        self._count(node)
        return node

    def load_alone(self, run: int, rows: pa.Table) -> Node:
        return self._loaded(rows.add_column(0, RUN, pa.array([run] * rows.num_rows, pa.int64())), run)

    def node(self, sql: str, reads: Mapping[str, Node], *, kept: bool) -> Node:
        """Returns the relation of this text over these other relations."""
        identity = (sql, kept, *sorted((name, node.number) for name, node in reads.items()))
        if identity not in self._nodes:
            alone = {node.run for node in reads.values() if node.run is not None}
            self._nodes[identity] = Node(self._next(), sql, kept, reads, next(iter(alone), None))
        return self._nodes[identity]

    def is_surely_empty(self, node: Node) -> bool:
        """Returns whether the relation certainly has no rows of any run; makes a table if necessary."""
        if node.is_surely_empty is None:
            if self._none(node.sql, node.reads, self._known) or self._none(node.sql, node.reads, self.is_surely_empty):
                node.is_surely_empty = True
            elif node.kept:
                self._make(node)
        return node.is_surely_empty is True

    def _known(self, node: Node) -> bool:
        if node.is_surely_empty is None and node.sql and self._none(node.sql, node.reads, self._known):
            node.is_surely_empty = True
        return node.is_surely_empty is True

    @staticmethod
    def _none(sql: str, reads: Mapping[str, Node], lacks: Callable[[Node], bool]) -> bool:
        return find_rowless_condition(sql)(lambda name: name in reads and lacks(reads[name]))

    def no_rows(self, sql: str, reads: Mapping[str, Node], run: int) -> bool:
        """Returns whether a query certainly has no rows for this run."""

        def absent(node: Node) -> bool:
            return self.is_surely_empty(node) or (node.kept and node.made and run not in node.filled)

        return self._none(sql, reads, self._known) or self._none(sql, reads, absent)

    def rows(self, sql: str, reads: Mapping[str, Node], run: int) -> list[Row]:
        identity = (sql, *sorted((name, node.number) for name, node in reads.items()))
        answers = self._answers.setdefault(identity, {})
        if run not in answers:
            again = sql in _asked_again or bool(answers)
            if again and identity not in self._for_all and not any(node.run is not None for node in reads.values()):
                self._for_all.add(identity)
                if len(_asked_again) >= KEPT_TEXTS:
                    _asked_again.clear()
                _asked_again.add(sql)
                answers |= self._of_all(sql, reads)
            if run not in answers:
                answers[run] = self._duck.fetched(self._of_one(sql, reads, run))
        return answers[run]

    def arrow(self, sql: str, reads: Mapping[str, Node], run: int) -> pa.Table:
        return self._duck.arrow(self._of_one(sql, reads, run))

    def _of_all(self, sql: str, reads: Mapping[str, Node]) -> dict[int, list[Row]]:
        """Returns the rows by run.

        A run is missing if its rows may have an order, which is lost here. All are missing if DuckDB cannot run the
        text for all runs at once.
        """
        found: dict[int, list[Row]] = {run: [] for run in range(self._runs)}
        try:
            rows = self._duck.fetched(self._lifted(sql, reads, None))
        except EngineError:
            return {}
        for row in rows:
            found[row[RUN]].append({name: row[name] for name in row if name != RUN})
        ordered = _ORDERED.search(sql) is not None
        return {run: rows for run, rows in found.items() if len(rows) < 2 or not ordered}

    def _of_one(self, sql: str, reads: Mapping[str, Node], run: int) -> str:
        return self._named(sql, reads, str(run))

    def _lifted(self, sql: str, reads: Mapping[str, Node], run: int | None) -> str:
        runs = "together_runs" if run is None else f"(select {run} as {RUN})"
        inner = self._named(sql, reads, f"runs.{RUN}")
        return f"select runs.{RUN}, each.* from {runs} as runs cross join lateral ({inner}) as each"

    def _named(self, sql: str, reads: Mapping[str, Node], run: str) -> str:
        """Returns the text with each name standing for the rows of one run."""
        if not reads:
            return sql
        for node in reads.values():
            self._make(node)
        given = ", ".join(
            f"{name} as not materialized (select * exclude ({RUN}) from {node.table} where {RUN} = {run})"
            for name, node in reads.items()
        )
        return f"with {given} select * from ({sql}) as text"

    def _make(self, node: Node) -> None:
        if node.made:
            return
        if node.kept and node.is_surely_empty is None:
            node.is_surely_empty = self._none(node.sql, node.reads, self._known) or None
        lifted = self._lifted(node.sql, node.reads, node.run)
        kind = "table" if node.kept else "view"
        none = " limit 0" if node.kept and node.is_surely_empty else ""
        self._duck.run(f"create or replace temporary {kind} {node.table} as {lifted}{none}")
        node.made = True
        if node.kept:
            self._count(node)

    def _count(self, node: Node) -> None:
        node.filled = frozenset(row[RUN] for row in self._duck.fetched(f"select distinct {RUN} from {node.table}"))
        node.is_surely_empty = not node.filled

    def _next(self) -> int:
        self._made += 1
        return self._made


class RunEngine:
    """Engine for one history of a batch."""

    name = "duckdb"

    def __init__(self, together: HistoryBatch, run: int, names: dict[str, Node]) -> None:
        self._together = together
        self._run = run
        self._names = names

    def register(self, name: str, parts: Sequence[Path], schema: pa.Schema) -> None:
        raise EngineError(f"{name} of a history in a batch must be loaded before its judgement, not from {list(parts)}")

    def view(self, name: str, sql: str) -> None:
        self._names[name.lower()] = self._together.node(sql, self._reads(sql), kept=False)

    def table(self, name: str, sql: str, *, high_cardinality: bool = False) -> None:
        self._names[name.lower()] = self._together.node(sql, self._reads(sql), kept=True)

    def has_loaded(self, name: str) -> bool:
        return name in self._names

    def is_surely_empty(self, name: str) -> bool:
        node = self._names[name.lower()]
        return self._together.is_surely_empty(node) or (node.kept and node.made and self._run not in node.filled)

    def rows(self, sql: str) -> list[Row]:
        reads = self._reads(sql)
        if self._together.no_rows(sql, reads, self._run):
            return []
        return self._together.rows(sql, reads, self._run)

    def arrow(self, sql: str) -> pa.Table:
        return self._together.arrow(sql, self._reads(sql), self._run)

    def load(self, name: str, rows: pa.Table) -> None:
        self._names[name.lower()] = self._together.load_alone(self._run, rows)

    def validation_engine(self) -> AbstractContextManager[Engine]:
        return nullcontext(self)

    def close(self) -> None:
        """The others of the batch continue."""

    def _reads(self, sql: str) -> dict[str, Node]:
        return {word: self._names[word] for word in find_words(sql) if word in self._names}
