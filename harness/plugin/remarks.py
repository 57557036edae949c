"""Remarks on runs that passed: said at the end of a session, as a run that passed prints nothing of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pytest

REMARK: Final = "assay remark"
"""The user property of a test, which also comes from another process that ran it."""


def keep(item: Any, remarks: Iterable[str]) -> None:
    """To be said at the end; before the test's tear-down is over."""
    item.user_properties.extend((REMARK, remark) for remark in remarks)


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Each remark once, with the number of runs that it is of."""
    found = [
        text
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "teardown"
        for name, text in report.user_properties
        if name == REMARK
    ]
    for text, number in Counter(found).items():
        runs = f"{number} runs that passed" if number > 1 else "a run that passed"
        terminalreporter.write_line(f"assay: of {runs}: {text}")
