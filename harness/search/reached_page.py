"""The page of ``assay search show --html``: every fault against every event, coloured by how many examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.harness.search.reached import NOTHING, Reached, rarest
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
class Grid:
    """One test: a row of cells for each fault, one for each event; turning points are ``declared``."""

    one: Reached
    events: tuple[str, ...]
    rows: tuple[tuple[str, int, tuple[Cell, ...]], ...]
    declared: frozenset[str]
    sequences: tuple[tuple[str, int], ...]


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
    return Grid(one, events, tuple(rows), frozenset(one.events), tuple(rarest(one.sequences, MOST)))
