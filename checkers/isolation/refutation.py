"""Refutations: a refutation is a cycle of edges with their reasons (:class:`StepCycle`, a *circle*), or a choice
whose two edges both lead to a refutation (:class:`Split`).

``saturation`` explains choices: two edges, one of which holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from assay.checkers.isolation.precedence import (
    NO_TRANSACTION,
    Edge,
    EdgePaths,
    Kind,
    Path,
    find_short_cycle,
    skip_auxiliary_nodes,
)  # fmt: skip
from assay.checkers.isolation.saturation import Choice, Conflict, Problem, Saturation, find_premises

_DEEPEST: Final = 12
"""Maximum depth of nested reasons."""


@dataclass(frozen=True)
class Step:
    """Transaction ``source`` comes before ``target``. All transactions are numbers of the history.

    - ``reader``, ``writer``: the read from which the step follows: ``reader`` read the version of ``writer``
    - ``decided``: whether a search chose the step
    - ``because``: why a derived step holds. With the other step of its choice, these steps would close a circle.
    """

    source: int
    target: int
    kind: Kind
    key: int
    reader: int
    writer: int
    decided: bool = False
    because: tuple[Step, ...] = ()


@dataclass(frozen=True)
class StepCycle:
    """Steps that lead from a transaction back to it."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Split:
    """A choice between two steps: every legal order has one of them, and each is refuted."""

    first: Step
    second: Step
    if_first: Refutation
    if_second: Refutation


Refutation = StepCycle | Split


def iterate_step_cycles(refutation: Refutation) -> Iterator[StepCycle]:
    """Yields the circles of all branches."""
    if isinstance(refutation, StepCycle):
        yield refutation
    else:
        yield from iterate_step_cycles(refutation.if_first)
        yield from iterate_step_cycles(refutation.if_second)


def make_circle(edges: Sequence[Edge], count: int, transactions: Sequence[int]) -> StepCycle:
    """Makes a circle of a cycle in ``edges``. ``transactions``: by node, the number of its transaction."""
    cycle = find_short_cycle(count, edges)
    return StepCycle(_to_steps(cycle, edges, transactions))


def refute(saturation: Saturation, conflict: Conflict) -> tuple[StepCycle, Collection[Edge]]:
    """Returns the circle of a conflict, and the decisions that it needs."""
    problem = saturation.problem
    edges = saturation.edges if conflict.edge is None else [*saturation.edges, conflict.edge]
    if conflict.edge is None:
        cycle = find_short_cycle(problem.nodes, edges)
    else:
        path = EdgePaths(saturation.edges).find(conflict.edge.target, conflict.edge.source)
        assert path is not None, "a conflict closes a cycle"
        cycle = [*skip_auxiliary_nodes(path), (len(edges) - 1, conflict.edge)]
    premises = find_premises(edges, cycle)
    needed = {*cycle, *premises, *(step for path in premises.values() for step in path)}
    decisions = {edge for _, edge in needed if edge.decided}
    return StepCycle(_to_steps(cycle, edges, _list_transactions(problem))), decisions


def join_refutations(problem: Problem, choice: Choice, if_first: Refutation, if_second: Refutation) -> Split:
    """Joins the refutations of both edges of a choice."""
    numbers = _list_transactions(problem)
    (first,), (second,) = (_to_steps([(0, edge)], [edge], numbers) for edge in (choice.first, choice.second))
    return Split(first, second, if_first, if_second)


def _list_transactions(problem: Problem) -> list[int]:
    return [problem.find_transaction(node) for node in range(problem.nodes)]


def _to_steps(cycle: Path, edges: Sequence[Edge], numbers: Sequence[int]) -> tuple[Step, ...]:
    """Makes steps of edges. Steps within a transaction are left out."""
    premises = find_premises(edges, cycle)
    is_snapshot = any(edge.kind is Kind.START_TO_COMMIT for edge in edges)
    made: dict[tuple[int, Edge], Step] = {}

    def to_number(member: int) -> int:
        """Returns the number of a transaction in the history. ``member``: its place in ``Problem.members``."""
        return NO_TRANSACTION if member == NO_TRANSACTION else numbers[2 * member if is_snapshot else member]

    def make(place: tuple[int, Edge], depth: int) -> Step:
        known = made.get(place)
        if known is None:
            edge = place[1]
            inside = premises.get(place, ()) if depth < _DEEPEST else ()
            because = tuple(make(one, depth + 1) for one in inside if one[1].kind is not Kind.START_TO_COMMIT)
            known = made[place] = Step(
                numbers[edge.source], numbers[edge.target], edge.kind, edge.key, to_number(edge.reader),
                to_number(edge.writer), edge.decided, because,
            )  # fmt: skip
        return known

    return tuple(make(one, 0) for one in cycle if one[1].kind is not Kind.START_TO_COMMIT)
