"""Counters of our own, put into the system's functions: for interpreters without ``sys.monitoring``.

The source of a module is compiled again with a probe in front of each statement, and the functions that are loaded get
the code that came of it: objects, names, lines in tracebacks and what is imported stay as they are. A probe speaks
once, then it is a look at a list. After some runs those that have spoken are left out of the code again, so that what
runs often soon costs nothing; those that are left stand where no run has come to.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from assay.harness.search.code_coverage.counter import Counter
from assay.harness.search.code_coverage.points import Function, Point, marked
from assay.harness.search.code_coverage.source import Loaded, Module, compiled

LEFT: Final = "__assay_left__"
HIT: Final = "__assay_hit__"
"""Names in a module that is counted: which of its probes have not spoken yet, and what they call to speak."""
THINNED: Final = frozenset({4, 64, 1024})
"""After so many runs probes are left out. To compile all again costs as much as all probes do in a dozen runs."""


class Probes(Counter):
    """The code of the functions is that of the process: a copy of it has its own."""

    def __init__(self, modules: Iterable[Module]) -> None:
        super().__init__(modules)
        self._probed: list[_Probed] = []
        self._runs = 0

    def count(self, module: Module, functions: Loaded) -> None:
        probed = _Probed(module, functions, self.reached)
        probed.put()
        self._probed.append(probed)

    def settle(self) -> None:
        super().settle()
        self._runs += 1
        if self._runs in THINNED:
            self.thin()

    def thin(self) -> None:
        """Leaves out the probes that have spoken."""
        for probed in self._probed:
            if probed.stale:
                probed.put()


class _Probed:
    """One module. ``report`` is called with the points of a probe when that is come to for the first time."""

    def __init__(self, module: Module, functions: Loaded, report: Callable[[str, Sequence[Point]], None]) -> None:
        self._module = module
        self._functions = functions
        self._report = report
        self._points: list[Sequence[Point]] = []
        self._left: list[bool] = []
        self.stale = False
        """Has a probe spoken that is still in the code?"""

    def put(self) -> None:
        """Gives the functions code with the probes that have not spoken yet."""
        number = -1

        def probe(function: Function, points: Sequence[Point], statement: ast.stmt) -> Sequence[ast.stmt]:
            nonlocal number
            number += 1
            if number == len(self._left):  # the first time
                self._left.append(True)
                self._points.append(points)
            return [_probe(number, statement)] if self._left[number] else ()

        tree = self._module.tree()
        marked(tree, probe)
        code = compiled(tree, self._module.path)
        for key, functions in self._functions.same.items():
            for function in functions:
                function.__globals__[LEFT], function.__globals__[HIT] = self._left, self._hit
                function.__code__ = code[key]
        self.stale = False

    def _hit(self, number: int) -> None:
        self._left[number] = False
        self.stale = True
        self._report(self._module.name, self._points[number])


def _probe(number: int, statement: ast.stmt) -> ast.stmt:
    """``if LEFT[number]: HIT(number)``, at the statement's line."""
    index = ast.Subscript(ast.Name(LEFT, ast.Load()), ast.Constant(number), ast.Load())
    call = ast.Expr(ast.Call(ast.Name(HIT, ast.Load()), [ast.Constant(number)], []))
    found = ast.If(index, [call], [])
    for node in ast.walk(found):
        ast.copy_location(node, statement)
    return found
