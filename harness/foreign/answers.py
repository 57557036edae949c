"""Answers that contradict their calls, and the differences between a call and its answer that are no contradiction.

A completion repeats its call, with the results filled in. If it has another value, another micro-operation or fewer of
them, the system answered another request, or the client mixed up two answers. It is then unknown what took effect. So
the operation counts as one of unknown outcome with the writes of its call, and the answer is a finding.

Each function of the type ``Allows`` says whether an answer fits a call. ``harness.foreign.shapes`` lists these
functions by operation, and ``MICROS`` by micro-operation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.harness.foreign.edn import Keyword, Map, to_json

ANOMALY: Final = "contradictory-answer"
MEANING: Final = "an operation was answered with other values or micro-operations than it was called with"
CLAIMS: Final = "operations that ended ok"
EXPOSED: Final = "if the form of the operation says what its answer must repeat"

Allows = Callable[[Any, Any], bool]
"""Function of (called, answered)."""


@dataclass(frozen=True)
class ContradictoryAnswer:
    """An operation whose answer contradicts its call, both as EDN.

    ``call`` and ``ret`` are nanoseconds of the call and of the answer.
    """

    index: int
    process: int
    f: str
    key: str | None
    called: str
    answered: str
    call: int
    ret: int


def allow_any(called: Any, answered: Any) -> bool:
    """Allows every answer, because it is a result, and does not repeat the call."""
    return True


def allow_echo(called: Any, answered: Any) -> bool:
    """Allows an echo of the call: its value, nil, or a value of another type, such as ``:ok`` or a driver's answer.

    A value of the same type as the call's is allowed only if it means success (``:ok``, true). So is any value if the
    call's is nil.
    """
    if answered is None or _is_same(called, answered) or _is_success(answered):
        return True
    return called is not None and type(called) is not type(answered)


def allow_swap_result(called: Any, answered: Any) -> bool:
    """Allows what ``allow_echo`` allows, and true and false: the result of a compare-and-set."""
    return isinstance(answered, bool) or allow_echo(called, answered)


def allow_micros(called: Any, answered: Any) -> bool:
    """Allows the micro-operations of the call, one for one, each with a result by ``MICROS``."""
    return len(called) == len(answered) and all(map(_allow_micro, called, answered))


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is type(other) is int:
        return bool(one == other)
    return one is other or to_json(one) == to_json(other)


def _is_success(value: Any) -> bool:
    name = value.name if isinstance(value, Keyword) else value
    return value is True or (isinstance(name, str) and name.lower() in ("ok", "success", "true"))


def _allow_micro(called: Any, answered: Any) -> bool:
    verb = find_verb(called)
    return verb == find_verb(answered) and MICROS.get(verb, _allow_equal)(called[1:], answered[1:])


def find_verb(micro: Any) -> str:
    """Returns the name of a micro-operation."""
    verb = micro[0]
    return verb.name if isinstance(verb, Keyword) else str(verb)


def _allow_equal(called: Any, answered: Any) -> bool:
    """Allows only the key and the value of the call."""
    return _is_same(called, answered)


def _allow_read(called: Any, answered: Any) -> bool:
    """Allows a result in place of nil, for the key of the call."""
    return len(called) == len(answered) == 2 and _is_same(called[0], answered[0])


def _allow_send(called: Any, answered: Any) -> bool:
    """Allows ``[k v]``, or ``[k [offset v]]`` with the offset that the log gave the value."""
    if len(called) != 2 or len(answered) != 2 or not _is_same(called[0], answered[0]):
        return False
    value, given = called[1], answered[1]
    with_offset = isinstance(given, tuple) and len(given) == 2 and (given[0] is None or type(given[0]) is int)
    return _is_same(value, given) or (with_offset and _is_same(value, given[1]))


def _allow_poll(called: Any, answered: Any) -> bool:
    """Allows a map of key to messages, which the call does not have."""
    return len(answered) <= 1 and all(one is None or isinstance(one, Map) for one in answered)


MICROS: Final[Mapping[str, Allows]] = {
    "append": _allow_equal,
    "w": _allow_equal,
    "r": _allow_read,
    "send": _allow_send,
    "poll": _allow_poll,
}
"""By micro-operation of a transaction, the answers that its call allows. The answer to any other micro-operation must
repeat the key and the value of its call."""
