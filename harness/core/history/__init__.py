"""Histories on disk and in memory. In reading order:

- ``data_sets``: the six data sets, their columns, the kinds of effects, and the format number. ``schema``: the columns
  for Arrow.
- ``rows``: the interface that a run records into, and conversion of rows to columns, without Arrow.
- ``plain_rows``: checks that the values of a row have the types of their columns, when the row is recorded.
- ``in_memory``: a history that is kept in memory.
- ``writer``: rows to Arrow batches to Parquet parts, while the run goes on.
- ``live_manifest``: the readable part of a history that is still being written.
- ``reader``: opens a folder, checks its columns, and gives rows and paths; also for a history in memory.
- ``translation``: translates histories of formats 4 to 6 as they are read.
- ``digest``: one hash over all rows, to compare two runs.
- ``lookup``: imports names that need Arrow on first use, so that a process that only plays runs does not load it.

The package imports only ``operation``, ``files``, ``plain_data`` and ``printable`` of ``harness.core``, and Arrow.
Checkers, reports and all other packages of the harness except ``remote`` and ``plugin`` import it.
"""

from typing import TYPE_CHECKING

from assay.harness.core.history.data_sets import CLOSED, DIGESTED, FORMAT, HistoryError
from assay.harness.core.history.lookup import __getattr__ as __getattr__
from assay.harness.core.history.rows import History

if TYPE_CHECKING:
    from assay.harness.core.history.reader import HistoryReader
    from assay.harness.core.history.schema import EFFECTS, OPS, SCHEMAS
    from assay.harness.core.history.writer import HistoryWriter

__all__ = [
    "CLOSED", "DIGESTED", "EFFECTS", "FORMAT", "OPS", "SCHEMAS", "History", "HistoryError", "HistoryReader",
    "HistoryWriter",
]  # fmt: skip
