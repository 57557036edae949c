"""What there is to reach in a module's source: the lines of its functions, and both outcomes of their decisions.

Lines are those at which a statement begins. Decisions are ``if``, ``elif``, ``while`` and ``for``: the test was true or
false; the loop had an element, or came to its end. Each ``case`` and each ``except`` has lines of its own, which say as
much. What runs while a module is imported is not counted, since that is over before a search begins; nor is what cannot
run: stubs, declarations, what is there for type checkers, and outcomes of a test that is constant.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Point(NamedTuple):
    """A line, or one ``outcome`` of the decision on it. A loop's outcome is true when it has an element."""

    line: int
    outcome: bool | None = None


@dataclass(frozen=True)
class Function:
    """``name`` as its code object has it; ``first`` to ``last``: its lines, with its decorators."""

    name: str
    first: int
    last: int
    points: tuple[Point, ...]


Mark = Callable[[Function, Sequence[Point], ast.stmt], Sequence[ast.stmt]]
"""What to put in front of a statement of that function (its points are not known yet) at which these are reached."""
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Decision = ast.If | ast.While | ast.For


def functions(tree: ast.Module) -> tuple[Function, ...]:
    """All that are defined in it, at any depth, with their points; the tree stays as it is."""
    return marked(tree, lambda function, points, statement: ())


def marked(tree: ast.Module, mark: Mark) -> tuple[Function, ...]:
    """The same, with marks put into the tree wherever ``mark`` gives some."""
    walk = _Walk(mark)
    walk.definitions(tree.body, "")
    return tuple(walk.functions)


def is_constant(test: ast.expr) -> bool:
    """A test whose outcome is the same at all times."""
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return isinstance(test, ast.Constant) or name in ("TYPE_CHECKING", "__debug__")


def constant_test(statement: Decision) -> ast.expr | None:
    """The test, if its outcome is the same at all times."""
    return statement.test if isinstance(statement, ast.If | ast.While) and is_constant(statement.test) else None


def has_line(statement: ast.stmt) -> bool:
    """Is something done at the line at which it begins?"""
    match statement:
        case ast.Global() | ast.Nonlocal() | ast.Try() | ast.TryStar() | ast.AnnAssign(value=None):
            return False
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.If() | ast.While():
            return constant_test(statement) is None
    return True


def first_line(statement: ast.stmt) -> int:
    """Where it begins: of a definition, at its first decorator."""
    decorators: Sequence[ast.expr] = getattr(statement, "decorator_list", ())
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def is_stub(body: Sequence[ast.stmt]) -> bool:
    """Nothing but text, ``...`` and ``pass``."""
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


class _Walk:
    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self.functions: list[Function] = []
        self._points: list[Point] = []
        self._function = Function("", 0, 0, ())

    def definitions(self, body: Sequence[ast.stmt], prefix: str) -> None:
        """What is defined by statements that are themselves not counted."""
        for statement in body:
            if isinstance(statement, DEFINITIONS):
                self._defined(statement, prefix)
            elif isinstance(statement, ast.ClassDef):
                self.definitions(statement.body, f"{prefix}{statement.name}.")
            else:
                for inner in _bodies(statement):
                    self.definitions(inner, prefix)

    def _defined(self, node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str) -> None:
        if is_stub(node.body):
            return
        outer = self._function, self._points
        last = node.end_lineno or node.lineno
        self._function, self._points = Function(prefix + node.name, first_line(node), last, ()), []
        described = int(ast.get_docstring(node, clean=False) is not None)
        place = len(self.functions)
        node.body = [*node.body[:described], *self._block(node.body[described:])]
        function = Function(self._function.name, self._function.first, last, tuple(dict.fromkeys(self._points)))
        self.functions.insert(place, function)
        self._function, self._points = outer

    def _block(self, body: Sequence[ast.stmt], entered: Sequence[Point] = ()) -> list[ast.stmt]:
        """Statements that follow each other; ``entered``: what is reached with the first of them."""
        found: list[ast.stmt] = []
        for statement in body:
            found += self._reached([*entered, *self._line(statement)], statement)
            entered = ()
            self._inside(statement)
            found.append(statement)
        return found

    def _line(self, statement: ast.stmt) -> list[Point]:
        return [Point(first_line(statement))] if has_line(statement) else []

    def _reached(self, points: Sequence[Point], statement: ast.stmt) -> Sequence[ast.stmt]:
        if not points:
            return ()
        self._points += points
        return self._mark(self._function, points, statement)

    def _inside(self, statement: ast.stmt) -> None:
        prefix = f"{self._function.name}.<locals>."
        if isinstance(statement, DEFINITIONS):
            self._defined(statement, prefix)
        elif isinstance(statement, ast.ClassDef):
            self.definitions(statement.body, f"{prefix}{statement.name}.")
        elif isinstance(statement, Decision):
            self._decided(statement)
        else:
            for holder in _holders(statement):
                for name in ("body", "orelse", "finalbody"):
                    if body := getattr(holder, name, None):
                        setattr(holder, name, self._block(body))

    def _decided(self, statement: Decision) -> None:
        if (test := constant_test(statement)) is not None:
            if isinstance(test, ast.Constant):  # the others are for type checkers
                statement.body = self._block(statement.body)
            statement.orelse = self._block(statement.orelse)
            return
        yes, no = Point(statement.lineno, True), Point(statement.lineno, False)
        statement.body = self._block(statement.body, [yes])
        if statement.orelse:
            statement.orelse = self._block(statement.orelse, [no])
        else:
            statement.orelse = list(self._reached([no], statement))


def _holders(statement: ast.stmt) -> list[ast.AST]:
    """It, and the parts of it that hold statements in its place: ``except`` and ``case``."""
    return [statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]


def _bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    names = ("body", "orelse", "finalbody")
    return [getattr(holder, name) for holder in _holders(statement) for name in names if hasattr(holder, name)]
