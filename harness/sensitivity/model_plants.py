"""Plants for models: an answer that no order of one key's operations explains.

The rows of these plants are operations, with arguments and results in JSON. Each edit is illegal in every order of the
other operations, so the search must find it:

- ``register``, ``cas-register``: a read returns a value that had been replaced: all its writes had ended before another
  write began, and this other write had ended before the read.
- ``kv``: a read finds nothing, although a value was written before and was never cleared.
- ``set``: a read lacks an element that had been added before, and that was never removed.
- ``fifo-queue``, ``unordered-queue``: a value that was enqueued once is dequeued twice.
- ``mutex``, ``owner-mutex``, ``fenced-mutex``: an acquire gets a lock that is held all the time.
- Reentrant locks: a process that certainly does not own the lock gets or releases it. With fences, also: the fence of a
  new owner is not higher than that of a former owner.
- ``lease-mutex``: a process gets the lock before the lease of its owner can have ended, or renews or releases it.
- Semaphores: an acquire gets more permits than there can be, or a release returns permits that cannot be held.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from assay.checkers.linearizability.key_result import NONLINEARIZABLE
from assay.checkers.linearizability.locks import (
    FencedReentrantMutex,
    LeaseMutex,
    OwnerSemaphore,
    ReentrantMutex,
    Semaphore,
)
from assay.checkers.linearizability.model import Model
from assay.checkers.linearizability.models import is_builtin
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


def _find_reads(rows: Rows, last_fault_end: int, *, strings: bool) -> list[Claim]:
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


def _find_set_reads(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists reads, each with a wrong answer: without an element that had been added before its call."""
    removed = {row["argument"] for row in rows if row["kind"] == "remove" and row["outcome"] != "fail"}
    added = sorted((row for row in rows if is_ok(row, "add") and row["argument"] not in removed), key=get_return_time)
    claims = []
    for row in (row for row in rows if is_ok(row, "read")):
        element = _decode(added[0]["argument"]) if added and get_return_time(added[0]) < row["call"] else None
        without = _encode([one for one in _decode(row["result"]) if one != element])
        claims.append(_make_claim(row, result=None if element is None else without))
    return claims


def _find_dequeues(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists dequeues, each with a wrong answer: the value of another dequeue."""
    entered = Counter(row["argument"] for row in rows if row["kind"] == "enqueue" and row["outcome"] != "fail")
    takes = [row for row in rows if is_ok(row, "dequeue")]
    enqueued_once = [row for row in takes if entered[row["result"]] == 1]
    return [
        _make_claim(row, result=other)
        for row in takes
        for other in [next((one["result"] for one in enqueued_once[:2] if one is not row), None)]
    ]


def _find_failed_acquires(rows: Rows, last_fault_end: int) -> list[Claim]:
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


def _is_effective(row: Row) -> bool:
    """Returns whether the operation certainly took effect. An ok with the result false was refused."""
    return row["outcome"] == "ok" and _decode(row["result"]) is not False


def _may_be_effective(row: Row) -> bool:
    return row["outcome"] == "info" or _is_effective(row)


def _list_refused(rows: Rows, *verbs: str) -> list[Row]:
    """Lists operations that failed, with a known end."""
    return [row for row in rows if row["kind"] in verbs and row["outcome"] == "fail" and row["ret"] is not None]


def _name_clients(rows: Rows) -> bool:
    """Returns whether values name the owners of a lock. Then its owner is not the process."""
    return any('"client"' in (text or "") for row in rows for text in (row["argument"], row["result"]))


def _find_holder(rows: Rows, refused: Row, kinds: tuple[str, ...], lasts: int | None = None) -> Row | None:
    """Returns an operation whose process certainly owns the lock during a refused operation of another process.

    ``kinds``: operations that make or keep their process the owner. ``lasts``: the duration of a lease, if any.
    """
    latest: dict[int, Row] = {}
    for row in rows:
        if row["kind"] in kinds and _is_effective(row) and get_return_time(row) < refused["call"]:
            former = latest.setdefault(row["process"], row)
            latest[row["process"]] = max(former, row, key=lambda one: int(one["call"]))
    for process, row in latest.items():
        released = any(
            one["kind"] == "release" and one["process"] == process and _may_be_effective(one)
            and one["call"] <= refused["ret"] and get_return_time(one) >= row["call"]
            for one in rows
        )  # fmt: skip
        if not released and (lasts is None or refused["ret"] < row["call"] + lasts):
            return row
    return None


def _find_second_owners(rows: Rows, last_fault_end: int, *, lasts: int | None = None) -> list[Claim]:
    """Lists refused operations of a lock, each with a wrong answer: it succeeded, although another process owns it."""
    kinds = ("acquire",) if lasts is None else ("acquire", "renew")
    if _name_clients(rows):
        return []
    claims = []
    for row in _list_refused(rows, "release", *kinds):
        holder = _find_holder(rows, row, kinds, lasts)
        is_other = holder is not None and holder["process"] != row["process"]
        claims.append(_make_claim(row, outcome="ok" if is_other else None))
    return claims


def _find_fences(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists refused operations, and acquires with a fence, each with a wrong answer: the fence of a former owner."""
    claims = _find_second_owners(rows, last_fault_end)
    fenced = [row for row in rows if is_ok(row, "acquire") and type(_decode(row["result"])) is int]
    for row in [] if _name_clients(rows) else fenced:
        former = [one for one in fenced if one["process"] != row["process"] and get_return_time(one) < row["call"]]
        claims.append(_make_claim(row, result=former[0]["result"] if former else None))
    return claims


def _count_permits(rows: Rows) -> int | None:
    """Returns the number of permits of these operations; None if a number is unknown."""
    counts = [_decode(row["argument"]) for row in rows]
    if any(count is not None and type(count) is not int for count in counts):
        return None
    return sum(1 if count is None else count for count in counts)


def _find_permits(rows: Rows, last_fault_end: int, *, permits: int, owned: bool) -> list[Claim]:
    """Lists refused operations of a semaphore, each with a wrong answer: it succeeded.

    An acquire is wrong if too many permits are certainly held, and a release if too few can be held. ``owned``: a
    process can release only its own permits.
    """
    if _count_permits(rows) is None or _name_clients(rows):
        return []
    claims = []
    for row in _list_refused(rows, "acquire", "release"):
        same, opposite = ("acquire", "release") if row["kind"] == "acquire" else ("release", "acquire")
        certain = [
            one for one in rows
            if one["kind"] == same and _is_effective(one) and get_return_time(one) < row["call"]
        ]  # fmt: skip
        possible = [
            one for one in rows if one["kind"] == opposite and _may_be_effective(one) and one["call"] <= row["ret"]
        ]
        if owned and row["kind"] == "release":
            certain = [one for one in certain if one["process"] == row["process"]]
            possible = [one for one in possible if one["process"] == row["process"]]
        asked, moved = _count_permits([row]) or 0, (_count_permits(certain) or 0) - (_count_permits(possible) or 0)
        wrong = moved + asked > (permits if row["kind"] == "acquire" else 0)
        claims.append(_make_claim(row, outcome="ok" if wrong else None))
    return claims


def _give_wrong_answer(rows: Rows, claim: Claim) -> Rows:
    """Replaces the answer of the operation by the wrong one."""
    if claim.row is None or claim.other is None:
        return rows
    replaced = get_row_id(claim.row)
    return [claim.other if get_row_id(row) == replaced else row for row in rows]


def _declare(
    meaning: str, missed: str, kinds: tuple[str, ...], find_claims: Callable[[Rows, int], list[Claim]]
) -> Plant:
    return Plant(
        anomaly=NONLINEARIZABLE, meaning=meaning, kinds=frozenset(kinds), find_claims=find_claims,
        edit=_give_wrong_answer, missed=missed, of_model=True,
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
"""By the name of a built-in model without arguments."""
_NOT_OWNED: Final = "the process may own the lock, or no other one certainly owned it"


def find_model_plant(model: Model) -> Plant | None:
    """Returns the plant for a built-in model with its arguments, or None for any other model."""
    if not is_builtin(model):
        return None
    if isinstance(model, FencedReentrantMutex):
        meaning = "a process acts on a lock that another one owns, or gets an old fence"
        return _declare(meaning, f"{_NOT_OWNED}, or there was no fence before", ("acquire", "release"), _find_fences)
    if isinstance(model, ReentrantMutex):
        meaning = "a process gets or releases a lock that another one owns"
        return _declare(meaning, _NOT_OWNED, ("acquire", "release"), _find_second_owners)
    if isinstance(model, LeaseMutex):
        meaning = "a process gets, renews or releases a lock during the lease of another one"
        find_claims = partial(_find_second_owners, lasts=model.lasts)
        return _declare(
            meaning, f"{_NOT_OWNED}, or its lease may have ended", ("acquire", "renew", "release"), find_claims
        )
    if isinstance(model, Semaphore | OwnerSemaphore):
        return _declare(
            "an operation gets more permits than are free, or returns more than are held",
            "the permits may have been free or held",
            ("acquire", "release"),
            partial(_find_permits, permits=model.permits, owned=isinstance(model, OwnerSemaphore)),
        )
    return MODEL_PLANTS.get(model.name)
