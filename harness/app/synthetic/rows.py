"""Arrays to Arrow batches of ``ops`` and ``effects``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.app.synthetic.segments import Flags
from harness.app.synthetic.slots import INFO, OUTCOMES
from harness.core.history import SCHEMAS


@dataclass(frozen=True)
class Known:
    """A column with nulls where ``mask`` is not set."""

    values: NDArray[Any]
    mask: Flags


@dataclass(frozen=True)
class Named:
    """A text column: ``codes`` into ``names``; below zero is null."""

    codes: NDArray[Any]
    names: Sequence[str] | pa.Array


Column = NDArray[Any] | Known | Named | str | int
"""One text or number stands for the same in every row."""

Columns = Mapping[str, Column]


def batch(name: str, columns: Columns, length: int) -> pa.RecordBatch:
    """A batch of the data set ``name``; columns that are not given are null."""
    return pa.RecordBatch.from_arrays(
        [_array(columns.get(field.name), field.type, length) for field in SCHEMAS[name]], schema=SCHEMAS[name]
    )


def joined(parts: Sequence[tuple[Columns, int]], order_by: tuple[str, str] = ("op", "sub")) -> pa.RecordBatch | None:
    """Effects of several kinds as one batch, in the order of operations; None when there is none."""
    batches = [batch("effects", columns, length) for columns, length in parts if length]
    if not batches:
        return None
    table = pa.Table.from_batches(batches).combine_chunks()
    first, second = (table.column(name).to_numpy() for name in order_by)
    whole = table.take(pa.array(np.lexsort((second, first)))).combine_chunks()
    return whole.to_batches()[0]


def outcomes(outcome: NDArray[Any]) -> Columns:
    """Outcome and error, which go together."""
    return {"outcome": Named(outcome, OUTCOMES), "error": Named(np.where(outcome == INFO, 0, -1), ["timeout"])}


def returned(ret: NDArray[Any], outcome: NDArray[Any]) -> Known:
    """An info has no return."""
    return Known(ret, np.asarray(outcome != INFO))


def _array(column: Column | None, kind: pa.DataType, length: int) -> pa.Array:
    if column is None:
        return pa.nulls(length, kind)
    if isinstance(column, str | int):
        return pa.repeat(pa.scalar(column, kind), length)
    if isinstance(column, Known):
        return pa.array(column.values, kind, mask=~column.mask)
    if isinstance(column, Named):
        names = column.names if isinstance(column.names, pa.Array) else pa.array(column.names, pa.string())
        return names.take(pa.array(column.codes.astype(np.int64), mask=column.codes < 0))
    return pa.array(column).cast(kind)


def workers(client: NDArray[Any], clients: int) -> Named:
    """The column ``worker`` of clients by number."""
    return Named(client, [str(number) for number in range(clients)])
