"""Judges subsets of the keys separately and combines the answers for all keys.

Families with ``Family.by_key`` can be judged on any subset of keys; the union of the results equals the result for all
keys.

1. An engine that partitions the effects by key (``SupportsPartitioning``) runs their queries on each part.
2. A query that reads data of other keys (``reads_beyond_key``) runs for all keys as usual.
3. The tables of the parts that such a query reads are joined into one table for all keys, if they have few rows. Nearly
   all tables of violations have few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from assay.checkers.check import (
    Answer,
    Check,
    Family,
    PreparedByIteration,
    PreparedTables,
    UndecidedKeys,
    View,
    create_views,
    read_evidence,
)
from assay.checkers.engine import Engine, Row
from assay.checkers.engine.empty_relations import find_all_words, find_rowless_condition, find_words
from assay.checkers.exposure import add_counts, read_count
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import MOST_FINDINGS
from assay.checkers.objects.kinds import KIND_COUNTS

if TYPE_CHECKING:
    import pyarrow as pa

FEW_ROWS: Final = 50_000
"""Maximum number of rows, over all keys, of a table that is copied from the parts."""

_TABLES_OF_COVERAGE: Final = ("log_settled", "register_rows", "log_sends")
"""Tables that ``assay.checkers.judging.coverage`` reads."""


@dataclass
class PartitionAnswers:
    """Answers by anomaly, and copied tables by name. A table with too many rows is None."""

    checks: dict[str, Answer] = field(default_factory=dict)
    tables: dict[str, pa.Table | None] = field(default_factory=dict)

    def is_surely_empty(self, name: str) -> bool:
        """Returns whether this is a copied table without rows."""
        table = self.tables.get(name)
        return table is not None and table.num_rows == 0


@dataclass(frozen=True)
class PartitionQuestion:
    """Runs the checks of some families on one part of a history.

    ``kinds``: the kinds of effects of all keys. ``skipped``: anomalies that are not queried.
    """

    contract: Contract
    families: tuple[str, ...]
    kinds: frozenset[str]
    skipped: frozenset[str] = frozenset()

    def __call__(self, engine: Engine) -> PartitionAnswers:
        """Answers for the keys whose effects ``engine`` has."""
        create_views(engine, (KIND_COUNTS,))
        register_contract(engine, self.contract)
        answers, made = PartitionAnswers(), set[str]()
        for family in FAMILIES:
            if family.name in self.families:
                made |= self._ask(engine, family, answers)
        answers.tables = {name: _read_small_table(engine, name) for name in sorted(made & _find_wanted_tables())}
        return answers

    def _ask(self, engine: Engine, family: Family, answers: PartitionAnswers) -> set[str]:
        """Queries a family. Returns the tables that it created."""
        create_views(engine, family.views)
        if family.prepare is not None:
            family.prepare(engine)
        own = _find_own_tables(family.shared_views)
        if isinstance(family.prepare, PreparedByIteration):
            own.add(family.prepare.undecided_keys.table)
        for check in family.checks:
            answers.checks[check.anomaly] = answer = Answer()
            if check.anomaly in self.skipped or (check.kinds and not self.kinds.intersection(check.kinds)):
                continue
            create_views(engine, check.views)
            own |= _find_own_tables(check.views)
            if not reads_beyond_key(check.examined):
                (row,) = engine.rows(check.examined)
                answer.examined = int(next(iter(row.values())))
            # Exposed claims are those that a read of the history could have contradicted.
            if check.exposure is not None and not reads_beyond_key(check.exposure.rows):
                (row,) = engine.rows(check.exposure.totals)
                answer.exposure = read_count(row)
            if reads_beyond_key(check.found):
                continue
            answer.instances = 0 if engine.is_surely_empty(check.found) else _count_rows(engine, check.found)
            if not answer.instances:
                answer.evidence_rows = []
            elif (views := _find_cross_key_views(check.evidence)) is not None and all(
                _is_empty(view, engine.is_surely_empty) for view in views
            ):
                answer.evidence_rows = read_evidence(engine, check)
        return own


def combine_answers(parts: Sequence[PartitionAnswers]) -> PartitionAnswers:
    """Combines the answers for all parts into the answers for all keys."""
    combined = PartitionAnswers(
        tables={name: _concat_tables([part.tables[name] for part in parts]) for name in parts[0].tables}
    )
    for anomaly in parts[0].checks:
        answers = [part.checks[anomaly] for part in parts]
        instances = _sum_known([answer.instances for answer in answers])
        first = _merge_first([answer.evidence_rows for answer in answers])
        if instances and not all(
            _is_empty(view, combined.is_surely_empty)
            for view in _find_cross_key_views(_index_checks()[anomaly].evidence) or ()
        ):
            first = None  # a part chose its evidence as if this relation were empty, but it has rows in another part
        exposures = [answer.exposure for answer in answers if answer.exposure is not None]
        combined.checks[anomaly] = Answer(
            _sum_known([answer.examined for answer in answers]),
            instances,
            first,
            add_counts(exposures) if len(exposures) == len(answers) else None,
        )
    return combined


def select_divisible(families: Sequence[Family]) -> list[Family]:
    """Returns the built-in families that can be judged by key."""
    return [family for family in families if family.by_key and family in FAMILIES]


_GLOBAL_TABLES: Final = frozenset({"ops", "events", "replicas", "looks"})
"""Tables that are complete only if all keys are queried at once."""


@lru_cache(2_000)
def reads_beyond_key(text: str) -> bool:
    """Returns whether an SQL text reads data of other keys, directly or through other relations."""
    return _find_cross_key_views(text) != ()


@lru_cache(2_000)
def _find_cross_key_views(text: str) -> tuple[View, ...] | None:
    """Returns the relations through which an SQL text reads data of other keys. None if it reads ``_GLOBAL_TABLES``."""
    read = find_all_words((text,), {name: view.sql for name, view in _index_views().items()})
    if not _GLOBAL_TABLES.isdisjoint(read):
        return None
    return tuple(
        view for name in sorted(read) if (view := _index_views().get(name)) is not None and view.reads_other_keys
    )


def _is_empty(view: View, is_copy_empty: Callable[[str], bool]) -> bool:
    """Returns whether a relation certainly has no rows for any key. ``is_copy_empty``: says whether a copied table is
    empty."""
    return find_rowless_condition(view.sql)(lambda name: name in _find_wanted_tables() and is_copy_empty(name))


@lru_cache(1)
def _index_views() -> Mapping[str, View]:
    return {view.name: view for family in FAMILIES for view in _list_views(family)}


@lru_cache(1)
def _index_checks() -> Mapping[str, Check]:
    return {check.anomaly: check for family in FAMILIES for check in family.checks}


def _list_views(family: Family) -> list[View]:
    of_checks = (view for check in family.checks for view in (*check.views, *check.evidence_views))
    return [*family.shared_views, *of_checks]


def _find_own_tables(views: Iterable[View]) -> set[str]:
    """Returns the tables whose rows depend only on their own key. ``views``: of a family that is judged by key."""
    return {view.name for view in views if view.keep and not reads_beyond_key(view.name)}


@lru_cache(1)
def _find_wanted_tables() -> frozenset[str]:
    """Returns the tables that are computed key by key, and that a query over all keys reads, in any family."""
    own = _find_own_tables(view for family in FAMILIES if family.by_key for view in _list_views(family))
    own |= {
        family.prepare.undecided_keys.table for family in FAMILIES if isinstance(family.prepare, PreparedByIteration)
    }
    texts = [*_TABLES_OF_COVERAGE, *(text for family in FAMILIES for text in _find_global_texts(family))]
    found: set[str] = set()
    seen: set[str] = set()
    while texts:
        for word in find_words(texts.pop()):
            if word in own:
                found.add(word)
            elif word not in seen and word in _index_views():
                seen.add(word)
                texts.append(_index_views()[word].sql)
    return frozenset(found)


def _find_global_texts(family: Family) -> Iterator[str]:
    """Yields the SQL texts, and names of tables, that are read for all keys at once."""
    if isinstance(family.prepare, PreparedByIteration):
        yield family.prepare.undecided_keys.table
    elif isinstance(family.prepare, PreparedTables) and isinstance(family.prepare.doubts, UndecidedKeys):
        yield family.prepare.doubts.table
    for check in family.checks:
        counted = "" if check.exposure is None else check.exposure.rows
        for text in (check.examined, counted, check.found, check.evidence):
            if not family.by_key or reads_beyond_key(text):
                yield text


def _read_small_table(engine: Engine, name: str) -> pa.Table | None:
    """Returns a table, unless it has many rows."""
    if not engine.is_surely_empty(name) and _count_rows(engine, name) > FEW_ROWS:
        return None
    return engine.arrow(f"select * from {name}")


def _count_rows(engine: Engine, table: str) -> int:
    (row,) = engine.rows(f"select count(*) as many from {table}")
    return int(row["many"])


def _sum_known(numbers: Sequence[int | None]) -> int | None:
    """Returns the sum, or None if a number is unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _merge_first(parts: Sequence[Sequence[Row] | None]) -> list[Row] | None:
    if any(rows is None for rows in parts):
        return None
    return sorted((row for rows in parts for row in rows or ()), key=lambda row: str(row["key"]))[:MOST_FINDINGS]


def _concat_tables(parts: Sequence[pa.Table | None]) -> pa.Table | None:
    import pyarrow as pa

    tables = [table for table in parts if table is not None]
    if len(tables) < len(parts) or sum(table.num_rows for table in tables) > FEW_ROWS:
        return None
    return pa.concat_tables(tables, promote_options="permissive")
