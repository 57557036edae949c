"""Plants for transactions over lists and registers: wrong reads, and cycles of dependencies.

A history of transactions, restricted to a few keys, is still a history of these keys. So a copy has only the keys that
the violation needs.

If the level judges the reads of failed and unknown transactions (``all_reads``), these reads are edited, too. In
such a read, nil is not judged, because the transaction may have ended before it. So no edit may empty such a read.

The cycles are those of Adya. A first transaction comes *before* a second one if the second read a write of the first.
With ``-process`` the first also comes before the second if one process made both in this order. With ``-real-time``
the first also comes before the second if it returned before the second was called. An edit contradicts this order:

- ``G0``: a list shows the elements of both in reverse order.
- ``G1c``: the first reads a write of the second.
- ``G-single``: the second no longer reads a write of the first. Without a suffix, the order itself comes from a read of
  another write of the first. So the second sees one write of the first and misses another: a fractured read.
- ``G-single`` for causal: also, a third transaction that reads from the second no longer reads a write of the first.
- ``G2-item``: the second missed a write of a third transaction, and now the third misses a write of the first. So
  the first is before the second, the second before the third, and the third before the first.
- ``G-nonadjacent``: like ``G2-item``, but the second did not read a write of a fourth, which the third read.

For ``G2-item`` without a suffix, the first and the second are one transaction. A register does not show the order of
its versions, but the initial value comes before all others. So a read of a register that loses a write finds nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from typing import Final

from assay.checkers.isolation.levels import Rule, find_level
from assay.checkers.judging.contract import Contract
from assay.harness.sensitivity.plant import (
    Claim,
    ObjectRows,
    Plant,
    Row,
    Rows,
    compute_once,
    find_fresh_value,
    get_return_time,
    get_row_id,
    replace_in,
)

_WRITES: Final = ("txn-append", "txn-write")
_TXN: Final = frozenset({*_WRITES, "txn-read"})
ALL_TRANSACTIONS: Final = "transactions"
NEAR: Final = 8
"""Maximum number of later transactions that each transaction is compared with."""


def gather_transactions(effects: Mapping[str, Rows]) -> dict[str, Rows]:
    """Returns the rows of all transactions as one object."""
    rows = [row for some in effects.values() for row in some if row["kind"].startswith("txn-")]
    return {ALL_TRANSACTIONS: ObjectRows(sorted(rows, key=get_row_id))} if rows else {}


@dataclass
class _Transaction:
    """An acknowledged transaction, or the reads of one that was not acknowledged. Then ``ret`` is ``NEVER``.

    ``writes``: rows by key. ``reads``: the rows of its first read of each key.
    """

    op: int
    process: int
    call: int
    ret: int
    writes: dict[str, list[Row]] = field(default_factory=dict)
    reads: dict[str, list[Row]] = field(default_factory=dict)


class _TransactionIndex:
    """The acknowledged transactions by number, and what they and others read."""

    def __init__(self, rows: Rows) -> None:
        self.lists = {row["key"] for row in rows if row["kind"] == "txn-append"}
        self.transactions: dict[int, _Transaction] = {}
        self.shown: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
        """The rows of reads that show a value of a key."""
        self.writers: dict[tuple[str, int], int] = {}
        """The transaction that wrote each value of a key."""
        self.order: dict[str, dict[int, int]] = {key: {} for key in sorted(self.lists)}
        """The position of each element of each list, as its longest read shows them."""
        reads: defaultdict[tuple[int, int, str], list[Row]] = defaultdict(list)
        for row in rows:
            if row["outcome"] != "ok" and row["kind"] != "txn-read":
                continue
            key, value = row["key"], row["value"]
            new = _Transaction(row["op"], row["process"], row["call"], get_return_time(row))
            txn = self.transactions.setdefault(row["op"], new)
            if row["kind"] != "txn-read":
                txn.writes.setdefault(key, []).append(row)
                self.writers[key, value] = row["op"]
            else:
                read = reads[row["op"], row["sub"] - (row["list_index"] or 0), key]
                read.append(row)
                txn.reads.setdefault(key, read)
                if value is not None:
                    self.shown[key, value].append(row)
        self.reads = list(reads.values())
        """All reads: the rows of each, in order."""
        for read in self.reads:
            key = read[0]["key"]
            if read[0]["list_index"] is not None and len(read) > len(self.order[key]):
                self.order[key] = {row["value"]: row["list_index"] for row in read}

    def is_missed(self, read: Rows, written: Rows) -> bool:
        """Returns whether the read certainly shows its key as it was before these writes."""
        index = self.order.get(read[0]["key"], {}).get(written[0]["value"], -1)
        return read[0]["value"] is None or index >= len(read)

    def list_later_values(self, read: Rows, written: Rows) -> Sequence[int]:
        """Returns the values that the read lacks, up to the last of these writes; empty if their order is not known."""
        key, value = written[-1]["key"], written[-1]["value"]
        if key not in self.lists:
            return (value,) if read[0]["value"] != value else ()
        shown = len(read) if read[0]["value"] is not None else 0
        return list(self.order[key])[shown : self.order[key].get(value, -1) + 1]

    def list_readers(self, txn: _Transaction) -> Iterator[tuple[_Transaction, Row]]:
        """Yields transactions that read a write of this transaction, each with the row that shows the value.

        For a list this is the first appended element, and for a register the last written value.
        """
        for key, written in txn.writes.items():
            for row in islice(self.shown[key, written[0 if key in self.lists else -1]["value"]], NEAR):
                if row["op"] != txn.op:
                    yield self.transactions[row["op"]], row

    def list_pairs(self, suffix: str) -> Iterator[tuple[_Transaction, _Transaction, Row | None]]:
        """Yields pairs of transactions in the order of the suffix, with the read that proves it, unless times do."""
        made: defaultdict[int, list[_Transaction]] = defaultdict(list)
        for txn in sorted(self.transactions.values(), key=lambda txn: txn.call):
            made[txn.process if suffix == PROCESS else 0].append(txn)
        for some in made.values():
            for place, first in enumerate(some):
                if not suffix:
                    yield from ((first, second, row) for second, row in self.list_readers(first))
                else:
                    later = (txn for txn in islice(some, place + 1, None) if txn.call > first.ret)
                    yield from ((first, second, None) for second in islice(later, NEAR))


PROCESS: Final = "-process"
REAL_TIME: Final = "-real-time"
_Edits = Iterator[tuple[Row, Row | None, Sequence[int]]]
"""The row to edit, another row whose key the cycle needs, and values."""


def _find_cycles(
    rows: Rows, last_fault_end: int, *, find: Callable[[_TransactionIndex, str], _Edits], suffix: str
) -> list[Claim]:
    """Lists the transactions, each with an edit that makes it a part of a cycle."""
    index = compute_once(rows, _TransactionIndex)
    edits = {row["op"]: (row, other, values) for row, other, values in find(index, suffix) if _can_lose(row)}
    claims = []
    for op in index.transactions:
        row, other, values = edits.get(op, (None, None, ()))
        claims.append(Claim(f"transaction {op}", row is not None, row=row, other=other, more_values=tuple(values)))
    return claims


def _can_lose(row: Row) -> bool:
    """Returns whether a read may lose the value of this row, and all after it."""
    return row["outcome"] == "ok" or bool(row["list_index"])


def _reverse_writes(index: _TransactionIndex, suffix: str) -> _Edits:
    """Finds edits that exchange the elements of two transactions in a list."""
    for first, second, other in _list_writers(index) if not suffix else index.list_pairs(suffix):
        for key in first.writes.keys() & second.writes.keys() & index.lists:
            elements = [row["value"] for row in (*first.writes[key], *second.writes[key])]
            indexes = [index.order[key][value] for value in elements if value in index.order[key]]
            in_order = len(elements) == len(indexes) == 2 and indexes[0] < indexes[1]
            if in_order and (other is None or key != other["key"]):
                yield first.writes[key][0], other, elements


def _list_writers(index: _TransactionIndex) -> Iterator[tuple[_Transaction, _Transaction, Row]]:
    """Yields pairs of transactions with adjacent elements in a list, and the first transaction's row."""
    for key, order in index.order.items():
        for one, other in pairwise(order):
            first, second = (index.transactions.get(index.writers.get((key, value), -1)) for value in (one, other))
            if first is not None and second is not None and first is not second:
                yield first, second, first.writes[key][0]


def _read_later(index: _TransactionIndex, suffix: str) -> _Edits:
    """Finds edits that make the first transaction read a write of the second."""
    for first, second, other in index.list_pairs(suffix):
        for key in (first.reads.keys() & second.writes.keys()) - first.writes.keys():
            values = index.list_later_values(first.reads[key], second.writes[key])
            if values:
                yield first.reads[key][-1], other, values


def _lose_write(index: _TransactionIndex, suffix: str) -> _Edits:
    """Finds edits by which the second transaction no longer reads a write of the first."""
    for first, second, other in index.list_pairs(suffix):
        for key in first.writes.keys() & second.reads.keys():
            value = first.writes[key][0 if key in index.lists else -1]["value"]
            row = next((row for row in second.reads[key] if row["value"] == value), None)
            if row is not None and (other is None or key != other["key"]):
                yield row, other, ()


def _lose_later_write(index: _TransactionIndex, suffix: str) -> _Edits:
    """Finds the edits of ``_lose_write`` by which the second transaction reads a write of the first, and later misses
    another.
    """
    for row, other, values in _lose_write(index, suffix):
        if other is not None and row["sub"] > other["sub"]:
            yield row, other, values


def _lose_cause(index: _TransactionIndex, suffix: str) -> _Edits:
    """Finds the edits of ``_lose_write``, and those by which a transaction that read from the second no longer reads a
    write of the first.
    """
    yield from _lose_write(index, suffix)
    for first, second, proof in index.list_pairs(suffix):
        for third, read in index.list_readers(second):
            for key in (first.writes.keys() & third.reads.keys()) - {read["key"]}:
                value = first.writes[key][0 if key in index.lists else -1]["value"]
                row = next((row for row in third.reads[key] if row["value"] == value), None)
                proven = proof is None or proof["key"] in (key, read["key"])
                if row is not None and proven and third is not first:
                    yield row, read, ()


def _miss_each_other(index: _TransactionIndex, suffix: str) -> _Edits:
    """Finds edits by which a third transaction no longer reads a write of the first, if the second missed a write of
    the third.
    """
    pairs = ((txn, txn) for txn in index.transactions.values())
    for first, second in pairs if not suffix else (pair[:2] for pair in index.list_pairs(suffix)):
        for third, row in index.list_readers(first):
            for key in (second.reads.keys() & third.writes.keys()) - {row["key"]}:
                if third is not second and index.is_missed(second.reads[key], third.writes[key]):
                    yield row, second.reads[key][-1], ()


def _read_in_two_orders(index: _TransactionIndex, suffix: str) -> _Edits:
    """Finds edits by which a third transaction no longer reads a write of the first, if the third read a write of a
    fourth that the second missed.
    """
    for first, second, proof in index.list_pairs(suffix):
        for third, row in index.list_readers(first):
            for key in (second.reads.keys() & third.reads.keys()) - {row["key"]}:
                value = third.reads[key][-1]["value"]
                fourth = index.transactions.get(index.writers.get((key, value), -1))
                missed = fourth is not None and index.is_missed(second.reads[key], fourth.writes[key])
                proven = proof is None or proof["key"] == row["key"]
                if missed and proven and len({id(one) for one in (first, second, third, fourth)}) == 4:
                    yield row, second.reads[key][-1], ()


def _exchange(rows: Rows, claim: Claim) -> Rows:
    """Makes all reads show two elements in reverse order."""
    if claim.row is None:
        return rows
    one, other = claim.more_values
    values = {one: other, other: one}
    return [
        {**row, "value": values.get(row["value"], row["value"])}
        if row["kind"] == "txn-read" and row["key"] == claim.row["key"]
        else row
        for row in rows
    ]


def _select_keys(rows: Rows, claim: Claim) -> Rows:
    keys = {row["key"] for row in (claim.row, claim.other) if row is not None}
    return [row for row in rows if row["key"] in keys]


def _describe_read(read: Rows) -> str:
    return f"the read of {read[0]['key']} by operation {read[0]['op']}"


def _list_full_reads(rows: Rows, *, listed: bool) -> list[list[Row]]:
    """Lists the reads that show a value. ``listed``: only reads of lists."""
    return [
        read
        for read in compute_once(rows, _TransactionIndex).reads
        if read[0]["value"] is not None and (not listed or read[0]["list_index"] is not None)
    ]


def _find_shown(rows: Rows, last_fault_end: int, *, listed: bool = False) -> list[Claim]:
    """Lists the reads that show a value, each with its last row. ``listed``: only reads of lists."""
    return [Claim(_describe_read(read), row=read[-1]) for read in _list_full_reads(rows, listed=listed)]


def _show(rows: Rows, last: Row, values: Sequence[int]) -> Rows:
    """Makes a read show these further elements of its list, or the last of these values of its register."""
    if not any(row["kind"] == "txn-append" and row["key"] == last["key"] for row in rows):
        return replace_in(rows, last, value=values[-1])
    empty, end = last["value"] is None, get_row_id(last)
    length = 0 if empty else last["list_index"] + 1
    kept = [
        {**row, "sub": row["sub"] + len(values) - empty}
        if row["op"] == last["op"] and row["sub"] > last["sub"]
        else row
        for row in rows
        if not (empty and get_row_id(row) == end)
    ]
    more = [
        {**last, "sub": last["sub"] + more + (not empty), "list_index": length + more, "value": value}
        for more, value in enumerate(values)
    ]
    return sorted([*kept, *more], key=get_row_id)


def _show_more(rows: Rows, claim: Claim) -> Rows:
    """Makes the read show the claim's values, too."""
    return rows if claim.row is None or not claim.more_values else _show(rows, claim.row, claim.more_values)


def _read_garbage(rows: Rows, claim: Claim) -> Rows:
    assert claim.row is not None
    return _show(rows, claim.row, (find_fresh_value(rows),))


def _read_twice(rows: Rows, claim: Claim) -> Rows:
    assert claim.row is not None
    return _show(rows, claim.row, (claim.row["value"],))


def _find_comparable_reads(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists reads of two elements or more. They are exposed if another operation shows the elements, too."""
    reads = _list_full_reads(rows, listed=True)
    lengths: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for read in reads:
        lengths[read[0]["key"]].append((len(read), read[0]["op"]))
    return [
        Claim(_describe_read(read), exposed, row=read[-1], other=read[-2])
        for read in reads
        if len(read) > 1
        for exposed in [any(size >= len(read) - 1 and op != read[0]["op"] for size, op in lengths[read[0]["key"]])]
    ]


def _reverse_last(rows: Rows, claim: Claim) -> Rows:
    """Exchanges the last two elements that a read shows."""
    if claim.row is None or claim.other is None or not claim.exposed:
        return rows
    values = {get_row_id(claim.row): claim.other["value"], get_row_id(claim.other): claim.row["value"]}
    return [{**row, "value": values.get(get_row_id(row), row["value"])} for row in rows]


def _tear(rows: Rows, claim: Claim) -> Rows:
    """Removes an element and all later ones from a read of a list. A register shows the claim's value instead."""
    shown = claim.row
    if shown is None:
        return rows
    if shown["list_index"] is None:
        return replace_in(rows, shown, value=claim.value)
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


def _find_double_writes(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists transactions that write to a key twice, each with a read of the second value by another transaction."""
    index = compute_once(rows, _TransactionIndex)
    return [
        Claim(f"transaction {txn.op}, which writes to {key} twice", row is not None, value=written[0]["value"], row=row)
        for txn in index.transactions.values()
        for key, written in txn.writes.items()
        if len(written) > 1
        for value in [written[1 if key in index.lists else -1]["value"]]
        for row in [next((row for row in index.shown[key, value] if row["op"] != txn.op), None)]
    ]


def _find_own_reads(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists values that a transaction writes and then reads itself."""
    index = compute_once(rows, _TransactionIndex)
    return [
        Claim(f"the value {row['value']} of {key} in transaction {txn.op}", row=row)
        for txn in index.transactions.values()
        for key, written in txn.writes.items()
        for one in written
        for row in index.shown[key, one["value"]]
        if row["op"] == txn.op and row["sub"] > one["sub"]
    ]


def _find_failed_writes(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists writes that failed, each with the longest read of their key, which will show the value."""
    longest: dict[str, list[Row]] = {}
    for read in _list_full_reads(rows, listed=False):
        longest[read[0]["key"]] = max(longest.get(read[0]["key"], read), read, key=len)
    return [
        Claim(f"the write of {row['value']} to {row['key']}, which failed", bool(read), row=read[-1] if read else None,
              more_values=(row["value"],))
        for row in rows
        if row["kind"] in _WRITES and row["outcome"] == "fail"
        for read in [longest.get(row["key"], [])]
    ]  # fmt: skip


def _find_later_reads(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists acknowledged writes, each with the first read of the value after the write and after the last fault."""
    index = compute_once(rows, _TransactionIndex)
    claims = []
    for txn in index.transactions.values():
        for row in (row for written in txn.writes.values() for row in written):
            since = max(txn.ret, last_fault_end)
            shown = index.shown[row["key"], row["value"]]
            later = [one for one in shown if one["call"] > since and _can_lose(one)]
            first = min(later, key=lambda one: one["call"], default=None)
            claims.append(Claim(f"the write of {row['value']} to {row['key']}", first is not None, since, row=first))
    return claims


_declare: Final = partial(Plant, kinds=_TXN, gather=gather_transactions, select=_select_keys, separate_times=True)

_STRONG: Final = frozenset({Rule.SNAPSHOT_ISOLATION, Rule.REPEATABLE_READ, Rule.SERIALIZABLE})
_ALL_RULES: Final = frozenset(Rule)


@dataclass(frozen=True)
class _Cycle:
    """Edits that put a transaction on a cycle of the class ``name``.

    - ``rules``: the levels that every such edit violates, although they may allow other cycles of the class.
    - ``suffixes``: see the module's docstring
    - ``by_default``: whether a contract without a level forbids the class, too
    """

    name: str
    meaning: str
    find: Callable[[_TransactionIndex, str], _Edits]
    edit: Callable[[Rows, Claim], Rows]
    rules: frozenset[Rule]
    suffixes: tuple[str, ...] = ("", PROCESS, REAL_TIME)
    by_default: bool = True


def _forbids(contract: Contract, *, cycle: str, suffix: str, rules: frozenset[Rule], by_default: bool = True) -> bool:
    """Returns whether the contract forbids each copy with such a cycle. See :class:`_Cycle`."""
    if contract.transaction_level is None:
        return by_default and suffix in ("", f"-{contract.transaction_order}")
    level = find_level(contract.transaction_level)
    return level.rule in rules and f"{cycle}{suffix}" in level.anomalies


_MISSED: Final = "a transaction misses a write of a transaction before it"
_CYCLES: Final = (
    _Cycle(
        "G0", "two lists show the appends of two transactions in different orders", _reverse_writes, _exchange,
        _ALL_RULES,
    ),
    _Cycle(
        "G1c", "a transaction reads a write of a transaction after it", _read_later, _show_more,
        _ALL_RULES - {Rule.READ_UNCOMMITTED},
    ),
    _Cycle("G-single", _MISSED, _lose_write, _tear, _STRONG, ("", PROCESS)),
    _Cycle(
        "G-single", "a transaction reads a write of another one, and misses a write of the same transaction",
        _lose_write, _tear, frozenset({Rule.READ_ATOMIC}), ("",), by_default=False,
    ),
    _Cycle(
        "G-single", "a transaction reads a write of another one, and then misses a write of the same transaction",
        _lose_later_write, _tear, frozenset({Rule.AXIOMATIC_READ_COMMITTED}), ("",), by_default=False,
    ),
    _Cycle(
        "G-single", "a transaction misses a write that is before it in its session", _lose_write, _tear,
        frozenset({Rule.READ_ATOMIC}), (PROCESS,), by_default=False,
    ),
    _Cycle(
        "G-single", "a transaction misses a write, although it or its session has read what depends on the write",
        _lose_cause, _tear, frozenset({Rule.CAUSAL}), ("", PROCESS), by_default=False,
    ),
    _Cycle(
        "G-nonadjacent", "two transactions read the writes of two others in different orders", _read_in_two_orders,
        _tear, _STRONG,
    ),
    _Cycle(
        "G2-item", "two transactions each do not read what the other wrote", _miss_each_other, _tear,
        _STRONG - {Rule.SNAPSHOT_ISOLATION},
    ),
)  # fmt: skip
_SUFFIX_WORDS: Final = {"": "", PROCESS: ", in the order of each process", REAL_TIME: ", in the order of real time"}
"""The words added to the meaning."""


TRANSACTION_PLANTS: Final = (
    _declare(
        anomaly="garbage-read", meaning="a read shows a value that no one wrote", find_claims=_find_shown,
        edit=_read_garbage,
    ),
    _declare(
        anomaly="duplicate-elements", meaning="a read shows an element twice",
        find_claims=partial(_find_shown, listed=True), edit=_read_twice, kinds=frozenset({"txn-append"}),
    ),
    _declare(
        anomaly="incompatible-order", meaning="a read shows two elements in another order than other reads",
        find_claims=_find_comparable_reads, edit=_reverse_last, missed="no other transaction shows both",
        kinds=frozenset({"txn-append"}),
    ),
    _declare(
        anomaly="internal", meaning="a transaction does not see its own write", find_claims=_find_own_reads, edit=_tear
    ),
    _declare(
        anomaly="G1a", meaning="a read shows a write of a transaction that failed", find_claims=_find_failed_writes,
        edit=_show_more, missed="no one read its key",
    ),
    _declare(
        anomaly="G1b", meaning="a read shows the first of two writes that another transaction makes to a key",
        find_claims=_find_double_writes, edit=_tear, missed="no other transaction shows the second",
    ),
    *(
        _declare(
            anomaly=f"{cycle.name}{suffix}", meaning=f"{cycle.meaning}{_SUFFIX_WORDS[suffix]}",
            find_claims=partial(_find_cycles, find=cycle.find, suffix=suffix), edit=cycle.edit,
            missed="no edit of one read puts it on a cycle",
            requires=partial(
                _forbids, cycle=cycle.name, suffix=suffix, rules=cycle.rules, by_default=cycle.by_default
            ),
        )
        for cycle in _CYCLES
        for suffix in cycle.suffixes
    ),
    _declare(
        anomaly="G-single-real-time",
        meaning="the first read of a key after the last fault lacks an acknowledged write",
        find_claims=_find_later_reads, edit=_tear, missed="no later transaction shows it",
        requires=partial(
            _forbids, cycle="G-single", suffix=REAL_TIME, rules=_STRONG | {Rule.READ_ATOMIC, Rule.CAUSAL}
        ),
    ),
)  # fmt: skip
