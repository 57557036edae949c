"""Searches a legal order of transactions: decides open choices one after the other, with backtracking.

A *choice* consists of two edges between nodes, one of which holds. ``saturation`` explains nodes and choices, and
decides each choice one of whose edges would close a cycle. The search decides the others:

1. Saturate. If this closes a cycle (a *conflict*), find the decisions that the cycle needs. Go back to the latest one,
   and try its second edge. If both its edges are refuted, go back to the latest decision that these refutations need.
2. If no choice is open, any topological order of the edges is legal.
3. Otherwise decide a choice whose nodes took part in many conflicts. Try its first edge first.

A decision that a refutation does not need is dropped from it. So every choice of the final refutation is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from assay.checkers.isolation.precedence import Edge, sort_topologically
from assay.checkers.isolation.refutation import Refutation, join_refutations, refute
from assay.checkers.isolation.saturation import Choice, Conflict, Saturation, SearchLimitReached, State

_LOOK_AT: Final = 64
"""Number of open choices from which one is selected."""

Shortcut = Callable[[Saturation], list[int] | None]
"""Tries to find a legal order of all nodes that respects the edges. Returns None if it finds none."""


@dataclass
class _Decision:
    """A choice that the search has decided for now."""

    choice: Choice
    state: State
    """The state of the saturation before the decision."""
    if_first: tuple[Refutation, Collection[Edge]] | None = None
    """The refutation of the first edge, and the decisions that it needs. None: the first edge is being tried."""

    @property
    def edge(self) -> Edge:
        """The edge that is being tried."""
        return self.choice.first if self.if_first is None else self.choice.second


def search(saturation: Saturation, deadline: float, shortcut: Shortcut) -> list[int] | Refutation:
    """Returns a legal order of the problem's nodes, or a refutation. Raises ``SearchLimitReached``."""
    return _Search(saturation, deadline, shortcut).run()


class _Search:
    """The search of :func:`search`, with its stack of decisions."""

    def __init__(self, saturation: Saturation, deadline: float, shortcut: Shortcut) -> None:
        self._saturation = saturation
        self._deadline = deadline
        self._shortcut = shortcut
        self._decisions: list[_Decision] = []
        self._conflicts: dict[int, float] = {}
        """By node, the weights of the conflicts that it took part in. Later conflicts weigh more."""
        self._weight = 1.0

    def run(self) -> list[int] | Refutation:
        steps, next_shortcut = 0, 1
        while True:
            if time.monotonic() > self._deadline:
                raise SearchLimitReached
            try:
                self._saturation.saturate()
                choices = self._saturation.list_choices(_LOOK_AT)
                if not choices:
                    problem = self._saturation.problem
                    order = sort_topologically(problem.nodes, self._saturation.edges, problem.times)
                    assert order is not None, "saturated edges have no cycle"
                    return order
                steps += 1
                if steps == next_shortcut:
                    next_shortcut *= 2
                    found = self._shortcut(self._saturation)
                    if found is not None:
                        return found
                choice = max(choices, key=self._rate)
                self._decisions.append(_Decision(choice, self._saturation.save()))
                self._saturation.add(choice.first)
            except Conflict as conflict:
                refutation = self._go_back(conflict)
                if refutation is not None:
                    return refutation

    def _rate(self, choice: Choice) -> float:
        nodes = {choice.first.source, choice.first.target, choice.second.source, choice.second.target}
        return sum(self._conflicts.get(node, 0.0) for node in nodes)

    def _go_back(self, conflict: Conflict) -> Refutation | None:
        """Tries the second edge of the latest decision that the conflict needs. Without one, returns a refutation."""
        found: Refutation
        found, needed = refute(self._saturation, conflict)
        self._weight *= 1.05
        for edge in needed:
            for node in (edge.source, edge.target):
                self._conflicts[node] = self._conflicts.get(node, 0.0) + self._weight
        while self._decisions:
            decision = self._decisions[-1]
            if decision.edge not in needed:
                self._decisions.pop()
                self._saturation.restore(decision.state)
                continue
            self._saturation.restore(decision.state)
            if decision.if_first is None:
                decision.if_first = found, needed
                self._saturation.add(decision.choice.second)
                return None
            former, formerly_needed = decision.if_first
            found = join_refutations(self._saturation.problem, decision.choice, former, found)
            needed = (set(formerly_needed) - {decision.choice.first}) | (set(needed) - {decision.choice.second})
            self._decisions.pop()
        return found
