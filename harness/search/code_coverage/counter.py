"""Code coverage by probes in the system's functions: each line, and each branch of a decision, is reported once.

1. The source of a module is compiled again, with a probe before each statement.
2. The loaded functions get the new code. Objects, names, lines in tracebacks and imports stay as they are.
3. A probe reports once; afterwards it costs one list access.
4. After some runs the code is compiled without the probes that have reported. Frequently executed code soon costs
   nothing.

A counter counts in the process that starts it, and in its forks. Each fork counts independently, because it has its own
copy of the functions.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from assay.harness.search.code_coverage.points import FunctionPoints, Point, instrument
from assay.harness.search.code_coverage.source import LoadedFunctions, SourceModule, compile_functions, find_loaded

ARMED: Final = "__assay_armed__"
REPORT: Final = "__assay_report__"
"""Names that probes use in a counted module: the list that says which probes have not reported yet, and the report
function.
"""
THINNING_RUNS: Final = frozenset({4, 64, 1024})
"""Run counts after which used probes are removed. Compiling costs as much as all probes do in a dozen runs."""


class CodePlace(NamedTuple):
    """A line of a module, or one ``branch`` of the decision on it: see :class:`Point`. None: the line itself."""

    module: str
    line: int
    branch: bool | None


class CoverageCounter:
    """Counter for these modules. A module that is loaded later is counted from the next :meth:`end_run` on."""

    def __init__(self, modules: Iterable[SourceModule]) -> None:
        self.on_new: Callable[[], None] = lambda: None
        """Called in the middle of the system's code when that reaches a place for the first time."""
        self._waiting = {module.name: module for module in modules}
        """Modules that are not loaded yet."""
        self._probed: list[_ProbedModule] = []
        self._runs = 0
        self._known: set[CodePlace] = set()
        self._new: list[CodePlace] = []

    def start(self) -> None:
        """Starts to count. Call it once per process, before :func:`gc.freeze` hides functions."""
        self._instrument_loaded()

    def end_run(self) -> None:
        """Begins to count modules that the run loaded, and removes used probes after some runs.

        Call it between two runs, when no code of the system is executing.
        """
        if any(name in sys.modules for name in self._waiting):
            self._instrument_loaded()
        self._runs += 1
        if self._runs in THINNING_RUNS:
            self.remove_used_probes()

    def remove_used_probes(self) -> None:
        """Removes the probes that have reported."""
        for probed in self._probed:
            if probed.stale:
                probed.recompile()

    def add_known(self, places: Iterable[CodePlace]) -> None:
        """Marks places as known because they were reached elsewhere."""
        self._known.update(places)

    def discard_new(self) -> None:
        """Clears the new places without a report, because another process reports them."""
        self._new.clear()

    def take_new(self) -> frozenset[CodePlace]:
        """Returns and clears the places covered for the first time since the last call."""
        new = frozenset(self._new)
        self._new.clear()
        return new

    def _report(self, module: str, points: Sequence[Point]) -> None:
        places = [place for line, branch in points if (place := CodePlace(module, line, branch)) not in self._known]
        if places:
            self._known.update(places)
            self._new += places
            self.on_new()

    def _instrument_loaded(self) -> None:
        for name, functions in find_loaded(self._waiting.values()).items():
            self._probed.append(_ProbedModule(self._waiting.pop(name), functions, self._report))
            self._probed[-1].recompile()


class _ProbedModule:
    """Module with probes. ``report`` is called with the points of a probe when it is reached for the first time."""

    def __init__(
        self, module: SourceModule, functions: LoadedFunctions, report: Callable[[str, Sequence[Point]], None]
    ) -> None:
        self._module = module
        self._functions = functions
        self._report = report
        self._points: list[Sequence[Point]] = []
        self._armed: list[bool] = []
        self.stale = False
        """Whether a probe that has reported is still in the code."""

    def recompile(self) -> None:
        """Gives the functions code with the probes that have not reported yet."""
        number = -1

        def probe(function: FunctionPoints, points: Sequence[Point], statement: ast.stmt) -> Sequence[ast.stmt]:
            nonlocal number
            number += 1
            if number == len(self._armed):  # in the first call of recompile
                self._armed.append(True)
                self._points.append(points)
            return [_make_probe(number, statement)] if self._armed[number] else ()

        tree = self._module.tree()
        instrument(tree, probe)
        code = compile_functions(tree, self._module.path)
        for key, functions in self._functions.unchanged.items():
            for function in functions:
                function.__globals__[ARMED], function.__globals__[REPORT] = self._armed, self._report_probe
                function.__code__ = code[key]
        self.stale = False

    def _report_probe(self, number: int) -> None:
        self._armed[number] = False
        self.stale = True
        self._report(self._module.name, self._points[number])


def _make_probe(number: int, statement: ast.stmt) -> ast.stmt:
    """Returns ``if ARMED[number]: REPORT(number)``, at the statement's line."""
    index = ast.Subscript(ast.Name(ARMED, ast.Load()), ast.Constant(number), ast.Load())
    call = ast.Expr(ast.Call(ast.Name(REPORT, ast.Load()), [ast.Constant(number)], []))
    probe = ast.If(index, [call], [])
    for node in ast.walk(probe):
        ast.copy_location(node, statement)
    return probe
