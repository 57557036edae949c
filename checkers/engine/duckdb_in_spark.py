"""DuckDB next to Spark, for a large history that one machine can read: Spark's tasks answer the queries by key.

The remaining queries read few rows, or read all in a simple way. Spark needs a tenth of a second and more to plan and
compile each, so DuckDB runs them here, on the same files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from assay.checkers.engine.base import Engine, T
from assay.checkers.engine.duck import DuckDB
from assay.checkers.engine.spark import Spark

if TYPE_CHECKING:
    from assay.harness.core.history import HistoryReader

MEMORY: Final = "1GB"
"""Memory that DuckDB may take here, next to the driver and the tasks, before it spills."""


class DuckDBInSpark(DuckDB):
    """DuckDB engine that owns the session ``spark`` and partitions histories with it."""

    name = "spark"

    def __init__(self, spark: Spark, *, memory: str = MEMORY) -> None:
        super().__init__(memory=memory, kept_cells=0)
        self._spark = spark

    def divided(
        self, history: HistoryReader, question: Callable[[Engine], T], progress: Callable[[int, int], None]
    ) -> list[T] | None:
        return self._spark.parted(self, history, question, progress)

    def close(self) -> None:
        super().close()
        self._spark.close()
