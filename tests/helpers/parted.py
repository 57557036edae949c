"""DuckDB that shares out a history by key, as Spark does: what is asked by key, without Spark."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from assay.checkers.engine import DuckDB
from assay.checkers.engine.spark_parts import find_bucket
from assay.checkers.partitioned_by_key import PartitionAnswers, PartitionQuestion
from assay.harness.core.history import HistoryReader
from assay.harness.core.history.schema import SCHEMAS


class Parted(DuckDB):
    """``parts``: how many. ``answered``: what each of them said."""

    def __init__(self, parts: int) -> None:
        super().__init__(threads=1, small=True)
        self._parts = parts
        self.answered: list[PartitionAnswers] = []

    def ask_each_part(
        self, history: HistoryReader, question: PartitionQuestion, progress: Callable[[int, int], None]
    ) -> list[PartitionAnswers] | None:
        effects, faults = self.arrow("select * from effects"), self.arrow("select * from faults")
        places = [find_bucket(key) % self._parts for key in effects.column("key").to_pylist()]
        for number in range(self._parts):
            mine = effects.filter(pa.array([place == number for place in places], pa.bool_()))
            if mine.num_rows:
                with DuckDB(threads=1, small=True) as duck:
                    duck.register_rows("effects", mine, SCHEMAS["effects"])
                    duck.load("faults", faults)
                    self.answered.append(question(duck))
            progress(number + 1, self._parts)
        return self.answered
