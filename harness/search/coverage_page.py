"""HTML page of ``assay search show --html``.

It shows a grid of faults and events, coloured by the number of examples, and the code coverage of the system.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.harness.search.code_coverage import table
from assay.harness.search.code_coverage.coverage_file import ModuleCoverage
from assay.harness.search.coverage_report import NOTHING, CoverageReport, find_rarest
from assay.reports import html

FOLDER: Final = Path(__file__).parent
MOST: Final = 40
"""Sequences that are listed at most."""


@dataclass(frozen=True)
class GridCell:
    """Cell of the grid. ``share`` is ``many`` on a logarithmic scale from 0 to 1; 0 means no example."""

    many: int
    share: float


@dataclass(frozen=True)
class Part:
    """Code coverage of one module, and the functions and branches never reached. ``share`` is from 0 to 1."""

    module: ModuleCoverage
    share: float
    reached: str
    functions: tuple[str, ...]
    branches: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """Grid of one test: a row for each fault, with a cell for each event. ``declared`` are the turning points."""

    one: CoverageReport
    events: tuple[str, ...]
    rows: tuple[tuple[str, int, tuple[GridCell, ...]], ...]
    declared: frozenset[str]
    sequences: tuple[tuple[str, int], ...]
    code: str
    """The coverage of all modules together, or the reason why it is not known."""
    parts: tuple[Part, ...]
    unloaded: tuple[str, ...]


def render_page(everything: Sequence[CoverageReport]) -> str:
    """Renders a self-contained HTML file."""
    template = html.build_environment(FOLDER).get_template("reached.html")
    return template.render(
        grids=[_make_grid(one) for one in everything], **html.build_shell((), html.read_source("style.css"))
    )


def _make_grid(one: CoverageReport) -> Grid:
    during, struck, seen = one.during, one.struck, one.seen
    events = tuple(sorted({*one.events, *seen}, key=lambda event: (-seen.get(event, 0), event)))
    faults = [NOTHING, *sorted({*one.faults, *struck, *during} - {NOTHING})]
    top = math.log1p(max([1, *(many for came in during.values() for many in came.values())]))
    rows = []
    for fault in faults:
        came = during.get(fault, {})
        cells = tuple(GridCell(came.get(event, 0), math.log1p(came.get(event, 0)) / top) for event in events)
        rows.append((fault, one.examples if fault == NOTHING else struck.get(fault, 0), cells))
    declared, sequences = frozenset(one.events), tuple(find_rarest(one.sequences, MOST))
    unloaded = tuple(module.file for module in one.code if not module.loaded)
    return Grid(
        one,
        events,
        tuple(rows),
        declared,
        sequences,
        table.make_table(one.code)[0],
        _make_module_rows(one.code),
        unloaded,
    )


def _make_module_rows(code: Sequence[ModuleCoverage]) -> tuple[Part, ...]:
    """Returns the loaded modules, lowest coverage first."""
    parts = [
        Part(
            module,
            table.compute_share(module),
            table.describe_reached(module),
            tuple(map(table.describe_function, module.never)),
            tuple(table.describe_branch(*branch) for branch in module.missed),
        )
        for module in code
        if module.loaded
    ]
    return tuple(sorted(parts, key=lambda part: (part.share, part.module.file)))
