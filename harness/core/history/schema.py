"""The data sets as Arrow schemas. What their columns mean is said in ``data_sets``, which loads nothing."""

import pyarrow as pa

from assay.harness.core.history.data_sets import DATA_SETS, FORMAT, FORMAT_KEY

_TYPES = {"int64": pa.int64(), "int32": pa.int32(), "string": pa.string(), "bool": pa.bool_()}

SCHEMAS: dict[str, pa.Schema] = {
    name: pa.schema(
        [pa.field(column.name, _TYPES[column.type], nullable=column.nullable) for column in columns],
        metadata={FORMAT_KEY: str(FORMAT).encode()},
    )
    for name, columns in DATA_SETS.items()
}

OPS, EFFECTS = SCHEMAS["ops"], SCHEMAS["effects"]
