"""Names a violation in the terms of the field, and explains it in words.

The classes are Adya's, as in the findings of ``checkers.transactions``. A *circle* is a cycle of steps
(``refutation``). A derived step is forced, because its opposite would close a second circle. So every order of the
versions has one of these circles. The finding has the weakest class among them, the last one in ``CYCLE_CLASSES``. This
class is certain: every order of the versions has a cycle of this class, or of a stronger one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from assay.checkers.isolation.levels import (
    CYCLE_CLASSES,
    G0,
    G1C,
    G2_ITEM,
    G_NONADJACENT,
    G_SINGLE,
    ORDER_NAMES,
    Order,
)
from assay.checkers.isolation.precedence import Kind
from assay.checkers.isolation.refutation import Refutation, Split, Step, StepCycle, iterate_step_cycles
from assay.checkers.isolation.transactions import INITIAL, TransactionHistory
from assay.checkers.judging.verdict import CycleBranch
from assay.checkers.times import format_seconds

_SUFFIXES: Final = {
    Kind.REAL_TIME: f"-{ORDER_NAMES[Order.REAL_TIME]}",
    Kind.SESSION: f"-{ORDER_NAMES[Order.SESSION]}",
}
_LOST_UPDATE: Final = "a lost update"
_MOST_STEPS: Final = 6
_MOST_BRANCHES: Final = 4


def find_class(history: TransactionHistory, refutation: Refutation) -> str:
    """Returns the class of the refutation, with the order that it needs: ``G-single-real-time``."""
    circles = list(iterate_step_cycles(refutation))
    rank = max(_rank(circle.steps) for circle in circles)
    if find_term(history, refutation) == _LOST_UPDATE:
        rank = min(rank, G_SINGLE)  # the writer of the later version missed the other's update
    kinds = {step.kind for circle in circles for step in _iterate_steps(circle.steps)}
    suffix = next((suffix for kind, suffix in _SUFFIXES.items() if kind in kinds), "")
    return CYCLE_CLASSES[rank] + suffix


def _rank(steps: Sequence[Step]) -> int:
    """Returns the highest rank among this circle and the second circles that justify its derived steps."""
    own = _rank_kinds([step.kind for step in steps])
    others = []
    for step in steps:
        if step.because:
            # A choice (`saturation`) with a reader is between a ww edge and an rw edge. Between two writers, which
            # must not overlap under snapshot isolation, it is between two ww edges.
            opposite = Kind.RW if step.kind is Kind.WW and step.reader >= 0 else Kind.WW
            others.append(max(_rank_kinds([*(one.kind for one in step.because), opposite]), _rank_reasons(step)))
    return max([own, *others])


def _rank_reasons(step: Step) -> int:
    """Returns the highest rank of the derived steps among the reasons of a step; ``G0`` if none is derived."""
    return max((_rank([one]) for one in step.because if one.because), default=G0)


def _rank_kinds(kinds: Sequence[Kind]) -> int:
    """Returns the rank of a circle with steps of these kinds: the index of its class in ``CYCLE_CLASSES``."""
    if Kind.RW not in kinds:
        return G1C if Kind.WR in kinds else G0
    if kinds.count(Kind.RW) == 1:
        return G_SINGLE
    has_two_in_a_row = any(one is other is Kind.RW for one, other in pairwise([*kinds, kinds[0]]))
    return G2_ITEM if has_two_in_a_row else G_NONADJACENT


def _iterate_steps(steps: Sequence[Step]) -> list[Step]:
    found: dict[int, Step] = {}
    left = list(steps)
    while left:
        step = left.pop()
        if id(step) not in found:
            found[id(step)] = step
            left += step.because
    return list(found.values())


def _find_read(step: Step) -> tuple[int, int, int] | None:
    """Returns the reader, the key and the writer of the read from which a step follows; None if it needs no read."""
    if step.kind is Kind.WR:
        return step.target, step.key, step.source
    if step.kind is Kind.RW:
        return step.source if step.reader < 0 else step.reader, step.key, step.writer
    return (step.reader, step.key, step.writer) if step.kind is Kind.WW and step.reader >= 0 else None


def find_term(history: TransactionHistory, refutation: Refutation) -> str:
    """Returns the common name of the violation, or an empty string if it has none."""
    if isinstance(refutation, Split):
        return ""
    steps = refutation.steps
    involved = list(dict.fromkeys(number for step in _iterate_steps(steps) for number in (step.source, step.target)))
    versions: dict[tuple[int, int], set[int]] = {}
    for reader, key, writer in filter(None, map(_find_read, _iterate_steps(steps))):
        versions.setdefault((reader, key), set()).add(writer)
    if any(len(writers) > 1 for writers in versions.values()):
        return "a non-repeatable read"
    found: dict[tuple[int, int], int] = {}
    for number in {step.source for step in steps}:
        for read in history.reads[number]:
            if read.key in history.writes[number] and found.setdefault((read.key, read.writer), number) != number:
                return _LOST_UPDATE
    kinds = [step.kind for step in steps]
    all_kinds = {step.kind for step in _iterate_steps(steps)}
    if Kind.REAL_TIME in all_kinds and kinds.count(Kind.RW) <= 1 and len(involved) <= 3:
        return "a stale read"
    if len(steps) == 2 and kinds == [Kind.RW, Kind.RW]:
        return "write skew"
    if sorted(kinds) == [Kind.WR, Kind.WR, Kind.RW, Kind.RW] and _rank_kinds(kinds) == G_NONADJACENT:
        return "a long fork"
    if len({step.source for step in steps}) == 2 and _rank(steps) == G_SINGLE and not all_kinds & {*_SUFFIXES}:
        return "a fractured read"
    return {G0: "a dirty write", G1C: "circular information flow"}.get(_rank(steps), "")


def describe(history: TransactionHistory, refutation: Refutation) -> str:
    """Returns the claim: a sentence with a clause for each step, or for each branch of a choice."""
    return _Words(history).describe(refutation)


def list_reasons(history: TransactionHistory, circle: StepCycle) -> list[str]:
    """Returns a sentence for each step of a circle: why its source comes before its target."""
    words = _Words(history)
    return [words.give_reason(step) for step in circle.steps]


def list_branches(history: TransactionHistory, refutation: Refutation) -> list[CycleBranch]:
    """Returns the first cases of a refutation by cases, each with its circle. A circle alone has no cases."""
    words = _Words(history)
    found = () if isinstance(refutation, StepCycle) else tuple(_iterate_branches(refutation, ()))
    return [
        CycleBranch(
            given=tuple(map(words.suppose, given)),
            operations=tuple(history.ops[step.source] for step in circle.steps),
            reasons=tuple(map(words.give_reason, circle.steps)),
        )
        for given, circle in found[:_MOST_BRANCHES]
    ]


def _iterate_branches(refutation: Refutation, given: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], StepCycle]]:
    """Yields each case: the steps that were chosen, and the circle."""
    if isinstance(refutation, StepCycle):
        yield given, refutation
    else:
        yield from _iterate_branches(refutation.if_first, (*given, refutation.first))
        yield from _iterate_branches(refutation.if_second, (*given, refutation.second))


def get_shown_path(step: Step) -> tuple[Step, ...]:
    """Returns the path that the sentence for a derived step shows (``_Words.give_reason``).

    It is empty if the path is a single wr step, because the sentence mentions this read anyway.
    """
    is_direct = len(step.because) == 1 and step.because[0].kind is Kind.WR
    return () if is_direct else step.because


class _Words:
    """Describes refutations of one history."""

    def __init__(self, history: TransactionHistory) -> None:
        self._history = history

    def describe(self, refutation: Refutation) -> str:
        if isinstance(refutation, StepCycle):
            term = find_term(self._history, refutation)
            named = f", {term}" if term else ""
            count = len({step.source for step in refutation.steps})
            return f"{count} transactions go round in a circle{named}: {self._list(refutation.steps)}."
        branches = [
            f"if {' and '.join(map(self.suppose, given))}: {self._list(circle.steps)}"
            for given, circle in _iterate_branches(refutation, ())
        ]
        shown = "; ".join(branches[:_MOST_BRANCHES])
        more = f"; and {len(branches) - _MOST_BRANCHES} more cases" if len(branches) > _MOST_BRANCHES else ""
        return f"No order is possible, because each of {len(branches)} cases has a circle: {shown}{more}."

    def suppose(self, step: Step) -> str:
        return f"{self._name(step.source)} is before {self._name(step.target)}"

    def _list(self, steps: Sequence[Step]) -> str:
        more = f" (and {len(steps) - _MOST_STEPS} more)" if len(steps) > _MOST_STEPS else ""
        return "; ".join(map(self.give_reason, steps[:_MOST_STEPS])) + more

    def _name(self, number: int) -> str:
        return f"transaction {self._history.ops[number]}"

    def _value(self, reader: int, key: int, writer: int) -> str:
        values = (read.value for read in self._history.reads[reader] if (read.key, read.writer) == (key, writer))
        return str(next(values, self._history.writes[writer].get(key)))

    def give_reason(self, step: Step) -> str:
        history = self._history
        source, target = self._name(step.source), self._name(step.target)
        key = history.keys[step.key] if step.key >= 0 else ""
        if step.decided:
            return f"{source} is before {target} in this case"
        if step.kind is Kind.SESSION:
            return f"process {history.processes[step.source]} made {target} after {source}"
        if step.kind is Kind.REAL_TIME:
            ended, began = format_seconds(history.returns[step.source]), format_seconds(history.calls[step.target])
            return f"{source} had returned at {ended}, before {target} was called at {began}"
        if step.kind is Kind.WR:
            return f"{target} read {self._value(step.target, step.key, step.source)} of {key}, which {source} wrote"
        if step.kind is Kind.RW:
            if step.writer == INITIAL:
                return f"{source} read the initial value of {key}, and {target} wrote it"
            value = self._value(step.reader, step.key, step.writer)
            return f"{source} read {value} of {key}, which {target} replaced{self._because(step, 'it comes after')}"
        if step.reader >= 0:
            value = self._value(step.reader, step.key, step.writer)
            reader = self._name(step.reader)
            return (
                f"{source} wrote {key} before {target}, because {reader} read {value} of {target} and comes after "
                f"{source}{self._because(step, '')}"
            )
        if step.because:
            return f"{source} and {target} wrote {key} and cannot be concurrent{self._because(step, '')}"
        return f"{target} wrote {key} after {source}, as reads of it show"

    def _because(self, step: Step, lead_in: str) -> str:
        """Returns the path of a derived step in words, after ``lead_in`` and the name of the writer."""
        path = get_shown_path(step)
        if not path:
            return ""
        names = [str(self._history.ops[path[0].source])]
        for one in path:
            names.append(f"{one.kind.name.lower().replace('_', ' ')} {self._history.ops[one.target]}")
        after = f"{lead_in} {self._name(step.writer)}: " if lead_in and step.writer >= 0 else ""
        return f" ({after}{' -> '.join(names)})"
