"""Plants for transactions over lists: wrong reads, and transactions of which only a part is seen.

A history of transactions, restricted to a few keys, is still a history of these keys. So a copy has only the keys that
the violation needs.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Final

from assay.harness.sensitivity.plant import Claim, Plant, Row, Rows, find_fresh_value, is_ok, position_of, returned

_TXN: Final = frozenset({"txn-append", "txn-read"})
ALL_TRANSACTIONS: Final = "transactions"


def gather_transactions(effects: Mapping[str, Rows]) -> dict[str, Rows]:
    """Returns the rows of all transactions as one object."""
    rows = [row for some in effects.values() for row in some if row["kind"].startswith("txn-")]
    return {ALL_TRANSACTIONS: sorted(rows, key=position_of)} if rows else {}


def _list_reads(rows: Rows) -> list[list[Row]]:
    """Lists the reads of lists that are not empty: the rows of each, in order."""
    reads: defaultdict[tuple[int, int, str], list[Row]] = defaultdict(list)
    for row in rows:
        if is_ok(row, "txn-read") and row["list_index"] is not None:
            reads[row["op"], row["sub"] - row["list_index"], row["key"]].append(row)
    return list(reads.values())


def _select_keys(rows: Rows, claim: Claim) -> Rows:
    keys = {row["key"] for row in (claim.row, claim.other) if row is not None}
    return [row for row in rows if row["key"] in keys]


def _describe_read(read: Rows) -> str:
    return f"the read of {read[0]['key']} by operation {read[0]['op']}"


def _find_list_reads(rows: Rows, bound: int) -> list[Claim]:
    """Lists reads of lists, by their last row."""
    return [Claim(_describe_read(read), row=read[-1]) for read in _list_reads(rows)]


def _extend_read(rows: Rows, last: Row, value: int) -> Rows:
    """Lets a read show one more element."""
    later = [
        {**row, "sub": row["sub"] + 1} if row["op"] == last["op"] and row["sub"] > last["sub"] else row for row in rows
    ]
    more = {**last, "sub": last["sub"] + 1, "list_index": last["list_index"] + 1, "value": value}
    return sorted([*later, more], key=position_of)


def _read_garbage(rows: Rows, claim: Claim) -> Rows:
    assert claim.row is not None
    return _extend_read(rows, claim.row, find_fresh_value(rows))


def _read_twice(rows: Rows, claim: Claim) -> Rows:
    assert claim.row is not None
    return _extend_read(rows, claim.row, claim.row["value"])


def _find_comparable_reads(rows: Rows, bound: int) -> list[Claim]:
    """Lists reads of two elements or more that another operation shows, too."""
    reads = _list_reads(rows)
    longest: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for read in reads:
        longest[read[0]["key"]].append((len(read), read[0]["op"]))
    return [
        Claim(_describe_read(read), exposed, row=read[-1], other=read[-2])
        for read in reads
        if len(read) > 1
        for exposed in [any(size >= len(read) - 1 and op != read[0]["op"] for size, op in longest[read[0]["key"]])]
    ]


def _reverse_last(rows: Rows, claim: Claim) -> Rows:
    """Exchanges the last two elements that a read shows."""
    if claim.row is None or claim.other is None or not claim.exposed:
        return rows
    values = {position_of(claim.row): claim.other["value"], position_of(claim.other): claim.row["value"]}
    return [{**row, "value": values.get(position_of(row), row["value"])} for row in rows]


def _cut_read(rows: Rows, shown: Row) -> Rows:
    """Removes an element that a read shows, and those behind it."""
    begin = shown["sub"] - shown["list_index"]

    def is_cut(row: Row) -> bool:
        return bool(
            row["op"] == shown["op"]
            and row["key"] == shown["key"]
            and row["list_index"] is not None
            and row["sub"] - row["list_index"] == begin
            and row["list_index"] >= shown["list_index"]
        )

    edited: list[Row] = []
    for row in rows:
        if not is_cut(row):
            edited.append(row)
        elif row["list_index"] == 0:
            edited.append({**row, "value": None, "list_index": None})
    return edited


def _find_torn(rows: Rows, bound: int) -> list[Claim]:
    """Lists transactions that append to two lists, each with a read of both by another one that shows them.

    ``row`` is the element that the read still shows, ``other`` the one that it loses.
    """
    writers: defaultdict[int, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row["kind"] == "txn-append" and row["outcome"] == "ok":
            writers[row["op"]].setdefault(row["key"], row)
    shown: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if is_ok(row, "txn-read") and row["list_index"] is not None:
            shown[row["key"], row["value"]].append(row)
    claims = []
    for op, appended in writers.items():
        if len(appended) < 2:
            continue
        first, second = list(appended.values())[:2]
        by_reader = {row["op"]: row for row in shown[first["key"], first["value"]] if row["op"] != op}
        both = next(
            ((by_reader[row["op"]], row) for row in shown[second["key"], second["value"]] if row["op"] in by_reader),
            None,
        )
        words = f"transaction {op}, which appends to {first['key']} and {second['key']}"
        claims.append(
            Claim(
                words, both is not None, row=None if both is None else both[0], other=None if both is None else both[1]
            )
        )
    return claims


def _find_pairs(rows: Rows, bound: int) -> list[Claim]:
    """Lists transactions that append two elements to one list, each with a read by another one that shows both.

    ``other`` is the second element in that read.
    """
    writers: defaultdict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "txn-append" and row["outcome"] == "ok":
            writers[row["op"], row["key"]].append(row)
    shown: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if is_ok(row, "txn-read") and row["list_index"] is not None:
            shown[row["key"], row["value"]].append(row)
    claims = []
    for (op, key), appended in writers.items():
        if len(appended) > 1:
            second = appended[1]
            other = next((row for row in shown[key, second["value"]] if row["op"] != op), None)
            claims.append(Claim(f"transaction {op}, which appends to {key} twice", other is not None, row=second,
                                other=other))  # fmt: skip
    return claims


def _tear(rows: Rows, claim: Claim) -> Rows:
    return rows if claim.other is None else _cut_read(rows, claim.other)


def _find_own_reads(rows: Rows, bound: int) -> list[Claim]:
    """Lists elements that a transaction appends and then reads itself."""
    appended = {(row["op"], row["key"], row["value"]): row for row in rows if row["kind"] == "txn-append"}
    claims = []
    for row in rows:
        if is_ok(row, "txn-read") and row["list_index"] is not None:
            own = appended.get((row["op"], row["key"], row["value"]))
            if own is not None and own["sub"] < row["sub"]:
                claims.append(
                    Claim(f"the element {row['value']} of {row['key']} in transaction {row['op']}", other=row)
                )
    return claims


def _find_failed_appends(rows: Rows, bound: int) -> list[Claim]:
    """Lists appends that failed, each with a read of their list that is given the element."""
    longest: dict[str, Row] = {}
    for read in _list_reads(rows):
        if read[0]["key"] not in longest or len(read) > longest[read[0]["key"]]["list_index"] + 1:
            longest[read[0]["key"]] = read[-1]
    return [
        Claim(f"the append of {row['value']} to {row['key']}, which failed", row["key"] in longest, value=row["value"],
              row=longest.get(row["key"]))
        for row in rows
        if row["kind"] == "txn-append" and row["outcome"] == "fail"
    ]  # fmt: skip


def _read_failed(rows: Rows, claim: Claim) -> Rows:
    if claim.row is None or claim.value is None:
        return rows
    return _extend_read(rows, claim.row, claim.value)


def _find_later_reads(rows: Rows, bound: int) -> list[Claim]:
    """Lists acknowledged appends, each with the first read after the last fault that shows it."""
    shown: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if is_ok(row, "txn-read") and row["list_index"] is not None:
            shown[row["key"], row["value"]].append(row)
    claims = []
    for row in rows:
        if row["kind"] == "txn-append" and row["outcome"] == "ok":
            since = max(returned(row), bound)
            later = [one for one in shown[row["key"], row["value"]] if one["call"] > since]
            other = min(later, key=lambda one: one["call"], default=None)
            claims.append(
                Claim(f"the append of {row['value']} to {row['key']}", other is not None, since, row=row, other=other)
            )
    return claims


_declare: Final = partial(Plant, kinds=_TXN, gather=gather_transactions, select=_select_keys, apart=True)


TRANSACTION_PLANTS: Final = (
    _declare(
        anomaly="garbage-read",
        meaning="a read shows an element that no one appended",
        find_claims=_find_list_reads,
        edit=_read_garbage,
    ),
    _declare(
        anomaly="duplicate-elements",
        meaning="a read shows an element twice",
        find_claims=_find_list_reads,
        edit=_read_twice,
    ),
    _declare(
        anomaly="incompatible-order",
        meaning="a read shows two elements in another order than other reads",
        find_claims=_find_comparable_reads,
        edit=_reverse_last,
        missed="no other transaction shows both",
    ),
    _declare(
        anomaly="internal", meaning="a transaction does not see its own append", find_claims=_find_own_reads, edit=_tear
    ),
    _declare(
        anomaly="G1a",
        meaning="a read shows an element of a transaction that failed",
        find_claims=_find_failed_appends,
        edit=_read_failed,
        missed="no one read its list",
    ),
    _declare(
        anomaly="G1b",
        meaning="a read shows one of two elements that another transaction appends to a list",
        find_claims=_find_pairs,
        edit=_tear,
        missed="no other transaction shows both",
    ),
    _declare(
        anomaly="G-single",
        meaning="a transaction sees one of two appends of another one, and not the other",
        find_claims=_find_torn,
        edit=_tear,
        missed="no transaction reads both lists and shows both",
    ),
    _declare(
        anomaly="G-single-real-time",
        meaning="the first read of a list after the last fault lacks an acknowledged append",
        find_claims=_find_later_reads,
        edit=_tear,
        missed="no later transaction shows it",
        requires=lambda contract: contract.transaction_order == "real-time",
    ),
)
