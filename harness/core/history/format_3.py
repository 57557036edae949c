"""Histories of formats 2 and 3, read as if they were written today.

Some columns had several meanings, which the row's kind, or what it is about, told apart: ``epoch`` was a leader epoch,
a generation or a token, ``timestamp`` a time or a duration. What is translated is data: ``GONE`` and ``NEWER`` (the
columns), and ``MEANINGS`` (today's columns, as SQL over the rows of format 3).
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from assay.harness.core.history import format_4
from assay.harness.core.history.schema import SCHEMAS
from assay.harness.core.history.sql import listed

COLUMNS: Final[Mapping[str, str]] = {
    "effects": "op sub request process key kind position value expected epoch owner group assignment node version "
    "list_index message_key timestamp size name replicas incarnation call ret outcome error phase",
    "events": "time node incarnation seq event key epoch controller_epoch zxid position value owner detail "
    "high_watermark log_start log_end",
    "looks": "look time ended what key node epoch value zxid position log_end timestamp size replicas members "
    "retention_ms retention_bytes retention_check_ms",
}
"""The columns, in order, of the data sets that had others than today, which all are of type int64."""

ADDED: Final[Mapping[str, tuple[str, ...]]] = {
    "effects": ("timestamp", "size", "name", "replicas", "incarnation"),
    "faults": ("wrong_clock",),
    "events": ("high_watermark", "log_start", "log_end"),
    "replicas": ("epoch_start", "high_watermark", "log_start"),
}
"""The columns that came with format 3."""

_HELD: Final = ("acquire", "release", "lost")
"""Kinds that a member of a group records, and a holder of a lease, which has no group."""
_LEASE: Final = ("renew", "guarded")
_OF_A_MEMBER: Final = ("commit", "keep")
_HAS_GENERATION: Final = (
    f"(e.kind in ({listed(_OF_A_MEMBER)}) or (e.kind in ({listed(_HELD)}) and e.group is not null))"
)
_HAS_TOKEN: Final = f"(e.kind in ({listed(_LEASE)}) or (e.kind in ({listed(_HELD)}) and e.group is null))"


def _when(condition: str, value: str, column: str) -> str:
    """``column`` of today, or what the row had as ``value``."""
    return f"coalesce(e.{column}, case when {condition} then {value} end)"


def _unless(condition: str, column: str) -> str:
    return f"case when {condition} then null else e.{column} end"


MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "effects": {
        "leader_epoch": _when(f"not {_HAS_GENERATION} and not {_HAS_TOKEN}", "e.epoch", "leader_epoch"),
        "generation": _when(_HAS_GENERATION, "e.epoch", "generation"),
        "token": _when(_HAS_TOKEN, "e.epoch", "token"),
        "tombstone": _when("e.kind = 'append'", "e.timestamp = e.value", "tombstone"),
        "timestamp": _unless("e.kind = 'keep'", "timestamp"),
        "retention_ms": _when("e.kind = 'keep'", "e.timestamp", "retention_ms"),
        "name": _unless("e.kind in ('reported', 'unreported', 'waited', 'tried')", "name"),
        "source": _when("e.kind in ('reported', 'unreported')", "e.name", "source"),
        "client": _when("e.kind = 'tried'", "e.name", "client"),
        "empty": _when("e.kind = 'waited'", "e.name = 'nothing'", "empty"),
        "value": _unless("e.kind = 'waited'", "value"),
        "waited_ms": _when("e.kind = 'waited'", "e.value", "waited_ms"),
        "expected": _unless("e.kind = 'waited'", "expected"),
        "max_wait_ms": _when("e.kind = 'waited'", "e.expected", "max_wait_ms"),
    },
    "looks": {
        "wall_ms": _when("e.what = 'look'", "e.value", "wall_ms"),
        "unsettled": _when("e.what = 'look'", "e.size", "unsettled"),
        "size": _unless("e.what in ('look', 'inspected')", "size"),
        "settings": _when("e.what in ('topic', 'role')", "e.value", "settings"),
        "broker": _when("e.what = 'broker'", "e.value", "broker"),
        "leader": _when("e.what in ('partition', 'routed')", "e.value", "leader"),
        "members": _unless("e.what = 'move'", "members"),
        "removing": _when("e.what = 'move'", "e.members", "removing"),
        "high_watermark": _when("e.what = 'role'", "e.position", "high_watermark"),
        "position": _unless("e.what in ('role', 'segment')", "position"),
        "acknowledgements": _when("e.what = 'inspected'", "e.size", "acknowledgements"),
        "base_offset": _when("e.what = 'segment'", "e.position", "base_offset"),
        "end_offset": _when("e.what = 'segment'", "e.log_end", "end_offset"),
        "log_end": _unless("e.what = 'segment'", "log_end"),
        **{name: f"e.{name}" for name in ("flushed", "flush_ms", "unsynced")},
    },
}
"""Today's columns that there were not, or that had other meanings besides: SQL over the rows ``e``, which have today's
columns, too, null where a file lacks them."""


def schema(name: str, format: int) -> pa.Schema:
    """A data set's columns as format 2 or 3 had them."""
    today = SCHEMAS[name]
    columns = COLUMNS[name].split() if name in COLUMNS else format_4.schema(name, 4).names
    later = ADDED.get(name, ()) if format == 2 else ()
    return pa.schema(
        [
            today.field(column) if column in today.names else pa.field(column, pa.int64())
            for column in columns
            if column not in later
        ]
    )
