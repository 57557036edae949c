"""What can be asked of some keys at a time, and the answers for all keys put together.

Families that say so (``Family.by_key``) judge each key by that key's effects alone, so the rows of their tables for all
keys are those for some keys and those for the others. An engine that shares out the effects by key
(``SupportsPartitioning``) is asked nothing that was answered so. What of such a family looks beyond its key, as its
texts say (``beyond``), is asked of all as ever; the tables that it reads are brought along where they have few rows, as
nearly all that may accuse someone do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from assay.checkers.check import MOST_FINDINGS, Answer, Check, Doubts, Family, Prepared, Rounds, View, build, evidence
from assay.checkers.engine import Engine, Row
from assay.checkers.engine.empty_relations import all_words, rowless, words
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.objects.kinds import KINDS

if TYPE_CHECKING:
    import pyarrow as pa

FEW_ROWS: Final = 50_000
"""Of a table, those of all keys that are brought along at most."""

_COVERAGE: Final = ("log_settled", "register_rows", "log_sends")
"""What is read besides by the checks."""


@dataclass
class Answers:
    """By anomaly, and by name those tables that are brought along; None: it has too many rows."""

    checks: dict[str, Answer] = field(default_factory=dict)
    tables: dict[str, pa.Table | None] = field(default_factory=dict)

    def lacks(self, name: str) -> bool:
        """Whether it is a table that has no rows."""
        table = self.tables.get(name)
        return table is not None and table.num_rows == 0


@dataclass(frozen=True)
class Question:
    """``kinds``: of the effects of all keys. ``skipped``: anomalies that are not asked for."""

    contract: Contract
    families: tuple[str, ...]
    kinds: frozenset[str]
    skipped: frozenset[str] = frozenset()

    def __call__(self, engine: Engine) -> Answers:
        """Of the keys whose effects ``engine`` has."""
        build(engine, (KINDS,))
        register_contract(engine, self.contract)
        answers, made = Answers(), set[str]()
        for family in FAMILIES:
            if family.name in self.families:
                made |= self._ask(engine, family, answers)
        answers.tables = {name: _brought(engine, name) for name in sorted(made & _wanted())}
        return answers

    def _ask(self, engine: Engine, family: Family, answers: Answers) -> set[str]:
        """The tables that were made."""
        build(engine, family.views)
        if family.prepare is not None:
            family.prepare(engine)
        own = _own(_shared(family))
        if isinstance(family.prepare, Rounds):
            own.add(family.prepare.doubts.table)
        for check in family.checks:
            answers.checks[check.anomaly] = answer = Answer()
            if check.anomaly in self.skipped or (check.kinds and not self.kinds.intersection(check.kinds)):
                continue
            build(engine, check.views)
            own |= _own(check.views)
            if not beyond(check.examined):
                (row,) = engine.rows(check.examined)
                answer.examined = int(next(iter(row.values())))
            if beyond(check.found):
                continue
            answer.instances = 0 if engine.lacks(check.found) else _count(engine, check.found)
            if not answer.instances:
                answer.first = []
            elif (views := _across(check.evidence)) is not None and all(_none(view, engine.lacks) for view in views):
                answer.first = evidence(engine, check)
        return own


def together(parts: Sequence[Answers]) -> Answers:
    """The answers for all keys."""
    whole = Answers(tables={name: _all([part.tables[name] for part in parts]) for name in parts[0].tables})
    for anomaly in parts[0].checks:
        given = [part.checks[anomaly] for part in parts]
        instances = _sum([one.instances for one in given])
        first = _first([one.first for one in given])
        if instances and not all(_none(view, whole.lacks) for view in _across(_checks()[anomaly].evidence) or ()):
            first = None  # what one part lacked another one has
        whole.checks[anomaly] = Answer(_sum([one.examined for one in given]), instances, first)
    return whole


def divisible(families: Sequence[Family]) -> list[Family]:
    """Of these, the built-in ones that are judged by key."""
    return [family for family in families if family.by_key and family in FAMILIES]


_OF_ALL: Final = frozenset({"ops", "events", "replicas", "looks"})
"""Data sets that only those have who ask of all keys."""


@lru_cache(2_000)
def beyond(text: str) -> bool:
    """Whether what a text reads, by way of other relations, too, is more than each key's own."""
    return _across(text) != ()


@lru_cache(2_000)
def _across(text: str) -> tuple[View, ...] | None:
    """The relations that make it so; None: it reads what is not there for some keys alone."""
    read = all_words((text,), {name: view.sql for name, view in _views().items()})
    if not _OF_ALL.isdisjoint(read):
        return None
    return tuple(view for name in sorted(read) if (view := _views().get(name)) is not None and view.across)


def _none(view: View, lacks: Callable[[str], bool]) -> bool:
    """Whether a relation has no rows for all keys, if this is so of the tables that ``lacks`` says."""
    return rowless(view.sql)(lambda name: name in _wanted() and lacks(name))


@lru_cache(1)
def _views() -> Mapping[str, View]:
    return {view.name: view for family in FAMILIES for view in _made(family)}


@lru_cache(1)
def _checks() -> Mapping[str, Check]:
    return {check.anomaly: check for family in FAMILIES for check in family.checks}


def _made(family: Family) -> list[View]:
    of_checks = (view for check in family.checks for view in (*check.views, *check.evidence_views))
    return [*_shared(family), *of_checks]


def _shared(family: Family) -> list[View]:
    """What several of its checks read."""
    return [*family.views, *(family.prepare.tables if isinstance(family.prepare, Prepared) else ())]


def _own(views: Iterable[View]) -> set[str]:
    """Of a family by key, tables that have nothing but what is each key's own."""
    return {view.name for view in views if view.keep and not beyond(view.name)}


@lru_cache(1)
def _wanted() -> frozenset[str]:
    """Those of all families that something else reads than what is asked by key."""
    own = _own(view for family in FAMILIES if family.by_key for view in _made(family))
    own |= {family.prepare.doubts.table for family in FAMILIES if isinstance(family.prepare, Rounds)}
    texts = [*_COVERAGE, *(text for family in FAMILIES for text in _asked_of_all(family))]
    found: set[str] = set()
    seen: set[str] = set()
    while texts:
        for word in words(texts.pop()):
            if word in own:
                found.add(word)
            elif word not in seen and word in _views():
                seen.add(word)
                texts.append(_views()[word].sql)
    return frozenset(found)


def _asked_of_all(family: Family) -> Iterator[str]:
    if isinstance(family.prepare, Rounds | Prepared) and isinstance(family.prepare.doubts, Doubts):
        yield family.prepare.doubts.table
    for check in family.checks:
        for text in (check.examined, check.found, check.evidence):
            if not family.by_key or beyond(text):
                yield text


def _brought(engine: Engine, name: str) -> pa.Table | None:
    """A table, unless it has many rows."""
    if not engine.lacks(name) and _count(engine, name) > FEW_ROWS:
        return None
    return engine.arrow(f"select * from {name}")


def _count(engine: Engine, table: str) -> int:
    (row,) = engine.rows(f"select count(*) as many from {table}")
    return int(row["many"])


def _sum(given: Sequence[int | None]) -> int | None:
    known = [one for one in given if one is not None]
    return sum(known) if len(known) == len(given) else None


def _first(given: Sequence[Sequence[Row] | None]) -> list[Row] | None:
    if any(rows is None for rows in given):
        return None
    return sorted((row for rows in given for row in rows or ()), key=lambda row: str(row["key"]))[:MOST_FINDINGS]


def _all(given: Sequence[pa.Table | None]) -> pa.Table | None:
    import pyarrow as pa

    tables = [table for table in given if table is not None]
    if len(tables) < len(given) or sum(table.num_rows for table in tables) > FEW_ROWS:
        return None
    return pa.concat_tables(tables, promote_options="permissive")
