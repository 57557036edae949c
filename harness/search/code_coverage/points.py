"""Points that can be reached in a module's source: the lines of its functions, and the outcomes of their decisions.

- A line counts if a statement begins there.
- Decisions are ``if``, ``elif``, ``while`` and ``for``. A test is true or false; a loop has an element, or ends. Each
  ``case`` and ``except`` has lines of its own, which show whether it was taken.
- Code that runs at import is not counted, because modules are imported before a search begins.
- Code that cannot run is not counted: stubs, declarations, code for type checkers, outcomes of constant tests.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Point(NamedTuple):
    """A line, or one ``branch`` of the decision on it: the result of a test, or whether a loop has an element."""

    line: int
    branch: bool | None = None


@dataclass(frozen=True)
class FunctionPoints:
    """A function; ``name`` as in its code object, lines ``first`` to ``last`` including its decorators."""

    name: str
    first: int
    last: int
    points: tuple[Point, ...]


MakeProbes = Callable[[FunctionPoints, Sequence[Point], ast.stmt], Sequence[ast.stmt]]
"""Returns the statements to insert before the given statement, at which the given points are reached. The function has
its name and lines, but no ``points`` yet.
"""
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Decision = ast.If | ast.While | ast.For


def find_functions(tree: ast.Module) -> tuple[FunctionPoints, ...]:
    """Returns all functions defined in the tree, at any depth, with their points; the tree is unchanged."""
    return instrument(tree, lambda function, points, statement: ())


def instrument(tree: ast.Module, make_probes: MakeProbes) -> tuple[FunctionPoints, ...]:
    """Returns all functions like :func:`find_functions`, and inserts the probes into the tree."""
    visitor = _PointVisitor(make_probes)
    visitor.visit_definitions(tree.body, "")
    return tuple(visitor.functions)


def is_constant(test: ast.expr) -> bool:
    """Returns whether the test always has the same outcome."""
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return isinstance(test, ast.Constant) or name in ("TYPE_CHECKING", "__debug__")


def find_constant_test(statement: Decision) -> ast.expr | None:
    """Returns the test if it always has the same outcome, else None."""
    return statement.test if isinstance(statement, ast.If | ast.While) and is_constant(statement.test) else None


def has_line(statement: ast.stmt) -> bool:
    """Returns whether something is executed at the first line of the statement."""
    match statement:
        case ast.Global() | ast.Nonlocal() | ast.Try() | ast.TryStar() | ast.AnnAssign(value=None):
            return False
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.If() | ast.While():
            return find_constant_test(statement) is None
    return True


def find_first_line(statement: ast.stmt) -> int:
    """Returns the line at which the statement begins; for a definition, that of its first decorator."""
    decorators: Sequence[ast.expr] = getattr(statement, "decorator_list", ())
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def is_stub(body: Sequence[ast.stmt]) -> bool:
    """Returns whether the body has only constants (text, ``...``) and ``pass``."""
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


class _PointVisitor:
    def __init__(self, make_probes: MakeProbes) -> None:
        self._make_probes = make_probes
        self.functions: list[FunctionPoints] = []
        self._points: list[Point] = []
        self._function = FunctionPoints("", 0, 0, ())

    def visit_definitions(self, body: Sequence[ast.stmt], prefix: str) -> None:
        """Visits the definitions in statements that are not counted themselves."""
        for statement in body:
            if isinstance(statement, DEFINITIONS):
                self._visit_function(statement, prefix)
            elif isinstance(statement, ast.ClassDef):
                self.visit_definitions(statement.body, f"{prefix}{statement.name}.")
            else:
                for inner in _find_bodies(statement):
                    self.visit_definitions(inner, prefix)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str) -> None:
        if is_stub(node.body):
            return
        outer = self._function, self._points
        last = node.end_lineno or node.lineno
        self._function, self._points = FunctionPoints(prefix + node.name, find_first_line(node), last, ()), []
        docstring = int(ast.get_docstring(node, clean=False) is not None)
        index = len(self.functions)  # before the functions that are nested in this one
        node.body = [*node.body[:docstring], *self._visit_block(node.body[docstring:])]
        function = FunctionPoints(self._function.name, self._function.first, last, tuple(dict.fromkeys(self._points)))
        self.functions.insert(index, function)
        self._function, self._points = outer

    def _visit_block(self, body: Sequence[ast.stmt], first_points: Sequence[Point] = ()) -> list[ast.stmt]:
        """Inserts probes between consecutive statements. ``first_points``: further points of the first statement."""
        marked: list[ast.stmt] = []
        for statement in body:
            marked += self._record([*first_points, *self._list_line_points(statement)], statement)
            first_points = ()
            self._visit_nested(statement)
            marked.append(statement)
        return marked

    def _list_line_points(self, statement: ast.stmt) -> list[Point]:
        return [Point(find_first_line(statement))] if has_line(statement) else []

    def _record(self, points: Sequence[Point], statement: ast.stmt) -> Sequence[ast.stmt]:
        if not points:
            return ()
        self._points += points
        return self._make_probes(self._function, points, statement)

    def _visit_nested(self, statement: ast.stmt) -> None:
        prefix = f"{self._function.name}.<locals>."
        if isinstance(statement, DEFINITIONS):
            self._visit_function(statement, prefix)
        elif isinstance(statement, ast.ClassDef):
            self.visit_definitions(statement.body, f"{prefix}{statement.name}.")
        elif isinstance(statement, Decision):
            self._visit_decision(statement)
        else:
            for holder in _find_statement_holders(statement):
                for name in ("body", "orelse", "finalbody"):
                    if body := getattr(holder, name, None):
                        setattr(holder, name, self._visit_block(body))

    def _visit_decision(self, statement: Decision) -> None:
        if (test := find_constant_test(statement)) is not None:
            if isinstance(test, ast.Constant):  # bodies under TYPE_CHECKING and __debug__ do not count
                statement.body = self._visit_block(statement.body)
            statement.orelse = self._visit_block(statement.orelse)
            return
        yes, no = Point(statement.lineno, True), Point(statement.lineno, False)
        statement.body = self._visit_block(statement.body, [yes])
        if statement.orelse:
            statement.orelse = self._visit_block(statement.orelse, [no])
        else:
            statement.orelse = list(self._record([no], statement))


def _find_statement_holders(statement: ast.stmt) -> list[ast.AST]:
    """Returns the statement, and its ``except`` and ``case`` parts, which hold statements too."""
    return [statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]


def _find_bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    names = ("body", "orelse", "finalbody")
    return [
        getattr(holder, name)
        for holder in _find_statement_holders(statement)
        for name in names
        if hasattr(holder, name)
    ]
