"""Histories on disk. Read them in this order:

- ``data_sets``: the six data sets and their columns; the number of the format. ``schema``: the same for Arrow.
- ``column_meanings``: what each column means, for the documentation.
- ``kinds``: what effects are called.
- ``rows``: what a run hands over, as plain rows; ``in_memory`` keeps them, and ``memory_reader`` reads
  what was kept
- ``writer``: rows to Arrow batches to Parquet parts, while the run goes on.
- ``live_manifest``: what there is of a history that is still being written.
- ``reader``: opens a folder, checks its columns, gives rows and paths.
- ``translation``: histories of older formats, translated as they are read, by ``sql`` texts: ``format_1``, in which
  kinds of effects did not name their object, ``format_3``, in which columns had several meanings, and ``format_4``,
  to which columns have been added since.
- ``digest``: one hash over all rows, to compare two runs.
- ``worker_nodes``: through which node each worker's clients reached the system.

Imports ``harness.core.operation`` alone, and Arrow; checkers, reports and every room of the harness but ``remote`` and
``plugin`` import it. Names are looked up when they are first used (``lookup``), so that what only plays runs loads no
Arrow.
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
