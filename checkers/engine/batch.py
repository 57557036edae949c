"""Judges many small histories in one database, so that a query that they have in common runs once.

Each history needs some three hundred queries. With a few thousand rows, most of a query's cost is its planning.

1. The tables hold the rows of all runs' histories, with the run's number as an additional column.
2. An unchanged SQL text runs for all runs at once, as a lateral join with a table of the runs' numbers. Inside the
   join, each relation's name is bound to the rows of the current run (``_bind_names``). DuckDB turns the join into
   joins and windows over all runs.
3. Each history has its own engine (:class:`RunEngine`), which looks like an engine of this history alone.
4. A relation is identified by its text and by the relations that it reads. Equal declarations of two runs are one
   relation, created once. A declaration that differs, or reads rows of one run only, belongs to this run.
5. The first run that sends a query gets an answer for itself alone. When a second run repeats the query, it runs for
   all runs.
"""

from __future__ import annotations

import itertools
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
"""Maximum number of texts in ``_repeated_texts``."""
RUN: Final = "run_in_batch"
"""Name of the column with a run's number. No check may have a column of this name."""
_ORDERED: Final = re.compile(r"\border\s+by\b", re.IGNORECASE)
"""Matches a query whose rows may be ordered."""
_repeated_texts: set[str] = set()
"""Texts that more than one run of this process has queried. The next batch probably repeats them, so its first query of
such a text runs for all its runs."""


@dataclass(eq=False)
class BatchRelation:
    """A relation of all runs or of one. Once it exists, ``table_name`` has its rows, with the column :data:`RUN`."""

    number: int
    sql: str
    is_table: bool
    reads: Mapping[str, BatchRelation]
    """The relations that ``sql`` reads, by the names in ``sql``."""
    run: int | None = None
    """The only run that has this relation; None: all runs have it."""
    exists: bool = False
    is_surely_empty: bool | None = None
    """Whether the relation has no rows of any run. None: not yet known."""
    runs_with_rows: frozenset[int] = frozenset()
    """Valid for a table that exists."""

    @property
    def table_name(self) -> str:
        return f"batch_{self.number}"


class HistoryBatch:
    """The histories of a batch, numbered from 0. Load their tables first, and close the batch in the end.

    ``effects``: the total number of effects. If they are few, DuckDB does not optimize its plans.
    """

    def __init__(self, runs: int, effects: int) -> None:
        self._small = effects <= SMALL_ROWS
        # `lateral`: without the optimizers that are wrong for lateral joins
        self._duck = DuckDB(small=True) if self._small else DuckDB(threads=1, lateral=True)
        self._runs = runs
        self._relations: dict[tuple[object, ...], BatchRelation] = {}
        self._numbers = itertools.count(1)
        self._answers: dict[tuple[object, ...], dict[int, list[Row]]] = {}
        self._for_all: set[tuple[object, ...]] = set()
        """Queries already run for all runs. If the answer of a run is missing, the query runs for this run alone."""
        self._loaded: dict[str, BatchRelation] = {}
        self._duck.run(f"create or replace temporary table batch_runs as select range as {RUN} from range({runs})")

    def load(self, name: str, tables: Sequence[pa.Table]) -> None:
        """Loads the table ``name`` of each run. ``tables``: one per run, in order."""
        numbered = [
            table.add_column(0, RUN, pa.array([run] * table.num_rows, pa.int64())) for run, table in enumerate(tables)
        ]
        self._loaded[name] = self._load(pa.concat_tables(numbered), None)

    def engine(self, run: int) -> RunEngine:
        """Returns the engine for the judgement of one run."""
        return RunEngine(self, run, dict(self._loaded))

    def close(self) -> None:
        self._duck.close()

    def _load(self, rows: pa.Table, run: int | None) -> BatchRelation:
        relation = BatchRelation(next(self._numbers), "", True, {}, run, exists=True)
        self._duck.load(relation.table_name, rows, enums=run is None and not self._small)
        self._find_runs_with_rows(relation)
        return relation

    def load_for_run(self, run: int, rows: pa.Table) -> BatchRelation:
        return self._load(rows.add_column(0, RUN, pa.array([run] * rows.num_rows, pa.int64())), run)

    def declare(self, sql: str, reads: Mapping[str, BatchRelation], *, is_table: bool) -> BatchRelation:
        """Returns the relation with this text, which reads these other relations. It is created later, by ``_make``."""
        identity = (sql, is_table, *sorted((name, relation.number) for name, relation in reads.items()))
        if identity not in self._relations:
            runs = {relation.run for relation in reads.values() if relation.run is not None}
            number, only_run = next(self._numbers), next(iter(runs), None)
            self._relations[identity] = BatchRelation(number, sql, is_table, reads, only_run)
        return self._relations[identity]

    def is_surely_empty(self, relation: BatchRelation) -> bool:
        """Returns whether the relation certainly has no rows of any run. Creates tables if necessary."""
        if relation.is_surely_empty is None:
            if any(
                _lacks_input_rows(relation.sql, relation.reads, is_empty)
                for is_empty in (self._is_known_empty, self.is_surely_empty)  # the first function creates no table
            ):
                relation.is_surely_empty = True
            elif relation.is_table:
                self._make(relation)
        return relation.is_surely_empty is True

    def is_surely_empty_for(self, relation: BatchRelation, run: int) -> bool:
        """Returns whether the relation certainly has no rows of this run. Creates tables if necessary."""
        return self.is_surely_empty(relation) or (
            relation.is_table and relation.exists and run not in relation.runs_with_rows
        )

    def _is_known_empty(self, relation: BatchRelation) -> bool:
        """Returns whether the relation is known to have no rows of any run. Creates no relation."""
        is_undecided = relation.is_surely_empty is None and relation.sql
        if is_undecided and _lacks_input_rows(relation.sql, relation.reads, self._is_known_empty):
            relation.is_surely_empty = True
        return relation.is_surely_empty is True

    def has_no_rows(self, sql: str, reads: Mapping[str, BatchRelation], run: int) -> bool:
        """Returns whether a query certainly has no rows for this run."""
        return _lacks_input_rows(sql, reads, self._is_known_empty) or _lacks_input_rows(
            sql, reads, lambda relation: self.is_surely_empty_for(relation, run)
        )

    def rows(self, sql: str, reads: Mapping[str, BatchRelation], run: int) -> list[Row]:
        """Returns a query's rows for one run. A query that is repeated runs for all runs, and its answers are kept."""
        identity = (sql, *sorted((name, relation.number) for name, relation in reads.items()))
        answers = self._answers.setdefault(identity, {})
        if run not in answers:
            again = sql in _repeated_texts or bool(answers)  # a second run asks, or another batch repeated the text
            of_all = all(relation.run is None for relation in reads.values())
            if again and of_all and identity not in self._for_all:
                self._for_all.add(identity)
                if len(_repeated_texts) >= KEPT_TEXTS:
                    _repeated_texts.clear()
                _repeated_texts.add(sql)
                answers |= self._query_all(sql, reads)
            if run not in answers:
                answers[run] = self._duck.fetch(self._bind_names(sql, reads, str(run)))
        return answers[run]

    def arrow(self, sql: str, reads: Mapping[str, BatchRelation], run: int) -> pa.Table:
        return self._duck.arrow(self._bind_names(sql, reads, str(run)))

    def _query_all(self, sql: str, reads: Mapping[str, BatchRelation]) -> dict[int, list[Row]]:
        """Returns the rows by run.

        A run is missing if the query orders its rows, because the join loses the order. All runs are missing if DuckDB
        cannot run the text for all runs at once.
        """
        found: dict[int, list[Row]] = {run: [] for run in range(self._runs)}
        try:
            rows = self._duck.fetch(self._to_lateral_join(sql, reads, None))
        except EngineError:
            return {}
        for row in rows:
            found[row[RUN]].append({name: row[name] for name in row if name != RUN})
        ordered = _ORDERED.search(sql) is not None
        return {run: rows for run, rows in found.items() if len(rows) < 2 or not ordered}

    def _to_lateral_join(self, sql: str, reads: Mapping[str, BatchRelation], run: int | None) -> str:
        """Returns SQL that runs the text for all runs, or only for ``run``. The first column is the run's number."""
        runs = "batch_runs" if run is None else f"(select {run} as {RUN})"
        inner = self._bind_names(sql, reads, f"runs.{RUN}")
        return f"select runs.{RUN}, each.* from {runs} as runs cross join lateral ({inner}) as each"

    def _bind_names(self, sql: str, reads: Mapping[str, BatchRelation], run: str) -> str:
        """Returns the text with each relation's name bound to the rows of one run. ``run``: SQL for its number."""
        if not reads:
            return sql
        for relation in reads.values():
            self._make(relation)
        bindings = ", ".join(
            f"{name} as not materialized (select * exclude ({RUN}) from {relation.table_name} where {RUN} = {run})"
            for name, relation in reads.items()
        )
        return f"with {bindings} select * from ({sql}) as text"

    def _make(self, relation: BatchRelation) -> None:
        """Creates the relation in DuckDB for all its runs, unless it exists."""
        if relation.exists:
            return
        if relation.is_table and relation.is_surely_empty is None:
            # None instead of False: known inputs do not prove it empty, but the query may still return no rows.
            relation.is_surely_empty = _lacks_input_rows(relation.sql, relation.reads, self._is_known_empty) or None
        sql = self._to_lateral_join(relation.sql, relation.reads, relation.run)
        kind = "table" if relation.is_table else "view"
        is_empty = relation.is_table and relation.is_surely_empty
        limit = " limit 0" if is_empty else ""  # avoids the work of a query that has no rows
        self._duck.run(f"create or replace temporary {kind} {relation.table_name} as {sql}{limit}")
        relation.exists = True
        if relation.is_table:
            self._find_runs_with_rows(relation)

    def _find_runs_with_rows(self, relation: BatchRelation) -> None:
        rows = self._duck.fetch(f"select distinct {RUN} from {relation.table_name}")
        relation.runs_with_rows = frozenset(row[RUN] for row in rows)
        relation.is_surely_empty = not relation.runs_with_rows


def _lacks_input_rows(sql: str, reads: Mapping[str, BatchRelation], is_empty: Callable[[BatchRelation], bool]) -> bool:
    """Returns whether a text has no rows because relations that it reads are empty."""
    has_no_rows = find_rowless_condition(sql)
    return has_no_rows(lambda name: name in reads and is_empty(reads[name]))


class RunEngine:
    """Engine for one history of a batch."""

    name = "duckdb"

    def __init__(self, batch: HistoryBatch, run: int, names: dict[str, BatchRelation]) -> None:
        self._batch = batch
        self._run = run
        self._names = names

    def register(self, name: str, parts: Sequence[Path], schema: pa.Schema) -> None:
        raise EngineError(f"{name} of a history in a batch must be loaded before its judgement, not from {list(parts)}")

    def view(self, name: str, sql: str) -> None:
        self._names[name.lower()] = self._batch.declare(sql, self._find_read(sql), is_table=False)

    def table(self, name: str, sql: str, *, high_cardinality: bool = False) -> None:
        self._names[name.lower()] = self._batch.declare(sql, self._find_read(sql), is_table=True)

    def has_loaded(self, name: str) -> bool:
        return name in self._names

    def is_surely_empty(self, name: str) -> bool:
        return self._batch.is_surely_empty_for(self._names[name.lower()], self._run)

    def rows(self, sql: str) -> list[Row]:
        reads = self._find_read(sql)
        if self._batch.has_no_rows(sql, reads, self._run):
            return []
        return self._batch.rows(sql, reads, self._run)

    def arrow(self, sql: str) -> pa.Table:
        return self._batch.arrow(sql, self._find_read(sql), self._run)

    def load(self, name: str, rows: pa.Table) -> None:
        self._names[name.lower()] = self._batch.load_for_run(self._run, rows)

    def validation_engine(self) -> AbstractContextManager[Engine]:
        return nullcontext(self)

    def close(self) -> None:
        """Does nothing, because the other histories still need the batch."""

    def _find_read(self, sql: str) -> dict[str, BatchRelation]:
        """Returns the relations that a text reads, by name."""
        return {word: self._names[word] for word in find_words(sql) if word in self._names}
