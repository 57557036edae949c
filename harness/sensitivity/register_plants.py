"""Plants for registers, and for the committed offsets of groups, which the checks judge as registers.

A plant writes a violation into a copy of a history. :mod:`assay.harness.sensitivity.plant` explains claims, edits,
``exposed`` and the fields of a plant. docs/reference/history.md explains the rows: kinds and columns of ``effects``.
``last_fault_end`` is the end of the last fault that may destroy data (``exposure_bound``).
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from assay.harness.sensitivity.object_plants import find_reads, read_fresh_value
from assay.harness.sensitivity.plant import (
    Claim,
    Plant,
    Row,
    Rows,
    compute_once,
    get_return_time,
    get_row_id,
    is_ok,
    replace_in,
    select_two,
)

_READS: Final = ("register-read", "fetched")
_WRITES: Final = ("register-write", "register-cas", "commit")
_REGISTER: Final = frozenset({*_READS, *_WRITES})
_OF_REGISTERS: Final = ("register-read", "register-write", "register-cas")


def _list_reads(rows: Rows) -> list[Row]:
    return [row for row in rows if is_ok(row, *_READS) and row["ret"] is not None]


def _describe(row: Row) -> str:
    return f"the {'commit' if row['kind'] == 'commit' else 'write'} of {row['value']}"


def _find_writes(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists acknowledged writes. ``other`` is the last write that ended before it began; None: the initial value."""
    reads = _list_reads(rows)
    last = max((row["call"] for row in reads), default=-1)
    written = sorted((row for row in rows if is_ok(row, *_WRITES)), key=get_return_time)
    returns = list(map(get_return_time, written))
    claims = []
    for row in written:
        before = bisect_left(returns, row["call"])
        former = written[bisect_left(returns, returns[before - 1])] if before else None
        since = max(get_return_time(row), last_fault_end)
        claims.append(Claim(_describe(row), last > since, since, row["value"], row, former))
    return claims


def _get_read_columns(row: Row | None) -> dict[str, Any]:
    """Returns the columns of a read that shows what ``row`` wrote; None stands for the initial value."""
    return {column: None if row is None else row[column] for column in ("value", "version", "position")}


def _read_former(rows: Rows, claim: Claim) -> Rows:
    """Makes the first read after the claim's ``since`` return the value before the write."""
    read = _find_late_read(rows, claim)
    return rows if read is None else replace_in(rows, read, **_get_read_columns(claim.other))


def _find_late_read(rows: Rows, claim: Claim) -> Row | None:
    late = (row for row in _list_reads(rows) if row["call"] > claim.since)
    return min(late, key=lambda row: int(row["call"]), default=None)


def _group_writes(rows: Rows) -> dict[Any, list[Row]]:
    """Returns the rows of writes, by the value that they may have written."""
    writes: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] in _WRITES:
            writes[row["value"]].append(row)
    return writes


def _keep(rows: Rows, needed: Iterable[Row]) -> Rows:
    """Returns these rows, the writes of the values that they read or replaced, and so on for these writes.

    Without the other rows the history is still legal: no value was replaced between its write and a row that saw it.
    Committed offsets may have equal values, so all their rows are kept.
    """
    writes = compute_once(rows, _group_writes)
    kept: dict[tuple[int, int], Row] = {}
    new = list(needed)
    while new:
        row = new.pop()
        if row["kind"] not in _OF_REGISTERS:
            return rows
        if get_row_id(row) not in kept:
            kept[get_row_id(row)] = row
            seen = [row["value"]] if row["kind"] == "register-read" else [row["expected"]]
            new += (write for value in seen if value is not None for write in writes.get(value, ()))
    return [kept[place] for place in sorted(kept)]


def _select_named(rows: Rows, claim: Claim) -> Rows:
    return _keep(rows, select_two(rows, claim))


def _select_late_read(rows: Rows, claim: Claim) -> Rows:
    read = _find_late_read(rows, claim)
    return _keep(rows, [*select_two(rows, claim), *([] if read is None else [read])])


def _find_reads_before_writes(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists reads, each with the first write that was called after the read. Other reads make no claim."""
    writes = sorted((row for row in rows if is_ok(row, *_WRITES)), key=lambda row: int(row["call"]))
    calls = [row["call"] for row in writes]
    claims = []
    for row in _list_reads(rows):
        place = bisect_right(calls, row["ret"])
        if place < len(writes):
            claims.append(Claim(f"the answer of operation {row['op']}", row=row, other=writes[place]))
    return claims


def _read_later(rows: Rows, claim: Claim) -> Rows:
    """Makes the read return the value of a later write."""
    if claim.row is None or claim.other is None:
        return rows
    return replace_in(rows, claim.row, **_get_read_columns(claim.other))


def _find_chained(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists compare-and-sets, each with the one whose value it replaced, or else with one that was called earlier.

    An earlier call that replaced the value of the listed one does not count. This is possible if both were in progress
    at once.
    """
    changes = sorted((row for row in rows if is_ok(row, "register-cas")), key=lambda row: int(row["call"]))
    writers = {row["value"]: row for row in changes}
    claims = []
    for place, row in enumerate(changes):
        before = (changes[index] for index in range(place - 1, -1, -1) if changes[index]["expected"] != row["value"])
        former = writers.get(row["expected"]) or next(before, None)
        claims.append(Claim(f"the compare-and-set to {row['value']}", former is not None, row=row, other=former))
    return claims


def _replace_twice(rows: Rows, claim: Claim) -> Rows:
    """Makes both compare-and-sets replace the same value."""
    if claim.row is None or claim.other is None:
        return rows
    return replace_in(rows, claim.row, expected=claim.other["expected"])


_declare: Final = partial(Plant, kinds=_REGISTER, select=_select_named)
REGISTER_PLANTS: Final = (
    _declare(
        anomaly="stale-read",
        meaning="the first read after the last fault returns what was there before an acknowledged write; after the "
        "write, if that came later",
        find_claims=_find_writes,
        edit=_read_former,
        select=_select_late_read,
        missed="no read was called after it and after the heal of the last fault",
    ),
    _declare(
        anomaly="missing-writer",
        meaning="a read returns a value that no one wrote",
        find_claims=lambda rows, last_fault_end: find_reads(rows, last_fault_end, kinds=_READS),
        edit=read_fresh_value,
    ),
    _declare(
        anomaly="future-read",
        meaning="a read returns a value that is written only later",
        find_claims=_find_reads_before_writes,
        edit=_read_later,
    ),
    _declare(
        anomaly="lost-update",
        meaning="two compare-and-sets replace one value",
        kinds=frozenset({"register-cas"}),
        find_claims=_find_chained,
        edit=_replace_twice,
        missed="there was no other compare-and-set before it",
    ),
)
