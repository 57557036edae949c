"""Hash of a history's rows, to compare two runs of one seed.

The hash covers canonical rows in writing order, not Parquet bytes. Each column feeds running hashes of its own: which
values are null; numbers as little-endian int64; lengths of strings; their UTF-8 bytes. The result does not depend on
part boundaries, compression or the writer.
"""

import hashlib
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.core.history.data_sets import DIGESTED
from assay.harness.core.history.schema import SCHEMAS

FOOTER_END: Final = 8
"""Bytes at the end of a Parquet file: the length of its footer, and ``PAR1``."""


def hash_footer(path: Path) -> str | None:
    """Returns the hash of a Parquet file's footer; None if the end of the file is damaged.

    Some damaged footers make Arrow crash when it reads their statistics. The hash shows such a change before.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - FOOTER_END, 0))
        (length,) = struct.unpack("<I4x", file.read(FOOTER_END).rjust(FOOTER_END))
        if length + FOOTER_END > size:
            return None
        file.seek(-length - FOOTER_END, os.SEEK_END)
        return hashlib.blake2b(file.read(), digest_size=16).hexdigest()


class DataSetDigest:
    """Running hash of one data set. It takes the rows in order, in batches of any size."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = [ColumnDigest(field) for field in schema]

    def update(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Adds ``rows``, which must have the schema's columns in its order."""
        for index, column in enumerate(self._columns):
            column.update(rows.column(index))

    def hexdigest(self) -> str:
        combined = hashlib.blake2b(digest_size=16)
        for column in self._columns:
            combined.update(column.digest())
        return combined.hexdigest()


class ColumnDigest:
    """Running hash of one column."""

    def __init__(self, field: pa.Field) -> None:
        self._name = field.name.encode()
        self._text = pa.types.is_string(field.type)
        self._nulls = hashlib.blake2b(digest_size=16)
        self._values = hashlib.blake2b(digest_size=16)
        self._bytes = hashlib.blake2b(digest_size=16)

    def update(self, column: pa.Array | pa.ChunkedArray) -> None:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        for chunk in chunks:
            if len(chunk):
                self._update(chunk)

    def _update(self, chunk: pa.Array) -> None:
        self._nulls.update(_get_number_buffer(pc.is_null(chunk).cast(pa.uint8())))
        if not self._text:
            self._values.update(_get_number_buffer(pc.fill_null(chunk.cast(pa.int64()), 0)))
            return
        filled = pc.fill_null(chunk, "") if chunk.null_count else chunk
        lengths = pc.binary_length(filled)
        self._values.update(_get_number_buffer(lengths))
        offsets, data = filled.buffers()[1:]
        if data is None:
            return
        ends = np.frombuffer(offsets, dtype=np.int32, count=filled.offset + len(filled) + 1)
        self._bytes.update(memoryview(data)[int(ends[filled.offset]) : int(ends[-1])])

    def digest(self) -> bytes:
        combined = hashlib.blake2b(self._name, digest_size=16)
        for part in (self._nulls, self._values, self._bytes):
            combined.update(part.digest())
        return combined.digest()


class HistoryDigest:
    """Running hash of some data sets, by default those that two runs of one seed must have in common."""

    def __init__(self, schemas: Mapping[str, pa.Schema] = SCHEMAS, names: Sequence[str] = DIGESTED) -> None:
        self._parts: Mapping[str, DataSetDigest] = {name: DataSetDigest(schemas[name]) for name in names}

    def update(self, name: str, rows: pa.Table | pa.RecordBatch) -> None:
        """Adds ``rows`` of the data set ``name``; data sets that do not count are ignored."""
        part = self._parts.get(name)
        if part is not None:
            part.update(rows)

    def hexdigest(self) -> str:
        combined = hashlib.blake2b(digest_size=16)
        for name, part in self._parts.items():
            combined.update(f"{name}={part.hexdigest()};".encode())
        return combined.hexdigest()


def _get_number_buffer(values: pa.Array) -> Any:
    """Returns the buffer of numbers without nulls. ``to_numpy`` would import pandas, which takes longer than many
    judgements.
    """
    width = values.type.bit_width // 8
    return memoryview(values.buffers()[1])[values.offset * width : (values.offset + len(values)) * width]
