"""Plants for registers, and for the committed offsets of groups, which are registers, too."""

from bisect import bisect_left, bisect_right
from typing import Any, Final

from assay.harness.sensitivity.object_plants import find_reads, read_fresh_value
from assay.harness.sensitivity.plant import Claim, Plant, Row, Rows, is_ok, replace_in, returned

_READS: Final = ("register-read", "fetched")
_WRITES: Final = ("register-write", "register-cas", "commit")
_REGISTER: Final = frozenset({*_READS, *_WRITES})


def _list_reads(rows: Rows) -> list[Row]:
    return [row for row in rows if is_ok(row, *_READS) and row["ret"] is not None]


def _describe(row: Row) -> str:
    return f"the {'commit' if row['kind'] == 'commit' else 'write'} of {row['value']}"


def _find_writes(rows: Rows, bound: int) -> list[Claim]:
    """Lists acknowledged writes. ``other`` is the last one that ended before it began; None: the initial value."""
    reads = _list_reads(rows)
    last = max((row["call"] for row in reads), default=-1)
    written = sorted((row for row in rows if is_ok(row, *_WRITES)), key=returned)
    returns = list(map(returned, written))
    claims = []
    for row in written:
        before = bisect_left(returns, row["call"])
        former = written[bisect_left(returns, returns[before - 1])] if before else None
        since = max(returned(row), bound)
        claims.append(Claim(_describe(row), last > since, since, row["value"], row, former))
    return claims


def _state(row: Row | None) -> dict[str, Any]:
    """Returns the columns of a read that shows what ``row`` wrote; None stands for the initial value."""
    return {column: None if row is None else row[column] for column in ("value", "version", "position")}


def _read_former(rows: Rows, claim: Claim) -> Rows:
    """Lets the first read after the claim's moment return what had been there before the write."""
    late = [row for row in _list_reads(rows) if row["call"] > claim.since]
    return replace_in(rows, min(late, key=lambda row: row["call"]), **_state(claim.other)) if late else rows


def _find_reads_before_writes(rows: Rows, bound: int) -> list[Claim]:
    """Lists reads, each with the first write that was called after it. Later reads have nothing to foresee."""
    writes = sorted((row for row in rows if is_ok(row, *_WRITES)), key=lambda row: int(row["call"]))
    calls = [row["call"] for row in writes]
    claims = []
    for row in _list_reads(rows):
        place = bisect_right(calls, row["ret"])
        if place < len(writes):
            claims.append(Claim(f"the answer of operation {row['op']}", row=row, other=writes[place]))
    return claims


def _read_later(rows: Rows, claim: Claim) -> Rows:
    """Lets the read return what a later write wrote."""
    if claim.row is None or claim.other is None:
        return rows
    return replace_in(rows, claim.row, **_state(claim.other))


def _find_chained(rows: Rows, bound: int) -> list[Claim]:
    """Lists compare-and-sets, each with the one whose value it replaced, or else the one before it."""
    changes = sorted((row for row in rows if is_ok(row, "register-cas")), key=lambda row: int(row["call"]))
    writers = {row["value"]: row for row in changes}
    return [
        Claim(f"the compare-and-set to {row['value']}", former is not None, row=row, other=former)
        for row, before in zip(changes, [None, *changes], strict=False)
        for former in [writers.get(row["expected"], before)]
    ]


def _replace_twice(rows: Rows, claim: Claim) -> Rows:
    """Lets both compare-and-sets replace the same value."""
    if claim.row is None or claim.other is None:
        return rows
    return replace_in(rows, claim.row, expected=claim.other["expected"])


REGISTER_PLANTS: Final = (
    Plant(
        anomaly="stale-read",
        meaning="the first read after the last fault returns what was there before an acknowledged write; after the "
        "write, if that came later",
        kinds=_REGISTER,
        find_claims=_find_writes,
        edit=_read_former,
        missed="no read was called after it and after the heal of the last fault",
    ),
    Plant(
        anomaly="missing-writer",
        meaning="a read returns a value that no one wrote",
        kinds=_REGISTER,
        find_claims=lambda rows, bound: find_reads(rows, bound, kind=_READS),
        edit=read_fresh_value,
    ),
    Plant(
        anomaly="future-read",
        meaning="a read returns a value that is written only later",
        kinds=_REGISTER,
        find_claims=_find_reads_before_writes,
        edit=_read_later,
    ),
    Plant(
        anomaly="lost-update",
        meaning="two compare-and-sets replace one value",
        kinds=frozenset({"register-cas"}),
        find_claims=_find_chained,
        edit=_replace_twice,
        missed="there was no other compare-and-set before it",
    ),
)
