"""A run as one row of the nightly data set, with its findings, faults and measurements nested inside.

The nightly data set has the runs of all nights. The data sets of a history are something else: the tables of one run.

A run is one row of one file, so the data set contains it completely or not at all. Times are nanoseconds since the run
began, as in its history, unless the name of a column says seconds.
"""

from collections.abc import Mapping
from types import UnionType
from typing import Any, Final, get_args, get_origin

import msgspec
import pyarrow as pa

DAMAGED: Final = "damaged"
ABANDONED: Final = "abandoned"
"""The status of a run that is marked as running by a process that is dead, or on another machine."""

NONE: Final = "none"
"""The defect of a run without one, and the nemesis of a run without faults."""

UNKNOWN: Final = "(unknown)"
"""The workload or nemesis of a run whose files do not name it."""

DefectAnomalies = Mapping[str, tuple[str, ...]]
"""The anomalies of each defect; a run that catches the defect reports at least one of them."""


class RunFinding(msgspec.Struct, frozen=True, kw_only=True):
    """An anomaly of a run.

    - ``time``: time of the first finding; None if unknown.
    - ``since_fault``: time from the first fault to the first finding, negative if the finding comes first. None if
      ``time`` is None, or if the run had no fault.
    """

    anomaly: str
    forbidden: bool
    instances: int
    time: int | None
    since_fault: int | None


class FaultPhases(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of a run, with the times of its phases; None if a phase did not happen. ``targets``: the nodes it hit."""

    id: int
    fault: str
    targets: tuple[str, ...]
    intended: int | None
    injected: int | None
    healed: int | None
    recovered: int | None
    took_effect: bool
    failed: bool


class RecoveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """Recovery of one key after a heal: the times to its first successful write and its first successful read.

    - ``change``, ``look``: the verbs of the key's writes and reads, such as send and poll
    - ``changed``, ``looked``: the times from the heal to the first of each that succeeded; None: there was none

    See ``assay.checkers.judging.coverage``.
    """

    fault_id: int
    fault: str
    key: str
    change: str
    look: str
    changed: int | None
    looked: int | None


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a run. Without ``verdict`` its result is unknown, and ``problem`` is the reason."""

    run: str
    """Identifies the run on every machine and in every store."""
    folder: str
    """``test/time`` in its store."""
    test: str
    workload: str
    nemesis: str
    defect: str
    cluster: str | None = None
    seed: int | None = None
    started: str
    """ISO 8601, UTC."""
    status: str
    """As in ``run.json``, or ``damaged``, or ``abandoned``."""
    verdict: str | None = None
    problem: str | None
    run_seconds: float | None = None
    """Wall-clock seconds, including set-up; the virtual time of a simulated run differs."""
    check_seconds: float | None = None
    engine: str | None = None
    operations: int | None = None
    effects: int | None = None
    digest: str | None = None
    unknown: tuple[str, ...] = ()
    """Reasons why the run must not pass."""
    findings: tuple[RunFinding, ...] = ()
    faults: tuple[FaultPhases, ...] = ()
    returns: tuple[RecoveryRow, ...] = ()
    """The recoveries of the run, one for each key and healed fault. The column keeps its name in stored data sets."""
    system: str | None = None
    version: str | None = None
    """The version under test, if it is known."""
    rate: float | None = None
    """This field and the following ones are from ``figures.json``: see ``assay.reports.figures``."""
    median_ms: float | None = None
    p99_ms: float | None = None
    recovery_seconds: float | None = None


_TEXT: Final = pa.string()
_NUMBER: Final = pa.int64()


def _to_columns(kind: type[msgspec.Struct]) -> dict[str, pa.DataType]:
    return {field.name: _to_parquet_type(field.type) for field in msgspec.structs.fields(kind)}


def _to_parquet_type(kind: Any) -> pa.DataType:
    """Returns the Parquet type for a field type; every column is nullable."""
    if get_origin(kind) is tuple:
        return pa.list_(_to_parquet_type(get_args(kind)[0]))
    if isinstance(kind, UnionType):
        return _to_parquet_type(get_args(kind)[0])
    if issubclass(kind, msgspec.Struct):
        return pa.struct(_to_columns(kind))
    return {str: _TEXT, int: _NUMBER, float: pa.float64(), bool: pa.bool_()}[kind]


SCHEMA: Final = pa.schema(_to_columns(RunRow))
"""The Parquet schema of ``RunRow``."""
OLD_NAMES: Final = {"took_effect": "bit"}
"""Columns of faults, with their names in older data sets."""
NEW_COLUMNS: Final = frozenset(("system", "version", "rate", "median_ms", "p99_ms", "recovery_seconds"))
"""Columns that parts of older data sets lack."""

_WITHOUT_NEW_COLUMNS: Final = pa.schema([field for field in SCHEMA if field.name not in NEW_COLUMNS])
_OLD_FAULT: Final = [
    field.with_name(OLD_NAMES.get(field.name, field.name)) for field in SCHEMA.field("faults").type.value_type
]
SCHEMAS: Final = (
    SCHEMA,
    _WITHOUT_NEW_COLUMNS,
    _WITHOUT_NEW_COLUMNS.set(
        _WITHOUT_NEW_COLUMNS.get_field_index("faults"), pa.field("faults", pa.list_(pa.struct(_OLD_FAULT)))
    ),
)
"""The schemas that a part of a data set may have."""


def to_table(run: RunRow) -> pa.Table:
    return pa.Table.from_pylist([msgspec.to_builtins(run)], schema=SCHEMA)


def to_current_columns(content: pa.Table) -> pa.Table:
    """Converts a part with any of ``SCHEMAS`` to the current columns."""
    if content.schema.equals(SCHEMA):
        return content
    rows = content.to_pylist()
    new_names = {old: new for new, old in OLD_NAMES.items()}
    for row in rows:
        row["faults"] = [{new_names.get(key, key): value for key, value in one.items()} for one in row["faults"] or ()]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
