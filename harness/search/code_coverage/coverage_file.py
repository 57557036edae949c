"""Code coverage of searches, as it is stored and summed up."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec

from assay.harness.search.code_coverage.counter import CodePlace
from assay.harness.search.code_coverage.points import FunctionPoints, Point
from assay.harness.search.code_coverage.source import LoadedFunctions, SourceModule, find_loaded

MOST: Final = 2**53
"""The greatest number of a report. Floats hold all whole numbers up to it."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class FunctionCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """Coverage of one function: the numbers of lines and branches, and those never reached.

    Raises ``ValueError`` if more were missed than there are.
    """

    name: str
    first: Count
    last: Count
    lines: Count
    branches: Count
    missed_lines: tuple[Count, ...] = ()
    missed_branches: tuple[tuple[Count, bool], ...] = ()

    def __post_init__(self) -> None:
        for nouns, count, missed in (
            ("lines", self.lines, self.missed_lines),
            ("branches", self.branches, self.missed_branches),
        ):
            if len(missed) > count:
                raise ValueError(f"{len(missed)} {nouns} of {self.name} were missed, but the function has {count}")

    @property
    def uncalled(self) -> bool:
        """Returns whether it was never called; False for a function without points, for which this is unknown."""
        return (
            self.lines + self.branches > 0
            and len(self.missed_lines) == self.lines
            and len(self.missed_branches) == self.branches
        )


class ModuleCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """Coverage of one module. ``digest``: hash of its source. ``uncounted``: functions whose loaded code differs from
    the source.
    """

    file: str
    digest: str
    loaded: bool
    functions: tuple[FunctionCoverage, ...]
    uncounted: tuple[str, ...] = ()

    @property
    def lines(self) -> int:
        return sum(function.lines for function in self.functions)

    @property
    def branches(self) -> int:
        return sum(function.branches for function in self.functions)

    @property
    def reached_lines(self) -> int:
        return self.lines - sum(len(function.missed_lines) for function in self.functions)

    @property
    def reached_branches(self) -> int:
        return self.branches - sum(len(function.missed_branches) for function in self.functions)

    @property
    def uncalled(self) -> tuple[FunctionCoverage, ...]:
        """Returns the functions that no example called."""
        return tuple(function for function in self.functions if function.uncalled)

    @property
    def untaken(self) -> tuple[tuple[int, bool], ...]:
        """Returns the branches that no example took in functions that were called, in the order of their lines."""
        called = [function for function in self.functions if not function.uncalled]
        return tuple(sorted(branch for function in called for branch in function.missed_branches))


def compute_coverage(modules: Sequence[SourceModule], places: Iterable[CodePlace]) -> tuple[ModuleCoverage, ...]:
    """Returns the coverage of each module. ``places``: the places that a search reached."""
    reached: defaultdict[str, set[Point]] = defaultdict(set)
    for module, line, branch in places:
        reached[module].add(Point(line, branch))
    loaded = find_loaded(modules)
    return tuple(
        _cover_module(module, reached.get(module.name, set()), loaded.get(module.name))
        for module in modules
        if module.functions
    )


def merge_searches(searches: Sequence[Sequence[ModuleCoverage]]) -> tuple[ModuleCoverage, ...]:
    """Sums up several searches, the latest last.

    The modules are those of the latest search that counted any. If a source has changed, only the searches with its
    latest version count.
    """
    latest = {module.file: module for module in next((search for search in reversed(searches) if search), ())}
    return tuple(
        _merge_module(
            module, [one for search in searches for one in search if (one.file, one.digest) == (file, module.digest)]
        )
        for file, module in sorted(latest.items())
    )


def _merge_module(module: ModuleCoverage, versions: Sequence[ModuleCoverage]) -> ModuleCoverage:
    by_place: defaultdict[tuple[str, int], list[FunctionCoverage]] = defaultdict(list)
    for function in [function for version in versions for function in version.functions]:
        by_place[function.name, function.first].append(function)
    return msgspec.structs.replace(
        module,
        loaded=any(version.loaded for version in versions),
        functions=tuple(_merge_function(by_place[function.name, function.first]) for function in module.functions),
    )


def _merge_function(versions: Sequence[FunctionCoverage]) -> FunctionCoverage:
    missed = {
        name: tuple(sorted(set.intersection(*(set(getattr(version, name)) for version in versions))))
        for name in ("missed_lines", "missed_branches")
    }
    return msgspec.structs.replace(versions[0], **missed)


def _cover_module(module: SourceModule, points: set[Point], loaded: LoadedFunctions | None) -> ModuleCoverage:
    """Returns a module's coverage. ``loaded``: its code in this process; a forked process may load it later."""
    uncounted = {(key.name, key.first) for key in loaded.changed} if loaded is not None else set()
    return ModuleCoverage(
        file=module.label,
        digest=hashlib.sha256(module.text).hexdigest()[:16],
        loaded=loaded is not None or bool(points),
        functions=tuple(
            _cover_function(one, points) for one in module.functions if (one.name, one.first) not in uncounted
        ),
        uncounted=tuple(sorted(name for name, _ in uncounted)),
    )


def _cover_function(function: FunctionPoints, points: set[Point]) -> FunctionCoverage:
    lines = [point.line for point in function.points if point.branch is None]
    branches = [(point.line, point.branch) for point in function.points if point.branch is not None]
    return FunctionCoverage(
        name=function.name,
        first=function.first,
        last=function.last,
        lines=len(lines),
        branches=len(branches),
        missed_lines=tuple(sorted(line for line in lines if Point(line) not in points)),
        missed_branches=tuple(sorted(pair for pair in branches if Point(*pair) not in points)),
    )
