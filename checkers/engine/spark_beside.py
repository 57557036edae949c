"""DuckDB beside Spark: for a large history that one machine can read, with Spark's tasks for what is asked key by key.

What is left then looks at few rows, or at all but simply, and planning a query costs Spark a tenth of a second and more
to compile it. So it is asked here, of the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from assay.checkers.engine.duck import DuckDB
from assay.checkers.engine.spark import Spark

if TYPE_CHECKING:
    import pyarrow as pa

    from assay.checkers.by_key import Answers, Question
    from assay.harness.core.history import HistoryReader

MEMORY: Final = "1GB"
"""What DuckDB may take here, next to the driver and the tasks, before it spills."""


class BesideSpark(DuckDB):
    """Owns ``spark``."""

    name = "spark"

    def __init__(self, spark: Spark, *, memory: str = MEMORY) -> None:
        super().__init__(memory=memory, kept_cells=0)
        self._spark = spark
        self._expected: dict[str, pa.Table] = {}

    def divided(
        self, history: HistoryReader, question: Question, progress: Callable[[int, int], None]
    ) -> list[Answers] | None:
        return self._spark.parted(self, history, question, progress)

    def expect(self, tables: Mapping[str, pa.Table]) -> None:
        self._expected.update(tables)

    def table(self, name: str, sql: str, parameters: Sequence[Any] = (), *, fine: bool = False) -> None:
        if name in self._expected:
            self.load(name, self._expected[name])
        else:
            super().table(name, sql, parameters, fine=fine)

    def close(self) -> None:
        super().close()
        self._spark.close()
