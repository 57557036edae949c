"""The page of ``assay search show --html``: every fault against every event, coloured by how many examples, and what
was reached of the system's code.
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
"""Sequences that are listed."""


@dataclass(frozen=True)
class Cell:
    """``share`` from 0 to 1, by the logarithm of ``many`` examples; 0: none."""

    many: int
    share: float


@dataclass(frozen=True)
class Part:
    """One module: what was reached of it, ``share`` from 0 to 1, and what never was."""

    module: ModuleReached
    share: float
    reached: str
    functions: tuple[str, ...]
    branches: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """One test: a row of cells for each fault, one for each event; turning points are ``declared``."""

    one: Reached
    events: tuple[str, ...]
    rows: tuple[tuple[str, int, tuple[Cell, ...]], ...]
    declared: frozenset[str]
    sequences: tuple[tuple[str, int], ...]
    code: str
    """Of all modules together, or why there is nothing to be said of them."""
    parts: tuple[Part, ...]
    unloaded: tuple[str, ...]


def page(everything: Sequence[Reached]) -> str:
    """One HTML file that needs nothing else."""
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
    """First those of which the smallest part was reached."""
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
