"""Is a small history linearizable? By every order there is, from the meaning of each object.

Independent of the models under test: states are JSON values, and an operation may leave one of several (``Choices``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Op = dict[str, Any]
Apply = Callable[[Any, Op], Any]

REFUSED = object()


def register(state: Any, op: Op) -> Any:
    if op["f"] == "write":
        return op["argument"]
    if op["f"] == "cas":
        expected, value = op["argument"]
        if op["outcome"] == "ok" and op["result"] is False:
            return REFUSED if state == expected else state
        return value if state == expected else REFUSED
    return state if op["outcome"] == "info" or op["result"] == state else REFUSED


def key_value(state: Any, op: Op) -> Any:
    if op["f"] in ("put", "write"):
        return op["argument"]
    if op["f"] == "append":
        return (state or "") + op["argument"]
    return state if op["outcome"] == "info" or (op["result"] or "") == (state or "") else REFUSED


def mutex(state: Any, op: Op) -> Any:
    if op["f"] == "acquire":
        return REFUSED if state else True
    return None if state else REFUSED


def fifo_queue(state: Any, op: Op) -> Any:
    queue = state or []
    if op["f"] == "enqueue":
        return [*queue, op["argument"]]
    if op["outcome"] == "info":
        return queue[1:]
    if op["result"] is None:
        return REFUSED if queue else queue
    return queue[1:] if queue and queue[0] == op["result"] else REFUSED


def unordered_queue(state: Any, op: Op) -> Any:
    inside = state or []
    if op["f"] == "enqueue":
        return sorted([*inside, op["argument"]])
    if op["outcome"] == "info":
        return Choices([_without(inside, each) for each in inside] or [inside])
    if op["result"] is None:
        return REFUSED if inside else inside
    return _without(inside, op["result"]) if op["result"] in inside else REFUSED


def _without(values: list[Any], value: Any) -> list[Any]:
    left = [*values]
    left.remove(value)
    return left


def elements(state: Any, op: Op) -> Any:
    there = state or []
    if op["f"] == "add":
        return sorted({*there, op["argument"]})
    if op["f"] == "remove":
        return sorted({*there} - {op["argument"]})
    if op["f"] == "contains":
        return state if op["outcome"] == "info" or op["result"] == (op["argument"] in there) else REFUSED
    return state if op["outcome"] == "info" or sorted(op["result"]) == there else REFUSED


class Choices(list[Any]):
    """All states that an operation may leave."""


PERMITS = 2
"""Permits of the semaphores, and acquires of a reentrant mutex."""
LEAST = -5
"""Less than any fence. A fence may be any whole number, so an unknown one may be far below those that follow."""
LASTS = 4
"""Nanoseconds that a lease lasts."""
LATEST = 60
"""A moment after all calls and returns of a small history."""


def owned(most: int, *, fenced: bool) -> Apply:
    """A lock of an owner, with its fence and the latest fence."""

    def apply(state: Any, op: Op) -> Any:
        owner, count, fence, last = state or [None, 0, 0, LEAST]
        if op["f"] == "release":
            if owner != op["process"]:
                return REFUSED
            return [owner, count - 1, fence, last] if count > 1 else [None, 0, 0, last]
        if owner not in (None, op["process"]) or count == most:
            return REFUSED
        if not fenced:
            return [op["process"], count + 1, 0, LEAST]
        given = [fence] if count else range(last + 1, last + 8 - LEAST)
        states = [[op["process"], count + 1, one, max(one, last)] for one in given if op["result"] in (None, one)]
        return Choices(states) if states else REFUSED

    return apply


def semaphore(state: Any, op: Op) -> Any:
    held = (state or 0) + (1 if op["f"] == "acquire" else -1)
    return held if 0 <= held <= PERMITS else REFUSED


def owner_semaphore(state: Any, op: Op) -> Any:
    held = list(state or [])
    if op["f"] == "acquire":
        return sorted([*held, op["process"]]) if len(held) < PERMITS else REFUSED
    if op["process"] not in held:
        return REFUSED
    held.remove(op["process"])
    return held


def lease(state: Any, op: Op) -> Any:
    """The state has the owner, the moment since which it owns the lock, and the moment of the latest operation."""
    owner, since, latest = state or [None, 0, -LATEST]
    if op["f"] != "acquire" and owner != op["process"]:
        return REFUSED
    earliest = since + LASTS if op["f"] == "acquire" and owner is not None else -LATEST
    end = LATEST if op["ret"] is None else op["ret"]
    moments = range(max(earliest, latest, op["call"]), end + 1)
    after = None if op["f"] == "release" else op["process"]
    return Choices([after, one, one] for one in moments) if moments else REFUSED


MEANING: dict[str, Apply] = {
    "owner-mutex": owned(1, fenced=False),
    "reentrant-mutex": owned(PERMITS, fenced=False),
    "fenced-mutex": owned(1, fenced=True),
    "fenced-reentrant-mutex": owned(PERMITS, fenced=True),
    "lease-mutex": lease,
    "semaphore": semaphore,
    "owner-semaphore": owner_semaphore,
    "register": register,
    "cas-register": register,
    "kv": key_value,
    "mutex": mutex,
    "fifo-queue": fifo_queue,
    "unordered-queue": unordered_queue,
    "set": elements,
}


def next_states(state: Any, op: Op, apply: Apply) -> list[Any]:
    """Returns all states that the operation may leave; none if the object cannot answer so."""
    after = apply(state, op)
    return [] if after is REFUSED else after if isinstance(after, Choices) else [after]


def linearizable(ops: Sequence[Op], apply: Apply, initial: Any = None) -> bool:
    """Tries every order in which no operation comes after one that was called when it had returned."""
    return _rest([op for op in ops if op["outcome"] != "fail"], initial, apply, set())


def legal(order: Sequence[Op], apply: Apply, initial: Any = None) -> bool:
    """Whether this one order respects time and meaning."""
    states = [initial]
    for at, op in enumerate(order):
        if any(later["outcome"] == "ok" and later["ret"] < op["call"] for later in order[at + 1 :]):
            return False
        states = [after for state in states for after in next_states(state, op, apply)]
        if not states:
            return False
    return True


def _rest(waiting: list[Op], state: Any, apply: Apply, refuted: set[tuple[tuple[int, ...], str]]) -> bool:
    certain = [op for op in waiting if op["outcome"] == "ok"]
    if not certain:
        return True
    here = (tuple(map(id, waiting)), repr(state))
    if here in refuted:
        return False
    horizon = min(op["ret"] for op in certain)
    for at, op in enumerate(waiting):
        if op["call"] <= horizon:
            rest = waiting[:at] + waiting[at + 1 :]
            if any(_rest(rest, after, apply, refuted) for after in next_states(state, op, apply)):
                return True
    refuted.add(here)
    return False
