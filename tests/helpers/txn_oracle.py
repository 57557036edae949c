"""Transactions by brute force: every serial order, and every version order with every cycle in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations, product
from typing import Any

from helpers.txn_histories import Txn

Edge = tuple[int, int, str]
NONE = 5
"""Above all classes, which are counted from G0: 0 to G2-item: 4."""


def serializable(txns: Sequence[Txn], *, order: str = "none") -> bool:
    """Whether some serial order of all ok transactions, and of some of unknown fate, explains every read."""
    alive = [txn for txn in txns if txn.outcome != "fail"]

    def search(left: frozenset[int], state: dict[str, tuple[int, ...]]) -> bool:
        if all(alive[number].outcome == "info" for number in left):
            return True
        return any(
            (after := _applied(alive[number], state)) is not None and search(left - {number}, after)
            for number in left
            if not any(_before(alive[other], alive[number], order) for other in left - {number})
        )

    # A transaction of unknown fate may never have happened, so it holds no one up.
    return search(frozenset(range(len(alive))), {})


def _before(first: Txn, second: Txn, order: str) -> bool:
    if first.outcome == "info" or order == "none":
        return False
    if order == "process":
        return first.process == second.process and first.call < second.call
    return first.ret is not None and first.ret < second.call


def _applied(txn: Txn, state: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]] | None:
    state = dict(state)
    for f, key, value in txn.micros:
        content = state.get(key, ())
        if f == "append":
            state[key] = (*content, value)
        elif f == "w":
            state[key] = (value,)
        elif txn.outcome == "ok" and _found(value, content) is False:
            return None
    return state


def _found(value: Any, content: tuple[int, ...]) -> bool:
    return tuple(value) == content if isinstance(value, list) else (content[-1] if content else None) == value


def strongest(txns: Sequence[Txn]) -> int | None:
    """The strongest class of cycle that there is in whatever order the versions had: 0 to 4, ``NONE``.

    None: the history breaks a rule that comes before any cycle (G1a, G1b, internal, orders of lists).
    """
    committed = {txn.op: txn for txn in _committed(txns)}
    orders = []
    for key in sorted({micro[1] for txn in committed.values() for micro in txn.micros}):
        found = _orders(key, committed)
        if found is None:
            return None
        orders.append([(key, order) for order in found])
    return max((_class(committed, dict(chosen)) for chosen in product(*orders)), default=NONE)


def _committed(txns: Sequence[Txn]) -> list[Txn]:
    seen = {
        (key, element)
        for txn in txns
        if txn.outcome == "ok"
        for f, key, value in txn.micros
        if f == "r"
        for element in (value if isinstance(value, list) else [value])
    }
    return [
        txn
        for txn in txns
        if txn.outcome == "ok"
        or (txn.outcome == "info" and any(f != "r" and (key, value) in seen for f, key, value in txn.micros))
    ]


def _orders(key: str, committed: dict[int, Txn]) -> list[list[tuple[int, int]]] | None:
    """Every order of the key's versions as (transaction, value): of lists those that all reads allow."""
    writes = {value: txn.op for txn in committed.values() for f, name, value in txn.micros if f != "r" and name == key}
    reads = [
        (txn, number, value)
        for txn in committed.values()
        if txn.outcome == "ok"
        for number, (f, name, value) in enumerate(txn.micros)
        if f == "r" and name == key
    ]
    if not all(_own(txn, number, key, value, writes) for txn, number, value in reads):
        return None
    if not any(isinstance(value, list) for _, _, value in reads) and any(
        f == "w" for txn in committed.values() for f, name, _ in txn.micros if name == key
    ):
        finals = {op: value for value, op in writes.items()}  # the last of each transaction
        return [[(op, finals[op]) for op in order] for order in permutations(finals)]
    longest = max((value for _, _, value in reads if isinstance(value, list)), key=len, default=[])
    if any(value != longest[: len(value)] for _, _, value in reads if isinstance(value, list)):
        return None
    if len(set(longest)) < len(longest):
        return None
    known = [(writes[value], value) for value in longest]
    places = {value: place for place, value in enumerate(longest)}
    for txn in committed.values():
        mine = [places.get(value, NONE * 100) for f, name, value in txn.micros if f == "append" and name == key]
        if mine != sorted(mine):
            return None
    unseen = {op: value for value, op in writes.items() if value not in places}
    return [[*known, *((op, unseen[op]) for op in order)] for order in permutations(unseen)]


def _own(txn: Txn, number: int, key: str, value: Any, writes: dict[int, int]) -> bool:
    """Whether a read shows only committed and final versions, and its transaction's own writes as they were then."""
    before = [one for f, name, one in txn.micros[:number] if f != "r" and name == key]
    after = [one for f, name, one in txn.micros[number:] if f != "r" and name == key]
    elements = value if isinstance(value, list) else [] if value is None else [value]
    if any(element not in writes or element in after for element in elements):
        return False
    if isinstance(value, list):
        if not set(before) <= set(elements):
            return False
    elif before and value != before[-1]:
        return False
    last = elements[-1] if elements else None
    if last is None or writes[last] == txn.op:
        return True
    return last == [one for one, op in writes.items() if op == writes[last]][-1]


def _class(committed: dict[int, Txn], orders: dict[str, list[tuple[int, int]]]) -> int:
    edges: set[Edge] = set()
    for key, order in orders.items():
        runs = [op for place, (op, _) in enumerate(order) if place == 0 or order[place - 1][0] != op]
        run_of: dict[int | None, int] = {None: -1}
        run = -1
        for place, (op, value) in enumerate(order):
            run += place == 0 or order[place - 1][0] != op
            run_of[value] = run
        edges |= {(a, b, "ww") for a, b in pairwise(runs)}
        for txn in committed.values():
            for f, name, found in txn.micros:
                if f != "r" or name != key or txn.outcome != "ok":
                    continue
                last = (found[-1] if found else None) if isinstance(found, list) else found
                seen = run_of.get(last)
                if seen is None:  # an own version that it overwrote itself
                    continue
                if seen >= 0:
                    edges.add((runs[seen], txn.op, "wr"))
                if seen + 1 < len(runs):
                    edges.add((txn.op, runs[seen + 1], "rw"))
    edges = {edge for edge in edges if edge[0] != edge[1]}
    return min((_rank(kinds) for kinds in _cycles(edges)), default=NONE)


def _cycles(edges: set[Edge]) -> Iterator[list[str]]:
    """The kinds along every simple cycle."""
    nexts: dict[int, list[tuple[int, str]]] = {}
    for source, target, kind in sorted(edges):
        nexts.setdefault(source, []).append((target, kind))

    def walk(start: int, node: int, seen: frozenset[int], kinds: list[str]) -> Iterator[list[str]]:
        for target, kind in nexts.get(node, []):
            if target == start:
                yield [*kinds, kind]
            elif target > start and target not in seen:
                yield from walk(start, target, seen | {target}, [*kinds, kind])

    for start in sorted(nexts):
        yield from walk(start, start, frozenset({start}), [])


def _rank(kinds: list[str]) -> int:
    if "rw" not in kinds:
        return 1 if "wr" in kinds else 0
    if kinds.count("rw") == 1:
        return 2
    return 4 if any(a == b == "rw" for a, b in pairwise([*kinds, kinds[0]])) else 3
