"""Plants for models: an answer that no order of one key's operations explains.

The rows of these plants are operations, with their JSON. Each edit is illegal in every order of the other operations,
so the search must find it:

- ``register``, ``cas-register``: a read returns a value that had been replaced: all its writes had ended before another
  write began, and this other write had ended before the read.
- ``kv``: a read finds nothing, although a value was written before and was never cleared.
- ``set``: a read lacks an element that had been added before, and that was never removed.
- ``fifo-queue``, ``unordered-queue``: a value that was enqueued once is dequeued twice.
- ``mutex``, ``owner-mutex``, ``fenced-mutex``: an acquire gets a lock that is held all the time.

Other locks and semaphores have no plant: a lock may be reentrant or expire, and a semaphore has several holders.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from assay.checkers.linearizability.key_result import NONLINEARIZABLE
from assay.harness.sensitivity.plant import Claim, Plant, Row, Rows, get_return_time, get_row_id, is_ok, rank_known

_WRITES: Final = ("write", "put", "append", "cas")
_READS: Final = ("read", "get")
_NOTHING: Final = "null"


def to_operation_row(operation: Row) -> Row:
    """Returns a row of ``ops`` with the columns of effects that plants need: ``op``, ``sub`` and ``kind``."""
    return {**operation, "op": operation["index"], "sub": 0, "kind": operation["f"]}


def _encode(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def _decode(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _make_claim(row: Row, **answer: str | None) -> Claim:
    """Returns a claim about an operation. It is exposed if there is a wrong answer; ``other`` is the row with it."""
    wrong = all(value is not None for value in answer.values())
    return Claim(f"the answer of operation {row['op']}", wrong, row=row, other={**row, **answer} if wrong else None)


def _get_written(write: Row, *, strings: bool) -> str:
    value = _decode(write["argument"])
    value = value[1] if write["kind"] == "cas" else value
    return _NOTHING if strings and value == "" else _encode(value)


def _find_reads(rows: Rows, bound: int, *, strings: bool) -> list[Claim]:
    """Lists reads, each with a wrong answer: the value before the last write that had ended, or no value.

    ``strings``: the wrong answer is always no value, because appends build up the values.
    """
    get_written = partial(_get_written, strings=strings)
    writes = [
        row
        for row in rows
        if row["kind"] in _WRITES and row["outcome"] != "fail" and _decode(row["result"]) is not False
    ]
    if strings:  # appending an empty string does not write a value
        writes = [row for row in writes if row["kind"] != "append" or get_written(row) != _NOTHING]
    known, latest = rank_known(writes, _WRITES, "call")
    ended: dict[str, int] = {}
    """By value, when its last write ended."""
    for row in writes:
        ended[get_written(row)] = max(get_return_time(row), ended.get(get_written(row), -1))
    claims = []
    for row in (row for row in rows if is_ok(row, *_READS)):
        before = bisect_left(known, row["call"], key=get_return_time)
        replaced: list[str] = []
        if before:
            last = latest[before - 1]["call"]
            former = known[: bisect_left(known, last, key=get_return_time)][-1:]
            values = [*([] if strings else map(get_written, former)), _NOTHING]
            replaced = [value for value in values if ended.get(value, -1) < last]
        claims.append(_make_claim(row, result=replaced[0] if replaced else None))
    return claims


def _find_set_reads(rows: Rows, bound: int) -> list[Claim]:
    """Lists reads, each with a wrong answer: without an element that had been added before its call."""
    removed = {row["argument"] for row in rows if row["kind"] == "remove" and row["outcome"] != "fail"}
    added = sorted((row for row in rows if is_ok(row, "add") and row["argument"] not in removed), key=get_return_time)
    claims = []
    for row in (row for row in rows if is_ok(row, "read")):
        element = _decode(added[0]["argument"]) if added and get_return_time(added[0]) < row["call"] else None
        without = _encode([one for one in _decode(row["result"]) if one != element])
        claims.append(_make_claim(row, result=None if element is None else without))
    return claims


def _find_dequeues(rows: Rows, bound: int) -> list[Claim]:
    """Lists dequeues, each with a wrong answer: the value of another dequeue."""
    entered = Counter(row["argument"] for row in rows if row["kind"] == "enqueue" and row["outcome"] != "fail")
    takes = [row for row in rows if is_ok(row, "dequeue")]
    enqueued_once = [row for row in takes if entered[row["result"]] == 1]
    return [
        _make_claim(row, result=other)
        for row in takes
        for other in [next((one["result"] for one in enqueued_once[:2] if one is not row), None)]
    ]


def _find_failed_acquires(rows: Rows, bound: int) -> list[Claim]:
    """Lists acquires that failed, each with a wrong answer: it got the lock."""
    known, latest = rank_known(rows, ("acquire",), "call")
    releases = [row for row in rows if row["kind"] == "release" and row["outcome"] != "fail"]
    claims = []
    for row in rows:
        if row["kind"] == "acquire" and row["outcome"] == "fail" and row["ret"] is not None:
            before = bisect_left(known, row["call"], key=get_return_time)
            held = before > 0 and not any(
                one["call"] <= row["ret"] and get_return_time(one) >= latest[before - 1]["call"] for one in releases
            )
            claims.append(_make_claim(row, outcome="ok" if held else None))
    return claims


def _answer(rows: Rows, claim: Claim) -> Rows:
    """Replaces the answer of the operation by the wrong one."""
    if claim.row is None or claim.other is None:
        return rows
    replaced = get_row_id(claim.row)
    return [claim.other if get_row_id(row) == replaced else row for row in rows]


def _declare(
    meaning: str, missed: str, kinds: tuple[str, ...], find_claims: Callable[[Rows, int], list[Claim]]
) -> Plant:
    return Plant(
        anomaly=NONLINEARIZABLE, meaning=meaning, kinds=frozenset(kinds), find_claims=find_claims, edit=_answer,
        missed=missed, of_model=True,
    )  # fmt: skip


_REGISTER: Final = _declare(
    "a read returns a value that had been replaced",
    "no write had ended before it, or its value may have been written back",
    _READS,
    partial(_find_reads, strings=False),
)
_MUTEX: Final = _declare(
    "an acquire gets a lock that is held", "the lock may have been free", ("acquire",), _find_failed_acquires
)
_QUEUE: Final = _declare(
    "a value is dequeued twice", "no other value was dequeued that was enqueued once", ("dequeue",), _find_dequeues
)
MODEL_PLANTS: Final[Mapping[str, Plant]] = {
    "register": _REGISTER,
    "cas-register": _REGISTER,
    "kv": _declare(
        "a read finds nothing, though something had been written",
        "nothing had been written before it, or what was there may have been cleared",
        _READS,
        partial(_find_reads, strings=True),
    ),
    "mutex": _MUTEX,
    "owner-mutex": _MUTEX,
    "fenced-mutex": _MUTEX,
    "fifo-queue": _QUEUE,
    "unordered-queue": _QUEUE,
    "set": _declare(
        "a read lacks an element that was added", "nothing had been added before", ("read",), _find_set_reads
    ),
}
"""By the name of the built-in model."""
