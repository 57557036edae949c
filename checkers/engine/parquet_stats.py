"""Reads statistics of a column's values from a Parquet file's footer, without reading the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow.parquet as pq

UNBOUNDED: Final = float("inf")
"""The size of values without statistics."""


def find_columns_with_values(parts: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Returns the columns in which some file may have a value.

    The footers are decoded directly, because Arrow's dataset fragments would take eight megabytes per column of a
    million rows.
    """
    import pyarrow.parquet as pq

    found: set[str] = set()
    for part in parts:
        metadata = pq.read_metadata(part)
        schema = metadata.schema.to_arrow_schema()
        places = {name: schema.get_field_index(name) for name in names if name not in found}
        found.update(
            name for name, place in places.items() if place >= 0 and any(map(_has_value, _read_groups(metadata, place)))
        )
    return [name for name in names if name in found]


def read_sizes(part: Path) -> Mapping[str, float]:
    """Returns the largest possible absolute value of each whole-number column; 0 for a column without values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(part)
    columns = [
        (place, field.name)
        for place, field in enumerate(metadata.schema.to_arrow_schema())
        if pa.types.is_integer(field.type)
    ]
    return {name: max(map(_read_size, _read_groups(metadata, place)), default=0) for place, name in columns}


def _read_groups(metadata: pq.FileMetaData, place: int) -> Iterator[Any]:
    """Returns the column's metadata in each row group. ``place``: the index of the column."""
    return (metadata.row_group(number).column(place) for number in range(metadata.num_row_groups))


def _has_value(group: Any) -> bool:
    """Returns whether a column's chunk may have a value. ``group``: the chunk's metadata."""
    known = group.statistics
    return group.num_values > 0 and (known is None or not known.has_null_count or known.null_count < group.num_values)


def _read_size(group: Any) -> float:
    if not _has_value(group):
        return 0
    known = group.statistics
    return max(abs(known.min), abs(known.max)) if known is not None and known.has_min_max else UNBOUNDED
