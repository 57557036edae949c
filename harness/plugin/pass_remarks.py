"""Summary of runs and searches that passed: how much was examined, and remarks.

It is printed at the end of a session, because a run that passed prints nothing itself. It reveals a run that passed
only because almost nothing was examined.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from assay.harness.core.printable import format_size, inflect

REMARK: Final = "assay remark"
"""The user property of a test with a remark. pytest-xdist passes it on from its worker processes."""
PASSED: Final = "assay passed"
"""The user property of a passed test: its operations, the number of checks that had data, its folder, and its
operations by outcome.
"""
REMOVED: Final = "assay history removed"
"""The user property of a passed test whose history was removed: its bytes, its remaining files in words, its folder."""
SEARCHED: Final = "assay searched"
"""The user property of a search that found nothing: the number of its examples."""


def keep_remarks(item: Any, remarks: Iterable[str]) -> None:
    """Keeps remarks for the end of the session. Must be called before the test's tear-down ends."""
    item.user_properties.extend((REMARK, remark) for remark in remarks)


def keep_counts(item: Any, counts: Iterable[tuple[str, str]]) -> None:
    """Keeps the operations by outcome of a judged run; ``--junitxml`` writes them as properties of the test case."""
    item.user_properties.extend(counts)


def keep_pass(item: Any, operations: int, checks: int, folder: Path, outcomes: str) -> None:
    """Keeps the figures of a run that passed. ``outcomes``: its operations by outcome, in words."""
    item.user_properties.append((PASSED, (operations, checks, str(folder), outcomes)))


def keep_removal(item: Any, size: int, remaining: str, folder: Path) -> None:
    """Keeps that the history of a run was removed. ``remaining``: the other files of the run, in words."""
    item.user_properties.append((REMOVED, (size, remaining, str(folder))))


def keep_search(item: Any, examples: int) -> None:
    """Keeps the number of examples of a search that found nothing."""
    item.user_properties.append((SEARCHED, examples))


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the smallest run, the examples of searches, and each remark once with the number of its runs."""
    properties = [
        one
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "teardown"
        for one in report.user_properties
    ]
    for line in _summarize_passes([value for name, value in properties if name == PASSED]):
        terminalreporter.write_line(line)
    for line in _summarize_removals([value for name, value in properties if name == REMOVED]):
        terminalreporter.write_line(line)
    if searches := [value for name, value in properties if name == SEARCHED]:
        some = "a search" if len(searches) == 1 else f"{len(searches)} searches"
        terminalreporter.write_line(f"assay: {some} found nothing in {sum(searches):,} examples")
    for text, number in Counter(value for name, value in properties if name == REMARK).items():
        runs = f"{number} runs that passed" if number > 1 else "a run that passed"
        terminalreporter.write_line(f"assay: of {runs}: {text}")


def _summarize_passes(runs: list[tuple[int, int, str, str]]) -> Iterator[str]:
    if not runs:
        return
    _, checks, folder, outcomes = min(runs)
    smallest = f"{outcomes}, looked at by {checks} checks: {folder}"
    if len(runs) == 1:
        yield f"assay: a run passed, of {smallest}"
    else:
        total = sum(number for number, *_ in runs)
        yield f"assay: {len(runs)} runs passed, of {_format_operations(total)}; the smallest of {smallest}"


def _summarize_removals(runs: list[tuple[int, str, str]]) -> Iterator[str]:
    if not runs:
        return
    size = format_size(sum(size for size, *_ in runs))
    _, remaining, folder = runs[0]
    if len(runs) == 1:
        yield f"assay: history of {size} removed; {remaining} remain; `assay replay {folder}` can repeat it"
    else:
        yield (
            f"assay: histories of {len(runs)} runs that passed removed, {size}; {remaining} remain; "
            "`assay replay RUN` can repeat one"
        )


def _format_operations(number: int) -> str:
    return f"{number:,} {inflect(number, 'operation')}"
