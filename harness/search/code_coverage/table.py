"""Code coverage of a system as lines of text: for each module its coverage, and the code that no example reached."""

from collections.abc import Sequence
from typing import Final

from assay.harness.core.printable import join_some
from assay.harness.search.code_coverage.coverage_file import FunctionCoverage, ModuleCoverage

MOST_NAMED: Final = 6
"""Maximum number of functions, and of branches, that are named per module; the HTML page names all."""
NOT_COUNTED: Final = "lines and branches of the system were not counted (--code-coverage)"
NOTHING_RAN: Final = (
    "no line of the system was reached: only what runs in the process of the simulation can be counted; "
    "code_packages of the system (SupportsCodePackages in cluster/system.py) says where its code is"
)


def make_table(code: Sequence[ModuleCoverage]) -> list[str]:
    """Returns a line for all modules together, and one for each module, lowest coverage first."""
    if not code:
        return [NOT_COUNTED]
    loaded = [module for module in code if module.loaded]
    if not any(module.reached_lines for module in loaded):
        return [NOTHING_RAN]
    rows = [f"{describe_total(loaded)}; never loaded: {_join([one.file for one in code if not one.loaded])}"]
    width = max(len(module.file) for module in loaded)
    for module in sorted(loaded, key=lambda module: (compute_share(module), module.file)):
        rows.append(f"{module.file:<{width}}  {describe_reached(module)}; {describe_missed(module)}")
    return rows


def describe_total(code: Sequence[ModuleCoverage]) -> str:
    """Returns the coverage of all modules together."""
    return (
        f"{sum(one.reached_lines for one in code)} of {sum(one.lines for one in code)} lines and "
        f"{sum(one.reached_branches for one in code)} of {sum(one.branches for one in code)} branches of the system"
    )


def compute_share(module: ModuleCoverage) -> float:
    """Returns the covered part of a module, from 0 to 1."""
    return (module.reached_lines + module.reached_branches) / max(1, module.lines + module.branches)


def describe_reached(module: ModuleCoverage) -> str:
    return f"{module.reached_lines} of {module.lines} lines, {module.reached_branches} of {module.branches} branches"


def describe_missed(module: ModuleCoverage) -> str:
    """Returns the functions that no example called, and in the other functions the branches that no example took."""
    if compute_share(module) == 0:
        return "never: any of it"
    parts = [f"never: {_join([describe_function(function) for function in module.uncalled])}"]
    if module.untaken:
        parts.append(f"branches: {_join([describe_branch(*one) for one in module.untaken])}")
    if module.uncounted:
        parts.append(f"not counted, because their loaded code differs from the file: {_join(module.uncounted)}")
    return "; ".join(parts)


def describe_function(function: FunctionCoverage) -> str:
    """Returns text such as ``elect_alone (lines 40-52)``."""
    return f"{function.name} (lines {function.first}-{function.last})"


def describe_branch(line: int, branch: bool) -> str:
    """Returns text such as ``61 never false``."""
    return f"{line} never {str(branch).lower()}"


def _join(names: Sequence[str]) -> str:
    return join_some(names, MOST_NAMED) or "none"
