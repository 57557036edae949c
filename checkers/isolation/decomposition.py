"""Decides the choices of a history part by part, so that only the size of its parts matters.

All edges that may hold form a graph: the known edges, and both edges of each choice (``saturation``). Every cycle lies
in one of its strongly connected components, whichever edges hold. So does every open choice: if W comes before R, then
its two edges "V before W" and "R before V" make a cycle through all three.

1. Before saturation, the transactions that use an object may come in any order. If the level respects real time, only
   those that overlap, directly or through others, may change places. This gives the first parts. For example, objects
   that share no transaction are in different parts.
2. Each part is saturated on its own. Its saturated edges and its open choices give smaller parts.
3. A solver or a search decides the choices of each smaller part (``solver``, ``search``).
4. All edges between parts lead in the same direction. So the orders of the parts, one after the other, are an order of
   all transactions. A refutation of a part refutes the history.

The start and the commit of a transaction stay in one part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Final

from assay.checkers.isolation.levels import Level, Order, Rule
from assay.checkers.isolation.precedence import count_nodes, find_components, sort_topologically
from assay.checkers.isolation.refutation import Refutation, refute
from assay.checkers.isolation.saturation import Conflict, Saturation, SearchLimitReached, make_problem
from assay.checkers.isolation.search import Shortcut
from assay.checkers.isolation.transactions import INITIAL, TransactionHistory

MOST_BYTES: Final = 2_000_000_000
"""Maximum size of a part's closure. 126,000 transactions in one part reach it, or half as many for snapshot isolation.
"""

Decider = Callable[[Saturation, float, Shortcut], list[int] | Refutation]
"""Returns a legal order of the nodes of a saturated problem, or a refutation, until a deadline. ``search`` explains
``Shortcut``."""


def decide_parts(
    history: TransactionHistory, level: Level, deadline: float, decider: Decider
) -> list[int] | Refutation:
    """Returns a legal order of all events, numbered as in ``certificate``, or a refutation.

    Raises ``SearchLimitReached``, also if the closure of a part is larger than ``MOST_BYTES``.
    """
    links = list(_list_possible_links(history, level))
    components = find_components(max(map(max, links), default=-1) + 1, links)
    components += range(len(components), len(history))  # those without links
    readers = _find_last_readers(history) if level.order is Order.REAL_TIME else {}
    order: list[int] = []
    for part in _group(components[: len(history)]):
        found = _decide_part(history, level, part, readers, deadline, decider)
        if not isinstance(found, list):
            return found
        order += found
    return order


def _decide_part(
    history: TransactionHistory,
    level: Level,
    part: Sequence[int],
    readers: Mapping[tuple[int, int], int],
    deadline: float,
    decider: Decider,
) -> list[int] | Refutation:
    """Returns a legal order of the part's events.

    Some transactions of other parts can decide its choices by real time, so they are judged with it. They are the
    writers of versions that the part read, and the last readers of versions that it wrote (``readers``).
    """
    each = 2 if level.rule is Rule.SNAPSHOT_ISOLATION else 1
    if len(part) == 1:
        return [each * part[0] + event for event in range(each)]
    writers = {read.writer for number in part for read in history.reads[number]} - {INITIAL}
    others = {readers[key, number] for number in part for key in history.writes[number] if (key, number) in readers}
    members = sorted({*part, *writers, *others})
    if (each * len(members)) ** 2 // 8 > MOST_BYTES:
        raise SearchLimitReached(
            f"the choices of {len(part):,} transactions depend on each other, which needs too much memory"
        )
    saturation = Saturation(make_problem(history, level, members), deadline)
    try:
        saturation.saturate()
    except Conflict as conflict:
        return refute(saturation, conflict)[0]
    problem = saturation.problem
    order = sort_topologically(problem.nodes, saturation.edges, problem.times)
    assert order is not None, "saturated edges have no cycle"
    open_links = list(saturation.list_open_links())
    if open_links:
        known = ((edge.source, edge.target) for edge in saturation.edges)
        within = ((problem.commit(place), problem.start(place)) for place in range(len(members)))
        total = count_nodes(problem.nodes, problem.known)
        components = find_components(total, chain(known, open_links, within))
        places = {node: place for place, node in enumerate(order)}
        for component in sorted({components[source] for source, _ in open_links}):
            state = saturation.save()
            nodes = {node for node in range(problem.nodes) if components[node] == component}
            saturation.focus(nodes)
            found = decider(saturation, deadline, lambda state: None)
            if not isinstance(found, list):
                return found
            saturation.restore(state)
            places.update((node, place) for place, node in enumerate(found) if node in nodes)
        order.sort(key=lambda node: (-components[node], places[node]))
    own = set(part)
    return [
        each * problem.find_transaction(node) + node % each for node in order if problem.find_transaction(node) in own
    ]


def _group(components: Sequence[int]) -> list[list[int]]:
    """Returns the members of each component, ascending. Links lead to later components, or stay in one."""
    parts: dict[int, list[int]] = {}
    for place, component in enumerate(components):
        parts.setdefault(component, []).append(place)
    return [parts[component] for component in sorted(parts, reverse=True)]


def _list_possible_links(history: TransactionHistory, level: Level) -> Iterator[tuple[int, int]]:
    """Yields pairs of transactions, or auxiliary nodes, the first of which may have to come before the second one.

    The closure of the pairs contains all edges that may hold, and perhaps more.
    """
    problem = make_problem(history, level)
    count, each = len(history), 2 if problem.snapshot else 1

    def convert(node: int) -> int:
        return node // each if node < problem.nodes else node - problem.nodes + count

    yield from ((convert(edge.source), convert(edge.target)) for edge in problem.known)
    writers = Counter(key for written in history.writes for key in written)
    users: dict[int, list[int]] = {}
    for number, (reads, written) in enumerate(zip(history.reads, history.writes, strict=True)):
        for key in {*written, *(read.key for read in reads)}:
            if writers[key] > 1:  # the versions of other keys need no order
                users.setdefault(key, []).append(number)
    for numbers in users.values():  # in the order of their calls
        latest = -1
        for one, other in pairwise(numbers):
            yield one, other
            latest = max(latest, history.returns[one])
            if level.order is not Order.REAL_TIME or latest >= history.calls[other]:
                yield other, one
    if level.order is Order.REAL_TIME:
        yield from _list_stale_reads(history)


def _find_last_readers(history: TransactionHistory) -> dict[tuple[int, int], int]:
    """Returns the reader of each version, given as key and writer, that was called last."""
    return {
        (read.key, read.writer): number
        for number, reads in enumerate(history.reads) for read in reads if read.writer != INITIAL
    }  # fmt: skip


def _list_stale_reads(history: TransactionHistory) -> Iterator[tuple[int, int]]:
    """Yields (reader, other writer) if, in real time, the other writer lies between a version's writer and its reader.

    By the version that it read, the reader comes before the other writer. Real time says the opposite. So both must be
    in one part, which is then refuted.
    """
    writers: dict[int, list[int]] = {}
    for number in sorted(range(len(history)), key=history.returns.__getitem__):
        for key in history.writes[number]:
            writers.setdefault(key, []).append(number)
    latest: dict[int, list[int]] = {}  # by key and number of writers that returned, the one that was called last
    for key, numbers in writers.items():
        latest[key] = list(accumulate(numbers, partial(max, key=history.calls.__getitem__)))
    for (key, writer), reader in _find_last_readers(history).items():
        place = bisect_left(writers.get(key, ()), history.calls[reader], key=history.returns.__getitem__)
        if place and history.calls[latest[key][place - 1]] > history.returns[writer]:
            yield reader, latest[key][place - 1]
