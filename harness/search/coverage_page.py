"""HTML page of ``assay search show --html``.

It shows a grid of faults and events, coloured by the number of examples, and the code coverage of the system.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.harness.search.code_coverage import table
from assay.harness.search.code_coverage.coverage_file import ModuleCoverage
from assay.harness.search.coverage_report import NO_FAULT, CoverageReport, find_rarest
from assay.reports import html

FOLDER: Final = Path(__file__).parent
OWN: Final = re.compile(html.HEAD + rb"<title>what searches have reached</title>")
"""Matches each page."""
MOST_SEQUENCES: Final = 40
"""Maximum number of sequences of events that are listed."""


@dataclass(frozen=True)
class GridCell:
    """Cell of the grid. ``shade`` is ``examples`` on a logarithmic scale from 0 to 1; 0 means no example."""

    examples: int
    shade: float


@dataclass(frozen=True)
class ModuleRow:
    """Code coverage of one module, and the functions and branches never reached. ``share`` is from 0 to 1."""

    module: ModuleCoverage
    share: float
    reached: str
    functions: tuple[str, ...]
    branches: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """Grid of one test: a row for each fault, with its number of examples and a cell for each event."""

    report: CoverageReport
    events: tuple[str, ...]
    rows: tuple[tuple[str, int, tuple[GridCell, ...]], ...]
    turning_points: frozenset[str]
    sequences: tuple[tuple[str, int], ...]
    code: str
    """The coverage of all modules together, or the reason why it is not known."""
    modules: tuple[ModuleRow, ...]
    unloaded: tuple[str, ...]


def render_page(reports: Sequence[CoverageReport]) -> str:
    """Renders a self-contained HTML file."""
    template = html.build_environment(FOLDER).get_template("reached.html")
    return template.render(
        grids=[_make_grid(report) for report in reports], **html.build_shell((), html.read_source("style.css"))
    )


def _make_grid(report: CoverageReport) -> Grid:
    during, injected, counts = report.events_during, report.fault_counts, report.event_counts
    events = tuple(sorted({*report.events, *counts}, key=lambda event: (-counts.get(event, 0), event)))
    top = math.log1p(max([1, *(many for row in during.values() for many in row.values())]))
    rows = []
    for fault in [NO_FAULT, *sorted({*report.faults, *injected, *during} - {NO_FAULT})]:
        examples = [during.get(fault, {}).get(event, 0) for event in events]
        cells = tuple(GridCell(many, math.log1p(many) / top) for many in examples)
        rows.append((fault, report.examples if fault == NO_FAULT else injected.get(fault, 0), cells))
    return Grid(
        report,
        events,
        tuple(rows),
        turning_points=frozenset(report.events),  # only those that the system declares
        sequences=tuple(find_rarest(report.sequences, MOST_SEQUENCES)),
        code=table.make_table(report.code)[0],
        modules=_make_module_rows(report.code),
        unloaded=tuple(module.file for module in report.code if not module.loaded),
    )


def _make_module_rows(code: Sequence[ModuleCoverage]) -> tuple[ModuleRow, ...]:
    """Returns the loaded modules, lowest coverage first."""
    rows = [
        ModuleRow(
            module,
            table.compute_share(module),
            table.describe_reached(module),
            tuple(map(table.describe_function, module.uncalled)),
            tuple(table.describe_branch(*branch) for branch in module.untaken),
        )
        for module in code
        if module.loaded
    ]
    return tuple(sorted(rows, key=lambda row: (row.share, row.module.file)))
