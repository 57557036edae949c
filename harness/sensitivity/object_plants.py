"""Plants for sets, queues, counters, max registers, unique ids, values that only grow, and banks.

A plant writes a violation into a copy of a history. :mod:`assay.harness.sensitivity.plant` explains claims, edits,
``exposed`` and the fields of a plant. docs/reference/history.md explains the rows: kinds and columns of ``effects``.
``last_fault_end`` is the end of the last fault that may destroy data (``exposure_bound``).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Final

from assay.harness.sensitivity.plant import (
    NEVER,
    Claim,
    Plant,
    Row,
    Rows,
    append_to,
    compute_once,
    find_fresh_value,
    get_return_time,
    get_row_id,
    is_ok,
    rank_known,
    replace_in,
    select_two,
)

_NO_LATE_READ: Final = "no read was called after it and after the heal of the last fault"


def _find_lasting_elements(rows: Rows, last_fault_end: int, *, known_by: str, once: bool) -> list[Claim]:
    """Lists elements that were acknowledged (``set-add``) or shown (``set-read``), and that no one removed.

    ``once``: only elements that were added once. Then only reads after the last heal can expose them.
    """
    known: dict[int, int] = {}
    added: Counter[int] = Counter()
    removed: set[int] = set()
    last_read = -1
    for row in rows:
        value = row["value"]
        if is_ok(row, "set-read"):
            last_read = max(last_read, row["call"])
        if value is None:
            continue
        if row["kind"] == "set-remove" and row["outcome"] != "fail":
            removed.add(value)
        if row["kind"] == "set-add" and row["outcome"] != "fail":
            added[value] += 1
        if is_ok(row, known_by):
            known[value] = min(known.get(value, get_return_time(row)), get_return_time(row))
    return [
        Claim(f"element {value}", last_read > since, since, value)
        for value, moment in sorted(known.items())
        if value not in removed and (not once or added[value] == 1)
        for since in [max(moment, last_fault_end if once else moment)]
    ]


def _hide_element(rows: Rows, claim: Claim, *, from_all: bool) -> Rows:
    """Removes the element from all reads called after the claim's ``since``, or only from the first of them.

    A read that shows no elements has one row without a value.
    """
    late = [row for row in rows if is_ok(row, "set-read") and row["call"] > claim.since]
    ops = {row["op"] for row in late}
    if not from_all:
        ops = {min(late, key=lambda row: row["call"])["op"]} if late else set()
    size = Counter(row["op"] for row in rows if row["op"] in ops)
    edited: list[Row] = []
    for row in rows:
        if row["op"] not in ops or row["value"] != claim.value:
            edited.append(row)
        elif size[row["op"]] == 1:
            edited.append({**row, "value": None})
    return edited


def _group_by_value(rows: Rows) -> dict[int | None, list[Row]]:
    groups: defaultdict[int | None, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["value"]].append(row)
    return groups


def _make_empty_reads(rows: Rows) -> dict[int, Row]:
    """Returns, for each operation that reads a set, the row of a read that shows no elements."""
    first: dict[int, Row] = {}
    for row in rows:
        if row["kind"] == "set-read" and row["op"] not in first:
            first[row["op"]] = {**row, "value": None}
    return first


def _select_element(rows: Rows, claim: Claim) -> Rows:
    """Keeps the rows of the element. Reads that lack it are kept as reads that show no elements."""
    kept = compute_once(rows, _group_by_value).get(claim.value, [])
    shown = {row["op"] for row in kept if row["kind"] == "set-read"}
    lacking = (row for op, row in compute_once(rows, _make_empty_reads).items() if op not in shown)
    return sorted([*kept, *lacking], key=get_row_id)


def find_reads(rows: Rows, last_fault_end: int, *, kinds: Collection[str]) -> list[Claim]:
    """Lists the operations with rows of these kinds that ended ok, each with its first row."""
    first: dict[int, Row] = {}
    for row in rows:
        if is_ok(row, *kinds):
            first.setdefault(row["op"], row)
    return [Claim(f"the answer of operation {op}", row=row) for op, row in first.items()]


def _show_fresh_value(rows: Rows, claim: Claim) -> Rows:
    """Makes an operation return one more value, which no one wrote."""
    assert claim.row is not None
    shown = [row for row in rows if row["op"] == claim.row["op"]]
    change = replace_in if shown[0]["value"] is None else append_to
    return change(rows, shown[0], value=find_fresh_value(rows))


def _select_read(rows: Rows, claim: Claim) -> Rows:
    """Keeps the read without its elements, because the adds of these elements are not kept."""
    assert claim.row is not None
    return [{**claim.row, "value": None}]


def _find_nested_reads(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists the reads that show elements. A read is exposed if a smaller read shows a part of its elements.

    ``value`` is an element that both reads show, and ``more_values`` has an element that only the larger read shows.
    ``row`` and ``other`` are the rows of ``value`` in the smaller and the larger read.
    """
    removed = {row["value"] for row in rows if row["kind"] == "set-remove" and row["outcome"] != "fail"}
    shown: defaultdict[int, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        if is_ok(row, "set-read") and row["value"] is not None and row["value"] not in removed:
            shown[row["op"]][row["value"]] = row
    claims = []
    smaller: dict[int, Row] = {}
    for op, larger in sorted(shown.items(), key=lambda item: (len(item[1]), item[0])):
        shared = next((value for value in smaller if value in larger), None)
        more = next((value for value in larger if value not in smaller), None)
        words = f"the read by operation {op}"
        if shared is None or more is None:
            claims.append(Claim(words, exposed=False))
        else:
            claims.append(Claim(words, value=shared, row=smaller[shared], other=larger[shared], more_values=(more,)))
        smaller = larger
    return claims


def _remove_shared_element(rows: Rows, claim: Claim) -> Rows:
    """Removes the shared element from the larger read."""
    if claim.other is None:
        return rows
    removed = get_row_id(claim.other)
    return [row for row in rows if get_row_id(row) != removed]


def _select_fork(rows: Rows, claim: Claim) -> Rows:
    """Keeps the rows of the two elements, but only those of the two reads."""
    if claim.row is None or claim.other is None:
        return rows
    reads, elements = {claim.row["op"], claim.other["op"]}, compute_once(rows, _group_by_value)
    kept = (row for value in {claim.value, *claim.more_values} for row in elements.get(value, ()))
    return sorted((row for row in kept if row["kind"] != "set-read" or row["op"] in reads), key=get_row_id)


_declare_for_set: Final = partial(Plant, kinds=frozenset({"set-add", "set-remove", "set-read"}), select=_select_element)
SET_PLANTS: Final = (
    _declare_for_set(
        anomaly="set-lost",
        meaning="an acknowledged element disappears at the last fault, or at once if it was added later",
        find_claims=partial(_find_lasting_elements, known_by="set-add", once=True),
        edit=partial(_hide_element, from_all=True),
        missed=_NO_LATE_READ,
    ),
    _declare_for_set(
        anomaly="set-vanished",
        meaning="an element that a read showed is missing from all later reads",
        find_claims=partial(_find_lasting_elements, known_by="set-read", once=False),
        edit=partial(_hide_element, from_all=True),
        missed="no later read was called",
    ),
    _declare_for_set(
        anomaly="set-stale",
        meaning="the first read after an acknowledgement lacks the element",
        find_claims=partial(_find_lasting_elements, known_by="set-add", once=False),
        edit=partial(_hide_element, from_all=False),
        missed="no later read was called",
    ),
    _declare_for_set(
        anomaly="set-phantom",
        meaning="a read shows an element that no one added",
        find_claims=partial(find_reads, kinds=("set-read",)),
        edit=_show_fresh_value,
        select=_select_read,
    ),
    _declare_for_set(
        anomaly="set-fork",
        meaning="of two reads, each shows an element that the other lacks",
        find_claims=_find_nested_reads,
        edit=_remove_shared_element,
        select=_select_fork,
        missed="no other read shows a part of its elements",
        requires=lambda contract: contract.linearizable_sets,
    ),
)

_declare_for_queue: Final = partial(Plant, kinds=frozenset({"queue-enqueue", "queue-dequeue", "queue-drained"}))


def _is_take(row: Row) -> bool:
    return is_ok(row, "queue-dequeue") and row["value"] is not None


def _find_queued_elements(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists elements that were enqueued once and acknowledged.

    A check excuses the loss of n elements if there are n dequeues of unknown outcome. So n + 1 elements are lost
    together.
    """
    adds: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "queue-enqueue" and row["outcome"] != "fail" and row["value"] is not None:
            adds[row["value"]].append(row)
    excuses = sum(row["kind"] == "queue-dequeue" and row["outcome"] == "info" for row in rows)
    drains = [row for row in rows if row["kind"] == "queue-drained"]
    drained = max((row["call"] for row in drains if row["outcome"] == "ok"), default=-1)
    doubtful = any(row["outcome"] == "info" for row in drains)
    taken = {row["value"] for row in rows if _is_take(row)}
    once = {
        value: get_return_time(one[0]) for value, one in adds.items() if len(one) == 1 and one[0]["outcome"] == "ok"
    }
    due = sorted(value for value, ret in once.items() if not doubtful and drained > ret and value in taken)
    known_due = set(due)  # a complete drain would miss them
    claims = []
    for value, ret in sorted(once.items()):
        others = tuple(one for one in due[: excuses + 1] if one != value)[:excuses]
        exposed = value in known_due and len(others) == excuses
        claims.append(Claim(f"element {value}", exposed, ret, value, more_values=others))
    return claims


def _lose_elements(rows: Rows, claim: Claim) -> Rows:
    """Removes the lost elements from the answers of their dequeues.

    A dequeue without remaining elements finds the queue empty.
    """
    if not claim.exposed:
        return rows
    lost = {claim.value, *claim.more_values}
    remaining = Counter(row["op"] for row in rows if not (_is_take(row) and row["value"] in lost))
    edited: list[Row] = []
    for row in rows:
        if not (_is_take(row) and row["value"] in lost):
            edited.append(row)
        elif not remaining[row["op"]]:
            remaining[row["op"]] += 1
            edited.append({**row, "value": None})
    return edited


def _list_excuses(rows: Rows) -> list[Row]:
    """Lists drains, and dequeues of unknown outcome, because they may concern any element."""
    return [
        row
        for row in rows
        if row["kind"] == "queue-drained" or (row["kind"] == "queue-dequeue" and row["outcome"] == "info")
    ]


def _select_elements(rows: Rows, claim: Claim) -> Rows:
    """Keeps the rows of the elements, all drains, and all dequeues of unknown outcome."""
    elements = compute_once(rows, _group_by_value)
    kept = {get_row_id(row): row for row in compute_once(rows, _list_excuses)}
    kept |= {get_row_id(row): row for value in (claim.value, *claim.more_values) for row in elements.get(value, ())}
    return [kept[place] for place in sorted(kept)]


def _find_takes(rows: Rows, last_fault_end: int) -> list[Claim]:
    return [
        Claim(f"the dequeue of {row['value']} by operation {row['op']}", value=row["value"], row=row)
        for row in rows
        if _is_take(row)
    ]


def _take_again(rows: Rows, claim: Claim) -> Rows:
    """Repeats the dequeue as often as its element was enqueued."""
    assert claim.row is not None
    enqueued = sum(row["kind"] == "queue-enqueue" and row["value"] == claim.value for row in rows)
    for _ in range(enqueued):
        rows = append_to(rows, claim.row)
    return rows


def _find_early_takes(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists dequeues of elements whose enqueue had returned before the dequeue was called.

    ``other`` is the last dequeue of the queue. The edit moves the element there.
    """
    acked = {row["value"]: get_return_time(row) for row in rows if is_ok(row, "queue-enqueue")}
    takes = [row for row in rows if _is_take(row)]
    taken = Counter(row["op"] for row in takes)
    last = max(takes, key=lambda row: int(row["call"]), default=None)
    return [
        Claim(
            f"the dequeue of {row['value']} by operation {row['op']}", exposed, value=row["value"], row=row, other=last
        )
        for row in takes
        if acked.get(row["value"], row["call"]) < row["call"] and taken[row["op"]] == 1
        for exposed in [last is not None and last["call"] > get_return_time(row)]
    ]  # fmt: skip


def _answer_empty(rows: Rows, claim: Claim) -> Rows:
    """Makes a dequeue find the queue empty, and moves its element to the last dequeue."""
    if not claim.exposed or claim.other is None or claim.row is None:
        return rows
    return append_to(replace_in(rows, claim.row, value=None), claim.other, value=claim.value)


QUEUE_PLANTS: Final = (
    _declare_for_queue(
        anomaly="queue-lost",
        meaning="an acknowledged element is never dequeued",
        find_claims=_find_queued_elements,
        edit=_lose_elements,
        select=_select_elements,
        missed="no complete drain was called after it, or dequeues of unknown outcome excuse its loss",
    ),
    _declare_for_queue(
        anomaly="queue-duplicate",
        meaning="an element is dequeued once more than it was enqueued",
        find_claims=_find_takes,
        edit=_take_again,
        select=_select_elements,
    ),
    _declare_for_queue(
        anomaly="queue-phantom",
        meaning="an element is dequeued that no one enqueued",
        find_claims=_find_takes,
        edit=_show_fresh_value,
        select=_select_elements,
    ),
    _declare_for_queue(
        anomaly="queue-false-empty",
        meaning="a dequeue finds the queue empty, though an acknowledged element is inside",
        find_claims=_find_early_takes,
        edit=_answer_empty,
        missed="no dequeue was called after it returned",
        requires=lambda contract: contract.linearizable_queues,
    ),
)

_declare_for_counter: Final = partial(Plant, kinds=frozenset({"counter-add", "counter-read"}))


def _is_known(row: Row) -> bool:
    return is_ok(row, "counter-add", "counter-read") and row["value"] is not None


def _find_counted_adds(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists acknowledged adds. An add is exposed if an operation that was called later returned a count."""
    last = max((row["call"] for row in rows if _is_known(row)), default=-1)
    return [
        Claim(f"add {row['op']}, which returned {row['value']}", last > since, since, row["value"], row)
        for row in rows
        if row["kind"] == "counter-add" and _is_known(row)
        for since in [max(get_return_time(row), last_fault_end)]
    ]


def _forget_adds(rows: Rows, claim: Claim) -> Rows:
    """Lowers all counts returned by operations that were called after the claim's ``since``. No count gets negative.

    Adds that were in progress at that time or have an unknown outcome could explain the loss of as many adds. So one
    more add is lost.
    """
    excuses = sum(
        row["kind"] == "counter-add" and row["outcome"] != "fail" and row["call"] <= claim.since < get_return_time(row)
        for row in rows
    ) + sum(row["kind"] == "counter-add" and row["outcome"] == "info" and row["call"] > claim.since for row in rows)
    return [
        {**row, "value": max(0, row["value"] - excuses - 1)} if _is_known(row) and row["call"] > claim.since else row
        for row in rows
    ]


def _find_results(rows: Rows, last_fault_end: int, *, kind: str) -> list[Claim]:
    """Lists the results of operations of this kind, each with the next result."""
    known = [row for row in rows if is_ok(row, kind) and (row["value"] is not None or row["name"] is not None)]
    return [
        Claim(f"the result of operation {row['op']}", following is not None, row=row, other=following)
        for row, following in zip_longest(known, known[1:])
    ]


def _repeat_result(rows: Rows, claim: Claim) -> Rows:
    """Makes the next operation return the same result."""
    if claim.row is None or claim.other is None:
        return rows
    return replace_in(rows, claim.other, value=claim.row["value"], name=claim.row["name"])


def _select_pair(rows: Rows, claim: Claim) -> Rows:
    ops = {row["op"] for row in (claim.row, claim.other) if row is not None}
    return [row for row in rows if row["op"] in ops]


def _raise_count(rows: Rows, claim: Claim) -> Rows:
    """Makes a read return a higher count than all adds together."""
    assert claim.row is not None
    return replace_in(rows, claim.row, value=find_fresh_value(rows) + len(rows))


COUNTER_PLANTS: Final = (
    _declare_for_counter(
        anomaly="counter-order",
        meaning="acknowledged adds are forgotten at the last fault, or at once if they were made later",
        find_claims=_find_counted_adds,
        edit=_forget_adds,
        missed="no read or add was called after it and after the heal of the last fault",
    ),
    _declare_for_counter(
        anomaly="counter-duplicate",
        meaning="two adds return the same count",
        find_claims=partial(_find_results, kind="counter-add"),
        edit=_repeat_result,
        missed="there was no other add",
    ),
    _declare_for_counter(
        anomaly="counter-phantom",
        meaning="a read returns a count above the number of adds",
        find_claims=partial(find_reads, kinds=("counter-read",)),
        edit=_raise_count,
    ),
)

_declare_for_maximum: Final = partial(Plant, kinds=frozenset({"max-write", "max-read"}))


def _find_written_maxima(rows: Rows, last_fault_end: int) -> list[Claim]:
    last = max((row["call"] for row in rows if is_ok(row, "max-read")), default=-1)
    return [
        Claim(f"the write of {row['value']}", last > since, since, row["value"], row)
        for row in rows
        if is_ok(row, "max-write")
        for since in [max(get_return_time(row), last_fault_end)]
    ]


def _forget_maximum(rows: Rows, claim: Claim) -> Rows:
    """Makes reads called after the claim's ``since`` return the next smaller value that was written, or none."""
    assert claim.value is not None
    less = [row["value"] for row in rows if is_ok(row, "max-write") and row["value"] < claim.value]
    value = max(less, default=None)
    return [{**row, "value": value} if is_ok(row, "max-read") and row["call"] > claim.since else row for row in rows]


def read_fresh_value(rows: Rows, claim: Claim) -> Rows:
    """Makes a read return a value that no one wrote."""
    assert claim.row is not None
    return replace_in(rows, claim.row, value=find_fresh_value(rows))


MAX_REGISTER_PLANTS: Final = (
    _declare_for_maximum(
        anomaly="max-order",
        meaning="reads return less than an acknowledged write, from the last fault on, or from the write on",
        find_claims=_find_written_maxima,
        edit=_forget_maximum,
        missed=_NO_LATE_READ,
    ),
    _declare_for_maximum(
        anomaly="max-phantom",
        meaning="a read returns a value that no one wrote",
        find_claims=partial(find_reads, kinds=("max-read",)),
        edit=read_fresh_value,
    ),
)


UNIQUE_ID_PLANTS: Final = (
    Plant(
        anomaly="id-duplicate",
        meaning="an id is given out again",
        kinds=frozenset({"id-generate"}),
        find_claims=partial(_find_results, kind="id-generate"),
        edit=_repeat_result,
        select=_select_pair,
        missed="no other id was given out",
    ),
)


_GROWING: Final = ("monotonic-add", "monotonic-read")
_declare_for_growing: Final = partial(Plant, kinds=frozenset({"monotonic-read"}))


def _find_seen_again(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists reads of a value that only grows, each with the number that the same process saw before."""
    numbers = Counter((row["op"], row["key"]) for row in rows)
    former: dict[int, Row] = {}
    claims = []
    for row in sorted(rows, key=lambda row: int(row["call"])):
        if is_ok(row, *_GROWING) and row["value"] is not None:
            if row["kind"] == "monotonic-read" and numbers[row["op"], row["key"]] == 1:
                before = former.get(row["process"])
                claims.append(
                    Claim(f"the read of {row['value']} by operation {row['op']}", before is not None, row=row,
                          other=before)
                )  # fmt: skip
            former[row["process"]] = row
    return claims


def gather_growing(effects: Mapping[str, Rows]) -> dict[str, Rows]:
    """Returns the rows of all values that only grow as one object."""
    rows = [row for some in effects.values() for row in some if row["kind"] in _GROWING]
    return {"growing values": sorted(rows, key=get_row_id)} if rows else {}


def _find_seen_together(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists reads of several growing values.

    A read is exposed if the previous read shows two of its values, one of them with a lower number. The edit lowers
    the other value.
    """
    reads: defaultdict[int, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if is_ok(row, "monotonic-read") and row["value"] is not None:
            reads[row["op"]][row["key"]] = row
    claims = []
    former: dict[str, Row] = {}
    for op, read in reads.items():
        grown = {key for key in read if key in former and former[key]["value"] < read[key]["value"]}
        pair = next(((read[key], former[key]) for key in read.keys() & former.keys() if grown - {key}), None)
        shown, less = pair or (None, None)
        claims.append(Claim(f"the read by operation {op}", shown is not None, row=shown, other=less))
        former = read
    return claims


def _find_seen_before(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists reads of a value that only grows, each with the highest number that was known before its call."""
    known, highest = rank_known(rows, _GROWING, "value")
    return [
        Claim(f"the read of {row['value']} by operation {row['op']}", before > 0, row=row,
              other=highest[before - 1] if before else None)
        for row in known
        if row["kind"] == "monotonic-read"
        for before in [bisect_left(known, row["call"], key=get_return_time)]
    ]  # fmt: skip


def _read_less(rows: Rows, claim: Claim) -> Rows:
    """Makes the read return less than was seen before."""
    if claim.row is None or claim.other is None:
        return rows
    return replace_in(rows, claim.row, value=claim.other["value"] - 1)


MONOTONIC_PLANTS: Final = (
    _declare_for_growing(
        anomaly="nonmonotonic-read",
        meaning="a process reads less than it saw before",
        find_claims=_find_seen_again,
        edit=_read_less,
        select=select_two,
        missed="its process had not seen the value before",
    ),
    _declare_for_growing(
        anomaly="monotonic-cycle",
        meaning="each of two reads shows a smaller value of one key than the other read does",
        gather=gather_growing,
        find_claims=_find_seen_together,
        edit=_read_less,
        select=_select_pair,
        missed="the read before it did not see less of one of two values",
        separate_times=True,
    ),
    _declare_for_growing(
        anomaly="monotonic-cycle-real-time",
        meaning="a read shows a smaller value than was known before its call",
        find_claims=_find_seen_before,
        edit=_read_less,
        select=select_two,
        missed="nothing was known of the value before",
        separate_times=True,
        requires=lambda contract: contract.transaction_order == "real-time",
    ),
)

_BANK: Final = frozenset({"bank-open", "bank-withdraw", "bank-deposit", "bank-read"})


def _find_bank_reads(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists the reads that were called after all accounts had been opened."""
    ready = max(
        (get_return_time(row) for row in rows if row["kind"] == "bank-open" and row["outcome"] != "fail"), default=-1
    )
    return [
        claim
        for claim in find_reads(rows, last_fault_end, kinds=("bank-read",))
        if claim.row and claim.row["call"] > ready
    ]


def _find_accounted_reads(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists the reads of a bank. They are exposed if the opening balance of their first account is known."""
    known = {row["owner"] for row in rows if row["kind"] == "bank-open" and row["value"] is not None}
    return [
        replace(claim, exposed=claim.row is not None and claim.row["owner"] in known)
        for claim in _find_bank_reads(rows, last_fault_end)
    ]


@dataclass(frozen=True)
class _BankRows:
    """The rows of a bank, sorted so that the transfers of a period and the balances at a time are found quickly."""

    opened: list[Row]
    reads: Mapping[int, list[Row]]
    """By operation."""
    doubtful: list[Row]
    """Transfers of unknown outcome."""
    transfers: list[Row]
    """Transfers with outcome ok, in order of their calls."""
    longest: int
    """Nanoseconds that the slowest of these transfers took."""
    sums: Mapping[str, tuple[list[int], list[int]]]
    """By account: when its transfers returned, and the sums that they had added to the account by then."""


def _sort_bank(rows: Rows) -> _BankRows:
    moved = [row for row in rows if row["kind"] in ("bank-deposit", "bank-withdraw") and row["outcome"] != "fail"]
    reads: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "bank-read":
            reads[row["op"]].append(row)
    sums: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], [0]))
    known = sorted((row for row in moved if get_return_time(row) < NEVER), key=get_return_time)
    for row in known:
        moments, totals = sums[row["owner"]]
        moments.append(get_return_time(row))
        totals.append(totals[-1] + (row["value"] if row["kind"] == "bank-deposit" else -row["value"]))
    return _BankRows(
        opened=[row for row in rows if row["kind"] == "bank-open"],
        reads=reads,
        doubtful=[row for row in moved if get_return_time(row) == NEVER],
        transfers=sorted(known, key=lambda row: int(row["call"])),
        longest=max((get_return_time(row) - row["call"] for row in known), default=0),
        sums=sums,
    )


def _select_balances(rows: Rows, claim: Claim) -> Rows:
    """Keeps the read, and the transfers that it may or may not show. Earlier transfers are added to opening balances.

    If an opening balance is not known, all transfers are kept.
    """
    assert claim.row is not None
    call, ret, bank = claim.row["call"], claim.row["ret"], compute_once(rows, _sort_bank)
    opened, kept = bank.opened, [*bank.reads[claim.row["op"]], *bank.doubtful]
    if bank.sums.keys() <= {row["owner"] for row in opened if row["outcome"] == "ok" and row["value"] is not None}:
        first, end = (bisect_left(bank.transfers, at, key=lambda row: row["call"]) for at in (call - bank.longest, ret))
        kept += (row for row in bank.transfers[first:end] if get_return_time(row) >= call)
        money = {owner: totals[bisect_left(moments, call)] for owner, (moments, totals) in bank.sums.items()}
        opened = [{**row, "value": row["value"] + money[row["owner"]]} if row["owner"] in money else row
                  for row in opened]  # fmt: skip
    else:
        kept += bank.transfers
    return sorted([*opened, *kept], key=get_row_id)


def _move_money(rows: Rows, claim: Claim, *, amounts: Callable[[Rows, list[Row]], Iterable[int]]) -> Rows:
    """Adds the ``amounts`` to the first balances that the read shows."""
    if claim.row is None or not claim.exposed:
        return rows
    shown = [row for row in rows if row["op"] == claim.row["op"] and row["kind"] == "bank-read"]
    for row, amount in zip(shown, amounts(rows, shown), strict=False):
        rows = replace_in(rows, row, value=row["value"] + amount)
    return rows


def _overdraw(rows: Rows, shown: list[Row]) -> tuple[int, int]:
    """Returns amounts that make the first balance negative, and do not change the total."""
    amount = shown[0]["value"] + 1
    return (-amount, amount)


def _exceed_transfers(rows: Rows, shown: list[Row]) -> tuple[int, int]:
    """Returns amounts that move more money than all transfers together, and do not change the total."""
    amount = 1 + sum(abs(row["value"] or 0) for row in rows if row["kind"] == "bank-deposit")
    return (amount, -amount)


BANK_PLANTS: Final = tuple(
    Plant(
        anomaly=anomaly,
        meaning=meaning,
        kinds=_BANK,
        find_claims=find_claims,
        edit=partial(_move_money, amounts=amounts),
        select=_select_balances,
        missed="the opening balance of the account is not known",
    )
    for anomaly, meaning, find_claims, amounts in (
        ("bank-total", "a read shows more money than there is", _find_bank_reads, lambda rows, shown: (1,)),
        ("bank-negative", "a read shows an account below zero", _find_bank_reads, _overdraw),
        (
            "bank-unaccounted",
            "a read shows money in another account than the transfers can explain",
            _find_accounted_reads,
            _exceed_transfers,
        ),
    )
)

OBJECT_PLANTS: Final = (
    *SET_PLANTS,
    *QUEUE_PLANTS,
    *COUNTER_PLANTS,
    *MAX_REGISTER_PLANTS,
    *UNIQUE_ID_PLANTS,
    *MONOTONIC_PLANTS,
    *BANK_PLANTS,
)
