"""Cycles of operations that saw values grow, found in Python and stored in a table that the checks read.

``transactions.graph`` finds components and short cycles. For each value and number, the operations that saw this number
lead to a node. The node leads to all operations that saw the next higher number, and to their node. So there are only a
few edges per row, however many operations saw less than others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from assay.checkers.check import MOST_FINDINGS, Table
from assay.checkers.engine import INFINITY, Engine
from assay.checkers.judging.verdict import LONGEST_LIST, MOST_OPERATIONS
from assay.checkers.sql_idioms import previous
from assay.checkers.times import seconds
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
"""Stands for a read of nothing, below all values."""

SEEN: Final = Table(
    "monotonic_seen",
    f"""
    select op, key, process, value, call, ret, {previous("value", by="key, process", order="call, op")} as former,
        {previous("op", by="key, process", order="call, op")} as former_op
    from (
        select op, key, process, max(coalesce(value, {NOTHING})) as value, min(call) as call, min(ret) as ret
        from effects where (kind = 'monotonic-read' or (kind = 'monotonic-add' and value is not null))
            and outcome = 'ok' group by op, key, process) as seen
    """,
)
"""``former``: the number that the process saw of this value before."""

FALLS: Final = Table("monotonic_falls", "select * from monotonic_seen where value < former")

_LEVELS: Final = -(2**61)
"""Ids from here up stand for a number of a value, or less."""
_COLUMNS: Final = {
    "anomaly": "string", "number": "int64", "key": "string", "ops": "string", "more": "int64", "claim": "string",
    "first_op": "int64", "second_op": "int64",
}  # fmt: skip
_NAME: Final = "monotonic-cycle"


@dataclass(frozen=True)
class _ObservedOperation:
    """Process and times of an operation, and the numbers that it saw."""

    process: int
    call: int
    ret: int
    seen: Mapping[str, int]


def find_cycles(engine: Engine) -> list[str]:
    """Creates ``monotonic_found``: one row for each component, the first few with a claim."""
    rows = engine.arrow("select op, key, process, value, call, ret from monotonic_seen")
    rows = rows.sort_by([("op", "ascending"), ("key", "ascending")])  # makes the choice of cycles deterministic
    falls = engine.arrow("select op from monotonic_falls group by op")
    graph = _GrowthGraph(rows, read_ints(falls, "op"))
    found = _list_components(graph.classified(), _NAME, graph)
    if engine.rows("select transaction_order from txn_declared")[0]["transaction_order"] == "real-time":
        known = {op for row in found for op in row["members"]}
        found += _list_components(graph.classified(real_time=True), f"{_NAME}-real-time", graph, known)
    columns = [{name: row[name] for name in _COLUMNS} for row in found]
    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in _COLUMNS.items()])
    engine.load("monotonic_found", pa.Table.from_pylist(columns, schema=schema))
    return []


def describe_value(value: int) -> str:
    return "nothing" if value == NOTHING else str(value)


class _GrowthGraph:
    """The graph of growth. ``falls``: operations before which their process counts as a new one."""

    def __init__(self, rows: pa.Table, falls: Ints) -> None:
        op, value = read_ints(rows, "op"), read_ints(rows, "value")
        key = read_ints(pa.table({"key": rows["key"].combine_chunks().dictionary_encode().indices}), "key")
        self._rows = rows
        self.ops, first = np.unique(op, return_index=True)
        self.process, self.call, self.ret = (read_ints(rows, name)[first] for name in ("process", "call", "ret"))
        order = np.lexsort((value, key))
        op, key, value = op[order], key[order], value[order]
        new_key = np.diff(key, prepend=-1) != 0
        level = np.cumsum(new_key | (np.diff(value, prepend=0) != 0)) - 1
        least = np.zeros(int(level[-1]) + 1 if len(level) else 0, np.bool_)
        least[level[new_key]] = True
        self._levels = _LEVELS + np.arange(len(least), dtype=np.int64)
        above = np.flatnonzero(~least)
        higher = ~least[level]
        turns = np.lexsort((self.call, self.process))
        same = (np.diff(self.process[turns]) == 0) & ~np.isin(self.ops[turns[1:]], falls)
        self._source = np.concatenate([op, self._levels[above - 1], self._levels[level[higher] - 1]])
        self._target = np.concatenate([self._levels[level], self._levels[above], op[higher]])
        self._kind = np.full(len(self._source), WW)
        self._before, self._after = self.ops[turns[:-1][same]], self.ops[turns[1:][same]]

    def classified(self, *, real_time: bool = False) -> ClassifiedGraph:
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

    def of(self, ops: Sequence[int]) -> Mapping[int, _ObservedOperation]:
        """Returns the known data of some operations."""
        at = np.searchsorted(self.ops, ops)
        seen: dict[int, dict[str, int]] = {op: {} for op in ops}
        rows = np.flatnonzero(np.isin(read_ints(self._rows, "op"), np.array(ops, np.int64)))
        for row in self._rows.take(pa.array(rows)).to_pylist():
            seen[row["op"]][row["key"]] = row["value"]
        return {
            op: _ObservedOperation(int(self.process[place]), int(self.call[place]), int(self.ret[place]), seen[op])
            for op, place in zip(ops, at.tolist(), strict=True)
        }


def _list_components(
    classified: ClassifiedGraph, anomaly: str, graph: _GrowthGraph, known: Iterable[int] = ()
) -> list[dict[str, Any]]:
    """Returns a row for each component. Components that contain one of ``known`` are left out, because they are already
    reported.
    """
    cycles, before, rows = ShortCycles(classified), set(known), list[dict[str, Any]]()
    for component in classified.components:
        ids = classified.graph.nodes[component.members]
        members: list[int] = ids[ids >= 0].tolist()
        if before.intersection(members):
            continue
        circle, key, claim = members, None, None
        if len(rows) < MOST_FINDINGS:
            circle = [link.source for link in to_links(cycles.shortest(component)[1])]
            key, claim = _describe_cycle(circle, len(members), graph.of(circle))
        ops = circle[:MOST_OPERATIONS]
        rows.append(
            {
                "anomaly": anomaly,
                "number": len(rows) + 1,
                "key": key,
                "ops": ",".join(map(str, ops)),
                "more": len(members) - len(ops),
                "claim": claim,
                "first_op": ops[0],
                "second_op": ops[1],
                "members": members,
            }
        )
    return rows


def _describe_cycle(
    circle: Sequence[int], size: int, known: Mapping[int, _ObservedOperation]
) -> tuple[str | None, str]:
    """Returns the first value that grows along the cycle, and the claim: one sentence for each step."""
    sentences, keys = list[str](), list[str]()
    for op, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        first, second = known[op], known[following]
        grown = [key for key, value in first.seen.items() if second.seen.get(key, value) > value]
        if grown:
            key = min(grown)
            keys.append(key)
            sentences.append(
                f"operation {op} saw {describe_value(first.seen[key])} of {key}, and operation {following} saw "
                f"{second.seen[key]}"
            )
        elif first.process == second.process and first.call < second.call:
            sentences.append(f"process {first.process} made operation {following} after {op}")
        else:
            ended, began = seconds(first.ret), seconds(second.call)
            sentences.append(f"operation {op} had returned at {ended}, before {following} was called at {began}")
    more = f" (and {len(sentences) - LONGEST_LIST} more)" if len(sentences) > LONGEST_LIST else ""
    others = f"; {size} operations contradict each other in all" if size > len(circle) else ""
    said = "; ".join(sentences[:LONGEST_LIST])
    claim = f"{len(circle)} operations come before each other in a circle: {said}{more}{others}."
    return keys[0] if keys else None, claim
