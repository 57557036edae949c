"""Edges between transactions with their reasons, topological orders, and shortest cycles. Pure functions."""

from __future__ import annotations

import enum
import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

NO_TRANSACTION: Final = -1
_NO_KEY: Final = -1


class Kind(enum.IntEnum):
    """Kinds of edges; the first five are Adya's dependencies and the declared orders."""

    WW = 0
    WR = 1
    RW = 2
    SESSION = 3
    REAL_TIME = 4
    SNAPSHOT = 5
    """A transaction starts before it commits."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Edge between nodes. ``key``: the object of a dependency.

    An edge with a ``premise`` is derived. The premise is a pair of nodes, the first of which precedes the second by
    earlier edges. ``reader`` read the version of ``writer``, and this read with the premise forces the edge. For
    example, if another writer of the key precedes the reader, it precedes ``writer``, too. Without a reader, the
    premise orders two writers of one key, which must not overlap under snapshot isolation.

    ``decided`` marks an edge that a search chose: one of two edges of which one must hold.
    """

    source: int
    target: int
    kind: Kind
    key: int = _NO_KEY
    reader: int = NO_TRANSACTION
    writer: int = NO_TRANSACTION
    premise: tuple[int, int] | None = None
    decided: bool = False


def sort_topologically(count: int, edges: Iterable[Edge], times: Sequence[int]) -> list[int] | None:
    """Returns the nodes in an order that respects the edges, or None if there is a cycle. Early times come first."""
    following: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for edge in edges:
        following[edge.source].append(edge.target)
        waiting[edge.target] += 1
    ready = [(times[node], node) for node in range(count) if waiting[node] == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)[1]
        order.append(node)
        for target in following[node]:
            waiting[target] -= 1
            if waiting[target] == 0:
                heapq.heappush(ready, (times[target], target))
    return order if len(order) == count else None


class EdgePaths:
    """Shortest paths along edges, which are tried in their order."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self._outgoing: dict[int, list[tuple[int, Edge]]] = {}
        for index, edge in enumerate(edges):
            self._outgoing.setdefault(edge.source, []).append((index, edge))

    def find(self, source: int, target: int, below: int | None = None) -> list[tuple[int, Edge]] | None:
        """Returns the edges of a shortest path with their indexes; empty if both nodes are one.

        ``below``: only edges of a smaller index.
        """
        if source == target:
            return []
        came: dict[int, tuple[int, Edge]] = {}
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for index, edge in self._outgoing.get(node, ()):
                if below is not None and index >= below:
                    break
                if edge.target in came or edge.target == source:
                    continue
                came[edge.target] = (index, edge)
                if edge.target == target:
                    path = [(index, edge)]
                    while path[-1][1].source != source:
                        path.append(came[path[-1][1].source])
                    return path[::-1]
                queue.append(edge.target)
        return None


_MOST_STARTS: Final = 200


def find_short_cycle(count: int, edges: Sequence[Edge]) -> list[tuple[int, Edge]]:
    """Returns the shortest cycle found from up to ``_MOST_STARTS`` edges inside cycles. There must be a cycle.

    Edges from the start of a transaction to its commit do not count as length. Among cycles of equal length, the one
    with the fewest derived edges is returned.
    """
    left = list_nodes_between_cycles(count, edges)
    inside = [(index, edge) for index, edge in enumerate(edges) if edge.source in left and edge.target in left]
    paths = EdgePaths([edge for _, edge in inside])
    numbers = [index for index, _ in inside]
    best: list[tuple[int, Edge]] | None = None
    step = max(1, len(inside) // _MOST_STARTS)
    for index, edge in inside[::step] if step > 1 else inside:
        found = paths.find(edge.target, edge.source)
        if found is not None:
            cycle = [(index, edge), *((numbers[place], one) for place, one in found)]
            if best is None or _rank(cycle) < _rank(best):
                best = cycle
    if best is None:
        for index, edge in inside:
            found = paths.find(edge.target, edge.source)
            if found is not None:
                return [(index, edge), *((numbers[place], one) for place, one in found)]
    assert best is not None, "no cycle"
    return best


def _rank(cycle: Sequence[tuple[int, Edge]]) -> tuple[int, int]:
    real = [edge for _, edge in cycle if edge.kind is not Kind.SNAPSHOT]
    return len(real), sum(edge.premise is not None for edge in real)


def list_nodes_between_cycles(count: int, edges: Sequence[Edge]) -> set[int]:
    """Returns the nodes on cycles, and on paths between cycles.

    The nodes to which no edge leads are removed, again and again. Then the same is done against the edges.
    """
    left = set(range(count))
    for forward in (True, False):
        following: dict[int, list[int]] = {}
        waiting = dict.fromkeys(left, 0)
        for edge in edges:
            source, target = (edge.source, edge.target) if forward else (edge.target, edge.source)
            if source in left and target in left:
                following.setdefault(source, []).append(target)
                waiting[target] += 1
        ready = [node for node, number in waiting.items() if number == 0]
        while ready:
            node = ready.pop()
            left.discard(node)
            for target in following.get(node, ()):
                waiting[target] -= 1
                if waiting[target] == 0:
                    ready.append(target)
    return left
