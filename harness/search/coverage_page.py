"""HTML page of ``assay search show --html``.

It shows a grid of faults and events, coloured by the number of examples, and the code coverage of the system.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.harness.search.code_coverage import table
from assay.harness.search.code_coverage.coverage_file import ModuleReached
from assay.harness.search.coverage_report import NOTHING, Reached, rarest
from assay.reports import html

FOLDER: Final = Path(__file__).parent
MOST: Final = 40
"""Sequences that are listed at most."""


@dataclass(frozen=True)
class Cell:
    """Cell of the grid. ``share`` is ``many`` on a logarithmic scale from 0 to 1; 0 means no example."""

    many: int
    share: float


@dataclass(frozen=True)
class Part:
    """Code coverage of one module, and the functions and branches never reached. ``share`` is from 0 to 1."""

    module: ModuleReached
    share: float
    reached: str
    functions: tuple[str, ...]
    branches: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """Grid of one test: a row for each fault, with a cell for each event. ``declared`` are the turning points."""

    one: Reached
    events: tuple[str, ...]
    rows: tuple[tuple[str, int, tuple[Cell, ...]], ...]
    declared: frozenset[str]
    sequences: tuple[tuple[str, int], ...]
    code: str
    """The coverage of all modules together, or the reason why it is not known."""
    parts: tuple[Part, ...]
    unloaded: tuple[str, ...]


def page(everything: Sequence[Reached]) -> str:
    """Renders a self-contained HTML file."""
    template = html.environment(FOLDER).get_template("reached.html")
    return template.render(grids=[_grid(one) for one in everything], **html.shell((), html.source("style.css")))


def _grid(one: Reached) -> Grid:
    during, struck, seen = one.during, one.struck, one.seen
    events = tuple(sorted({*one.events, *seen}, key=lambda event: (-seen.get(event, 0), event)))
    faults = [NOTHING, *sorted({*one.faults, *struck, *during} - {NOTHING})]
    top = math.log1p(max([1, *(many for came in during.values() for many in came.values())]))
    rows = []
    for fault in faults:
        came = during.get(fault, {})
        cells = tuple(Cell(came.get(event, 0), math.log1p(came.get(event, 0)) / top) for event in events)
        rows.append((fault, one.examples if fault == NOTHING else struck.get(fault, 0), cells))
    declared, sequences = frozenset(one.events), tuple(rarest(one.sequences, MOST))
    unloaded = tuple(module.file for module in one.code if not module.loaded)
    return Grid(one, events, tuple(rows), declared, sequences, table.table(one.code)[0], _parts(one.code), unloaded)


def _parts(code: Sequence[ModuleReached]) -> tuple[Part, ...]:
    """Returns the loaded modules, lowest coverage first."""
    parts = [
        Part(
            module,
            table.share(module),
            table.reached(module),
            tuple(map(table.described, module.never)),
            tuple(table.branch(*branch) for branch in module.missed),
        )
        for module in code
        if module.loaded
    ]
    return tuple(sorted(parts, key=lambda part: (part.share, part.module.file)))
