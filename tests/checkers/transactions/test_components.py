"""Strongly connected components are equal with scipy, without it, and by brute force."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checkers.transactions.graph import find_components

NODES = 9
EDGES = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=24)


def reachable(edges: list[tuple[int, int]]) -> np.ndarray:
    found = np.eye(NODES, dtype=bool)
    for source, target in edges:
        found[source, target] = True
    for middle in range(NODES):
        found |= np.outer(found[:, middle], found[middle])
    return found


@given(EDGES)
def test_components_are_those_of_mutual_reachability(edges: list[tuple[int, int]]) -> None:
    source, target = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        by_scipy, shared = find_components(NODES, source, target)
        patch.setitem(sys.modules, "scipy", None)
        plain, also_shared = find_components(NODES, source, target)
    both = reachable(edges)
    mutual = both & both.T
    assert (mutual == (by_scipy[:, None] == by_scipy)).all()
    assert plain.tolist() == by_scipy.tolist()
    assert also_shared.tolist() == shared.tolist() == (mutual.sum(axis=1) > 1).tolist()


def test_a_path_longer_than_the_recursion_limit_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    count = 20_000
    edges = [*pairwise(range(count)), (count - 1, 1)]
    source, target = np.array(edges, dtype=np.int64).T
    label, shared = find_components(count, source, target)
    assert (label[0], set(label[1:].tolist())) == (0, {1})
    assert not shared[0]
    assert shared[1:].all()
