"""Code coverage by probes in the system's functions, for interpreters without ``sys.monitoring``.

1. The source of a module is compiled again, with a probe before each statement.
2. The loaded functions get the new code. Objects, names, lines in tracebacks and imports stay as they are.
3. A probe reports once; afterwards it costs one list access.
4. After some runs the code is compiled without the probes that have reported. Frequently executed code soon costs
   nothing.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from assay.harness.search.code_coverage.counter import CoverageCounter
from assay.harness.search.code_coverage.points import FunctionPoints, Point, insert_marks
from assay.harness.search.code_coverage.source import LoadedFunctions, SourceModule, compile_functions

LEFT: Final = "__assay_left__"
HIT: Final = "__assay_hit__"
"""Names that probes use in a counted module: the list of probes that have not reported, and the report function."""
THINNED: Final = frozenset({4, 64, 1024})
"""Run counts after which probes are removed. Compiling costs as much as all probes do in a dozen runs."""


class ProbeCounter(CoverageCounter):
    """Counter by probes. The code of functions belongs to the process; a fork has its own copy."""

    def __init__(self, modules: Iterable[SourceModule]) -> None:
        super().__init__(modules)
        self._probed: list[_ProbedModule] = []
        self._runs = 0

    def count(self, module: SourceModule, functions: LoadedFunctions) -> None:
        probed = _ProbedModule(module, functions, self.reached)
        probed.put()
        self._probed.append(probed)

    def settle(self) -> None:
        super().settle()
        self._runs += 1
        if self._runs in THINNED:
            self.thin()

    def thin(self) -> None:
        """Removes the probes that have reported."""
        for probed in self._probed:
            if probed.stale:
                probed.put()


class _ProbedModule:
    """Probed module. ``report`` is called with the points of a probe when it is reached for the first time."""

    def __init__(
        self, module: SourceModule, functions: LoadedFunctions, report: Callable[[str, Sequence[Point]], None]
    ) -> None:
        self._module = module
        self._functions = functions
        self._report = report
        self._points: list[Sequence[Point]] = []
        self._left: list[bool] = []
        self.stale = False
        """Whether a probe that has reported is still in the code."""

    def put(self) -> None:
        """Gives the functions code with the probes that have not reported yet."""
        number = -1

        def probe(function: FunctionPoints, points: Sequence[Point], statement: ast.stmt) -> Sequence[ast.stmt]:
            nonlocal number
            number += 1
            if number == len(self._left):  # the first call of put
                self._left.append(True)
                self._points.append(points)
            return [_make_probe(number, statement)] if self._left[number] else ()

        tree = self._module.tree()
        insert_marks(tree, probe)
        code = compile_functions(tree, self._module.path)
        for key, functions in self._functions.same.items():
            for function in functions:
                function.__globals__[LEFT], function.__globals__[HIT] = self._left, self._hit
                function.__code__ = code[key]
        self.stale = False

    def _hit(self, number: int) -> None:
        self._left[number] = False
        self.stale = True
        self._report(self._module.name, self._points[number])


def _make_probe(number: int, statement: ast.stmt) -> ast.stmt:
    """Returns ``if LEFT[number]: HIT(number)``, at the statement's line."""
    index = ast.Subscript(ast.Name(LEFT, ast.Load()), ast.Constant(number), ast.Load())
    call = ast.Expr(ast.Call(ast.Name(HIT, ast.Load()), [ast.Constant(number)], []))
    found = ast.If(index, [call], [])
    for node in ast.walk(found):
        ast.copy_location(node, statement)
    return found
