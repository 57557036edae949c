"""Translates histories of formats 4 to 6 to the current format.

These formats lack columns that were added later. A missing column reads as null, unless ``DERIVED`` computes its value
in SQL. The checks read the result of this SQL, so a history of any size is translated while it is scanned.

A file without a format comes from elsewhere. It must have the columns in ``REQUIRED``; all others may be absent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from assay.harness.core.history.data_sets import FORMAT
from assay.harness.core.history.schema import SCHEMAS

OLDEST: Final = 4
"""The oldest format that can be read."""
LAST_VERSION_OF_FORMAT_3: Final = "0.1.0"
"""The last version that reads formats 1 to 3."""

ADDED: Final[Mapping[int, Mapping[str, tuple[str, ...]]]] = {
    5: {"events": ("replica", "from_state", "to_state", "osr")},
    6: {"faults": ("moves_replicas",)},
    7: {"looks": ("invariant", "claim", "assertions")},
}
"""Format -> data set -> the columns that it added."""

DERIVED: Final[Mapping[str, Mapping[str, str]]] = {
    "faults": {
        "moves_replicas": "coalesce(e.moves_replicas, case "
        "when e.fault = 'move-replicas' or e.fault like 'membership%' then true "
        "when e.ends_process is not null then false end)"
    },
}
"""Data set -> column -> SQL over the stored rows ``e``. They have all current columns, null if a file lacks one."""

REQUIRED: Final[Mapping[str, str]] = {
    "ops": "index process worker f key argument result call ret outcome error phase",
    "effects": "op sub request process key kind position value expected owner group assignment node call ret outcome "
    "error phase",
    "faults": "id fault targets phase time detail",
    "events": "time node incarnation seq event key epoch controller_epoch zxid position value owner detail",
    "replicas": "node key position value crc epoch below_hw in_isr",
    "looks": "look time ended what key node",
}
"""Data set -> the columns that a file without a format must have."""

_FORMER: Final[Mapping[str, tuple[str, str]]] = {"effects": ("epoch", "leader_epoch"), "faults": ("bit", "took_effect")}
"""Data set -> a column of format 1, and the current name of this column."""


@dataclass(frozen=True)
class RelationSql:
    """SQL of a relation. ``keep``: the relation is materialised, because several other relations read it."""

    name: str
    sql: str
    keep: bool = False


def is_format_1(name: str, columns: Iterable[str]) -> bool:
    """Returns whether a file of a data set without a format has a column that only format 1 had."""
    former, present = _FORMER.get(name, ("", ""))
    return former in columns and present not in columns


def schema(name: str, format: int) -> pa.Schema:
    """Returns the columns of a data set in this format."""
    later = {column for added_in, columns in ADDED.items() if added_in > format for column in columns.get(name, ())}
    return pa.schema([field for field in SCHEMAS[name] if field.name not in later])


def translate(name: str, format: int) -> tuple[RelationSql, ...]:
    """Returns the SQL that translates ``stored_<name>`` to the current format; empty if nothing must change."""
    derived = DERIVED.get(name, {}) if format < FORMAT else {}
    if not derived:
        return ()
    chosen = ", ".join(
        f"{derived.get(column, f'e.{_quoted(column)}')} as {_quoted(column)}" for column in SCHEMAS[name].names
    )
    return (RelationSql(name, f"select {chosen} from stored_{name} e"),)


def _quoted(column: str) -> str:
    return f'"{column}"'
