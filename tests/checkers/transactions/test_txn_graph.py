"""Components, classes and cycles on graphs alone: against every simple cycle, and where there are very many nodes."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from assay.checkers.isolation.levels import CYCLE_CLASSES
from assay.checkers.transactions.edges import RW, THEN, WR, WW
from assay.checkers.transactions.graph import (
    G2_ITEM,
    G_NONADJACENT,
    G_SINGLE,
    ORDER,
    Edge,
    Graph,
    ShortCycles,
    classify,
)

from helpers.nightly import some_by_day
from helpers.txn_oracle import NONE, _cycles, _rank

KINDS = {"ww": WW, "wr": WR, "rw": RW}


def graph(edges: list[tuple[int, int, int]], nodes: int | None = None) -> Graph:
    ids = sorted({node for source, target, _ in edges for node in (source, target)} | set(range(nodes or 0)))
    columns = np.array(edges, np.int64).reshape(-1, 3)
    of = np.array(ids, np.int64)
    return Graph.of(of, of, columns[:, 0], columns[:, 1], columns[:, 2])


def check(made: Graph, edges: set[tuple[int, int, int]], component: int, steps: list[Edge]) -> None:
    """The steps are edges, close, come to no node twice, and are of the component's class."""
    assert all((step.source, step.target, step.kind) in edges for step in steps)
    assert all(a.target == b.source for a, b in pairwise([*steps, steps[0]]))
    assert len({step.source for step in steps}) == len(steps)
    names = {kind: name for name, kind in KINDS.items()}
    assert _rank([names.get(step.kind, "ww") for step in steps if step.kind != THEN]) == component


def fan(rng: random.Random, number: int, count: int, named: set[tuple[int, int, str]]) -> set[tuple[int, int, int]]:
    """Edges by way of a node that stands for no transaction; adds to ``named`` what they say of transactions."""
    nodes = rng.sample(range(count), rng.randint(2, count))
    cut = rng.randint(1, len(nodes) - 1)
    sources, targets = {node: rng.choice(("ww", "rw", "rw")) for node in nodes[:cut]}, nodes[cut:]
    named |= {(source, target, kind) for source, kind in sources.items() for target in targets}
    return {(source, -number, KINDS[kind]) for source, kind in sources.items()} | {
        (-number, target, THEN) for target in targets
    }


@pytest.mark.slow
@pytest.mark.parametrize("fans", [0, 2])
@pytest.mark.parametrize("seed", some_by_day(range(8), range(3)))
def test_random_graphs_get_the_class_of_their_strongest_simple_cycle(seed: int, fans: int) -> None:
    """A shortest one of them is reported; nodes that stand for none change nothing, and are not counted."""
    rng = random.Random(seed)
    seen = set()
    for _ in range(150):
        count = rng.randint(2, 6)
        weights = rng.choice(((1, 1, 1), (1, 1, 6), (0, 1, 8), (1, 0, 1)))
        pairs = {(a, b) for a in range(count) for b in range(count) if a != b and rng.random() < 0.3}
        named = {(a, b, rng.choices(("ww", "wr", "rw"), weights)[0]) for a, b in pairs}
        edges = {(a, b, KINDS[kind]) for a, b, kind in named}
        for number in range(1, fans + 1):
            edges |= fan(rng, number, count, named)
        made = graph(sorted(edges), count)
        classified = classify(made)
        best = min((_rank(kinds) for kinds in _cycles(named)), default=NONE)
        assert min((one.rank for one in classified.components), default=NONE) == best
        seen.add(best)
        for component in classified.components:
            rank, steps = ShortCycles(classified).find_shortest(component)
            assert rank == component.rank
            check(made, edges, rank, steps)
            inside = set(made.nodes[component.members].tolist())
            lengths = [len(kinds) for kinds in _cycles({edge for edge in named if {edge[0], edge[1]} <= inside})
                       if _rank(kinds) == rank]  # fmt: skip
            assert sum(step.source >= 0 for step in steps) == min(lengths)
    assert seen >= {0, 1, 2, 4, NONE}


def test_a_shortest_cycle_is_reported() -> None:
    ring = [(number, (number + 1) % 9, WW) for number in range(9)]
    classified = classify(graph([*ring, (4, 2, WW)]))
    assert [step.source for step in ShortCycles(classified).find_shortest(classified.components[0])[1]] in (
        [2, 3, 4],
        [3, 4, 2],
        [4, 2, 3],
    )


def test_nodes_that_stand_for_no_transaction_cost_nothing_and_pass_on_how_they_were_come_to() -> None:
    """0 -rw-> fan -> 1 -rw-> 0 is two rw in a row, however many nodes the first leads by."""
    edges = [(0, -5, RW), (-5, 1, THEN), (1, 0, RW)]
    classified = classify(graph(edges))
    assert [one.rank for one in classified.components] == [G2_ITEM]
    classified = classify(graph([(0, -5, RW), (-5, 1, THEN), (1, 0, WW)]))
    rank, steps = ShortCycles(classified).find_shortest(classified.components[0])
    assert (rank, len(steps)) == (G_SINGLE, 3)


def test_edges_of_time_link_like_ww() -> None:
    assert [one.rank for one in classify(graph([(0, 1, RW), (1, 2, ORDER), (2, 3, RW), (3, 0, ORDER)])).components] == [
        G_NONADJACENT
    ]


def test_a_search_that_ends_early_says_so_and_reports_a_weaker_class() -> None:
    """A long fork over many transactions, in which there is no G-single but much to look for."""
    edges = [(number, number + 1, WR) for number in range(100)]
    edges += [(200 + number, 201 + number, WR) for number in range(100)]
    edges += [(100, 200, RW), (300, 0, RW)]
    made = graph(edges)
    classified = classify(made)
    assert (classified.components[0].rank, classified.unsure) == (G_NONADJACENT, 0)
    classified = classify(graph([*edges, (50, 40, RW)]), limit=0)
    assert (classified.components[0].rank, classified.unsure) == (G_NONADJACENT, 1)
    # The shortest with no two rw in a row happens to be the one that was not looked for.
    rank, steps = ShortCycles(classified).find_shortest(classified.components[0])
    assert (CYCLE_CLASSES[rank], len(steps)) == ("G-single", 11)


def test_components_are_reported_in_the_order_of_their_least_transactions() -> None:
    edges = [(0, -5, RW), (-5, 1, THEN), (1, 0, WW), (2, -9, RW), (-9, 3, THEN), (3, 2, WW), (8, 7, WW), (7, 8, WW)]
    made = graph([*edges, (8, 0, WW), (0, 2, WW)])
    assert [made.nodes[one.members].max() for one in classify(made).components] == [1, 3, 8]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kinds"), [(1, (WW, RW)), (2, (RW,)), (3, (WR, RW))])
def test_one_component_of_very_many_transactions_takes_no_more_than_a_look_at_each_edge_or_few(
    seed: int, kinds: tuple[int, ...]
) -> None:
    rng, count = random.Random(seed), 30_000
    edges = {}
    for node in range(count - 1):
        edges[node, node + 1 + rng.randrange(min(5, count - 1 - node))] = rng.choice(kinds)
        edges[node + 1, max(0, node - rng.randrange(5))] = RW
    made = graph([(a, b, kind) for (a, b), kind in edges.items()])
    classified = classify(made)
    assert max(len(one.members) for one in classified.components) > count // 2
    assert classified.unsure == 0
    for component in classified.components[:3]:
        rank, steps = ShortCycles(classified).find_shortest(component)
        check(made, {(a, b, kind) for (a, b), kind in edges.items()}, rank, steps)
