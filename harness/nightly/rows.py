"""One run as one row of the data set, what was found, injected and measured in it nested inside.

A run is one row of one file, so a run is in the data set with everything that belongs to it, or not at all. Times are
nanoseconds since the run began, as in its history, unless a name says seconds.
"""

from collections.abc import Iterable
from types import UnionType
from typing import Any, Final, get_args, get_origin

import msgspec
import pyarrow as pa

DAMAGED: Final = "damaged"
ABANDONED: Final = "abandoned"
"""Said to be going on by a process that is dead, or of another machine."""

NONE: Final = "none"
"""The defect of a run without one, as ``none`` is the nemesis of a run without faults."""

UNKNOWN: Final = "(unknown)"
"""The workload or nemesis of a run whose files do not name it."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One anomaly of a run. ``time``: of the first finding that is explained; ``since_fault``: since the first fault.

    Negative if it was there before any fault; None where no moment is known, or no fault was injected.
    """

    anomaly: str
    forbidden: bool
    instances: int
    time: int | None
    since_fault: int | None


class FaultLife(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a run; None for what did not happen. ``targets``: names of nodes, as they were resolved."""

    id: int
    fault: str
    targets: tuple[str, ...]
    intended: int | None
    injected: int | None
    healed: int | None
    recovered: int | None
    took_effect: bool
    failed: bool


class Return(msgspec.Struct, frozen=True, kw_only=True):
    """How long one key took after one heal until the first ``change`` (send, write) and ``look`` (poll, read) counted.

    None: never again in this run. See ``assay.checkers.judging.coverage``.
    """

    fault_id: int
    fault: str
    key: str
    change: str
    look: str
    changed: int | None
    looked: int | None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a run. Without ``verdict`` it is not known how it ended, and ``problem`` says why."""

    run: str
    """Names it, on every machine and in every store."""
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
    """Of the wall's clock, with set-up; a simulated run's own time is another."""
    check_seconds: float | None = None
    engine: str | None = None
    operations: int | None = None
    effects: int | None = None
    digest: str | None = None
    unknown: tuple[str, ...] = ()
    findings: tuple[Found, ...] = ()
    faults: tuple[FaultLife, ...] = ()
    returns: tuple[Return, ...] = ()
    system: str | None = None
    version: str | None = None
    """Of what was tested, if it was stated."""
    rate: float | None = None
    """This and what follows is of ``figures.json``: see ``assay.reports.figures``."""
    median_ms: float | None = None
    p99_ms: float | None = None
    recovery_seconds: float | None = None


_TEXT: Final = pa.string()
_NUMBER: Final = pa.int64()


def _columns(kind: type[msgspec.Struct]) -> dict[str, pa.DataType]:
    return {field.name: _parquet(field.type) for field in msgspec.structs.fields(kind)}


def _parquet(kind: Any) -> pa.DataType:
    """How Parquet keeps a field of this type, which may be None in any row."""
    if get_origin(kind) is tuple:
        return pa.list_(_parquet(get_args(kind)[0]))
    if isinstance(kind, UnionType):
        return _parquet(get_args(kind)[0])
    if issubclass(kind, msgspec.Struct):
        return pa.struct(_columns(kind))
    return {str: _TEXT, int: _NUMBER, float: pa.float64(), bool: pa.bool_()}[kind]


SCHEMA: Final = pa.schema(_columns(Run))
"""``Run`` in Parquet."""
FORMER: Final = {"took_effect": "bit"}
"""Columns of faults in data sets from before, where they had other names."""
LATER: Final = frozenset(("system", "version", "rate", "median_ms", "p99_ms", "recovery_seconds"))
"""Columns that parts of data sets from before do not have."""


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]


def _faults(fields: Iterable[pa.Field], schema: pa.Schema = SCHEMA) -> pa.Schema:
    """``schema`` with these fields of a fault."""
    return schema.set(schema.get_field_index("faults"), pa.field("faults", pa.list_(pa.struct(list(fields)))))


_FIELDS: Final = _fields(SCHEMA.field("faults").type.value_type)
_FORMER_FIELDS: Final = [field.with_name(FORMER.get(field.name, field.name)) for field in _FIELDS]
_SHORT: Final = pa.schema([field for field in SCHEMA if field.name not in LATER])
SCHEMAS: Final = (SCHEMA, _SHORT, _faults(_FORMER_FIELDS, _SHORT))
"""What a part of a data set may have."""
READ: Final = _faults(dict.fromkeys((*_FIELDS, *_FORMER_FIELDS)))
"""With the columns of all of them; those that a part lacks are read as null."""


def table(run: Run) -> pa.Table:
    return pa.Table.from_pylist([msgspec.to_builtins(run)], schema=SCHEMA)


def modern(content: pa.Table) -> pa.Table:
    """A part with any of ``SCHEMAS`` with the columns of today."""
    if content.schema.equals(SCHEMA):
        return content
    rows = content.to_pylist()
    former = {old: new for new, old in FORMER.items()}
    for row in rows:
        row["faults"] = [{former.get(key, key): value for key, value in one.items()} for one in row["faults"] or ()]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def ddl(kind: pa.DataType) -> str:
    """How Spark calls a type of ``SCHEMA``."""
    if pa.types.is_list(kind):
        return f"array<{ddl(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'`{field.name}`: {ddl(field.type)}' for field in kind)}>"
    return {_TEXT: "string", _NUMBER: "bigint", pa.float64(): "double", pa.bool_(): "boolean"}[kind]
