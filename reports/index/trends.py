"""Trends of cells over many nights, as ``assay nights trends`` writes them for the page."""

from pathlib import Path
from typing import Any, Final

import msgspec

from assay.harness.core.files import read_file
from assay.reports.index.entry import CellKey, sanitize_text

FORMAT: Final = 1
Row = list[int | float | None]
"""Values of a cell in one night, in this order:

1. the number of the night
2. the numbers of runs that failed, were unknown, had no verdict, and passed
3. medians over the runs: operations, median and 99 % latency in ms, seconds of recovery, seconds to detection
"""


class TrendsError(Exception):
    """Raised for an unreadable file of trends. The message names the file, and says what to do."""


class Regression(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement (``figure``) of a cell that has been worse since the night ``since``."""

    cell: CellKey
    figure: str
    unit: str
    before: float
    now: float
    since: str
    nights: int
    """Number of nights from ``since`` on, which are compared with the ``nights_before`` earlier nights."""
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
    """Content of the file.

    - ``nights``: the nights to which rows refer, the oldest first
    - ``worse``: measurements that got worse
    - ``asked``: number of measurements with enough nights for a test
    - ``level``: significance level of the test
    """

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
