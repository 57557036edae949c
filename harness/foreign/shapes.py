"""Valid operations of each model and workload, with the values that they take and return.

Anything else is an error, because a history judged by the wrong model would pass or fail for no reason.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.harness.foreign.edn import Keyword, Map, Set

Fits = Callable[[Any], bool]


def _is_anything(value: Any) -> bool:
    return True


def _is_pair(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_nil(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_collection(value: Any) -> bool:
    return isinstance(value, tuple | Set)


def _is_number(value: Any) -> bool:
    return type(value) is int


def _is_something(value: Any) -> bool:
    return value is not None


def _is_balances(value: Any) -> bool:
    held = [one for _, one in value.pairs] if isinstance(value, Map) else value
    return isinstance(held, list | tuple) and all(one is None or _is_number(one) for one in held)


def _is_counter_reading(value: Any) -> bool:
    shown = [one for _, one in value.pairs] if isinstance(value, Map) else [value]
    return all(one is None or _is_number(one) for one in shown)


def _is_micro_operations(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(micro, tuple) and len(micro) == 3 and isinstance(micro[0], Keyword) for micro in value
    )


_A_LIST: Final = "a vector of micro-operations such as [:r 1 nil] and [:w 1 2]"


def _is_transfer(value: Any) -> bool:
    if not isinstance(value, Map):
        return False
    said = {key.name: one for key, one in value.pairs if isinstance(key, Keyword)}
    return {"from", "to", "amount"} <= said.keys() and _is_number(said["amount"])


@dataclass(frozen=True)
class OperationShape:
    """The values of an operation: ``takes`` is for the call, ``gives`` for an ok completion, each with a description.

    ``repeats``: an ok completion may repeat the call's value. If the two differ, it is unknown which of them took
    effect.
    """

    takes: Fits = _is_anything
    gives: Fits = _is_anything
    taken: str = "anything"
    given: str = "anything"
    repeats: bool = False


_GET: Final = OperationShape(gives=_is_text_or_nil, given="a string or nil; for numbers there is --model=register")
_PUT: Final = OperationShape(takes=_is_text, taken="a string; for numbers there is --model=register")
_REGISTER: Final = {"read": OperationShape(), "write": OperationShape(repeats=True)}

MODELS: Final[Mapping[str, Mapping[str, OperationShape]]] = {
    "register": _REGISTER,
    "cas-register": {
        **_REGISTER,
        "cas": OperationShape(takes=_is_pair, taken="the two values [from to]", repeats=True),
    },
    "kv": {"get": _GET, "read": _GET, "put": _PUT, "write": _PUT, "append": _PUT},
    "mutex": {"acquire": OperationShape(), "release": OperationShape()},
    "fifo-queue": {"enqueue": OperationShape(), "dequeue": OperationShape()},
    "set": {"add": OperationShape(), "read": OperationShape(gives=_is_collection, given="a vector, list or set")},
}

ANY: Final = OperationShape()
"""For the operations of any other model: the model itself validates the values."""

_SEES: Final = OperationShape(
    gives=_is_counter_reading, given="a map of counter to whole number, or the number of the one counter"
)
_BANK: Final = {
    "read": OperationShape(gives=_is_balances, given="a map of account to balance, or a vector of balances"),
    "transfer": OperationShape(takes=_is_transfer, taken="a map with :from, :to and an :amount", repeats=True),
}

_MONOTONIC: Final = {
    "read": _SEES, "inc": _SEES, "add": _SEES,
}  # fmt: skip

_MICROS: Final = OperationShape(takes=_is_micro_operations, gives=_is_micro_operations, taken=_A_LIST, given=_A_LIST)
_TRANSACTIONS: Final = {"txn": _MICROS, "read": _MICROS, "write": _MICROS}

WORKLOADS: Final[Mapping[str, Mapping[str, OperationShape]]] = {
    "bank": _BANK,
    "list-append": _TRANSACTIONS,
    "long-fork": _TRANSACTIONS,
    "monotonic": _MONOTONIC,
    "rw-register": _TRANSACTIONS,
    "unique-ids": {"generate": OperationShape(gives=_is_something, given="the new id")},
}
"""Workloads that are judged by the checks in SQL."""
