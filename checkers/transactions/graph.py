"""Cycles of dependencies: finds components with a cycle, their classes, and a short cycle of each. Pure functions over
arrays.

All candidates are classified at once, by strongly connected components (Pearce's algorithm, ``scipy.sparse.csgraph``):

1. ``G0``: a component of the ww edges alone. ``G1c``: a component of ww and wr edges. Any other component without rw
   edges is a ``G-single``, because it has an ``OVERTAKING`` edge (``edges``).
2. ``G-nonadjacent``: a cycle with two or more rw edges, no two in a row, which snapshot isolation rules out (Cerone and
   Gotsman 2016). The search graph has two copies of each node. All rw edges lead to one copy, also through a fan
   (an auxiliary node of ``edges``). All other edges lead to the other copy. An rw edge begins only at this other copy.
   Every component of this graph has a simple cycle of this class or a stronger one.
3. ``G-single``: a cycle with exactly one rw edge. If the other edges have no cycle, they define an order, and the rw
   edge goes back in this order. All nodes of the cycle are between the two ends of the rw edge. The order follows that
   of the calls as far as possible, so few nodes must be searched. The search still has a limit (``LIMIT``), and reports
   when it reached the limit.
4. ``G2-item``: any other component.

Edges of real time or of a process (``ORDER``) count like ww edges.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final

from assay.checkers.isolation.levels import G0, G1C, G2_ITEM, G_NONADJACENT, G_SINGLE
from assay.checkers.transactions.edges import OVERTAKING, RW, THEN, WR
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
else:
    np = LazyModule("numpy")

ORDER: Final = 5
"""Kind of edges of real time or of a process, in addition to the kinds of ``txn_edges``."""

LIMIT: Final = 20_000_000
"""Maximum number of nodes that the search for G-single expands, which takes some ten seconds. Then it is incomplete."""

STARTS: Final = 50
"""Maximum number of start nodes of the search for a short cycle."""
ENOUGH: Final = 200_000
"""Number of expanded nodes after which the search for a short cycle ends with the shortest cycle so far."""


def read_ints(table: pa.Table, name: str) -> Ints:
    """Returns a column of whole numbers."""
    found: Ints = table.column(name).to_numpy().astype(np.int64)
    return found


@dataclass(frozen=True)
class Graph:
    """Dependency graph. ``nodes``: ascending ids; ids below 0 are auxiliary nodes.

    ``times``: the call of each node; the time of the return for a node of ``real_time``. ``source`` and ``target`` are
    positions in ``nodes``. There are no self-loops and no equal edges.
    """

    nodes: Ints
    times: Ints
    source: Ints
    target: Ints
    kind: Ints

    @classmethod
    def of(cls, nodes: Ints, times: Ints, source: Ints, target: Ints, kind: Ints) -> Graph:
        """Builds the graph from ids in any order."""
        by_id = np.argsort(nodes, kind="stable")
        nodes, times = nodes[by_id], times[by_id]
        order = np.lexsort((kind, target, source))
        return cls(
            nodes,
            times,
            np.searchsorted(nodes, source[order]).astype(np.int64),
            np.searchsorted(nodes, target[order]).astype(np.int64),
            kind[order],
        )

    def select_edges(self, edges: Flags) -> Graph:
        return Graph(self.nodes, self.times, self.source[edges], self.target[edges], self.kind[edges])


@dataclass(frozen=True)
class Component:
    """Strongly connected component. ``rank``: its class, an index into ``CYCLE_CLASSES`` of
    ``checkers.isolation.levels``; 0 is the strongest."""

    rank: int
    members: Ints
    """Positions of its nodes."""


@dataclass
class ClassifiedGraph:
    """Every component that has a cycle, ordered by its lowest transaction.

    ``unsure``: number of components for which the search for G-single reached its limit.
    """

    graph: Graph
    """The graph with edges inside components only."""
    components: list[Component]
    unsure: int = 0


@dataclass(frozen=True)
class Edge:
    """Edge of a cycle, by ids."""

    source: int
    target: int
    kind: int


def find_components(count: int, source: Ints, target: Ints) -> tuple[Ints, Flags]:
    """Returns the strongly connected component of each node, and whether this component has several nodes.

    Components are numbered in the order of their first nodes. Without scipy (the extra ``fast``), Tarjan's algorithm in
    Python gives equal components, and takes some ten times as long.
    """
    if find_spec("scipy") is None:
        label = _find_components_in_python(count, source, target)
    else:
        from scipy.sparse import csr_matrix  # takes a third of a second
        from scipy.sparse.csgraph import connected_components

        matrix = csr_matrix((np.ones(len(source), np.int8), (source, target)), shape=(count, count))
        _, label = connected_components(matrix, directed=True, connection="strong")
    _, first, label = np.unique(label, return_index=True, return_inverse=True)
    label = np.argsort(np.argsort(first))[label].astype(np.int64)
    sizes = np.bincount(label)
    return label, sizes[label] > 1


def _find_components_in_python(count: int, source: Ints, target: Ints) -> Ints:
    """Returns a number for each node, equal within a component, by Tarjan's algorithm (1972) without recursion.

    A node's ``low`` is the smallest index on the stack that it reaches. If a node's ``low`` is its own index, the node
    is the root of a component. The other nodes of the component are above the root on the stack.
    """
    order = np.argsort(source, kind="stable")
    ends = np.searchsorted(source[order], np.arange(count + 1)).tolist()
    targets = target[order].tolist()
    index, low, label = [-1] * count, [0] * count, [-1] * count
    stack: list[int] = []
    following = ends[:-1]
    next_index = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        path = [root]
        while path:
            node = path[-1]
            if index[node] < 0:
                index[node] = low[node] = next_index
                next_index += 1
                stack.append(node)
            for place in range(following[node], ends[node + 1]):
                other = targets[place]
                if index[other] < 0:
                    following[node] = place
                    path.append(other)
                    break
                if label[other] < 0:
                    low[node] = min(low[node], low[other])
            else:
                path.pop()
                if low[node] == index[node]:
                    while label[node] < 0:
                        label[stack.pop()] = node
    return np.array(label, dtype=np.int64)


def classify(graph: Graph, limit: int = LIMIT) -> ClassifiedGraph:
    """Returns the components that have a cycle, each with the strongest class of its cycles."""
    count = len(graph.nodes)
    if count == 0:
        return ClassifiedGraph(graph, [])
    label, inside = find_components(count, graph.source, graph.target)
    graph = graph.select_edges((label[graph.source] == label[graph.target]) & inside[graph.source])
    rank = np.full(int(label.max()) + 1, G2_ITEM)
    twice = _double_nodes(graph)
    _, alternating = find_components(2 * count, twice.source, twice.target)
    rank[label[np.flatnonzero(alternating) % count]] = G_NONADJACENT
    for stronger in (G_SINGLE, G1C, G0):
        part = graph.select_edges(_select_links(graph, stronger))
        rank[label[find_components(count, part.source, part.target)[1]]] = stronger
    members = np.flatnonzero(inside)
    by_label = members[np.argsort(label[members], kind="stable")]
    groups = np.split(by_label, np.flatnonzero(np.diff(label[by_label])) + 1) if len(by_label) else []
    classified = ClassifiedGraph(graph, [])
    single = SingleRwCycles(graph, limit)
    for group in groups:
        strongest = int(rank[label[group[0]]])
        if strongest == G_NONADJACENT:
            if next(single.cycles(group), None) is not None:
                strongest = G_SINGLE
            elif single.reached_limit:
                classified.unsure += 1
        classified.components.append(Component(strongest, group))
    classified.components.sort(key=lambda one: _find_lowest_transaction(graph, one))
    return classified


def _select_links(graph: Graph, rank: int) -> Flags:
    """Selects edges. Every cycle of these edges is of the class ``rank`` or a stronger one."""
    kind = graph.kind
    kept: Flags = (kind != RW) & ((kind != OVERTAKING) | (rank > G1C)) & ((kind != WR) | (rank > G0))
    return kept


def _find_lowest_transaction(graph: Graph, component: Component) -> int:
    ids = graph.nodes[component.members]
    return int(ids[ids >= 0][0])


def _double_nodes(graph: Graph) -> Graph:
    """Doubles the nodes for ``G-nonadjacent``: rw edges lead to node i + count, and all other edges to node i."""
    count = len(graph.nodes)
    rw, then = graph.kind == RW, graph.kind == THEN
    plain = ~rw & ~then
    s, t, k = graph.source, graph.target, graph.kind
    return Graph(
        np.concatenate([graph.nodes, graph.nodes]),
        np.concatenate([graph.times, graph.times]),
        np.concatenate([s[plain], s[plain] + count, s[then], s[then] + count, s[rw]]),
        np.concatenate([t[plain], t[plain], t[then], t[then] + count, t[rw] + count]),
        np.concatenate([k[plain], k[plain], k[then], k[then], k[rw]]),
    )


class ShortestPaths:
    """Shortest paths, measured in transactions: auxiliary nodes cost nothing."""

    def __init__(self, graph: Graph) -> None:
        order = np.argsort(graph.source, kind="stable")
        self._targets: list[int] = graph.target[order].tolist()
        self._first: list[int] = np.searchsorted(graph.source[order], np.arange(len(graph.nodes) + 1)).tolist()
        self._is_auxiliary: list[bool] = (graph.nodes < 0).tolist()
        self.expanded = 0
        """Number of nodes that all searches have expanded."""

    def list_targets(self, node: int) -> list[int]:
        """Returns the targets of the node's edges."""
        return self._targets[self._first[node] : self._first[node + 1]]

    def find(
        self, start: int, goal: int, *, shorter: int | None = None, places: Mapping[int, int] | None = None
    ) -> tuple[int, list[int]] | None:
        """Finds the shortest path. Returns its number of transactions and its nodes, or None if there is no path.

        - ``goal``: a transaction; it may be ``start`` itself
        - ``shorter``: finds only a path with fewer transactions
        - ``places``: finds only a path without nodes at a place above the goal's
        """
        parent: dict[int, int] = {}
        costs = {start: 0}
        queue, done = deque([start]), set[int]()
        while queue:
            node = queue.popleft()
            if node in done:
                continue
            done.add(node)
            self.expanded += 1
            for target in self.list_targets(node):
                if places is not None and places[target] > places[goal]:
                    continue
                further = costs[node] + (not self._is_auxiliary[target])
                if shorter is not None and further >= shorter:
                    continue
                if target == goal:
                    path = [goal, node]
                    while path[-1] != start:
                        path.append(parent[path[-1]])
                    return further, path[::-1]
                if further < costs.get(target, further + 1):
                    costs[target], parent[target] = further, node
                    (queue.appendleft if self._is_auxiliary[target] else queue.append)(target)
        return None


class SingleRwCycles:
    """Finds cycles with exactly one rw edge, in components that have no cycle without rw edges."""

    def __init__(self, graph: Graph, limit: int) -> None:
        rest = graph.select_edges(graph.kind != RW)
        self._rw = graph.select_edges(graph.kind == RW)
        self._limit = limit
        self._is_auxiliary = graph.nodes < 0
        self._times: list[int] = graph.times.tolist()
        self._in_degrees: list[int] = np.bincount(rest.target, minlength=len(graph.nodes)).tolist()
        self._paths = ShortestPaths(rest)

    @property
    def reached_limit(self) -> bool:
        return self._paths.expanded >= self._limit

    def cycles(self, members: Ints) -> Iterator[tuple[int, list[int]]]:
        """Yields each cycle: its number of transactions, and its nodes, with the first node again at the end."""
        places = self._sort_topologically(members.tolist())
        begins = np.searchsorted(self._rw.source, members)
        ends = np.searchsorted(self._rw.source, members, side="right")
        edges = [
            (u, v)
            for u, begin, end in zip(members.tolist(), begins.tolist(), ends.tolist(), strict=True)
            for v in self._rw.target[begin:end].tolist()
        ]
        for _, u, v in sorted((places[u] - places[v], u, v) for u, v in edges if places[v] < places[u]):
            if self.reached_limit:
                return
            found = self._paths.find(v, u, places=places)
            if found is not None:
                yield found[0] + (not self._is_auxiliary[v]), [u, *found[1]]

    def _sort_topologically(self, members: Sequence[int]) -> dict[int, int]:
        """Returns a topological order of all edges but rw, as close to the order of times as possible (Kahn 1962)."""
        waiting = {node: self._in_degrees[node] for node in members}
        ready = [(self._times[node], node) for node in members if waiting[node] == 0]
        heapq.heapify(ready)
        places: dict[int, int] = {}
        while ready:
            node = heapq.heappop(ready)[1]
            places[node] = len(places)
            for other in self._paths.list_targets(node):
                waiting[other] -= 1
                if waiting[other] == 0:
                    heapq.heappush(ready, (self._times[other], other))
        return places


class ShortCycles:
    """Finds short cycles of classified components."""

    def __init__(self, classified: ClassifiedGraph) -> None:
        graph = self._graph = classified.graph
        self._singles = SingleRwCycles(graph, LIMIT)
        self._subgraphs: dict[int, tuple[ShortestPaths, Flags]] = {}
        # The pairs are sorted, because the edges are. The first of several parallel edges has the strongest kind.
        self._pairs = graph.source * len(graph.nodes) + graph.target

    def find_shortest(self, component: Component) -> tuple[int, list[Edge]]:
        """Returns the class and the shortest cycle found. The class is the component's, or a stronger one that the
        search for G-single missed because of its limit."""
        if component.rank == G_SINGLE and not self._get_subgraph(G_SINGLE)[1][component.members].any():
            found = islice(self._singles.cycles(component.members), STARTS)
            best = min(found, key=lambda one: one[0])
        else:
            best = self._search_from_starts(component)
        nodes = [node % len(self._graph.nodes) for node in best[1]]
        if component.rank == G_NONADJACENT:
            nodes = self._simplify(nodes)
        kinds = self._find_kinds(nodes)
        ids = self._graph.nodes[nodes].tolist()
        steps = [Edge(s, t, k) for (s, t), k in zip(pairwise(ids), kinds, strict=True)]
        return min(component.rank, _classify_cycle(kinds)), steps

    def _search_from_starts(self, component: Component) -> tuple[int, list[int]]:
        """Returns the shortest cycle found: its number of transactions, and its nodes."""
        paths, inside = self._get_subgraph(component.rank)
        starts = component.members[self._graph.nodes[component.members] >= 0]
        if component.rank == G_NONADJACENT:
            starts = starts + len(self._graph.nodes)
        before, best = paths.expanded, None
        for start in starts[inside[starts]][:STARTS].tolist():
            found = paths.find(start, start, shorter=None if best is None else best[0])
            best = found or best
            if best is not None and (best[0] == 2 or paths.expanded - before > ENOUGH):
                break
        assert best is not None, "each of these nodes is on a cycle"
        return best

    def _get_subgraph(self, rank: int) -> tuple[ShortestPaths, Flags]:
        """Returns the graph whose cycles are all of this class or a stronger one, and the flags of nodes on cycles."""
        if rank not in self._subgraphs:
            if rank == G_NONADJACENT:
                part = _double_nodes(self._graph)
            elif rank == G2_ITEM:
                part = self._graph
            else:
                part = self._graph.select_edges(_select_links(self._graph, rank))
            self._subgraphs[rank] = ShortestPaths(part), find_components(len(part.nodes), part.source, part.target)[1]
        return self._subgraphs[rank]

    def _find_kinds(self, nodes: Sequence[int]) -> list[int]:
        """Returns the kind of each edge of a path."""
        pairs = [source * len(self._graph.nodes) + target for source, target in pairwise(nodes)]
        found: list[int] = self._graph.kind[np.searchsorted(self._pairs, pairs)].tolist()
        return found

    def _simplify(self, nodes: list[int]) -> list[int]:
        """Returns a part of a closed path that visits each node once, and has no two rw edges in a row."""
        seen: dict[int, int] = {}
        for index, node in enumerate(nodes[:-1]):
            if node in seen:
                inner, outer = nodes[seen[node] : index + 1], nodes[: seen[node]] + nodes[index:]
                return self._simplify(inner if _classify_cycle(self._find_kinds(inner)) <= G_NONADJACENT else outer)
            seen[node] = index
        return nodes


def _classify_cycle(kinds: Sequence[int]) -> int:
    """Returns the class of a cycle from the kinds of its edges."""
    links = [kind for kind in kinds if kind != THEN]
    if RW not in links and OVERTAKING not in links:
        return G1C if WR in links else G0
    if links.count(RW) <= 1:
        return G_SINGLE
    return G2_ITEM if any(a == b == RW for a, b in pairwise([*links, links[0]])) else G_NONADJACENT
