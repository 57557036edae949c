"""Formats 4 to 6: today's format without the columns that were added later."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from assay.harness.core.history.schema import SCHEMAS

CAME: Final[Mapping[int, Mapping[str, tuple[str, ...]]]] = {
    5: {"events": ("replica", "from_state", "to_state", "osr")},
    6: {"faults": ("moves_replicas",)},
    7: {"looks": ("invariant", "claim", "assertions")},
}
"""By format, the columns that it added."""

MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "faults": {
        "moves_replicas": "coalesce(e.moves_replicas, case "
        "when e.fault = 'move-replicas' or e.fault like 'membership%' then true "
        "when e.ends_process is not null then false end)"
    },
}
"""SQL for the values of added columns, over the rows ``e``: today's columns, null if a file lacks them."""


def schema(name: str, format: int) -> pa.Schema:
    """Returns the columns that a data set had in format 4 or a later one."""
    later = {column for came, columns in CAME.items() if came > format for column in columns.get(name, ())}
    return pa.schema([field for field in SCHEMAS[name] if field.name not in later])
