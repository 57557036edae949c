"""Values that only grow: no process sees a value and then a smaller one (Jepsen's monotonic).

A workload records itself in ``effects`` as follows (``key`` is a value's name; nothing else may change the value):

- ``monotonic-add``: ``value`` is the value after the operation, null if unknown.
- ``monotonic-read``: one row with ``value`` for each value that a read shows. Null: nothing was there.

Both kinds say that an operation *saw* a value; only ok rows count. The definition is that of Elle's
``monotonic-key-graph`` with the order of processes. An operation comes before another

- if it saw a smaller number of some value, or
- if one process performed both and it was the earlier one, or
- if the contract says so (``transaction_order="real-time"``) and it had returned before the other was called.

Operations that come before each other in a cycle contradict each other:

- ``nonmonotonic-read``: the smallest cycle, two operations of one process that saw a value fall. After the fall, the
  process counts as another process, so that the fall is not found again in a larger cycle.
- ``monotonic-cycle``: all other cycles. The smallest has two reads of two values: the first read saw more of one value,
  and the second read more of the other value.
- ``monotonic-cycle-real-time``: a cycle that needs the order of real time.

There is no cycle iff in some order of the operations no value falls. This order must respect the order of each process
(and real time). No check compares the values of reads with the results of adds, because the result of an add of unknown
outcome is unknown. If each add adds one and real time is promised, ``counters`` checks more. ``max_registers`` checks
more for a value that is written.

Cycles are found in Python and stored in a table that the checks read. ``transactions.graph`` finds strongly connected
components and short cycles. Its nodes are operations, and one *level* for each number that a value had. From an
operation, an edge leads to the level of each number that it saw. From a level, edges lead to all operations that saw
the next higher number of this value, and to the next level. So there are only a few edges per row, even if many
operations saw less than others.

``txn_declared`` holds values of the contract.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from assay.checkers.check import Check, EachOperation, Family, parse_views
from assay.checkers.engine import INFINITY, Engine
from assay.checkers.judging.verdict import LONGEST_LIST, MOST_FINDINGS, MOST_OPERATIONS
from assay.checkers.objects.kinds import declare_family
from assay.checkers.sql_idioms import previous, select_first
from assay.checkers.times import format_seconds
from assay.checkers.transactions.cycles import declare_cycle_check, encode_reasons, load_cycles
from assay.checkers.transactions.edges import WW
from assay.checkers.transactions.graph import ORDER, ClassifiedGraph, Graph, ShortCycles, classify, read_ints
from assay.checkers.transactions.real_time import order_in_real_time
from assay.checkers.transactions.words import to_links
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from assay.checkers.transactions.graph import Ints
else:
    np, pa = LazyModule("numpy"), LazyModule("pyarrow")

NOTHING: Final = -INFINITY
"""Stands for a read of nothing. It is below all values."""

MONOTONIC_VIEWS: Final = parse_views(f"""
    -- `former`: the number that the process previously saw of this value.
    create table monotonic_seen as
    select op, key, process, value, call, ret, {previous("value", by="key, process", order="call, op")} as former,
        {previous("op", by="key, process", order="call, op")} as former_op
    from (
        select op, key, process, max(coalesce(value, {NOTHING})) as value, min(call) as call, min(ret) as ret
        from effects where (kind = 'monotonic-read' or (kind = 'monotonic-add' and value is not null))
            and outcome = 'ok' group by op, key, process) as seen

    -- Values that are smaller than the value that their process saw before (`former`).
    create table monotonic_falls as
    select * from monotonic_seen where value < former
    """)

_LEVELS: Final = -(2**61)
"""First id of the nodes for levels. Operations have ids from 0."""

NONMONOTONIC_READ: Final = Check(
    anomaly="nonmonotonic-read",
    meaning="one process saw a value that may only grow, and later a smaller one",
    violations="select * from monotonic_falls",
    evidence=select_first("found_nonmonotonic_read", "key, process, op", also="op as less_op"),
    examined="select count(*) as examined from monotonic_seen where former is not null",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{key}: {less_op} saw {former} at {former_op:returned}, and only "
    f"[value={NOTHING}?nothing|{{value}}] in an operation that it called at {{less_op:called}}.",
    about=("what operation {less_op:number} saw",),  # subjects of a finding
)


def _declare_cycle_check(anomaly: str, meaning: str, explained_by: tuple[str, ...] = ()) -> Check:
    return declare_cycle_check(
        anomaly,
        meaning,
        found="monotonic_found",
        examined="monotonic_seen",
        about=(EachOperation("ops", "what operation {} saw"),),  # subjects of a finding
        explained_by=explained_by,
    )


MONOTONIC_CYCLE: Final = _declare_cycle_check(
    "monotonic-cycle", "operations saw values that only grow in orders that contradict each other"
)
MONOTONIC_CYCLE_REAL_TIME: Final = _declare_cycle_check(
    "monotonic-cycle-real-time",
    "operations saw values that only grow in orders that contradict each other, or the times of operations",
    ("nonmonotonic-read", "monotonic-cycle"),
)


@dataclass(frozen=True)
class _ObservedOperation:
    """Process and times of an operation, and the numbers that it saw."""

    process: int
    call: int
    ret: int
    seen: Mapping[str, int]


def find_cycles(engine: Engine) -> list[str]:
    """Creates ``monotonic_found``: one row per component with a cycle. The first ``MOST_FINDINGS`` have a claim."""
    rows = engine.arrow("select op, key, process, value, call, ret from monotonic_seen")
    rows = rows.sort_by([("op", "ascending"), ("key", "ascending")])  # makes the choice of cycles deterministic
    falls = engine.arrow("select op from monotonic_falls group by op")
    graph = _GrowthGraph(rows, read_ints(falls, "op"))
    found = _list_components(graph.classify(), MONOTONIC_CYCLE.anomaly, graph)
    if engine.rows("select transaction_order from txn_declared")[0]["transaction_order"] == "real-time":
        reported = {op for row in found for op in row["members"]}
        real_time = graph.classify(real_time=True)
        found += _list_components(real_time, MONOTONIC_CYCLE_REAL_TIME.anomaly, graph, reported)
    load_cycles(engine, "monotonic_found", found)
    return []


class _GrowthGraph:
    """Graph of operations and levels. ``falls``: operations at which their process begins to count as a new process."""

    def __init__(self, rows: pa.Table, falls: Ints) -> None:
        op, value = read_ints(rows, "op"), read_ints(rows, "value")
        key = read_ints(pa.table({"key": rows["key"].combine_chunks().dictionary_encode().indices}), "key")
        self._rows = rows
        self.ops, first = np.unique(op, return_index=True)
        self.process, self.call, self.ret = (read_ints(rows, name)[first] for name in ("process", "call", "ret"))
        order = np.lexsort((value, key))
        op, key, value = op[order], key[order], value[order]
        # The rows are sorted by key and value, so each new number of a key begins the next level.
        new_key = np.diff(key, prepend=-1) != 0
        level = np.cumsum(new_key | (np.diff(value, prepend=0) != 0)) - 1
        least = np.zeros(int(level[-1]) + 1 if len(level) else 0, np.bool_)
        least[level[new_key]] = True
        self._levels = _LEVELS + np.arange(len(least), dtype=np.int64)
        above = np.flatnonzero(~least)
        higher = ~least[level]
        # The order of each process: pairs of successive operations (`_before`, `_after`).
        by_process = np.lexsort((self.call, self.process))
        same = (np.diff(self.process[by_process]) == 0) & ~np.isin(self.ops[by_process[1:]], falls)
        # Edges: from operations to their level, from each level to the next one of its key, and from each level to the
        # operations of the next one.
        self._source = np.concatenate([op, self._levels[above - 1], self._levels[level[higher] - 1]])
        self._target = np.concatenate([self._levels[level], self._levels[above], op[higher]])
        self._kind = np.full(len(self._source), WW)
        self._before, self._after = self.ops[by_process[:-1][same]], self.ops[by_process[1:][same]]

    def classify(self, *, real_time: bool = False) -> ClassifiedGraph:
        """Returns the components that have a cycle."""
        none = np.zeros(0, np.int64)
        nodes, times, source, target = none, none, self._before, self._after
        if real_time:
            added = order_in_real_time(self.ops, self.call, self.ret, np.zeros_like(self.ops))
            nodes, times, source, target = added.nodes, added.times, added.source, added.target
        return classify(
            Graph.of(
                np.concatenate([self.ops, self._levels, nodes]),
                np.concatenate([self.call, np.zeros_like(self._levels), times]),
                np.concatenate([self._source, source]),
                np.concatenate([self._target, target]),
                np.concatenate([self._kind, np.full(len(source), ORDER)]),
            )
        )

    def read_operations(self, ops: Sequence[int]) -> Mapping[int, _ObservedOperation]:
        """Returns process, times and seen numbers of some operations."""
        indexes = np.searchsorted(self.ops, ops)
        seen: dict[int, dict[str, int]] = {op: {} for op in ops}
        rows = np.flatnonzero(np.isin(read_ints(self._rows, "op"), np.array(ops, np.int64)))
        for row in self._rows.take(pa.array(rows)).to_pylist():
            seen[row["op"]][row["key"]] = row["value"]
        return {
            op: _ObservedOperation(int(self.process[index]), int(self.call[index]), int(self.ret[index]), seen[op])
            for op, index in zip(ops, indexes.tolist(), strict=True)
        }


def _list_components(
    classified: ClassifiedGraph, anomaly: str, graph: _GrowthGraph, reported: Iterable[int] = ()
) -> list[dict[str, Any]]:
    """Returns a row for each component that has none of the ``reported`` operations."""
    cycles, before, rows = ShortCycles(classified), set(reported), list[dict[str, Any]]()
    for component in classified.components:
        ids = classified.graph.nodes[component.members]
        members: list[int] = ids[ids >= 0].tolist()
        if before.intersection(members):
            continue
        cycle, key, claim, reasons = members, None, None, None
        if len(rows) < MOST_FINDINGS:
            cycle = [link.source for link in to_links(cycles.find_shortest(component)[1])]
            sentences, key = _list_reasons(cycle, graph.read_operations(cycle))
            claim, reasons = _describe_cycle(cycle, len(members), sentences), encode_reasons(sentences)
        ops = cycle[:MOST_OPERATIONS]
        rows.append(
            {
                "anomaly": anomaly,
                "number": len(rows) + 1,
                "key": key,
                "ops": ",".join(map(str, ops)),
                "more": len(members) - len(ops),
                "claim": claim,
                "cycle": int(claim is not None),
                "reasons": reasons,
                "first_op": ops[0],
                "second_op": ops[1],
                "members": members,
            }
        )
    return rows


def _list_reasons(cycle: Sequence[int], known: Mapping[int, _ObservedOperation]) -> tuple[Sequence[str], str | None]:
    """Returns one sentence for each step of the cycle, and the first value that grows along it."""
    sentences, keys = list[str](), list[str]()
    for op, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        first, second = known[op], known[following]
        grown = [key for key, value in first.seen.items() if second.seen.get(key, value) > value]
        if grown:
            key = min(grown)
            keys.append(key)
            seen = "nothing" if first.seen[key] == NOTHING else first.seen[key]
            sentences.append(f"operation {op} saw {seen} of {key}, and operation {following} saw {second.seen[key]}")
        elif first.process == second.process and first.call < second.call:
            sentences.append(f"process {first.process} made operation {following} after {op}")
        else:
            ended, began = format_seconds(first.ret), format_seconds(second.call)
            sentences.append(f"operation {op} had returned at {ended}, before {following} was called at {began}")
    return sentences, keys[0] if keys else None


def _describe_cycle(cycle: Sequence[int], size: int, sentences: Sequence[str]) -> str:
    """Returns the claim. ``sentences``: one for each step."""
    more = f" (and {len(sentences) - LONGEST_LIST} more)" if len(sentences) > LONGEST_LIST else ""
    others = f"; {size} operations contradict each other in all" if size > len(cycle) else ""
    steps = "; ".join(sentences[:LONGEST_LIST])
    return f"{len(cycle)} operations come before each other in a circle: {steps}{more}{others}."


MONOTONIC: Final = declare_family("monotonic", (NONMONOTONIC_READ, MONOTONIC_CYCLE), MONOTONIC_VIEWS, find_cycles)


MONOTONIC_REAL_TIME: Final = Family(
    name="monotonic-real-time",
    checks=(MONOTONIC_CYCLE_REAL_TIME,),
    applies="""
        select coalesce(sum(e.many), 0) as examined from effect_kinds e cross join txn_declared d
        where e.kind in ('monotonic-add', 'monotonic-read') and d.transaction_order = 'real-time'
        """,
)
"""Must come after ``MONOTONIC``, which creates the tables that this family reads."""

MONOTONIC_ANOMALIES: Final = MONOTONIC.anomalies
"""All anomalies that are reported if the contract does not declare real-time order."""
