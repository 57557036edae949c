"""Is a small history linearizable? By every order there is, from the meaning of each object.

Independent of the models under test: states are JSON values, and an operation of unknown result may leave several.
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


def elements(state: Any, op: Op) -> Any:
    there = state or []
    if op["f"] == "add":
        return sorted({*there, op["argument"]})
    if op["f"] == "remove":
        return sorted({*there} - {op["argument"]})
    if op["f"] == "contains":
        return state if op["outcome"] == "info" or op["result"] == (op["argument"] in there) else REFUSED
    return state if op["outcome"] == "info" or sorted(op["result"]) == there else REFUSED


MEANING: dict[str, Apply] = {
    "register": register,
    "cas-register": register,
    "kv": key_value,
    "mutex": mutex,
    "fifo-queue": fifo_queue,
    "set": elements,
}


def linearizable(ops: Sequence[Op], apply: Apply) -> bool:
    """Tries every order in which no operation comes after one that was called when it had returned."""
    return _rest([op for op in ops if op["outcome"] != "fail"], None, apply)


def legal(order: Sequence[Op], apply: Apply) -> bool:
    """Whether this one order respects time and meaning."""
    state = None
    for at, op in enumerate(order):
        if any(later["outcome"] == "ok" and later["ret"] < op["call"] for later in order[at + 1 :]):
            return False
        state = apply(state, op)
        if state is REFUSED:
            return False
    return True


def _rest(waiting: list[Op], state: Any, apply: Apply) -> bool:
    certain = [op for op in waiting if op["outcome"] == "ok"]
    if not certain:
        return True
    horizon = min(op["ret"] for op in certain)
    for at, op in enumerate(waiting):
        if op["call"] <= horizon:
            after = apply(state, op)
            if after is not REFUSED and _rest(waiting[:at] + waiting[at + 1 :], after, apply):
                return True
    return False
