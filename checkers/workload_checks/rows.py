"""Rows that are inserted one after another, as in CockroachDB's monotonic and monotonic-multitable tests.

An ``add`` inserts a row with the next ``val`` and the time of its transaction, ``sts``. It returns the inserted row, or
the row that had the highest value before. A ``read`` returns all rows, ordered by ``sts``. Only the last read is
judged:

1. It has the value of each row that an add returned before the read was called.
2. No value is in two rows.
3. The times of the rows never fall.
4. In the order of times, the values rise. If the rows name a process (``proc``), they need to rise only among the rows
   of each process, because the processes add to several tables. With ``--linearizable`` they must rise over all
   processes. Rows with equal times are in no order.

The argument of an ``add`` is no value of a row. So it is unknown which row a failed add, or one of unknown outcome,
would have inserted, and such adds are ignored.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Final

from assay.checkers.times import format_seconds
from assay.checkers.workload_checks.workload_result import (
    ALWAYS,
    NO_FIELDS,
    Fields,
    WorkloadAnomaly,
    WorkloadResult,
    group_by_key,
    name_object,
    select_ok,
)
from assay.harness.core.history import HistoryError
from assay.harness.core.operation import Completed

LOST: Final = "row-lost"
TWICE: Final = "row-duplicate"
TIMES_FALL: Final = "row-times-fall"
OUT_OF_ORDER: Final = "row-out-of-order"
ANOMALIES: Final[Mapping[str, WorkloadAnomaly]] = {
    LOST: WorkloadAnomaly(
        "the last read lacks a row that an insert returned",
        "rows that inserts returned",
        "if the insert returned before the last read was called",
    ),
    TWICE: WorkloadAnomaly("two rows of the last read have one value", "rows of the last read", ALWAYS),
    TIMES_FALL: WorkloadAnomaly(
        "the last read shows rows whose times fall", "adjacent rows of the last read", "if the times differ"
    ),
    OUT_OF_ORDER: WorkloadAnomaly(
        "a row has a later time and a lower value than another row",
        "rows of the last read",
        "if an ordered row has an earlier time",
    ),
}
PROCESS: Final = "proc"
"""The field with the process that inserted a row."""

Row = Mapping[str, Any]


def check_rows(operations: Sequence[Completed], fields: Fields = NO_FIELDS, strict: bool = False) -> WorkloadResult:
    """Judges the last read of each key. ``strict``: values rise over all processes and tables.

    Raises ``HistoryError`` for rows without a ``val`` or ``sts`` that is a whole number.
    """
    result = WorkloadResult()
    keys = group_by_key(operations)
    for key, ones in keys.items():
        reads = select_ok(ones, "read")
        if not reads:
            result.doubts.append(f"{name_object(key, 'the table')} was never read")
            continue
        read = max(reads, key=lambda one: one.ret or 0)
        _check_read(result, key, read, select_ok(ones, "add"), strict)
    result.examined = dict.fromkeys(ANOMALIES, len(keys))
    return result


def _check_read(
    result: WorkloadResult, key: str | None, read: Completed, adds: Sequence[Completed], strict: bool
) -> None:
    rows = [_require_row(read, row) for row in read.completion.result]
    by = f"{name_object(key, 'rows')}: the read by operation {read.index}, called at {format_seconds(read.call)}, "
    shown = Counter(row["val"] for row in rows)
    returned = [(add, _require_row(add, add.completion.result)["val"]) for add in adds if add.completion.result]
    before = [(add, value) for add, value in returned if add.ret is not None and add.ret < read.call]
    result.count_claims(LOST, (add.ret is not None and add.ret < read.call for add, _ in returned))
    result.count_claims(TWICE, [True] * len(rows))
    result.count_claims(TIMES_FALL, (former["sts"] != row["sts"] for former, row in pairwise(rows)))
    for add, value in before:
        if value not in shown:
            claim = (
                f"{by}lacks the row {value}, which operation {add.index} returned at {format_seconds(add.ret or 0)}."
            )
            result.add_finding(LOST, key, claim, [add, read])
    for value, count in shown.items():
        if count > 1:
            result.add_finding(TWICE, key, f"{by}shows the row {value} {count} times.", [read])
    for former, row in pairwise(rows):
        if former["sts"] > row["sts"]:
            claim = f"{by}shows row {former['val']} of time {former['sts']} before {row['val']} of time {row['sts']}."
            result.add_finding(TIMES_FALL, key, claim, [read])
    by_process: dict[Any, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["sts"]):
        by_process.setdefault(None if strict else row.get(PROCESS), []).append(row)
    for process, ordered in by_process.items():
        result.count_claims(OUT_OF_ORDER, (row["sts"] > ordered[0]["sts"] for row in ordered))
        whose = "" if process is None else f" of process {process}"
        for former, row in _find_reorders(ordered):
            claim = (
                f"{by}shows row {row['val']}{whose} of time {row['sts']}, which is later than time {former['sts']} of "
                f"row {former['val']}, though values rise."
            )
            result.add_finding(OUT_OF_ORDER, key, claim, [read])


def _find_reorders(ordered: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Returns pairs of rows. The second row of a pair has a later time and a lower value. ``ordered`` is by time."""
    found = []
    highest: Row | None = None
    for _, same_time in groupby(ordered, key=lambda row: row["sts"]):
        rows = list(same_time)
        found += [(highest, row) for row in rows if highest is not None and row["val"] < highest["val"]]
        top = max(rows, key=lambda row: row["val"])
        highest = top if highest is None or top["val"] > highest["val"] else highest
    return found


def _require_row(one: Completed, row: Any) -> Row:
    if not isinstance(row, dict) or type(row.get("val")) is not int or type(row.get("sts")) is not int:
        raise HistoryError(f"operation {one.index}: a row is a map with whole numbers :val and :sts, not {row}")
    return row
