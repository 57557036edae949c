"""Trends of cells over many nights, as ``assay nights trends`` writes them for the page."""

from pathlib import Path
from typing import Any, Final

import msgspec

from assay.harness.core.files import read_file
from assay.reports.index.entry import CellKey, sanitize_text

FORMAT: Final = 1
Row = list[int | float | None]
"""Number of the night; failed, unknown, without verdict, passed; then medians: operations, latency in ms (median and 99
%), seconds of recovery, seconds to detection.
"""


class TrendsError(Exception):
    """Raised for an unreadable file of trends; the message says which, and what to do."""


class Regression(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a cell that got worse, from the night ``since`` on."""

    cell: CellKey
    figure: str
    unit: str
    before: float
    now: float
    since: str
    nights: int
    """The number of nights that are compared with the ``nights_before``."""
    nights_before: int
    probability: float
    """The p-value, adjusted for multiple comparisons."""
    last_version: str
    """The version of the night before ``since``; empty if unknown."""
    first_version: str


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """A cell over the nights, the oldest first."""

    cell: CellKey
    rows: tuple[Row, ...]


class Trends(msgspec.Struct, frozen=True, kw_only=True):
    """``nights``: those that rows refer to, the oldest first; ``asked``: number of figures with enough nights."""

    format: int = FORMAT
    nights: tuple[str, ...]
    cells: tuple[Trend, ...]
    worse: tuple[Regression, ...]
    asked: int
    level: float


def read_trends(path: Path) -> Trends:
    """Reads and sanitizes the file. Raises :class:`TrendsError`."""
    try:
        found = msgspec.convert(_sanitize(msgspec.json.decode(read_file(path))), Trends)
    except (OSError, ValueError, RecursionError) as error:
        raise TrendsError(f"{path}: {error}; create it with `assay nights trends DATASET --out={path}`") from error
    if found.format != FORMAT:
        raise TrendsError(f"{path} has format {found.format}, but this version reads {FORMAT}; create it again")
    if any(not row or len(row) != 10 or not 0 <= int(row[0] or 0) < len(found.nights)
           for trend in found.cells for row in trend.rows):  # fmt: skip
        raise TrendsError(f"{path} has a row for a missing night; create it again")
    return found


def _sanitize(value: Any) -> Any:
    """Sanitizes all texts of decoded JSON."""
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, dict):
        return {key: _sanitize(one) for key, one in value.items()}
    return [_sanitize(one) for one in value] if isinstance(value, list) else value
