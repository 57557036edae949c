"""Searches a legal order of transactions by a SAT solver, with cycles cut lazily.

A *choice* consists of two edges, one of which holds. ``saturation`` explains choices, and leaves some of them open. The
solver decides them. It is the optional dependency ``assay[solver]``.

1. Each edge of an open choice is a variable, and each choice is the clause that one of its edges holds.
2. The solver assigns the variables. If the edges that hold have no cycle, any topological order of them is legal.
3. Otherwise short cycles are found, and for each a clause says that not all of its edges hold. Back to 2.
4. If no assignment is left, the solver names choices that contradict each other. Only these are then decided one after
   the other, which gives a refutation with a cycle for each edge.

Source of the idea: SAT modulo acyclicity (Gebser, Janhunen and Rintanen, ECAI 2014), also used for snapshot isolation
by Huang et al., *PolySI*, VLDB 2023.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from assay.checkers.isolation.precedence import Edge, list_nodes_between_cycles, sort_topologically
from assay.checkers.isolation.refutation import Refutation, join_refutations, refute
from assay.checkers.isolation.saturation import Choice, Conflict, Saturation, SearchLimitReached
from assay.checkers.isolation.search import Shortcut

MOST_CHOICES: Final = 300_000
"""Maximum number of open choices. More of them take too much memory, so the built-in search decides them."""
_MOST_CYCLES: Final = 200
"""Maximum number of cycles that are cut after one assignment."""
_BUDGET: Final = 20_000
"""Number of conflicts in the solver between two looks at the clock."""


def has_solver() -> bool:
    """Returns whether python-sat is installed."""
    return find_spec("pysat") is not None


def solve(saturation: Saturation, deadline: float, shortcut: Shortcut) -> list[int] | Refutation | None:
    """Returns a legal order of the problem's nodes, or a refutation. Raises ``SearchLimitReached``.

    ``saturation`` must be saturated. None: it has more than ``MOST_CHOICES`` open choices.
    """
    found = shortcut(saturation)
    if found is not None:
        return found
    choices = saturation.list_choices(MOST_CHOICES + 1)
    return None if len(choices) > MOST_CHOICES else _Solving(saturation, choices, deadline).run()


class _Solving:
    """The steps of :func:`solve` for one saturated problem."""

    def __init__(self, saturation: Saturation, choices: Sequence[Choice], deadline: float) -> None:
        self._saturation = saturation
        self._choices = choices
        self._deadline = deadline
        self._variables: dict[tuple[int, int], int] = {}
        """By nodes, the variable of the edge between them."""
        self._edges: dict[int, Edge] = {}
        self._selectors: dict[int, Choice] = {}
        """Variables that switch a choice on, so that the solver can name the choices of a contradiction."""

    def run(self) -> list[int] | Refutation:
        from pysat.solvers import Solver

        with Solver(name="glucose4") as solver:
            clauses = [
                [self._find_variable(choice.first), self._find_variable(choice.second)] for choice in self._choices
            ]
            preferred = {clause[0] for clause in clauses}
            for choice, clause in zip(self._choices, clauses, strict=True):
                selector = len(self._edges) + len(self._selectors) + 1
                self._selectors[selector] = choice
                solver.add_clause([*clause, -selector])
            solver.set_phases([one if one in preferred else -one for one in self._edges])
            while self._has_assignment(solver):
                # the variables of the edges that hold by this assignment
                held = [one for one in solver.get_model() if 0 < one <= len(self._edges)]
                edges = [*self._saturation.edges, *(self._edges[one] for one in held)]
                problem = self._saturation.problem
                order = sort_topologically(problem.nodes, edges, problem.times)
                if order is not None:
                    return order
                for cycle in self._find_cycles(held):
                    solver.add_clause([-one for one in cycle])
            core = [self._selectors[one] for one in solver.get_core()]
        return self._refute(core)[0]

    def _find_variable(self, edge: Edge) -> int:
        variable = self._variables.setdefault((edge.source, edge.target), len(self._variables) + 1)
        self._edges.setdefault(variable, edge)
        return variable

    def _has_assignment(self, solver: Any) -> bool:
        while True:
            if time.monotonic() > self._deadline:
                raise SearchLimitReached
            solver.conf_budget(_BUDGET)
            answer = solver.solve_limited(assumptions=list(self._selectors))
            if answer is not None:
                return bool(answer)

    def _find_cycles(self, held: Sequence[int]) -> list[list[int]]:
        """Returns cycles as lists of the variables of held edges. The other steps of a cycle are saturated edges.

        Each cycle has the fewest held edges of all cycles through one of its held edges.
        """
        nodes = self._saturation.problem.nodes
        edges = [*self._saturation.edges, *(self._edges[one] for one in held)]
        inside = list_nodes_between_cycles(nodes, edges)  # all cycles lie within these nodes
        outgoing: dict[int, list[tuple[int, int]]] = {}
        for edge, variable in zip(edges, [0] * len(self._saturation.edges) + list(held), strict=True):
            if edge.source in inside and edge.target in inside:
                outgoing.setdefault(edge.source, []).append((edge.target, variable))
        found: list[list[int]] = []
        cut: set[int] = set()
        for variable in held:
            edge = self._edges[variable]
            if variable in cut or edge.source not in inside or edge.target not in inside:
                continue
            if time.monotonic() > self._deadline:
                raise SearchLimitReached
            path = _find_path(edge.target, edge.source, outgoing)
            if path is not None:
                found.append([variable, *path])
                cut.update(found[-1])
                if len(found) >= _MOST_CYCLES:
                    break
        return found

    def _refute(self, core: Sequence[Choice]) -> tuple[Refutation, Collection[Edge]]:
        """Returns a refutation by choices of ``core``, and the decisions (edges added so far) that it needs."""
        saturation = self._saturation
        try:
            saturation.saturate()
        except Conflict as conflict:
            return refute(saturation, conflict)
        if time.monotonic() > self._deadline:
            raise SearchLimitReached
        choice = next(
            one
            for one in core
            if not any(saturation.reaches(edge.source, edge.target) for edge in (one.first, one.second))
        )
        state = saturation.save()
        sides: list[tuple[Refutation, Collection[Edge]]] = []
        for edge in (choice.first, choice.second):
            try:
                saturation.add(edge)
            except Conflict as conflict:
                found: tuple[Refutation, Collection[Edge]] = refute(saturation, conflict)
            else:
                found = self._refute(core)
            saturation.restore(state)
            if edge not in found[1]:
                return found  # the decision was not needed
            sides.append(found)
        (first, first_needed), (second, second_needed) = sides
        needed = (set(first_needed) - {choice.first}) | (set(second_needed) - {choice.second})
        return join_refutations(saturation.problem, choice, first, second), needed


def _find_path(source: int, target: int, outgoing: Mapping[int, Sequence[tuple[int, int]]]) -> list[int] | None:
    """Returns the variables on a path with the fewest of them, or None if there is no path.

    Edges with variable 0 hold always, so they are neither counted nor returned. ``outgoing``: by node, the targets of
    its edges with their variables.
    """
    came: dict[int, tuple[int, int]] = {}
    distances = {source: 0}
    queue = deque([source])
    done: set[int] = set()
    while queue:
        node = queue.popleft()
        if node == target:
            path = []
            while node != source:
                node, variable = came[node]
                path += [variable] if variable else []
            return path
        if node in done:
            continue
        done.add(node)
        for following, variable in outgoing.get(node, ()):
            distance = distances[node] + bool(variable)
            if distance < distances.get(following, distance + 1):
                distances[following], came[following] = distance, (node, variable)
                (queue.append if variable else queue.appendleft)(following)
    return None
