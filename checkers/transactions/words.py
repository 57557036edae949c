"""Describes a cycle of dependencies in words: one sentence for each edge, with the reason for the edge."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from assay.checkers.engine import Engine, Row
from assay.checkers.judging.verdict import LONGEST_LIST
from assay.checkers.times import format_seconds
from assay.checkers.transactions.edges import OVERTAKING, RW, WR, WW
from assay.checkers.transactions.graph import ORDER, Edge

_SHOWN: Final = "(select key, value, min(op) as op from txn_ordered_elements group by key, value)"
"""SQL: the first reader of each list element. ``views`` creates the ``txn_...`` tables."""


@dataclass(frozen=True)
class TransactionTimes:
    """Call and return of a transaction, and its process. ``ret`` is -1 or ``INFINITY`` if the return is unknown."""

    process: int
    call: int
    ret: int


@dataclass(frozen=True)
class Link:
    """Connection from one transaction of a cycle to the next: one edge, or several through auxiliary nodes."""

    source: int
    target: int
    kind: int
    edges: tuple[Edge, ...]


def to_links(steps: Sequence[Edge]) -> list[Link]:
    """Returns a cycle's links from transaction to transaction. The transaction with the lowest number comes first."""
    ops = [number for number, step in enumerate(steps) if step.source >= 0]
    begin = min(ops, key=lambda number: steps[number].source)
    found, open_steps = [], list[Edge]()
    for step in (*steps[begin:], *steps[:begin]):
        open_steps.append(step)
        if step.target >= 0:
            first = open_steps[0]
            found.append(Link(first.source, step.target, first.kind, tuple(open_steps)))
            open_steps = []
    return found


class LinkReasons:
    """Reasons for the links of some cycles, from the rows of ``txn_edges`` (``edges`` explains the columns)."""

    def __init__(self, engine: Engine, cycle: Iterable[Link]) -> None:
        pairs = sorted({(step.source, step.target) for link in cycle for step in link.edges if step.kind != ORDER})
        wanted = " or ".join(f"(e.source = {source} and e.target = {target})" for source, target in pairs)
        rows = engine.rows(
            "select e.source, e.target, e.kind, e.key, e.low, e.high, coalesce(h.op, l.op) as reader from txn_edges e "
            f"left join {_SHOWN} h on e.kind = {WW} and e.key = h.key and e.high = h.value "
            f"left join {_SHOWN} l on e.kind = {WW} and e.key = l.key and e.low = l.value "
            f"where {wanted or '1 = 0'} order by e.source nulls first, e.target nulls first, e.kind nulls first, "
            "e.key nulls first, e.low nulls first, e.high nulls first"
        )
        self._rows: dict[tuple[int, int], Row] = {}
        for row in rows:
            self._rows.setdefault((row["source"], row["target"]), row)
        self._lists = {row["key"] for row in engine.rows("select key from txn_lists")} if pairs else set()

    def find_key(self, cycle: Sequence[Link]) -> str | None:
        """Returns the key of the first link that has one."""
        return next((self._rows[step.source, step.target]["key"] for link in cycle for step in link.edges
                     if step.kind != ORDER), None)  # fmt: skip

    def list_readers(self, cycle: Iterable[Link]) -> list[int]:
        """Returns the operations whose reads show the order of appends, for ww links. Other links need no reader."""
        firsts = [link.edges[0] for link in cycle if link.kind == WW]
        return list(dict.fromkeys(self._rows[one.source, one.target]["reader"] for one in firsts))

    def describe(self, link: Link, times: Mapping[int, TransactionTimes]) -> str:
        """Returns the reason why the link's target comes after its source."""
        source, target = f"transaction {link.source}", f"transaction {link.target}"
        if link.kind == ORDER:
            first, second = times[link.source], times[link.target]
            if len(link.edges) == 1:
                return f"process {first.process} made {target} after {source}"
            ended, began = format_seconds(first.ret), format_seconds(second.call)
            return f"{source} had returned at {ended}, before {target} was called at {began}"
        first_row = self._rows[link.edges[0].source, link.edges[0].target]
        last_row = self._rows[link.edges[-1].source, link.edges[-1].target]
        # Values of two versions (`edges`). `low` is the earlier version, not the smaller value.
        key, low, high = first_row["key"], first_row["low"], last_row["high"]
        wrote = "appended" if key in self._lists else "wrote"
        if link.kind == WR:
            return f"{target} read {low} of {key}, which {source} {wrote}"
        if link.kind == WW:
            shown = f", by what transaction {first_row['reader']} read"
            return f"{target} appended {high} to {key} after {low} of {source}{shown}"
        seen = f"{key} up to {low}" if key in self._lists else f"{low} of {key}"
        if low is None:
            seen = f"{key} when nothing was in it"
        if link.kind == OVERTAKING:  # the source replaced the version that it read, as in a lost update (`edges`)
            return f"{source} read {seen} and then {wrote} to it itself, without the {high} that {target} {wrote}"
        return f"{source} read {seen}, without the {high} that {target} {wrote}"


def describe_cycle(
    cycle: Sequence[Link], size: int, why: str, reasons: LinkReasons, times: Mapping[int, TransactionTimes]
) -> str:
    """Returns the claim: one sentence for the anomaly, then one for each link.

    ``size``: the number of transactions in the component of the cycle. ``why``: words such as `` by real-time order``
    for a cycle that needs this order, else empty.
    """
    sentences = [reasons.describe(link, times) for link in cycle[:LONGEST_LIST]]
    more = f" (and {len(cycle) - LONGEST_LIST} more)" if len(cycle) > LONGEST_LIST else ""
    others = f"; {size} transactions depend on each other in circles in all" if size > len(cycle) else ""
    kind = f"{why}, a long fork" if is_long_fork(cycle) else why
    return f"{len(cycle)} transactions go round in a circle{kind}: {'; '.join(sentences)}{more}{others}."


def is_long_fork(cycle: Sequence[Link]) -> bool:
    """Detects a long fork: two reads, each of which saw a write that the other missed."""
    return [link.kind for link in cycle] in ([RW, WR, RW, WR], [WR, RW, WR, RW])


def describe_repeated_read(row: Row) -> str:
    """Returns the claim for one transaction that read two versions of a register."""
    low, high = (
        "nothing" if value is None else f"{value} of another transaction" for value in (row["low"], row["high"])
    )
    return (
        f"Transaction {row['first_op']} read {row['key']} twice, and found first {low} and then {high}: both reads "
        "should have shown the same version."
    )
