"""Reader for a history in memory, made from the columns that a run has handed over."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from assay.harness.core.history.data_sets import DIGESTED, FORMAT
from assay.harness.core.history.digest import HistoryDigest
from assay.harness.core.history.in_memory import Columns
from assay.harness.core.history.reader import HistoryReader
from assay.harness.core.history.schema import SCHEMAS, to_batch


class InMemoryHistoryReader(HistoryReader):
    """The history of a finished run. Raises ``HistoryError`` for a value that its column does not take."""

    def __init__(self, columns: Columns) -> None:
        self._tables = {
            name: pa.Table.from_batches([to_batch(schema, columns[name])] if columns[name] else [], schema=schema)
            for name, schema in SCHEMAS.items()
        }
        self._folder = Path("memory")
        self._paths = {name: [] for name in SCHEMAS}
        self._rows = {name: table.num_rows for name, table in self._tables.items()}
        self._formats = dict.fromkeys(SCHEMAS, FORMAT)
        self._closed = None

    def in_memory(self, name: str) -> pa.Table:
        return self._tables[name]

    def table(self, name: str) -> pa.Table:
        return self._tables[name]

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        yield from self._tables[name].to_batches()

    def digest(self, progress: Callable[[int], None] = lambda rows: None) -> str:
        digest = HistoryDigest()
        for name in DIGESTED:
            digest.update(name, self._tables[name])
        return digest.hexdigest()
