"""What the operations of each model look like: which there are, and what values they take and give.

A history judged as something else than what it is would pass or fail for no reason, so what does not fit is an error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.harness.foreign.edn import Set

Fits = Callable[[Any], bool]


def _anything(value: Any) -> bool:
    return True


def _pair(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _text_or_nil(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _collection(value: Any) -> bool:
    return isinstance(value, tuple | Set)


@dataclass(frozen=True)
class Shape:
    """``takes``: of the call's value; ``gives``: of the value of an ok completion; each with what it should be.

    ``repeats``: such a value of an ok completion is the call's once more. If it is another, it is unknown which of the
    two took effect.
    """

    takes: Fits = _anything
    gives: Fits = _anything
    taken: str = "anything"
    given: str = "anything"
    repeats: bool = False


_GET: Final = Shape(gives=_text_or_nil, given="a string or nil; for numbers there is --model=register")
_PUT: Final = Shape(takes=_text, taken="a string; for numbers there is --model=register")
_REGISTER: Final = {"read": Shape(), "write": Shape(repeats=True)}

MODELS: Final[Mapping[str, Mapping[str, Shape]]] = {
    "register": _REGISTER,
    "cas-register": {**_REGISTER, "cas": Shape(takes=_pair, taken="the two values [from to]", repeats=True)},
    "kv": {"get": _GET, "read": _GET, "put": _PUT, "write": _PUT, "append": _PUT},
    "mutex": {"acquire": Shape(), "release": Shape()},
    "fifo-queue": {"enqueue": Shape(), "dequeue": Shape()},
    "set": {"add": Shape(), "read": Shape(gives=_collection, given="a vector, list or set")},
}

ANY: Final = Shape()
"""Of each operation of a model that is not among these: what it takes, the model itself says."""
