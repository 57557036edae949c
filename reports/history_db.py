"""Query interface of reports to a history: DuckDB over the Parquet parts, so that no run is too long to be drawn.

SQL counts, groups and samples everything that grows with the run; Python sees a bounded number of rows. A history may
be cut short or lack some data sets, which are then empty.
"""

from typing import Final, Self

from assay.checkers.engine import DuckDB, Row
from assay.checkers.judging.history_views import register_data_sets
from assay.harness.core.history import HistoryReader

__all__ = ["HistoryDatabase", "Row"]

MEMORY: Final = "2GB"
KEPT_CELLS: Final = 20_000_000
"""Tables with at most this many values are decoded once and kept in memory.

Larger ones are read from their files, because a page reads few columns.
"""


class HistoryDatabase:
    """The views ``ops``, ``effects``, ``faults``, ``events`` and ``replicas`` of one history; close it after use.

    Raises ``HistoryError`` for a part that cannot be read, ``EngineError`` for a query that fails.
    """

    def __init__(self, history: HistoryReader) -> None:
        self.closed = history.closing_note is not None  # the writer finished the history
        self.operations, self.effects = history.rows("ops"), history.rows("effects")
        self.engine = DuckDB(memory=MEMORY, kept_cells=KEPT_CELLS)
        self.rows, self.columns, self.table = self.engine.rows, self.engine.columns, self.engine.table
        register_data_sets(self.engine, history)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()

    def end(self) -> int:
        """Returns the nanoseconds from the run's begin to the last entry of its history."""
        row = self.rows(
            "select greatest((select coalesce(max(coalesce(ret, call)), 0) from ops), "
            "(select coalesce(max(time), 0) from faults)) as stop"
        )[0]
        return int(row["stop"])
