"""Levels that need no search: the edges that each level demands. A history satisfies the level iff they have no cycle.

- Read uncommitted: the known order of versions (lists only), and the declared order.
- Read committed (PL-2): also reads-from. No more is needed: if reads-from has no cycle, some order of versions fits it.
- Axiomatic read committed and read atomic: if R saw V, and read x of W, which V wrote too, then V comes before W. For
  each pair of V and R, only the keys of the one with fewer keys are searched: O(n^1.5) for n operations.
- Causal: V comes before W also if a path of reads-from and sessions leads from V to R. Each session is a chain, so a
  clock with one position per session describes all that R saw: O(n k) for n operations and k sessions. Clocks are
  sparse: a session without influence has no entry.

Real time has a linear number of edges, by auxiliary nodes (``precedence``). So have the edges that read atomic demands
because of real time, up to a logarithm: R saw all writers of x that returned before its call. Except for W, these are
at most two ranges of the writers in the order of their returns. A segment tree with auxiliary nodes covers the ranges.

These bounds on the time are those of Moeldrup and Pavlogiannis, *AWDIT*, PLDI 2025, which are optimal for unique
values.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Final

from assay.checkers.isolation.levels import Level, Order, Rule
from assay.checkers.isolation.precedence import Edge, Kind, count_nodes, link_by_time, sort_with_auxiliaries
from assay.checkers.isolation.transactions import INITIAL, NEVER, Read, TransactionHistory

_FEW: Final = 8
"""Number of writers that get an edge each. More of them share the nodes of a segment tree."""


def list_demanded_edges(history: TransactionHistory, level: Level) -> list[Edge]:
    """Returns the edges that a weak level demands. Causal stops early if wr and sessions have a cycle."""
    edges = [Edge(first, second, Kind.WW, key) for first, second, key in history.list_version_order()]
    edges += _list_declared_edges(history, level.order)
    if level.rule is Rule.READ_UNCOMMITTED:
        return edges
    edges += _list_reads_from(history)
    if level.rule is Rule.READ_COMMITTED:
        return edges
    if level.rule is Rule.CAUSAL and level.order is not Order.SESSION:
        edges += _list_declared_edges(history, Order.SESSION)
    if level.rule is Rule.AXIOMATIC_READ_COMMITTED:
        return edges + _list_order_within_transactions(history)
    if level.rule is Rule.READ_ATOMIC:
        edges += _list_atomic_visibility(history)
        if level.order is Order.SESSION:
            edges += _list_visibility_by_sessions(history)
        elif level.order is Order.REAL_TIME:
            edges += _list_visibility_by_time(history, count_nodes(len(history), edges))
        return edges
    return edges + _list_causal_visibility(history, [edge for edge in edges if edge.kind is not Kind.WW])


def _list_declared_edges(history: TransactionHistory, order: Order) -> list[Edge]:
    """Returns edges whose closure is the declared order, on the transactions."""
    if order is Order.SESSION:
        return [Edge(first, second, Kind.SESSION) for first, second in history.list_session_order()]
    if order is Order.NONE:
        return []
    returns = ((ret, number) for number, ret in enumerate(history.returns) if ret != NEVER)
    calls = ((call, number) for number, call in enumerate(history.calls))
    return list(link_by_time(returns, calls, len(history), Kind.REAL_TIME))


def _list_reads_from(history: TransactionHistory) -> list[Edge]:
    edges = []
    for reader, reads in enumerate(history.reads):
        for writer, key in _find_first_reads(reads).items():
            edges.append(Edge(writer, reader, Kind.WR, key, reader, writer))
    return edges


def _find_first_reads(reads: Sequence[Read]) -> dict[int, int]:
    """Returns the writers that a transaction read from, in the order of its first reads of each, each with a key."""
    first: dict[int, int] = {}
    for read in reads:
        for writer in read.writers:
            if writer != INITIAL:
                first.setdefault(writer, read.key)
    return first


def _demand(key: int, reader: int, writer: int, other: int) -> Edge:
    """Returns the edge that follows if ``reader`` saw ``other`` and read ``key`` of ``writer``: from other to writer.

    Nothing is earlier than the initial value. If ``reader`` read it, the edge leads from ``reader`` to ``other``. It
    closes a cycle, because ``reader`` saw ``other``.
    """
    if writer == INITIAL:
        return Edge(reader, other, Kind.RW, key, reader, writer)
    return Edge(other, writer, Kind.WW, key, reader, writer, premise=(other, reader))


def _list_order_within_transactions(history: TransactionHistory) -> list[Edge]:
    """Returns the edges of axiomatic read committed, except those that follow from others.

    Suppose that a transaction saw the writer V, and then reads one of V's keys several times. Only the first of these
    reads that shows another writer gets an edge from V. Successive reads of a key get edges between their writers,
    which imply the other edges. So the number of edges is linear.
    """
    edges = []
    for reader, reads in enumerate(history.reads):
        places: dict[int, list[tuple[int, int]]] = {}
        seen: dict[int, int] = {}
        for place, read in enumerate(reads):
            for writer in read.writers:
                if writer != INITIAL:
                    seen.setdefault(writer, place)
            places.setdefault(read.key, []).append((place, read.writer))
        for key, found in places.items():
            edges += [
                _demand(key, reader, writer, other)
                for (_, other), (_, writer) in pairwise(found)
                if other not in (INITIAL, writer)
            ]
        changes = {key: _find_changes(found) for key, found in places.items()}
        for other, since in seen.items():
            for key in _list_shared_keys(history.writes[other], places):
                place = bisect_right(places[key], since, key=itemgetter(0))
                if place < len(places[key]) and places[key][place][1] == other:
                    place = changes[key][place]
                if place < len(places[key]):
                    edges.append(_demand(key, reader, places[key][place][1], other))
    return edges


def _find_changes(reads: Sequence[tuple[int, int]]) -> list[int]:
    """Returns for each read, given as (place, writer), the index of the next one of another writer."""
    changes = [len(reads)] * len(reads)
    for index in range(len(reads) - 2, -1, -1):
        changes[index] = changes[index + 1] if reads[index][1] == reads[index + 1][1] else index + 1
    return changes


def _list_atomic_visibility(history: TransactionHistory) -> list[Edge]:
    """Returns the edges of read atomic that follow from reads."""
    edges = []
    for reader, reads in enumerate(history.reads):
        writers: dict[int, list[int]] = {}
        for read in reads:
            known = writers.setdefault(read.key, [])
            if len(known) < 2 and read.writer not in known:  # two writers of one key already close a cycle
                known.append(read.writer)
        for other in _find_first_reads(reads):
            for key in _list_shared_keys(history.writes[other], writers):
                edges += [_demand(key, reader, writer, other) for writer in writers[key] if writer != other]
    return edges


def _list_shared_keys(first: Mapping[int, object], second: Mapping[int, object]) -> list[int]:
    """Returns the keys of both, in time linear in the smaller one."""
    smaller, larger = sorted((first, second), key=len)
    return [key for key in smaller if key in larger]


def _list_visibility_by_sessions(history: TransactionHistory) -> list[Edge]:
    """Returns the edges of read atomic that follow from sessions: a transaction sees all before it in its session.

    The last writer of the key suffices, because the others precede it.
    """
    writers = _list_writers_by_return(history, by_session=True)
    edges = []
    for reader, reads in enumerate(history.reads):
        for read in reads:
            returns, ended = writers.get((history.processes[reader], read.key), ((), ()))
            place = bisect_left(returns, history.calls[reader])
            if place and ended[place - 1] not in (read.writer, reader):
                edges.append(_demand(read.key, reader, read.writer, ended[place - 1]))
    return edges


def _list_writers_by_return(
    history: TransactionHistory, *, by_session: bool
) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
    """Returns, by session (or 0) and key, the returns of all writers, ascending, and the writers."""
    found: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for number in sorted(range(len(history)), key=history.returns.__getitem__):
        if history.returns[number] == NEVER:
            break
        group = history.processes[number] if by_session else 0
        for key in history.writes[number]:
            returns, writers = found.setdefault((group, key), ([], []))
            returns.append(history.returns[number])
            writers.append(number)
    return found


def _list_visibility_by_time(history: TransactionHistory, first: int) -> list[Edge]:
    """Returns the edges of read atomic that follow from real time: a transaction sees all that returned before it.

    The last reader of a version saw the most. Auxiliary nodes are numbered from ``first``.
    """
    last: dict[tuple[int, int], int] = {}
    for reader, reads in enumerate(history.reads):  # in the order of their calls
        for read in reads:
            last[read.key, read.writer] = reader
    writers = _list_writers_by_return(history, by_session=False)
    ranks = {(key, one): rank for (_, key), (_, ended) in writers.items() for rank, one in enumerate(ended)}
    trees: dict[int, _SegmentTree] = {}
    edges = []
    for (key, writer), reader in last.items():
        returns, ended = writers.get((0, key), ([], []))
        end = bisect_left(returns, history.calls[reader])
        if not end:
            continue
        if writer == INITIAL:
            edges.append(_demand(key, reader, writer, ended[0]))
            continue
        sources = _find_latest(history, returns, ended, end, writer)
        if sources is None:
            if key not in trees:
                trees[key] = _SegmentTree(ended, first)
                first += len(ended)
            own = min(ranks.get((key, writer), end), end)
            sources = [*trees[key].cover(0, own), *trees[key].cover(own + 1, end)]
        edges += [_demand(key, reader, writer, source) for source in sources]
    return [*(edge for tree in trees.values() for edge in tree.edges), *edges]


def _find_latest(
    history: TransactionHistory, returns: Sequence[int], ended: Sequence[int], end: int, writer: int
) -> list[int] | None:
    """Returns the latest of the first ``end`` writers, without ``writer``: none of them returned before another of the
    first ``end`` writers was called.

    Each other writer precedes one of these. Returns None if there are more than ``_FEW``.
    """
    found: list[int] = []
    latest_call = -1
    for place in range(end - 1, -1, -1):
        if returns[place] < latest_call:
            break
        if len(found) == _FEW:
            return None
        if ended[place] != writer:
            found.append(ended[place])
        latest_call = max(latest_call, history.calls[ended[place]])
    return found


class _SegmentTree:
    """Auxiliary nodes that stand for ranges of transactions.

    The leaves, numbers ``count`` to ``2 count - 1`` of the tree, are the transactions. The others are the nodes from
    ``first``.
    """

    def __init__(self, transactions: Sequence[int], first: int) -> None:
        self._transactions = transactions
        self._first = first
        self.edges = [
            Edge(self._find_node(number), self._find_node(number // 2), Kind.AUXILIARY)
            for number in range(2 * len(transactions) - 1, 1, -1)
        ]

    def _find_node(self, number: int) -> int:
        count = len(self._transactions)
        return self._transactions[number - count] if number >= count else self._first + number

    def cover(self, begin: int, end: int) -> list[int]:
        """Returns nodes that stand for the transactions from ``begin`` until before ``end``."""
        found = []
        begin, end = begin + len(self._transactions), end + len(self._transactions)
        while begin < end:
            if begin & 1:
                found.append(self._find_node(begin))
                begin += 1
            if end & 1:
                end -= 1
                found.append(self._find_node(end))
            begin, end = begin // 2, end // 2
        return found


def _list_causal_visibility(history: TransactionHistory, before: Sequence[Edge]) -> list[Edge]:
    """Returns the edges of causal convergence. ``before``: reads-from and the orders that causality contains."""
    order = sort_with_auxiliaries(len(history), before, history.calls)
    if order is None:
        return []
    chains, places = _assign_chains(history)
    written: dict[int, dict[int, tuple[list[int], list[int]]]] = {}
    for number in sorted(range(len(history)), key=places.__getitem__):
        for key in history.writes[number]:
            positions, writers = written.setdefault(key, {}).setdefault(chains[number], ([], []))
            positions.append(places[number])
            writers.append(number)
    found: dict[tuple[int, int, int], Edge] = {}  # by key, version and chain: the last writer implies the others
    last: dict[tuple[int, int, int], int] = {}
    for reader, clock in _iterate_clocks(history, before, order, chains, places):
        for read in history.reads[reader]:
            for chain in _list_shared_keys(written.get(read.key, {}), clock):
                positions, writers = written[read.key][chain]
                place = bisect_right(positions, clock[chain])
                version = read.key, read.writer, chain
                if place > last.get(version, 0) and writers[place - 1] not in (read.writer, reader):
                    last[version] = place
                    found[version] = _demand(read.key, reader, read.writer, writers[place - 1])
    return list(found.values())


def _assign_chains(history: TransactionHistory) -> tuple[list[int], list[int]]:
    """Returns the chain of each transaction, and its place there. Chains are sessions; a transaction of unknown outcome
    precedes none of its session, so it is a chain of its own."""
    numbers: dict[tuple[int, int], int] = {}
    lengths: list[int] = []
    chains, places = [], []
    for number, process in enumerate(history.processes):
        alone = number if history.returns[number] == NEVER else -1
        chain = numbers.setdefault((process, alone), len(numbers))
        if chain == len(lengths):
            lengths.append(0)
        chains.append(chain)
        places.append(lengths[chain])
        lengths[chain] += 1
    return chains, places


def _iterate_clocks(
    history: TransactionHistory, before: Sequence[Edge], order: Sequence[int], chains: Sequence[int],
    places: Sequence[int],
) -> Iterator[tuple[int, dict[int, int]]]:  # fmt: skip
    """Yields each transaction with its clock: by chain, the place of the last transaction that it saw.

    ``order`` has auxiliary nodes, too.
    """
    count = len(history)
    sources: list[list[int]] = [[] for _ in order]
    left = [0] * len(order)
    for edge in before:
        sources[edge.target].append(edge.source)
        left[edge.source] += 1
    clocks: dict[int, dict[int, int]] = {}
    for number in order:
        clock: dict[int, int] | None = None
        for source in sources[number]:
            left[source] -= 1
            is_own = not left[source]  # no other node needs this clock
            known = clocks.pop(source) if is_own else clocks[source]
            if clock is None:
                clock = known if is_own else dict(known)
            else:
                if len(known) > len(clock):
                    clock, known = known if is_own else dict(known), clock
                for chain, place in known.items():
                    if clock.get(chain, -1) < place:
                        clock[chain] = place
            if source < count and clock.get(chains[source], -1) < places[source]:
                clock[chains[source]] = places[source]
        clock = {} if clock is None else clock
        if left[number]:
            clocks[number] = clock
        if number < count:
            yield number, clock
