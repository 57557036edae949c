"""Histories on disk. Read them in this order:

- ``schema``: the six data sets and their columns; the number of the format.
- ``kinds``: what effects are called.
- ``columns``, ``writer``: rows to Arrow batches to Parquet parts, while the run goes on.
- ``reader``: opens a folder, checks its columns, gives rows and paths.
- ``translation``: histories of older formats, translated as they are read, by ``sql`` texts: ``format_1``, in which
  kinds of effects did not name their object, ``format_3``, in which columns had several meanings, and ``format_4``,
  to which columns have been added since.
- ``digest``: one hash over all rows, to compare two runs.

Imports ``harness.core.operation`` alone, and Arrow; checkers, reports and every room of the harness but ``remote`` and
``plugin`` import it.
"""

from assay.harness.core.history.reader import HistoryReader
from assay.harness.core.history.schema import (
    CLOSED,
    DIGESTED,
    EFFECTS,
    EVENTS,
    FAULTS,
    FORMAT,
    LOOKS,
    OPS,
    SCHEMAS,
    HistoryError,
)
from assay.harness.core.history.writer import HistoryWriter

__all__ = [
    "CLOSED",
    "DIGESTED",
    "EFFECTS",
    "EVENTS",
    "FAULTS",
    "FORMAT",
    "LOOKS",
    "OPS",
    "SCHEMAS",
    "HistoryError",
    "HistoryReader",
    "HistoryWriter",
]
