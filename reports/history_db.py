"""A history as a report queries it: DuckDB over the Parquet parts, so that no run is too long to be drawn.

Everything that grows with the run is counted, grouped and sampled in SQL; Python sees a bounded number of rows. A
history may be cut short, or lack data sets that it never had: those are empty.
"""

from typing import Final, Self

from assay.checkers.engine import DuckDB, Row
from assay.checkers.judging.history_views import register_parts
from assay.harness.core.history import HistoryReader

__all__ = ["Recording", "Row"]

MEMORY: Final = "2GB"
KEPT_CELLS: Final = 20_000_000
"""A page reads few columns, so what is larger stays in its files."""


class Recording:
    """The views ``ops``, ``effects``, ``faults``, ``events`` and ``replicas`` of one history; close it after use.

    Raises ``HistoryError`` for a part that cannot be read, ``EngineError`` for a query that fails.
    """

    def __init__(self, history: HistoryReader) -> None:
        self.closed = history.closed is not None  # its writer came to its end
        self.operations, self.effects = history.rows("ops"), history.rows("effects")
        self.engine = DuckDB(memory=MEMORY, kept_cells=KEPT_CELLS)
        self.rows, self.columns, self.table = self.engine.rows, self.engine.columns, self.engine.table
        register_parts(self.engine, history)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()

    def end(self) -> int:
        """Nanoseconds from the run's begin to the last thing in its history."""
        row = self.rows(
            "select greatest((select coalesce(max(coalesce(ret, call)), 0) from ops), "
            "(select coalesce(max(time), 0) from faults)) as stop"
        )[0]
        return int(row["stop"])
