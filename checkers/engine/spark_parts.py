"""Partitions a history by key among Spark's tasks. Each task queries its part with DuckDB.

A hundred queries over all rows would cost Spark a hundred shuffles, and compiled Java code for each. With this module
the effects are shuffled once:

1. Tasks read the files, a range of rows each, and send every row to the part of its key.
2. Other tasks load one part each into DuckDB.

Only columns that have values are sent, with repeated texts as numbers.
"""

from __future__ import annotations

import math
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from assay.checkers.engine.base import Engine
from assay.checkers.engine.duck import DuckDB
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import duckdb
else:
    duckdb = LazyModule("duckdb")

BUCKETS: Final = 4096
"""Number of hash buckets. A key belongs to a bucket, and a bucket belongs to a part. So a task needs a table with an
entry per bucket, not per key."""
PART_ROWS: Final = 2_500_000
"""Approximate number of effects in a part. The effects of one key are never divided."""
RANGE_ROWS: Final = 1_000_000
"""Approximate number of effects that one task reads and divides."""
PART_MEMORY: Final = "1200MB"
"""Memory that DuckDB may take for one part before it spills."""
EFFECTS: Final = "effects"


@dataclass(frozen=True)
class RowGroupRange:
    """Some row groups of a file."""

    path: str
    groups: tuple[int, ...]


@dataclass(frozen=True)
class ShuffleTask:
    """Reads a range of rows, and divides it by part. ``columns``: the columns to send. ``part_of_bucket``: the part of
    each bucket."""

    columns: tuple[str, ...]
    part_of_bucket: Sequence[int]

    def __call__(self, groups: RowGroupRange) -> Iterator[tuple[int, bytes]]:
        file = pq.ParquetFile(groups.path, read_dictionary=["key"])
        present = [name for name in self.columns if name in file.schema_arrow.names]
        rows = file.read_row_groups(list(groups.groups), columns=present).unify_dictionaries().combine_chunks()
        if not rows.num_rows:
            return
        part = self._find_parts(rows.column("key").chunk(0))
        order = np.argsort(part, kind="stable")
        sizes = np.bincount(part)
        rows = rows.take(pa.array(order))
        begin = 0
        for number, size in enumerate(sizes.tolist()):
            if size:
                yield number, pack(rows.slice(begin, size))
            begin += size

    def _find_parts(self, keys: pa.DictionaryArray) -> np.ndarray[Any, Any]:
        """Returns the part of each row."""
        parts = [self.part_of_bucket[find_bucket(key)] for key in keys.dictionary.to_pylist()]
        found: np.ndarray[Any, Any] = np.array(parts, dtype=np.int32)[keys.indices.to_numpy(zero_copy_only=False)]
        return found


@dataclass(frozen=True)
class AskTask:
    """Loads one part into DuckDB and calls ``question`` with this engine. It may read only ``effects`` and ``faults``.

    ``faults``: the table of faults, packed by :func:`pack`.
    """

    question: Callable[[Engine], Any]
    faults: bytes
    threads: int

    def __call__(self, blobs: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
        from assay.harness.core.history.schema import SCHEMAS

        tables = [_unpack(blob) for _, blob in blobs]
        if not tables:
            return
        with DuckDB(memory=PART_MEMORY, threads=self.threads) as duck:
            rows = pa.concat_tables(tables, promote_options="default")
            tables.clear()
            duck.register_rows(EFFECTS, rows, SCHEMAS[EFFECTS])
            del rows
            duck.load("faults", _unpack(self.faults))
            yield pickle.dumps(self.question(duck))


def find_missing_package(argument: bytes) -> str:
    """Runs on an executor. Returns why DuckDB cannot be loaded there, or an empty string. ``argument`` is ignored."""
    try:
        duckdb.connect(":memory:").close()
    except ImportError as error:
        return str(error)
    return ""


def find_bucket(key: str | None) -> int:
    """Returns the bucket of a key. Every machine computes an equal result."""
    return zlib.crc32((key or "").encode()) % BUCKETS


def divide_into_ranges(paths: Sequence[Path]) -> list[RowGroupRange]:
    """Divides all rows of these files into ranges."""
    found = []
    for path in paths:
        groups: list[int] = []
        rows = 0
        metadata = pq.read_metadata(path)
        for number in range(metadata.num_row_groups):
            groups.append(number)
            rows += metadata.row_group(number).num_rows
            if rows >= RANGE_ROWS or number == metadata.num_row_groups - 1:
                found.append(RowGroupRange(str(path.resolve()), tuple(groups)))
                groups, rows = [], 0
    return found


def assign_parts(rows: Iterable[tuple[str, int]], tasks: int) -> tuple[list[int], list[int]]:
    """Returns the part of each bucket, and the number of rows of each part.

    ``rows``: each key with its number of rows. ``tasks``: the number of tasks that run at once. The number of parts is
    a multiple of ``tasks``. Buckets are assigned in falling order of size, each to the part with the fewest rows.
    """
    sizes = [0] * BUCKETS
    for key, many in rows:
        sizes[find_bucket(key)] += many
    parts = tasks * max(1, math.ceil(sum(sizes) / (tasks * PART_ROWS)))
    loads = [0] * parts
    found = [0] * BUCKETS
    for bucket in sorted(range(BUCKETS), key=sizes.__getitem__, reverse=True):
        found[bucket] = loads.index(min(loads))
        loads[found[bucket]] += sizes[bucket]
    return found, loads


def pack(rows: pa.Table) -> bytes:
    """Returns a table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _unpack(blob: bytes) -> pa.Table:
    with pa.ipc.open_stream(blob) as reader:
        return reader.read_all()
