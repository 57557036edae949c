"""Columns of plain values to Arrow batches."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from assay.harness.core.history.data_sets import HistoryError


def to_batch(schema: pa.Schema, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """One batch. Raises ``HistoryError`` for a value that its column does not take."""
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        try:
            array = pa.array(column, field.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:  # also UnicodeEncodeError
            raise HistoryError(f"column {field.name} of the history takes {field.type}: {error}") from error
        if array.null_count and not field.nullable:
            raise HistoryError(f"column {field.name} of the history must have a value in every row")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
