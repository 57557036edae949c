"""Histories of older formats, read as if they were written today: which columns their files have, and the SQL.

Each step makes rows of a later format, so that only the last one changes when today's does: ``format_1`` those of
format 3, ``format_3`` and ``format_4`` today's. The texts stand between the Parquet files and the checks, so a history
of any size is translated as it is scanned.
"""

import pyarrow as pa

from assay.harness.core.history import format_1, format_3, format_4
from assay.harness.core.history.data_sets import FORMAT
from assay.harness.core.history.schema import SCHEMAS
from assay.harness.core.history.sql import Text, select


def schema(name: str, format: int) -> pa.Schema:
    """The columns that a data set's files of a format have."""
    if format == FORMAT:
        return SCHEMAS[name]
    if format >= 4:
        return format_4.schema(name, format)
    third = format_3.schema(name, format)
    if format > 1 or name not in format_1.COLUMNS:
        return third
    return pa.schema(
        [
            pa.field(column, format_1.FORMER[column]) if column in format_1.FORMER else third.field(column)
            for column in format_1.COLUMNS[name].split()
        ]
    )


def stored(name: str, format: int) -> pa.Schema:
    """What the texts read, as ``stored_<name>``: today's columns and those that there are no more."""
    today = SCHEMAS[name]
    gone = [field for field in schema(name, format) if field.name not in today.names]
    return pa.schema([*today, *gone]).remove_metadata()


def texts(name: str, format: int, family: str | None = None) -> tuple[Text, ...]:
    """What makes the data set ``name`` out of ``stored_<name>``, in order; nothing if the two are the same.

    ``family``: what the objects of a history of format 1 are, where its kinds leave it open.
    """
    source = f"stored_{name}"
    made: tuple[Text, ...] = ()
    if format == 1 and name in format_1.MEANINGS:
        third = f"{name}_of_3"
        made = format_1.views(name, source, third, stored(name, format).names, family)
        source = third
    meanings: dict[str, str] = {}
    if format < FORMAT:
        meanings |= format_4.MEANINGS.get(name, {})
    if format <= 3:
        meanings |= format_3.MEANINGS.get(name, {})
    return (*made, Text(name, select(SCHEMAS[name].names, meanings, source))) if made or meanings else ()
