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

BLOCK_ROWS: Final = 16_384
"""Number of rows that ``_SharedHashes`` adds at once."""
_ZEROS: Final = memoryview(bytes(8 * BLOCK_ROWS))
_ONES: Final = memoryview(b"\x01" * BLOCK_ROWS)


def hash_footer(path: Path) -> str | None:
    """Returns the hash of a Parquet file's footer; None if the end of the file is damaged.

    Some damaged footers make Arrow crash when it reads their statistics. The hash shows the damage without Arrow.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - FOOTER_END, 0))
        (length,) = struct.unpack("<I4x", file.read(FOOTER_END).rjust(FOOTER_END))
        if length + FOOTER_END > size:
            return None
        file.seek(-length - FOOTER_END, os.SEEK_END)
        return hashlib.blake2b(file.read(), digest_size=16).hexdigest()


class _SharedHashes:
    """Running hashes for two kinds of columns of a data set: with only nulls so far, and with no null so far.

    All columns with only nulls have equal null masks and equal values. All columns without a null have equal null
    masks. So the columns of a kind share their hashes, and a column takes a copy when it leaves its kind. Most columns
    are empty in most histories.
    """

    def __init__(self) -> None:
        self._only_nulls, self._no_nulls, self._numbers, self._lengths = (_start_hash() for _ in range(4))

    def update(self, rows: int) -> None:
        """Adds rows to the hashes, after all columns have taken them."""
        for first in range(0, rows, BLOCK_ROWS):
            count = min(BLOCK_ROWS, rows - first)
            self._only_nulls.update(_ONES[:count])
            self._no_nulls.update(_ZEROS[:count])
            self._numbers.update(_ZEROS[: 8 * count])
            self._lengths.update(_ZEROS[: 4 * count])

    def copy_nulls(self, *, is_null: bool) -> Any:
        """Returns the hash of the null mask so far."""
        return (self._only_nulls if is_null else self._no_nulls).copy()

    def copy_empty_values(self, *, text: bool) -> Any:
        """Returns the hash of the numbers, or of the lengths of texts, of a column with only nulls so far."""
        return (self._lengths if text else self._numbers).copy()


class DataSetDigest:
    """Running hash of one data set. It takes the rows in order, in batches of any size."""

    def __init__(self, schema: pa.Schema) -> None:
        self._shared = _SharedHashes()
        self._columns = [ColumnDigest(field, self._shared) for field in schema]

    def update(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Adds ``rows``, which must have the schema's columns in its order."""
        for index, column in enumerate(self._columns):
            column.update(rows.column(index))
        self._shared.update(rows.num_rows)

    def hexdigest(self) -> str:
        combined = hashlib.blake2b(digest_size=16)
        for column in self._columns:
            combined.update(column.digest())
        return combined.hexdigest()


class ColumnDigest:
    """Running hash of one column. ``shared``: updated after all columns have taken a batch."""

    def __init__(self, field: pa.Field, shared: _SharedHashes) -> None:
        self._name = field.name.encode()
        self._text = pa.types.is_string(field.type)
        self._shared = shared
        self._is_null: bool | None = None
        """Whether all values so far are null (true), or none is (false). None: there are no values."""
        self._nulls: Any = None
        """The hash of the null mask. None: it is one of ``shared``, or there are no values."""
        self._values: Any = None
        """The hash of numbers or lengths. None: it is one of ``shared``, for a column with only nulls, or there are no
        values.
        """
        self._bytes = _start_hash()

    def update(self, column: pa.Array | pa.ChunkedArray) -> None:
        if not len(column):
            return
        if self._is_null is None:
            self._is_null = column.null_count == len(column)
            if not self._is_null:
                self._values = _start_hash()
        if self._nulls is None and column.null_count != (len(column) if self._is_null else 0):
            self._nulls = self._shared.copy_nulls(is_null=self._is_null)
        if self._values is None:
            if column.null_count == len(column):
                return
            self._values = self._shared.copy_empty_values(text=self._text)
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            if len(chunk):
                self._update(chunk)

    def _update(self, chunk: pa.Array) -> None:
        if self._nulls is not None:
            self._nulls.update(_get_number_buffer(pc.is_null(chunk).cast(pa.uint8())))
        if not self._text:
            numbers = chunk.cast(pa.int64())
            self._values.update(_get_number_buffer(pc.fill_null(numbers, 0) if chunk.null_count else numbers))
            return
        filled = pc.fill_null(chunk, "") if chunk.null_count else chunk
        self._values.update(_get_number_buffer(pc.binary_length(filled)))
        offsets, data = filled.buffers()[1:]
        if data is None:
            return
        ends = np.frombuffer(offsets, dtype=np.int32, count=filled.offset + len(filled) + 1)
        self._bytes.update(memoryview(data)[int(ends[filled.offset]) : int(ends[-1])])

    def digest(self) -> bytes:
        nulls, values = self._nulls, self._values
        if nulls is None:
            nulls = _start_hash() if self._is_null is None else self._shared.copy_nulls(is_null=self._is_null)
        if values is None:
            values = _start_hash() if self._is_null is None else self._shared.copy_empty_values(text=self._text)
        combined = hashlib.blake2b(self._name, digest_size=16)
        for part in (nulls, values, self._bytes):
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


def _start_hash() -> Any:
    return hashlib.blake2b(digest_size=16)
