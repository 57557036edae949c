"""Packs many copies of objects into one history, and finds the copies in which a check finds a violation.

Each copy gets its own keys, groups, processes, operation numbers and log values. So one pass of the checks judges all
copies, and the key of a violation says to which copy it belongs. Times are unchanged, because the checks compare them
with faults and deadlines. Only copies of transactions are moved in time, one behind the other
(``separate_times``). Otherwise
the real-time order would connect them. An isolation level of the contract is judged copy by copy.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from assay.checkers.check import create_views
from assay.checkers.isolation.explain import find_class
from assay.checkers.isolation.level_check import check_level
from assay.checkers.isolation.levels import find_level
from assay.checkers.isolation.transactions import make_history
from assay.checkers.judging.history_views import count_kinds, register_contract, register_data_sets
from assay.checkers.objects.kinds import list_kinds
from assay.checkers.transactions.cycles import CYCLE_ANOMALIES
from assay.checkers.transactions.level import read_transaction_rows
from assay.harness.core.history.data_sets import DATA_SETS

if TYPE_CHECKING:
    from assay.checkers.check import Family
    from assay.checkers.engine import Engine, Engines
    from assay.checkers.judging.contract import Contract
    from assay.harness.core.history import HistoryReader
    from assay.harness.sensitivity.plant import Row, Rows

_LOG: Final = ("append", "observe", "reported", "unreported")
"""Kinds of effects on logs, whose values get new numbers."""
_UNREAD: Final = {"argument": "null", "result": None, "scheduled": None}
"""Columns of operations that no check reads, and that may be large."""
_RENAMED: Final = frozenset({"value", "key", "group", "op", "index", "process"})
_TIMES: Final = frozenset({"call", "ret"})
_PREFIX: Final = re.compile(r"copy(\d+)-")


@dataclass(frozen=True)
class PackedCopies:
    """A history in memory with many copies. The operations of copy n are numbered from n times ``stride``."""

    history: HistoryReader
    stride: int


def pack(
    copies: Sequence[Rows],
    ops: Mapping[int, Row],
    faults: Sequence[Sequence[Any]],
    *,
    separate_times: bool,
    silent: Mapping[int, Collection[int]] = MappingProxyType({}),
) -> PackedCopies:
    """Returns a history with all copies.

    - ``ops``: the operations of the run, by number
    - ``faults``: the columns of the data set ``faults``
    - ``silent``: the numbers of operations of unknown outcome and without effects, by process; each copy has those of
      its processes, because they may explain an apparent violation
    """
    from assay.harness.core.history.reader import InMemoryHistoryReader

    stride = 1 + max(ops, default=0)
    length = 1 + max((row["ret"] or row["call"] for row in ops.values()), default=0)
    shared = SharedNumbers()
    names = [
        CopyNames(number, number * stride, number * length if separate_times else 0, shared)
        for number in range(len(copies))
    ]
    parts: dict[str, Sequence[Rows]] = {
        "effects": copies,
        "ops": [_find_operations(rows, ops, silent) for rows in copies],
    }
    packed: dict[str, list[list[Any]]] = {name: [] for name in DATA_SETS}
    for name, some in parts.items():
        if any(some):
            packed[name] = [_pack_column(column, names, some) for column in DATA_SETS[name].names]
    if not separate_times:  # copies that are moved in time would no longer coincide with the faults
        packed["faults"] = [list(column) for column in faults]
    return PackedCopies(InMemoryHistoryReader(packed), stride)


def _find_operations(rows: Rows, ops: Mapping[int, Row], silent: Mapping[int, Collection[int]]) -> Rows:
    """Returns the operations of a copy, in order."""
    named = {row["op"] for row in rows}
    if silent:
        named.update(op for process in {row["process"] for row in rows} for op in silent.get(process, ()))
    return [ops[op] for op in sorted(named)]


def _pack_column(column: str, names: Sequence[CopyNames], copies: Sequence[Rows]) -> list[Any]:
    """Returns the values of a column in all copies, one copy after the other."""
    if column in _RENAMED or (column in _TIMES and names[-1].time_shift):
        return [value for copy, rows in zip(names, copies, strict=True) for value in copy.rename_column(column, rows)]
    if column in _UNREAD:
        return [_UNREAD[column]] * sum(map(len, copies))
    return [row[column] for rows in copies for row in rows]


class SharedNumbers:
    """Numbers that are unique over all copies, by the copy's number and the number in the run."""

    def __init__(self) -> None:
        self.processes: dict[tuple[int, int], int] = {}
        """Process ids. Their column has too few bits to number each copy from a multiple of ``stride``."""
        self.values: dict[tuple[int, int], int] = {}
        """Values of logs. If two logs had a value in common, a check would report it."""


@dataclass(frozen=True)
class CopyNames:
    """Gives the rows of one copy new names and numbers. For speed it works column by column."""

    number: int
    first_operation: int
    time_shift: int
    """Nanoseconds by which the copy is moved in time."""
    shared: SharedNumbers
    names: dict[str | None, str | None] = field(default_factory=lambda: {None: None})
    """New names of keys and groups, by the name in the run."""

    def rename_column(self, column: str, rows: Rows) -> list[Any]:
        """Returns the column's values in this copy, for a column of ``_RENAMED`` or ``_TIMES``."""
        if column == "value":
            return [self._rename_value(row) for row in rows]
        given = [row[column] for row in rows]
        if column in ("key", "group"):
            return [self._rename(name) for name in given]
        if column in ("op", "index"):
            return [op + self.first_operation for op in given]
        if column == "process":
            processes = self.shared.processes
            return [processes.setdefault((self.number, process), len(processes)) for process in given]
        return [None if time is None else time + self.time_shift for time in given]

    def _rename(self, name: str | None) -> str | None:
        """Returns the name of a key or a group. A group's offset is ``group/key``, so each part gets the prefix."""
        if name is not None and name not in self.names:
            self.names[name] = "/".join(f"copy{self.number}-{part}" for part in name.split("/"))
        return self.names[name]

    def _rename_value(self, row: Row) -> Any:
        value = row["value"]
        if value is None or row["kind"] not in _LOG:
            return value
        return self.shared.values.setdefault((self.number, value), len(self.shared.values))


def find_violated(
    packed: PackedCopies, contract: Contract, engines: Engines, families: Sequence[Family]
) -> dict[int, frozenset[str]]:
    """Returns the anomalies found in each copy, by the copy's number. Anomalies about deadlines are not looked for."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    with engines.open(packed.history, common_sql=False) as engine:
        register_data_sets(engine, packed.history)
        count_kinds(engine, engine)
        register_contract(engine, msgspec.structs.replace(contract, transaction_level=None))
        kinds = list_kinds(engine)
        for family in families:
            for anomaly, row in _list_violations(engine, family, kinds):
                copy = _find_copy(row, packed.stride)
                if copy is not None:
                    found[copy].add(anomaly)
        if contract.transaction_level is not None:
            for anomalies in found.values():
                anomalies.difference_update(CYCLE_ANOMALIES)
            for number, anomaly in _find_refuted(engine, contract, packed.stride):
                found[number].add(anomaly)
    return {number: frozenset(anomalies) for number, anomalies in found.items()}


def _find_refuted(engine: Engine, contract: Contract, stride: int) -> Iterator[tuple[int, str]]:
    """Yields the copies that the contract's isolation level forbids, with the class of each refutation.

    Each copy is judged by itself, because one refutation suffices for a whole history.
    """
    level = find_level(contract.transaction_level or "")
    rows = sorted(read_transaction_rows(engine))
    for number, own in groupby(rows, lambda row: row[0] // stride):
        history = make_history(own, all_reads=contract.transaction_all_reads)
        refutation = check_level(history, level, contract.transaction_seconds).refutation
        if refutation is not None:
            yield number, find_class(history, refutation)


def _find_copy(row: Row, stride: int) -> int | None:
    """Returns the copy of a violation, by its key. A cycle of transactions has only operations: ``3,17``."""
    if row["key"] is not None:
        copy = _PREFIX.match(row["key"])
        return None if copy is None else int(copy[1])
    operations = row.get("ops")
    return None if operations is None else int(str(operations).partition(",")[0]) // stride


def _list_violations(engine: Engine, family: Family, kinds: set[str]) -> Iterator[tuple[str, Row]]:
    """Yields each anomaly of the family with a row for each violated key, and with each violation that has no key."""
    create_views(engine, family.views)
    if family.kinds and not kinds.intersection(family.kinds):
        return
    (row,) = engine.rows(family.applies)
    if not next(iter(row.values())):
        return
    if family.prepare is not None:
        family.prepare(engine)
    for check in family.checks:
        if check.needs_end or (check.kinds and not kinds.intersection(check.kinds)):
            continue
        create_views(engine, check.views)
        keys = engine.rows(f"select key from {check.found} group by key")
        if any(row["key"] is None for row in keys):
            keys += engine.rows(f"select * from {check.found} where key is null")
        yield from ((check.anomaly, row) for row in keys)
