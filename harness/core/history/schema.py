"""Arrow schemas and batches of the data sets. ``data_sets`` describes the columns, and loads no Arrow."""

from collections.abc import Sequence
from numbers import Integral
from types import NoneType
from typing import Any

import pyarrow as pa

from assay.harness.core.history.data_sets import DATA_SETS, FORMAT, FORMAT_KEY, HistoryError
from assay.harness.core.printable import represent

_TYPES = {"int64": pa.int64(), "int32": pa.int32(), "string": pa.string(), "bool": pa.bool_()}

SCHEMAS: dict[str, pa.Schema] = {
    name: pa.schema(
        [pa.field(column.name, _TYPES[column.type], nullable=column.nullable) for column in columns],
        metadata={FORMAT_KEY: str(FORMAT).encode()},
    )
    for name, columns in DATA_SETS.items()
}

OPS, EFFECTS = SCHEMAS["ops"], SCHEMAS["effects"]


def _require_types(values: Sequence[Any], kind: pa.DataType) -> None:
    """Raises ``TypeError`` for values that Arrow would store as others: 2.0 as 2, and ``b"a"`` as ``"a"``."""
    wanted = str if pa.types.is_string(kind) else Integral if pa.types.is_integer(kind) else None
    if wanted is None:
        return
    for found in set(map(type, values)):
        if found is not NoneType and not issubclass(found, wanted):
            raise TypeError(f"a value is of the type {found.__name__}")


def _is_convertible(value: Any, kind: pa.DataType) -> bool:
    try:
        _require_types([value], kind)
        pa.array([value], kind)
    except Exception:  # noqa: BLE001 - as in ``to_batch``
        return False
    return True


def to_batch(schema: pa.Schema, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Builds one batch. Raises ``HistoryError`` for a value that its column does not take."""
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        try:
            _require_types(column, field.type)
            array = pa.array(column, field.type)
        except Exception as error:
            wrong = next((value for value in column if not _is_convertible(value, field.type)), None)
            which = "" if wrong is None else f", and one of its values is {represent(wrong)[:80]}"
            raise HistoryError(f"column {field.name} of the history takes {field.type}{which}: {error}") from error
        if array.null_count and not field.nullable:
            raise HistoryError(f"column {field.name} of the history must have a value in every row")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def load_conversion() -> None:
    """Imports what the first conversion of rows imports. That includes pandas, which takes up to a second."""
    to_batch(OPS, [[] for _ in OPS])
