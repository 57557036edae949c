"""The data sets as Arrow schemas. What their columns mean is said in ``data_sets``, which loads nothing."""

import pyarrow as pa

from assay.harness.core.history.data_sets import (
    CLOSED,
    DATA_SETS,
    DIGESTED,
    FORMAT,
    FORMAT_KEY,
    LATER,
    HistoryError,
)

__all__ = [
    "CLOSED",
    "DIGESTED",
    "EFFECTS",
    "EVENTS",
    "FAULTS",
    "FORMAT",
    "FORMAT_KEY",
    "LATER",
    "LOOKS",
    "OPS",
    "REPLICAS",
    "SCHEMAS",
    "HistoryError",
]

_TYPES = {"int64": pa.int64(), "int32": pa.int32(), "string": pa.string(), "bool": pa.bool_()}

SCHEMAS: dict[str, pa.Schema] = {
    name: pa.schema(
        [pa.field(column.name, _TYPES[column.type], nullable=column.nullable) for column in columns],
        metadata={FORMAT_KEY: str(FORMAT).encode()},
    )
    for name, columns in DATA_SETS.items()
}

OPS, EFFECTS, FAULTS = SCHEMAS["ops"], SCHEMAS["effects"], SCHEMAS["faults"]
EVENTS, REPLICAS, LOOKS = SCHEMAS["events"], SCHEMAS["replicas"], SCHEMAS["looks"]
