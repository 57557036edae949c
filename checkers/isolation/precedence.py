"""Edges between transactions with their reasons, topological orders, and shortest cycles. Pure functions.

Some orders have a quadratic number of pairs, such as real time if many transactions overlap. *Auxiliary nodes*
represent them by a linear number of edges. Such a node stands for several transactions. Auxiliary edges lead from each
of them to the node, perhaps through other auxiliary nodes. An edge from the node to a transaction means that all of
them precede this transaction. Its ``Kind`` is the reason. ``skip_auxiliary_nodes`` makes one edge of such a path.
"""

from __future__ import annotations

import enum
import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
    START_TO_COMMIT = 5
    """From the start of a transaction to its commit. Only under snapshot isolation are these two nodes."""
    AUXILIARY = 6
    """Leads to an auxiliary node."""


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


def link_by_time(
    returns: Iterable[tuple[int, int]], calls: Iterable[tuple[int, int]], first: int, kind: Kind
) -> Iterator[Edge]:
    """Yields edges whose closure leads from each node with a return to all nodes with a later call.

    ``returns``, ``calls``: times and nodes. Auxiliary nodes are numbered from ``first``. Each stands for all returns
    before a call, so there are at most three edges for each transaction.
    """
    ended = sorted(returns)
    place, node = 0, first - 1
    for call, target in sorted(calls):
        if place < len(ended) and ended[place][0] < call:
            if node >= first:
                yield Edge(node, node + 1, Kind.AUXILIARY)
            node += 1
            while place < len(ended) and ended[place][0] < call:
                yield Edge(ended[place][1], node, Kind.AUXILIARY)
                place += 1
        if node >= first:
            yield Edge(node, target, kind)


def count_nodes(count: int, edges: Iterable[Edge]) -> int:
    """Returns the number of nodes with the auxiliary ones. ``count``: the number of the others."""
    return max((edge.target + 1 for edge in edges if edge.kind is Kind.AUXILIARY), default=count)


def sort_topologically(count: int, edges: Sequence[Edge], times: Sequence[int]) -> list[int] | None:
    """Returns the nodes in an order that respects the edges, or None if there is a cycle. Early times come first.

    Auxiliary nodes are left out.
    """
    order = sort_with_auxiliaries(count, edges, times)
    return None if order is None else [node for node in order if node < count]


def sort_with_auxiliaries(count: int, edges: Sequence[Edge], times: Sequence[int]) -> list[int] | None:
    """Returns the order of ``sort_topologically`` with the auxiliary nodes, each as early as possible."""
    total = count_nodes(count, edges)
    following: list[list[int]] = [[] for _ in range(total)]
    sources_left = [0] * total  # by node, the number of its sources that are not in the order yet
    for edge in edges:
        following[edge.source].append(edge.target)
        sources_left[edge.target] += 1
    ready = [(times[node] if node < count else -1, node) for node in range(total) if sources_left[node] == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)[1]
        order.append(node)
        for target in following[node]:
            sources_left[target] -= 1
            if sources_left[target] == 0:
                heapq.heappush(ready, (times[target] if target < count else -1, target))
    return order if len(order) == total else None


Path = list[tuple[int, Edge]]
"""Successive edges with their indexes. An edge that was merged from several ones has the index of the last of them."""


def skip_auxiliary_nodes(path: Path) -> Path:
    """Returns the path with one edge in place of each way through auxiliary nodes.

    The path must begin and end at transactions.
    """
    merged: Path = []
    source = -1
    for index, edge in path:
        if edge.kind is Kind.AUXILIARY:
            source = edge.source if source < 0 else source
        elif source < 0:
            merged.append((index, edge))
        else:
            premise = None if edge.premise is None else (source, edge.premise[1])
            merged.append((index, replace(edge, source=source, premise=premise)))
            source = -1
    return merged


class EdgePaths:
    """Shortest paths along edges, which are tried in their order. Auxiliary edges do not count as length."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self._outgoing: dict[int, Path] = {}
        for index, edge in enumerate(edges):
            self._outgoing.setdefault(edge.source, []).append((index, edge))

    def find(self, source: int, target: int, below: int | None = None) -> Path | None:
        """Returns the edges of a shortest path with their indexes; empty if both nodes are one.

        ``below``: only edges of a smaller index.
        """
        if source == target:
            return []
        came: dict[int, tuple[int, Edge]] = {}
        lengths = {source: 0}
        done: set[int] = set()
        queue = deque([source])
        while queue:
            node = queue.popleft()
            if node in done:
                continue
            if node == target:
                path = [came[node]]
                while path[-1][1].source != source:
                    path.append(came[path[-1][1].source])
                return path[::-1]
            done.add(node)
            for index, edge in self._outgoing.get(node, ()):
                if below is not None and index >= below:
                    break
                is_auxiliary = edge.kind is Kind.AUXILIARY
                length = lengths[node] + (not is_auxiliary)
                if length < lengths.get(edge.target, length + 1):
                    lengths[edge.target], came[edge.target] = length, (index, edge)
                    (queue.appendleft if is_auxiliary else queue.append)(edge.target)
        return None


_MOST_STARTS: Final = 200


def find_short_cycle(count: int, edges: Sequence[Edge]) -> Path:
    """Returns the shortest cycle found from up to ``_MOST_STARTS`` edges inside cycles. There must be a cycle.

    Edges from the start of a transaction to its commit do not count as length. Among cycles of equal length, the one
    with the fewest derived edges is returned.
    """
    components = find_components(count_nodes(count, edges), ((edge.source, edge.target) for edge in edges))
    inside = [(index, edge) for index, edge in enumerate(edges) if components[edge.source] == components[edge.target]]
    paths = EdgePaths([edge for _, edge in inside])
    numbers = [index for index, _ in inside]
    starts = [one for one in inside if one[1].kind is not Kind.AUXILIARY]
    best: Path | None = None
    for index, edge in starts[:: max(1, len(starts) // _MOST_STARTS)]:
        found = paths.find(edge.target, edge.source)
        assert found is not None, "all nodes of a component reach each other"
        path = skip_auxiliary_nodes([*((numbers[place], one) for place, one in found), (index, edge)])
        cycle = [path[-1], *path[:-1]]
        if best is None or _rank(cycle) < _rank(best):
            best = cycle
    assert best is not None, "no cycle"
    return best


def find_components(count: int, links: Iterable[tuple[int, int]]) -> list[int]:
    """Returns the number of each node's strongly connected component. ``count``: the number of all nodes.

    Links lead to components of smaller numbers, or stay in one. Source: R. Tarjan, SIAM Journal on Computing 1972.
    """
    following: list[list[int]] = [[] for _ in range(count)]
    for source, destination in links:
        following[source].append(destination)
    components, lowest = [-1] * count, [-1] * count  # ``lowest``: by visited node, the first one that it reaches
    visited, found = 0, 0
    stack: list[int] = []
    for root in range(count):
        if lowest[root] >= 0:
            continue
        lowest[root] = visited
        visited += 1
        stack.append(root)
        way = [(root, lowest[root], iter(following[root]))]
        while way:
            node, own, targets = way[-1]
            for target in targets:
                if lowest[target] < 0:
                    lowest[target] = visited
                    visited += 1
                    stack.append(target)
                    way.append((target, lowest[target], iter(following[target])))
                    break
                if components[target] < 0:
                    lowest[node] = min(lowest[node], lowest[target])
            else:
                way.pop()
                if way:
                    parent = way[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == own:
                    while components[node] < 0:
                        components[stack.pop()] = found
                    found += 1
    return components


def _rank(cycle: Path) -> tuple[int, int]:
    """Returns the length and the number of derived edges, both without steps within a transaction."""
    real = [edge for _, edge in cycle if edge.kind is not Kind.START_TO_COMMIT]
    return len(real), sum(edge.premise is not None for edge in real)


def list_nodes_between_cycles(count: int, edges: Sequence[Edge]) -> set[int]:
    """Returns the nodes on cycles, and on paths between cycles.

    The nodes to which no edge leads are removed, again and again. Then the same is done against the edges.
    """
    left = set(range(count_nodes(count, edges)))
    for forward in (True, False):
        following: dict[int, list[int]] = {}
        sources_left = dict.fromkeys(left, 0)
        for edge in edges:
            source, target = (edge.source, edge.target) if forward else (edge.target, edge.source)
            if source in left and target in left:
                following.setdefault(source, []).append(target)
                sources_left[target] += 1
        ready = [node for node, number in sources_left.items() if number == 0]
        while ready:
            node = ready.pop()
            left.discard(node)
            for target in following.get(node, ()):
                sources_left[target] -= 1
                if sources_left[target] == 0:
                    ready.append(target)
    return left
