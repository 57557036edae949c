"""Code coverage by ``sys.monitoring`` (PEP 669), which exists since Python 3.12.

The interpreter calls back at each line and each conditional jump of the counted functions. A callback disables a line
after the first call, and a jump when nothing more can be learned from it. Lines show the outcome of a decision wherever
possible (see ``jumps``), because up to Python 3.13 both ways of a jump are one event.
"""

import sys
from collections.abc import Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

from assay.harness.search.code_coverage.counter import CoverageCounter
from assay.harness.search.code_coverage.jumps import JumpPoints, compute_layouts, find_jumps
from assay.harness.search.code_coverage.points import Point
from assay.harness.search.code_coverage.source import LoadedFunctions, SourceModule, iterate_nested_code

TOOLS: Final = (1, 3, 4)
"""Tool identifiers to try: that of coverage, then the unassigned ones."""


class ToolsTakenError(Exception):
    """All tool identifiers are in use."""


class MonitoringCounter(CoverageCounter):
    """Counter by ``sys.monitoring``. Start it once per process; ``stop`` frees the tool identifier."""

    def __init__(self, modules: Iterable[SourceModule]) -> None:
        super().__init__(modules)
        self._monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - unknown to the type checker on 3.11
        self._tool = -1
        self._code: list[CodeType] = []
        """Keeps the code objects alive, because the tables below use their identity."""
        self._modules: dict[int, str] = {}
        self._lines: dict[int, dict[int, tuple[Point, ...]]] = {}
        self._jumps: dict[int, dict[int, JumpPoints]] = {}

    def start(self) -> None:
        monitoring = self._monitoring
        self._tool = next((number for number in TOOLS if monitoring.get_tool(number) is None), -1)
        if self._tool < 0:
            taken = ", ".join(str(monitoring.get_tool(number)) for number in TOOLS)
            raise ToolsTakenError(
                f"sys.monitoring has no tool left for --code-coverage: {taken} have them; leave it out"
            )
        monitoring.use_tool_id(self._tool, "assay")
        events = monitoring.events
        monitoring.register_callback(self._tool, events.LINE, self._line)
        if hasattr(events, "BRANCH_LEFT"):  # since 3.14 the two ways are two events
            monitoring.register_callback(self._tool, events.BRANCH_LEFT, self._fell_through)
            monitoring.register_callback(self._tool, events.BRANCH_RIGHT, self._jumped)
            self._events = events.LINE | events.BRANCH_LEFT | events.BRANCH_RIGHT
        else:
            monitoring.register_callback(self._tool, events.BRANCH, self._branch)
            self._events = events.LINE | events.BRANCH
        super().start()

    def stop(self) -> None:
        for code in self._code:
            self._monitoring.set_local_events(self._tool, code, 0)
        self._monitoring.free_tool_id(self._tool)

    def count(self, module: SourceModule, functions: LoadedFunctions) -> None:
        known = compute_layouts(module.tree())
        for code in _collect_code(functions):
            layout = known.get((code.co_qualname, code.co_firstlineno))
            if layout is None:
                continue
            self._code.append(code)
            self._modules[id(code)] = module.name
            self._lines[id(code)] = layout.lines
            self._jumps[id(code)] = find_jumps(code, layout)
            self._monitoring.set_local_events(self._tool, code, self._events)

    def _line(self, code: CodeType, line: int) -> object:
        if points := self._lines[id(code)].get(line):
            self.reached(self._modules[id(code)], points)
        return self._monitoring.DISABLE

    def _branch(self, code: CodeType, offset: int, destination: int) -> object:
        jump = self._jumps[id(code)].get(offset)
        if jump is None:
            return self._monitoring.DISABLE
        self._went(code, jump, destination != jump.next)
        return self._monitoring.DISABLE if jump.over else None

    def _fell_through(self, code: CodeType, offset: int, _destination: int) -> object:
        if jump := self._jumps[id(code)].get(offset):
            self._went(code, jump, False)
        return self._monitoring.DISABLE

    def _jumped(self, code: CodeType, offset: int, _destination: int) -> object:
        if jump := self._jumps[id(code)].get(offset):
            self._went(code, jump, True)
        return self._monitoring.DISABLE

    def _went(self, code: CodeType, jump: JumpPoints, taken: bool) -> None:
        if (point := jump.went(taken)) is not None:
            self.reached(self._modules[id(code)], (point,))


def _collect_code(functions: LoadedFunctions) -> Sequence[CodeType]:
    """Returns the code of the functions and of those nested in them, each once."""
    several: list[FunctionType] = [function for alike in functions.same.values() for function in alike]
    codes = [code for function in several for code in (function.__code__, *iterate_nested_code(function.__code__))]
    return list({id(code): code for code in codes}.values())
