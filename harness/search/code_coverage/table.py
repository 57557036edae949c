"""Code coverage of a system as lines of text: per module, with what no example reached."""

from collections.abc import Sequence
from typing import Final

from assay.harness.search.code_coverage.coverage_file import FunctionReached, ModuleReached

MOST: Final = 6
"""Functions, and branches, that are named per module; the HTML page names all."""
NOT_COUNTED: Final = "lines and branches of the system were not counted (--code-coverage)"
NOTHING_RAN: Final = (
    "no line of the system was reached: only what runs in the process of the simulation can be counted; "
    "code_packages of the system (SupportsCodePackages in cluster/system.py) says where its code is"
)


def table(code: Sequence[ModuleReached]) -> list[str]:
    """Returns a line for all modules together, and one for each module, lowest coverage first."""
    if not code:
        return [NOT_COUNTED]
    loaded = [module for module in code if module.loaded]
    if not any(module.reached_lines for module in loaded):
        return [NOTHING_RAN]
    rows = [f"{total(loaded)}; never loaded: {_names([module.file for module in code if not module.loaded])}"]
    width = max(len(module.file) for module in loaded)
    for module in sorted(loaded, key=lambda module: (share(module), module.file)):
        rows.append(f"{module.file:<{width}}  {reached(module)}; {never(module)}")
    return rows


def total(code: Sequence[ModuleReached]) -> str:
    """Returns the coverage of all modules together."""
    return (
        f"{sum(one.reached_lines for one in code)} of {sum(one.lines for one in code)} lines and "
        f"{sum(one.reached_branches for one in code)} of {sum(one.branches for one in code)} branches of the system"
    )


def share(module: ModuleReached) -> float:
    """Returns the covered part of a module, from 0 to 1."""
    return (module.reached_lines + module.reached_branches) / max(1, module.lines + module.branches)


def reached(module: ModuleReached) -> str:
    return f"{module.reached_lines} of {module.lines} lines, {module.reached_branches} of {module.branches} branches"


def never(module: ModuleReached, most: int = MOST) -> str:
    """Returns the functions that no example called, and the branches that none took in the other functions."""
    if share(module) == 0:
        return "never: any of it"
    parts = [f"never: {_names([described(function) for function in module.never], most)}"]
    if module.missed:
        parts.append(f"branches: {_names([branch(*one) for one in module.missed], most)}")
    if module.uncounted:
        parts.append(f"not counted, because their loaded code differs from the file: {_names(module.uncounted, most)}")
    return "; ".join(parts)


def described(function: FunctionReached) -> str:
    """Returns text such as ``elect_unclean (lines 40-52)``."""
    return f"{function.name} (lines {function.first}-{function.last})"


def branch(line: int, outcome: bool) -> str:
    """Returns text such as ``61 never false``."""
    return f"{line} never {str(outcome).lower()}"


def _names(names: Sequence[str], most: int = MOST) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "") or "none"
