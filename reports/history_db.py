"""Query interface of reports to a history: DuckDB over the Parquet files, so that reports of long runs are possible.

SQL counts, groups and samples all data that grow with the run. Python gets a bounded number of rows. A history may be
incomplete, or lack some data sets, which then count as empty.
"""

from typing import Final, Self

from assay.checkers.engine import DuckDB, Row
from assay.checkers.judging.history_views import register_data_sets
from assay.harness.core.history import HistoryReader

__all__ = ["HistoryDatabase", "Row"]

MEMORY: Final = "2GB"
KEPT_VALUES: Final = 20_000_000
"""Tables with at most this many values are decoded once and kept in memory.

Larger tables are read from their files, because a page reads few columns.
"""


class HistoryDatabase:
    """The views ``ops``, ``effects``, ``faults``, ``events`` and ``replicas`` of one history. Close it after use.

    ``rows`` and ``columns`` run a query. ``table`` creates a table from a query.

    Raises ``HistoryError`` for a file that cannot be read, and ``EngineError`` for a query that fails.
    """

    def __init__(self, history: HistoryReader) -> None:
        self.closed = history.closing_note is not None  # the writer finished the history
        self.operations, self.effects = history.rows("ops"), history.rows("effects")
        self.engine = DuckDB(memory=MEMORY, kept_values=KEPT_VALUES)
        self.rows, self.columns, self.table = self.engine.rows, self.engine.columns, self.engine.table
        register_data_sets(self.engine, history)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()

    def end(self) -> int:
        """Returns the time of the last operation or fault, in nanoseconds since the run began."""
        row = self.rows(
            "select greatest((select coalesce(max(coalesce(ret, call)), 0) from ops), "
            "(select coalesce(max(time), 0) from faults)) as stop"
        )[0]
        return int(row["stop"])
