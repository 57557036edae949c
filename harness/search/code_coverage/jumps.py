"""Maps lines and conditional jumps of a code object to points, for a counter that sees only these two.

Most points are reached with a line, including outcomes of a decision that begin on a line of their own. Three kinds of
outcomes have no such line:

- a false test without ``else``
- the end of a loop
- a decision in one line

A jump shows these. A test may compile to several jumps; from each, both ways are followed until one has left the test.
"""

import ast
import dis
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Final

from assay.harness.search.code_coverage.points import (
    Decision,
    FunctionPoints,
    Point,
    find_first_line,
    has_line,
    insert_marks,
)

Span = tuple[int, int, int, int]
"""First line, column, last line, column; the last column is exclusive."""
ENDS: Final = ("RETURN", "RAISE", "RERAISE")


@dataclass(frozen=True)
class DecisionSpans:
    """A decision: ``spans`` of its test, ``body`` of its true outcome, ``wanted`` the outcomes that no line shows.

    ``whole`` is the span of a loop, which Python 3.12 gives to the instruction that fetches the next element.
    """

    spans: tuple[Span, ...]
    whole: Span | None
    body: Span
    wanted: tuple[Point, ...]

    def decides(self, span: Span) -> bool:
        return span == self.whole or any(_is_within(span, one) for one in self.spans)


@dataclass
class FunctionLayout:
    """Lines and decisions of one function. ``lines``: the points reached with each line."""

    lines: dict[int, tuple[Point, ...]] = field(default_factory=dict)
    tests: list[DecisionSpans] = field(default_factory=list)


@dataclass
class JumpPoints:
    """Points of a conditional jump: ``through`` if it falls through to offset ``next``, ``taken`` if it is taken."""

    next: int
    through: Point | None
    taken: Point | None
    seen: set[bool] = field(default_factory=set)

    def went(self, taken: bool) -> Point | None:
        self.seen.add(taken)
        return self.taken if taken else self.through

    @property
    def over(self) -> bool:
        """Returns whether nothing more can be learned from it."""
        return (self.through is None or False in self.seen) and (self.taken is None or True in self.seen)


def compute_layouts(tree: ast.Module) -> dict[tuple[str, int], FunctionLayout]:
    """Returns the layout of each function, by name and first line."""
    found: defaultdict[tuple[str, int], FunctionLayout] = defaultdict(FunctionLayout)
    wanted: defaultdict[tuple[str, int], defaultdict[int, list[Point]]] = defaultdict(lambda: defaultdict(list))
    decisions: list[tuple[tuple[str, int], Decision]] = []

    def note(function: FunctionPoints, points: Sequence[Point], statement: ast.stmt) -> Sequence[ast.stmt]:
        key = function.name, function.first
        begins = find_first_line(statement)
        outcomes = [point for point in points if point.outcome is not None]
        alone = has_line(statement) and all(point.line < begins for point in outcomes)
        if not alone:
            for point in outcomes:
                wanted[key][point.line].append(point)
        by_line = [point for point in points if alone or point.outcome is None]
        if by_line:
            for line in range(begins, max(begins, _find_end_of_head(statement)) + 1):
                found[key].lines[line] = (*found[key].lines.get(line, ()), *by_line)
            if isinstance(statement, Decision):
                decisions.append((key, statement))
        return ()

    insert_marks(tree, note)
    for key, decision in decisions:
        if points := wanted[key].get(decision.lineno):
            found[key].tests.append(_make_decision_spans(decision, tuple(points)))
    return dict(found)


def find_jumps(code: CodeType, layout: FunctionLayout) -> dict[int, JumpPoints]:
    """Returns the jumps that show more than lines do, by offset."""
    flow = _ControlFlow(code)
    found = {}
    for index, instruction in enumerate(flow.instructions):
        if not _is_conditional(instruction) or (test := _find_owner(instruction, layout.tests)) is None:
            continue
        ways = [flow.outcome(start, test) for start in (index + 1, flow.target(instruction))]
        points = [None if way is None else next((p for p in test.wanted if p.outcome is way), None) for way in ways]
        if any(points):
            found[instruction.offset] = JumpPoints(flow.instructions[index + 1].offset, points[0], points[1])
    return found


class _ControlFlow:
    def __init__(self, code: CodeType) -> None:
        self.instructions = list(dis.get_instructions(code))
        self._index = {instruction.offset: number for number, instruction in enumerate(self.instructions)}

    def target(self, jump: dis.Instruction) -> int:
        """Returns the index of the jump's target instruction."""
        return self._index[jump.argval]

    def outcome(self, index: int, test: DecisionSpans) -> bool | None:
        """Returns the outcome reached from an instruction, or None if it leads to another jump of the test."""
        gone: set[int] = set()
        while index < len(self.instructions) and index not in gone:
            gone.add(index)
            instruction = self.instructions[index]
            span = _instruction_span(instruction)
            if span is not None and _is_within(span, test.body):
                return True
            if span is not None and not test.decides(span):
                return False
            if _is_conditional(instruction):
                return None
            if instruction.opname.startswith(ENDS):
                return False
            index = self.target(instruction) if instruction.opname.startswith("JUMP") else index + 1
        return None


def _make_decision_spans(decision: Decision, wanted: tuple[Point, ...]) -> DecisionSpans:
    first = decision.body[0]
    begin = (find_first_line(first), 0 if find_first_line(first) != first.lineno else first.col_offset)
    body = (*begin, *_node_span(decision.body[-1])[2:])
    if isinstance(decision, ast.For):
        return DecisionSpans(
            (_node_span(decision.target), _node_span(decision.iter)), _node_span(decision), body, wanted
        )
    return DecisionSpans((_node_span(decision.test),), None, body, wanted)


def _node_span(node: ast.stmt | ast.expr) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _find_end_of_head(statement: ast.stmt) -> int:
    """Returns the last line before the statements inside a statement."""
    body = getattr(statement, "body", None)
    if isinstance(statement, ast.Match):
        return _node_span(statement.subject)[2]
    return (statement.end_lineno or statement.lineno) if not body else find_first_line(body[0]) - 1


def _instruction_span(instruction: dis.Instruction) -> Span | None:
    place = instruction.positions
    if place is None or place.lineno is None or place.col_offset is None:
        return None
    return place.lineno, place.col_offset, place.end_lineno or place.lineno, place.end_col_offset or place.col_offset


def _is_within(inner: Span, outer: Span) -> bool:
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]


def _find_owner(instruction: dis.Instruction, tests: Sequence[DecisionSpans]) -> DecisionSpans | None:
    """Returns the test that the instruction belongs to, or None."""
    span = _instruction_span(instruction)
    return None if span is None else next((test for test in tests if test.decides(span)), None)


def _is_conditional(instruction: dis.Instruction) -> bool:
    return instruction.opname.startswith("POP_JUMP") or instruction.opname == "FOR_ITER"
