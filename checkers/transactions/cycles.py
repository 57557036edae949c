"""Cycles of dependencies between transactions, found in Python and stored in tables for the checks.

1. SQL derives the edges and selects the candidates (``edges``).
2. ``graph`` finds the components that have a cycle, and a short cycle of each.
3. ``words`` describes the cycle.

An instance is one component, reported as the strongest class of cycle that it has.

``views`` and ``edges`` create the tables that this module reads, such as ``txn_repeated_reads`` (transactions that read
two versions of a register). ``txn_declared`` holds values of the contract.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from assay.checkers.check import Check, EachOperation, UndecidedKeys, create_views, name_violations
from assay.checkers.engine import Engine, Row
from assay.checkers.exposure import Exposure
from assay.checkers.isolation.levels import CYCLE_CLASSES, G1C, G_SINGLE
from assay.checkers.judging.verdict import MOST_FINDINGS, MOST_OPERATIONS
from assay.checkers.sql_idioms import order_by
from assay.checkers.transactions.edges import CANDIDATE_EDGES, CANDIDATE_NODES, EDGE_VIEWS
from assay.checkers.transactions.graph import (
    LIMIT,
    ORDER,
    ClassifiedGraph,
    Component,
    Graph,
    ShortCycles,
    classify,
    read_ints,
)
from assay.checkers.transactions.real_time import TimeOrder, order_in_real_time
from assay.checkers.transactions.views import SOURCE_VIEWS, declare_exposure
from assay.checkers.transactions.words import (
    Link,
    LinkReasons,
    TransactionTimes,
    describe_cycle,
    describe_repeated_read,
    to_links,
)
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
else:
    np, pa = LazyModule("numpy"), LazyModule("pyarrow")

PROCESS: Final = "process"
REAL_TIME: Final = "real-time"
ORDERS: Final = (PROCESS, REAL_TIME)
"""The orders that a contract can declare (``transaction_order``). If a class of cycles needs an order, the name of the
class ends with it: ``G1c-real-time``."""

_COLUMNS: Final = {
    "anomaly": "string", "number": "int64", "key": "string", "first_op": "int64", "second_op": "int64",
    "ops": "string", "more": "int64", "claim": "string", "cycle": "int64",
    "reasons": "string", "branches": "string",
}  # fmt: skip


@dataclass(frozen=True)
class _Instance:
    """A component with a cycle, or a repeated read: a transaction that read two versions of a register (``repeat``).

    ``cycle``: a short cycle of the component, for the first few instances.
    """

    anomaly: str
    ops: Sequence[int]
    """Transactions that contradict each other come first. Without a ``cycle`` they are ascending."""
    size: int
    """Number of transactions in the component."""
    cycle: Sequence[Link] = ()
    repeat: Row | None = None
    members: Sequence[int] = ()
    """All transactions of the component, if there is a cycle."""


def prepare_cycles(engine: Engine) -> list[str]:
    """Creates every table that the transaction checks read. Returns reasons not to pass: keys that cannot be judged."""
    create_views(engine, (*SOURCE_VIEWS, *EDGE_VIEWS))
    search = _CycleSearch(engine)
    search.find_dependency_cycles()
    order = engine.rows("select transaction_order from txn_declared")[0]["transaction_order"]
    if order in ORDERS:
        search.find_ordered_cycles(order)
    load_cycles(engine, "txn_found", search.list_instances())
    return [*_UNCLEAR(engine), *_AMBIGUOUS(engine), *search.doubts]


class _CycleSearch:
    """Finds cycles, and collects the instances."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        nodes, edges = engine.arrow(CANDIDATE_NODES), engine.arrow(CANDIDATE_EDGES)
        self._node, self._process, self._call, self._ret, self._window = (
            read_ints(nodes, name) for name in ("node", "process", "call", "ret", "window_id")
        )
        self._source, self._target, self._kind = (read_ints(edges, name) for name in ("source", "target", "kind"))
        # `_window`: transactions of different windows of time are on no common cycle (`edges`)
        self._instances: list[_Instance] = []
        self._counts: dict[str, int] = {}
        self._rank: dict[int, int] = {}
        """For each transaction that is on a cycle without edges of an order of time: the rank of its component, which
        is an index of ``CYCLE_CLASSES``."""
        self.doubts: list[str] = []

    def find_dependency_cycles(self) -> None:
        """Finds cycles that need no order of time, and transactions that read two versions of a register."""
        classified = self._classify(Graph.of(self._node, self._call, self._source, self._target, self._kind))
        repeats = self._engine.arrow("select key, first_op, second_op, low, high from txn_repeated_reads").to_pylist()
        repeats.sort(key=lambda row: (row["first_op"], row["key"]))
        by_reader: dict[int, Row] = {}
        for row in repeats:
            by_reader.setdefault(row["first_op"], row)
        cycles = ShortCycles(classified)
        for component in classified.components:
            ops = _list_operations(classified, component)
            repeat = next((by_reader[op] for op in ops if op in by_reader), None)
            if repeat is not None and component.rank > G_SINGLE:
                rank = self._add_repeated_read(repeat, len(ops))
            else:
                rank = self._add_cycle(cycles, component, "", ops)
            self._rank |= dict.fromkeys(ops, rank)
        for op, row in by_reader.items():
            if op not in self._rank:
                self._rank[op] = self._add_repeated_read(row, 2)

    def find_ordered_cycles(self, order: str) -> None:
        """Finds cycles that need this order of time.

        A cycle is left out if one of its transactions is on an equally strong cycle that needs no order.
        """
        known = self._node, self._call, self._ret, self._window
        added = order_in_real_time(*known) if order == REAL_TIME else self._list_process_order()
        graph = Graph.of(
            np.concatenate([self._node, added.nodes]),
            np.concatenate([self._call, added.times]),
            np.concatenate([self._source, added.source]),
            np.concatenate([self._target, added.target]),
            np.concatenate([self._kind, np.full(len(added.source), ORDER)]),
        )
        classified = self._classify(graph)
        cycles = ShortCycles(classified)
        for component in classified.components:
            ops = _list_operations(classified, component)
            if component.rank < min(self._rank.get(op, len(CYCLE_CLASSES)) for op in ops):
                self._add_cycle(cycles, component, f"-{order}", ops)

    def list_instances(self) -> list[dict[str, Any]]:
        """Returns one row per instance. The first instances of each anomaly have a claim."""
        links = [link for instance in self._instances for link in instance.cycle]
        reasons, times = LinkReasons(self._engine, links), self._read_times({link.source for link in links})
        numbers: dict[str, int] = {}
        rows: list[dict[str, Any]] = []
        for instance in self._instances:
            number = numbers[instance.anomaly] = numbers.get(instance.anomaly, 0) + 1
            key = claim = sentences = None
            if instance.repeat is not None:
                key, claim = instance.repeat["key"], describe_repeated_read(instance.repeat)
            elif instance.cycle:
                why = next((f" by {order} order" for order in ORDERS if instance.anomaly.endswith(order)), "")
                key = reasons.find_key(instance.cycle)
                claim = describe_cycle(instance.cycle, instance.size, why, reasons, times)
                sentences = encode_reasons([reasons.describe(link, times) for link in instance.cycle])
            ops = instance.ops[:MOST_OPERATIONS]
            shown = [op for op in reasons.list_readers(instance.cycle) if op not in ops][: MOST_OPERATIONS - len(ops)]
            rows.append(
                {
                    "anomaly": instance.anomaly,
                    "number": number,
                    "key": key,
                    "first_op": ops[0],
                    "second_op": ops[-1] if len(ops) == 1 else ops[1],
                    "ops": ",".join(map(str, (*ops, *shown))),
                    "more": instance.size - len({*ops, *shown}.intersection(instance.members or ops)),
                    "claim": claim,
                    "cycle": int(bool(instance.cycle)),
                    "reasons": sentences,
                }
            )
        return rows

    def _classify(self, graph: Graph) -> ClassifiedGraph:
        classified = classify(graph)
        if classified.unsure:
            self.doubts.append(
                f"G-single cannot be ruled out in {classified.unsure} groups of transactions that depend on each other "
                f"in circles: the search ended after {LIMIT} steps; each group is reported as the weaker anomaly that "
                "was found in it"
            )
        return classified

    def _add_cycle(self, cycles: ShortCycles, component: Component, suffix: str, ops: list[int]) -> int:
        name = CYCLE_CLASSES[component.rank] + suffix
        if self._counts.get(name, 0) >= MOST_FINDINGS:
            self._add(component.rank, suffix, ops[:2], len(ops))
            return component.rank
        rank, steps = cycles.find_shortest(component)
        cycle = to_links(steps)
        self._add(rank, suffix, [link.source for link in cycle], len(ops), cycle=cycle, members=ops)
        return rank

    def _add_repeated_read(self, row: Row, size: int) -> int:
        self._add(G_SINGLE, "", [row["first_op"], row["second_op"]], size, repeat=row)
        return G_SINGLE

    def _add(
        self,
        rank: int,
        suffix: str,
        ops: Sequence[int],
        size: int,
        *,
        cycle: Sequence[Link] = (),
        repeat: Row | None = None,
        members: Sequence[int] = (),
    ) -> None:
        name = CYCLE_CLASSES[rank] + suffix
        self._counts[name] = self._counts.get(name, 0) + 1
        self._instances.append(_Instance(name, ops, size, cycle, repeat, members))

    def _list_process_order(self) -> TimeOrder:
        """Returns an edge from each transaction to the next one of its process."""
        ops = np.flatnonzero(self._node >= 0)
        ops = ops[np.lexsort((self._call[ops], self._process[ops], self._window[ops]))]
        same = (np.diff(self._process[ops]) == 0) & (np.diff(self._window[ops]) == 0)
        none = np.zeros(0, np.int64)
        return TimeOrder(none, none, self._node[ops[:-1][same]], self._node[ops[1:][same]])

    def _read_times(self, ops: set[int]) -> Mapping[int, TransactionTimes]:
        rows = np.flatnonzero(np.isin(self._node, np.array(sorted(ops), np.int64)))
        return {
            int(self._node[row]): TransactionTimes(int(self._process[row]), int(self._call[row]), int(self._ret[row]))
            for row in rows
        }


def _list_operations(classified: ClassifiedGraph, component: Component) -> list[int]:
    ids = classified.graph.nodes[component.members]
    found: list[int] = ids[ids >= 0].tolist()
    return found


_UNCLEAR: Final = UndecidedKeys(
    "txn_unclear",
    lambda row: f"transactions on {row['key']} cannot be judged: {row['why']}",
    lambda more: f"nor can those on {more} other keys, for the same reasons",
)


_AMBIGUOUS: Final = UndecidedKeys(
    "(select key, min(value) as value from txn_ambiguous group by key) as ambiguous",
    lambda row: (
        f"{row['value']} was written to {row['key']} twice, so reads of it have no single writer and are not judged"
    ),
    lambda more: f"nor are reads of such values of {more} other keys",
)


def declare_cycle_check(
    anomaly: str,
    meaning: str,
    *,
    found: str = "txn_found",
    examined: str = "txn_edges",
    about: tuple[EachOperation, ...] = (),
    explained_by: tuple[str, ...] = (),
    exposure: Exposure | None = None,
) -> Check:
    """Declares the check that reports the cycles of one class. ``found``: a table of :func:`load_cycles`."""
    return Check(
        anomaly=anomaly,
        meaning=meaning,
        violations=f"select * from {found} where anomaly = '{anomaly}'",
        evidence=f"""
            select key, claim, ops, more, first_op, second_op, cycle, reasons, branches
            from {name_violations(anomaly)}
            {order_by("number")} limit {MOST_FINDINGS}
            """,
        examined=f"select count(*) as examined from {examined}",
        exposure=exposure,
        claim="{claim}",
        operations=("ops",),
        more="{more}",  # how many operations are not listed
        cycle="cycle",
        reasons="reasons",
        branches="branches",
        about=about,  # subjects of a finding
        explained_by=explained_by,
    )


def load_cycles(engine: Engine, table: str, found: Sequence[Mapping[str, Any]]) -> None:
    """Creates a table of components with cycles, one row each. Fields that ``_COLUMNS`` lacks are ignored.

    Two fields are optional:

    - ``reasons``: why each operation of the cycle comes before the next one (``encode_reasons``)
    - ``branches``: the cycles of a refutation by cases, as JSON
    """
    rows = [
        {"reasons": None, "branches": None, **{name: row[name] for name in _COLUMNS if name in row}} for row in found
    ]
    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in _COLUMNS.items()])
    engine.load(table, pa.Table.from_pylist(rows, schema=schema))


def encode_reasons(sentences: Sequence[str]) -> str | None:
    """Returns the column ``reasons``: the sentences of a cycle of at most ``MOST_OPERATIONS``, or None."""
    return None if len(sentences) > MOST_OPERATIONS else msgspec.json.encode(sentences).decode()


_MEANINGS: Final = dict(
    zip(
        CYCLE_CLASSES,
        (
            "two transactions wrote over each other's writes",
            "transactions form a cycle in which each saw or overwrote a write of the one before",
            "a transaction missed a write of another transaction, but depends on that transaction",
            "transactions saw others' writes in orders that no sequence of snapshots has",
            "transactions form a cycle in which some missed what others wrote",
        ),
        strict=True,
    )
)
_IN_ORDER: Final = {
    PROCESS: "given the order in which each process made its transactions",
    REAL_TIME: "given that one transaction had ended before another began",
}


def _declare_cycles(suffix: str = "", given: str = "") -> tuple[Check, ...]:
    """Returns the checks of all classes. Only ``G1c`` needs exposed writes, because contracts that forbid another class
    forbid ``G1c``, too."""
    remedy = "let transactions read what others write"
    return tuple(
        declare_cycle_check(
            f"{name}{suffix}",
            f"{meaning}{given}",
            exposure=declare_exposure(
                "select key, value, op from txn_possible where outcome = 'ok'",
                asserted="acknowledged",
                remedy=remedy if name + suffix == CYCLE_CLASSES[G1C] else "",
            ),
        )
        for name, meaning in _MEANINGS.items()
    )


CYCLES: Final = _declare_cycles()
ORDERED_CYCLES: Final = {order: _declare_cycles(f"-{order}", f", {given}") for order, given in _IN_ORDER.items()}
"""The checks by the order that the contract declares."""
CYCLE_ANOMALIES: Final = frozenset(check.anomaly for checks in (CYCLES, *ORDERED_CYCLES.values()) for check in checks)
"""The names of all classes of cycles."""
