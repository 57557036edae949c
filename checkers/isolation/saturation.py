"""Serializability and snapshot isolation as a polygraph: known edges, and choices between two edges.

Serializability has one node for each transaction. Snapshot isolation has two, its start and its commit. R reads x from
W, and another transaction V writes x, too. Then one edge of each of these choices is in every legal order:

- ``commit(V) -> commit(W)`` or ``start(R) -> commit(V)``
- ``commit(V) -> start(W)`` or ``commit(W) -> start(V)`` (only snapshot isolation: two writers of x)

A graph with an edge of each choice and no cycle is enough. Its topological orders are legal (Papadimitriou 1979).
*Saturation* adds an edge if the other edge of its choice would close a cycle, until nothing changes. Reachability is a
matrix of bits. For each key and kind of choice, one test on a submatrix finds all edges to add.

A problem can be restricted to some transactions. The edges that follow from them hold in the whole history, too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from assay.checkers.isolation.levels import Level, Order, Rule
from assay.checkers.isolation.precedence import (
    Edge,
    EdgePaths,
    Kind,
    Path,
    count_nodes,
    link_by_time,
    skip_auxiliary_nodes,
)
from assay.checkers.isolation.transactions import INITIAL, NEVER, TransactionHistory
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bits = NDArray[np.uint8]
else:
    np = LazyModule("numpy")


class SearchLimitReached(Exception):
    """A limit of time or memory ended a search without an answer. Without a text, it was the time limit."""


@dataclass(frozen=True)
class Choice:
    """Two edges, one of which holds. ``first`` agrees with the times of the calls."""

    first: Edge
    second: Edge


@dataclass(frozen=True)
class _KeyProblem:
    """The accesses to a key: ``readers[i]`` read the version that ``writers[read_from[i]]`` wrote."""

    key: int
    writers: Ints
    readers: Ints
    read_from: Ints


@dataclass(frozen=True)
class Problem:
    """Some transactions of a history, whose order is sought. In the problem they are numbered from 0."""

    history: TransactionHistory
    members: Sequence[int]
    """The numbers of the transactions in the history, by their numbers in the problem."""
    snapshot: bool
    """Whether the level is snapshot isolation, with two nodes for each transaction."""
    keys: tuple[_KeyProblem, ...]
    known: tuple[Edge, ...]
    times: tuple[int, ...]
    """By node, the likely time of its event: the call. For a commit it is the return, but at most 1 s after the call.

    Searches try the edges of a choice, and sort unordered nodes, by these times.
    """

    @property
    def nodes(self) -> int:
        return len(self.times)

    def start(self, member: int) -> int:
        return 2 * member if self.snapshot else member

    def commit(self, member: int) -> int:
        return 2 * member + 1 if self.snapshot else member

    def find_transaction(self, node: int) -> int:
        """Returns the number of a node's transaction in the history."""
        return self.members[node // 2 if self.snapshot else node]


def make_problem(history: TransactionHistory, level: Level, members: Sequence[int] | None = None) -> Problem:
    """Makes the problem of a level that needs a search. ``members``: numbers of transactions, ascending; None: all."""
    chosen = range(len(history)) if members is None else members
    # Key: the number of a transaction in the history. Value: its number in the problem.
    local = {number: place for place, number in enumerate(chosen)}
    snapshot = level.rule is Rule.SNAPSHOT_ISOLATION
    writers: dict[int, list[int]] = {}
    reads: dict[int, list[tuple[int, int]]] = {}
    for place, number in enumerate(chosen):
        for key in history.writes[number]:
            writers.setdefault(key, []).append(place)
        for read in history.reads[number]:
            if read.writer == INITIAL or read.writer in local:
                reads.setdefault(read.key, []).append((place, local.get(read.writer, INITIAL)))
    times = [time for number in chosen for time in ((history.calls[number], min(history.returns[number],
             history.calls[number] + 10**9)) if snapshot else (history.calls[number],))]  # fmt: skip
    problem = Problem(history, chosen, snapshot, (), (), tuple(times))
    known = list(_list_known_edges(problem, level, local, writers, reads))
    keys = []
    for key, writers_of_key in writers.items():
        index = {writer: position for position, writer in enumerate(writers_of_key)}
        pairs = sorted({(reader, index[writer]) for reader, writer in reads.get(key, ()) if writer in index})
        if len(writers_of_key) > 1:
            array = np.array(pairs, np.int64).reshape(-1, 2)
            keys.append(_KeyProblem(key, np.array(writers_of_key, np.int64), array[:, 0], array[:, 1]))
    return replace(problem, keys=tuple(keys), known=tuple(known))


def _list_known_edges(
    problem: Problem, level: Level, local: dict[int, int], writers: dict[int, list[int]],
    reads: dict[int, list[tuple[int, int]]],
) -> Iterator[Edge]:  # fmt: skip
    """Yields the edges that hold in every legal order. ``writers``, ``reads``: by key, numbers in the problem."""
    history, start, commit = problem.history, problem.start, problem.commit
    if problem.snapshot:
        yield from (Edge(start(place), commit(place), Kind.START_TO_COMMIT) for place in range(len(problem.members)))
    for key, pairs in reads.items():
        for reader, writer in dict.fromkeys(pairs):
            if writer != INITIAL:
                yield Edge(commit(writer), start(reader), Kind.WR, key, reader, writer)
                continue
            for other in writers.get(key, ()):
                if other != reader:
                    yield Edge(start(reader), commit(other), Kind.RW, key, reader, INITIAL)
    if level.order is Order.SESSION:
        pairs = history.list_session_order() if len(local) == len(history) else _restrict_sessions(history, local)
        yield from (Edge(commit(local[a]), start(local[b]), Kind.SESSION) for a, b in pairs)
    elif level.order is Order.REAL_TIME:
        returns = ((history.returns[one], commit(place)) for one, place in local.items())
        yield from link_by_time(
            (one for one in returns if one[0] != NEVER),
            ((history.calls[one], start(place)) for one, place in local.items()),
            problem.nodes,
            Kind.REAL_TIME,
        )
    for key in writers:
        inside = [local[one] for one in history.versions.get(key, ()) if one in local]
        # Elements that no read shows come after the last element that a read shows.
        unseen = [local[one] for one in history.unseen.get(key, ()) if one in local]
        yield from (Edge(commit(a), start(b), Kind.WW, key) for a, b in pairwise(inside) if a != b)
        if inside:
            yield from (Edge(commit(inside[-1]), start(b), Kind.WW, key) for b in unseen if b != inside[-1])


def _restrict_sessions(history: TransactionHistory, local: dict[int, int]) -> list[tuple[int, int]]:
    part = TransactionHistory(
        processes=[history.processes[one] for one in local],
        calls=[history.calls[one] for one in local],
        returns=[history.returns[one] for one in local],
    )
    numbers = list(local)
    return [(numbers[first], numbers[second]) for first, second in part.list_session_order()]


class Conflict(Exception):
    """The edges have a cycle. ``edge`` is the new edge that closes it; None if the cycle has only edges that were added
    before."""

    def __init__(self, edge: Edge | None) -> None:
        super().__init__("cycle")
        self.edge = edge


_MOST_COPIED: Final = 64_000_000
"""Maximum number of bytes of a closure that is copied. A larger one is computed again, which takes longer."""
_TIME_STEP: Final = 1000
"""Number of nodes between two looks at the clock."""
_FEW: Final = 64
"""Number of edges that may always be added to a closure one by one."""


@dataclass(frozen=True)
class State:
    """A former state of a saturation: its number of edges, and their closure if it is not too large."""

    edges: int
    reach: Bits | None
    """By node, a row with one bit for each node that it reaches."""


class Saturation:
    """Edges that hold in every legal order, given the decisions so far, and their closure.

    ``edges`` are in the order in which they were added; each is derived from earlier ones only. The premise of a
    derived edge is a pair of nodes between which a path of earlier edges leads (``precedence.Edge``).
    """

    def __init__(self, problem: Problem, deadline: float) -> None:
        """Begins with the known edges. Their closure is computed by ``saturate``."""
        self.problem = problem
        self.edges: list[Edge] = [*problem.known]
        self._deadline = deadline
        self._reach: Bits = np.zeros((0, 0), np.uint8)
        self._is_closed = False
        self._following: list[list[int]] = []
        self._sources: list[list[int]] = []
        self._linked = 0
        """Number of edges that ``_following`` and ``_sources`` already include."""
        self._keys = problem.keys
        self._focus: Collection[int] | None = None

    def focus(self, nodes: Collection[int]) -> None:
        """Limits ``saturate`` to the keys that these nodes write.

        ``list_choices`` then returns only the choices whose first edge begins at one of the nodes.

        The caller guarantees that no choice between other nodes depends on these (``decomposition``).
        """
        self._focus = nodes
        self._keys = tuple(
            accesses
            for accesses in self.problem.keys
            if any(self.problem.commit(writer) in nodes for writer in accesses.writers.tolist())
        )

    def save(self) -> State:
        return State(len(self.edges), self._reach.copy() if self._reach.nbytes <= _MOST_COPIED else None)

    def restore(self, state: State) -> None:
        has_changed = len(self.edges) != state.edges
        del self.edges[state.edges :]
        self._following = []
        if state.reach is not None:
            self._reach = state.reach.copy()
        elif has_changed:
            self._close()

    def add(self, edge: Edge) -> None:
        """Adds an edge and its consequences for reachability. Raises ``Conflict`` if it closes a cycle."""
        if self.reaches(edge.source, edge.target):
            return
        if self.reaches(edge.target, edge.source):
            raise Conflict(edge)
        self.edges.append(edge)
        self._connect(edge)

    def reaches(self, source: int, target: int) -> bool:
        """Returns whether a path leads from one node to the other; each node reaches itself."""
        return bool(self._reach[source, target >> 3] >> (target & 7) & 1)

    def saturate(self) -> None:
        """Adds edges until no choice forces another one. Raises ``Conflict`` or ``SearchLimitReached``."""
        if not self._is_closed:
            self._close()
        while True:
            found: list[Edge] = []
            for accesses in self._keys:
                if time.monotonic() > self._deadline:
                    raise SearchLimitReached
                found += self._derive(accesses)
            if not found:
                return
            if len(found) > (_FEW if self._reach.nbytes > _MOST_COPIED else max(_FEW, self.problem.nodes // 50)):
                self.edges += found
                self._close()
            else:
                for edge in found:
                    self.add(edge)

    def list_derived_pairs(self) -> list[tuple[int, int]]:
        """Returns the derived edges as pairs of events, numbered as in ``certificate``."""
        events = [
            2 * self.problem.find_transaction(node) + node % 2
            if self.problem.snapshot
            else self.problem.find_transaction(node)
            for node in range(self.problem.nodes)
        ]
        return [(events[edge.source], events[edge.target]) for edge in self.edges[len(self.problem.known) :]]

    def list_choices(self, most: int) -> list[Choice]:
        """Returns up to ``most`` choices that are still open."""
        choices: list[Choice] = []
        for accesses in self._keys:
            found = self._list_choices_of_key(accesses)
            choices += (one for one in found if self._focus is None or one.first.source in self._focus)
            if len(choices) >= most:
                break
        return choices[:most]

    def list_open_links(self) -> Iterator[tuple[int, int]]:
        """Yields the nodes of both edges of each open choice."""
        for accesses in self._keys:
            for choice in self._list_choices_of_key(accesses):
                yield choice.first.source, choice.first.target
                yield choice.second.source, choice.second.target

    def _connect(self, edge: Edge) -> None:
        before = np.flatnonzero(self._reach[:, edge.source >> 3] >> (edge.source & 7) & 1)
        self._reach[before] |= self._reach[edge.target]

    def _close(self) -> None:
        """Computes the closure of all edges. Raises ``Conflict`` if they have a cycle."""
        count = self.problem.nodes
        following, sources = self._link()
        total = len(following)
        # For each node, the numbers of targets and of sources whose rows are not computed yet.
        targets_left, sources_left = list(map(len, following)), list(map(len, sources))
        ready = [node for node in range(total) if not targets_left[node]]
        rows = [0] * total  # each only until all sources of the node are computed
        width = count // 8 + 1
        reach = np.zeros((count, width), np.uint8)
        done = 0
        while ready:
            node = ready.pop()
            row = 1 << node if node < count else 0
            for target in following[node]:
                row |= rows[target]
                sources_left[target] -= 1
                if not sources_left[target]:
                    rows[target] = 0
            if sources_left[node]:
                rows[node] = row
            if node < count:
                reach[node] = np.frombuffer(row.to_bytes(width, "little"), np.uint8)
            done += 1
            if done % _TIME_STEP == 0 and time.monotonic() > self._deadline:
                raise SearchLimitReached
            for source in sources[node]:
                targets_left[source] -= 1
                if not targets_left[source]:
                    ready.append(source)
        if done < total:
            raise Conflict(None)
        self._reach = reach
        self._is_closed = True

    def _link(self) -> tuple[list[list[int]], list[list[int]]]:
        """Returns the targets and the sources of each node's edges. Nodes from ``problem.nodes`` on are auxiliary
        (``link_by_time``)."""
        if self._linked > len(self.edges) or not self._following:
            count = count_nodes(self.problem.nodes, self.problem.known)
            self._following, self._sources, self._linked = [[] for _ in range(count)], [[] for _ in range(count)], 0
        for edge in self.edges[self._linked :]:
            self._following[edge.source].append(edge.target)
            self._sources[edge.target].append(edge.source)
        self._linked = len(self.edges)
        return self._following, self._sources

    def _read_reachability(self, rows: Ints, columns: Ints) -> NDArray[np.bool_]:
        """Returns whether each row's node reaches each column's node."""
        bits = self._reach[rows[:, None], columns >> 3] >> (columns & 7).astype(np.uint8)
        found: NDArray[np.bool_] = (bits & 1).astype(np.bool_)
        return found

    def _derive(self, accesses: _KeyProblem) -> list[Edge]:
        """Returns the edges that the choices of one key force, because the other edge would close a cycle."""
        problem, key, writers, readers, read_from = (
            self.problem, accesses.key, accesses.writers, accesses.readers, accesses.read_from,
        )  # fmt: skip
        commits, starts = (2 * writers + 1, 2 * readers) if problem.snapshot else (writers, readers)
        order = self._read_reachability(commits, commits)
        edges = []
        # Indexes in `writers`: `row` is that of V, and `source` that of W. `column` is the index of R in `readers`.
        if len(readers):
            others = writers[:, None] != readers
            # commit(V) reaches start(R), so start(R) -> commit(V) would close a cycle: commit(V) -> commit(W).
            rows, columns = np.nonzero(self._read_reachability(commits, starts) & ~order[:, read_from] & others)
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
                source = int(read_from[column])
                edges.append(
                    Edge(int(commits[row]), int(commits[source]), Kind.WW, key, int(readers[column]),
                         int(writers[source]), (int(commits[row]), int(starts[column])))
                )  # fmt: skip
            # commit(W) reaches commit(V), so commit(V) -> commit(W) would close a cycle: start(R) -> commit(V).
            wanted = order[read_from] & ~self._read_reachability(starts, commits) & others.T
            wanted[np.arange(len(read_from)), read_from] = False
            for column, row in zip(*(found.tolist() for found in np.nonzero(wanted)), strict=True):
                source = int(read_from[column])
                edges.append(
                    Edge(int(starts[column]), int(commits[row]), Kind.RW, key, int(readers[column]),
                         int(writers[source]), (int(commits[source]), int(commits[row])))
                )  # fmt: skip
        if problem.snapshot:
            # start(V) reaches commit(W), so commit(W) -> start(V) would close a cycle: commit(V) -> start(W).
            begins = 2 * writers
            wanted = self._read_reachability(begins, commits) & ~self._read_reachability(commits, begins)
            np.fill_diagonal(wanted, val=False)
            for one, other in zip(*(found.tolist() for found in np.nonzero(wanted)), strict=True):
                edges.append(
                    Edge(int(commits[one]), int(begins[other]), Kind.WW, key,
                         premise=(int(begins[one]), int(commits[other])))
                )  # fmt: skip
        return edges

    def _list_choices_of_key(self, accesses: _KeyProblem) -> Iterator[Choice]:
        problem, key, writers, readers, read_from = (
            self.problem, accesses.key, accesses.writers, accesses.readers, accesses.read_from,
        )  # fmt: skip
        commits, starts = (2 * writers + 1, 2 * readers) if problem.snapshot else (writers, readers)
        if len(readers):
            order = self._read_reachability(commits, commits)
            is_open = ~order[:, read_from] & ~self._read_reachability(starts, commits).T & (writers[:, None] != readers)
            for row, column in zip(*(found.tolist() for found in np.nonzero(is_open)), strict=True):
                source = int(read_from[column])
                reader, writer = int(readers[column]), int(writers[source])
                before = Edge(int(commits[row]), int(commits[source]), Kind.WW, key, reader, writer, decided=True)
                after = Edge(int(starts[column]), int(commits[row]), Kind.RW, key, reader, writer, decided=True)
                yield self._order_choice(before, after)
        if problem.snapshot:
            ordered = self._read_reachability(commits, 2 * writers)
            is_open = ~ordered & ~ordered.T
            for one, other in zip(*(found.tolist() for found in np.nonzero(np.triu(is_open, 1))), strict=True):
                first, second = int(writers[one]), int(writers[other])
                yield self._order_choice(
                    Edge(2 * first + 1, 2 * second, Kind.WW, key, decided=True),
                    Edge(2 * second + 1, 2 * first, Kind.WW, key, decided=True),
                )

    def _order_choice(self, one: Edge, other: Edge) -> Choice:
        times = self.problem.times
        lead = times[one.target] - times[one.source]
        return Choice(one, other) if lead >= times[other.target] - times[other.source] else Choice(other, one)


def find_premises(edges: Sequence[Edge], used: Path) -> dict[tuple[int, Edge], Path]:
    """Returns a path for each derived edge in ``used``, for each derived edge on such a path, and so on.

    A path leads from the first to the second node of the edge's premise. Each edge has its index in ``edges``.
    """
    paths = EdgePaths(edges)
    found: dict[tuple[int, Edge], Path] = {}
    left = list(used)
    while left:
        derived = left.pop()
        index, edge = derived
        if edge.premise is None or derived in found:
            continue
        path = paths.find(*edge.premise, below=index)
        assert path is not None, "a derived edge follows from earlier ones"
        found[derived] = skip_auxiliary_nodes(path)
        left += found[derived]
    return found
