"""Valid operations of each model and workload, with the values that they take and return.

Other operations and values are errors, because the verdict on a history by the wrong model means nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from assay.harness.foreign.answers import Allows, allow_any, allow_echo, allow_micros, allow_swap_result, find_verb
from assay.harness.foreign.edn import Keyword, Map, Set

Fits = Callable[[Any], bool]
READING_VERBS: Final = ("r", "read", "poll")
"""The micro-operations that have a result."""


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


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number_or_nil(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_collection_or_nil(value: Any) -> bool:
    return value is None or _is_collection(value)


def _is_series_reading(value: Any) -> bool:
    """Returns whether a value may be ``[series [last ... first]]``, or the parts alone in a history with keys.

    The check examines the form further, because two parts alone look like a series with its parts.
    """
    return isinstance(value, tuple)


def _is_not_nil(value: Any) -> bool:
    return value is not None


def _are_balances(value: Any) -> bool:
    balances = [one for _, one in value.pairs] if isinstance(value, Map) else value
    return isinstance(balances, list | tuple) and all(one is None or _is_number(one) for one in balances)


def _is_counter_reading(value: Any) -> bool:
    counts = [one for _, one in value.pairs] if isinstance(value, Map) else [value]
    return all(one is None or _is_number(one) for one in counts)


def _are_micro_operations(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(micro, tuple) and len(micro) == 3 and isinstance(micro[0], Keyword | str) for micro in value
    )


def _reads_nothing(value: Any) -> bool:
    """Returns whether a transaction has no micro-operation with a result."""
    return all(find_verb(micro) not in READING_VERBS for micro in value)


def _is_never(value: Any) -> bool:
    return False


def _have_verbs(*verbs: str) -> Fits:
    """Returns a test of a value: whether all its micro-operations have one of these verbs."""
    return lambda value: _are_micro_operations(value) and all(find_verb(micro) in verbs for micro in value)


def _have_verbs_and_no_nil(*verbs: str) -> Fits:
    """Returns a test of a value: whether its micro-operations have these verbs, and none writes nil."""
    fits = _have_verbs(*verbs)
    return lambda value: fits(value) and all(find_verb(micro) == "r" or micro[2] is not None for micro in value)


def _are_sends_and_polls(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_is_send_or_poll, value))


def _is_send_or_poll(micro: Any) -> bool:
    if not isinstance(micro, tuple) or not micro or not isinstance(micro[0], Keyword | str):
        return False
    if find_verb(micro) == "send":
        return len(micro) == 3
    return find_verb(micro) == "poll" and (len(micro) == 1 or _are_polled(micro[1]))


def _are_polled(value: Any) -> bool:
    """Returns whether a value maps keys to pairs of an offset and a message."""
    return value is None or (isinstance(value, Map) and all(map(_are_messages, (pairs for _, pairs in value.pairs))))


def _are_messages(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_pair(pair) and _is_number_or_nil(pair[0]) for pair in value)


def _is_row(value: Any) -> bool:
    if not isinstance(value, Map):
        return False
    fields = {key.name if isinstance(key, Keyword) else key: one for key, one in value.pairs}
    return _is_number(fields.get("val")) and _is_number(fields.get("sts"))


def _are_rows(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_is_row, value))


_MICROS_TEXT: Final = "a vector of micro-operations such as [:r 1 nil] and [:w 1 2]"


def _is_transfer(value: Any) -> bool:
    if not isinstance(value, Map):
        return False
    fields = {key.name if isinstance(key, Keyword) else key: one for key, one in value.pairs}
    return {"from", "to", "amount"} <= fields.keys() and _is_number(fields["amount"])


@dataclass(frozen=True)
class OperationShape:
    """The valid values of an operation: the argument of its call, and the result of an ok completion.

    - ``allows``: says whether the answer of an ok completion fits the call. Any other is a finding (``answers``).
    - ``returns_elements``: only the elements of the result matter, not whether it is a vector, a list or a set.
    - ``ignores_values``: no check reads the values, so they need not be readable.
    - ``nil_means_argument``: says, for the argument of a call, whether the result nil stands for this argument. So it
      is if the call reads nothing.
    - ``keeps_results``: operations that did not end ok may have results, which the check reads.
    - ``may_be_pair``: a vector of two is a value as often as a key with a value, and both readings fit all operations.
    """

    argument_fits: Fits = _is_anything
    result_fits: Fits = _is_anything
    argument_text: str = "anything"
    result_text: str = "anything"
    allows: Allows = allow_any
    returns_elements: bool = False
    ignores_values: bool = False
    nil_means_argument: Fits = _is_never
    keeps_results: bool = False
    may_be_pair: bool = False

    @property
    def ignores_answers(self) -> bool:
        """Whether an ok completion may have an answer of any other type than the argument. Such an answer says no more
        than that the operation succeeded, so it need not be readable."""
        return self.ignores_values or self.allows in (allow_echo, allow_swap_result)


_GET: Final = OperationShape(
    result_fits=_is_text_or_nil, result_text="a string or nil; for numbers there is --model=register"
)
_APPEND: Final = OperationShape(argument_fits=_is_text, argument_text="a string; for numbers there is --model=register")
"""Appends to the string of a key. The ok completion may have the whole string after the append."""
_PUT: Final = replace(_APPEND, allows=allow_echo)
_REGISTER: Final = {"read": OperationShape(), "write": OperationShape(allows=allow_echo)}
_MUTEX: Final = dict.fromkeys(("acquire", "release"), OperationShape(ignores_values=True, may_be_pair=True))
_ENQUEUE_DEQUEUE: Final = {"enqueue": OperationShape(allows=allow_echo), "dequeue": OperationShape()}
_LOCK: Final = dict.fromkeys(("acquire", "release"), OperationShape(may_be_pair=True))
"""Values name the client, the fence or the number of permits, if there are any."""

MODELS: Final[Mapping[str, Mapping[str, OperationShape]]] = {
    "register": _REGISTER,
    "cas-register": {
        **_REGISTER,
        "cas": OperationShape(
            argument_fits=_is_pair, argument_text="the two values [from to]", allows=allow_swap_result
        ),
    },
    "kv": {"get": _GET, "read": _GET, "put": _PUT, "write": _PUT, "append": _APPEND},
    "mutex": _MUTEX,
    "owner-mutex": _LOCK,
    "reentrant-mutex": _LOCK,
    "fenced-mutex": _LOCK,
    "fenced-reentrant-mutex": _LOCK,
    "lease-mutex": {**_LOCK, "renew": OperationShape(may_be_pair=True)},
    "semaphore": _LOCK,
    "owner-semaphore": _LOCK,
    "fifo-queue": _ENQUEUE_DEQUEUE,
    "unordered-queue": _ENQUEUE_DEQUEUE,
    "set": {
        "add": OperationShape(allows=allow_echo),
        "remove": OperationShape(allows=allow_echo),
        "contains": OperationShape(result_fits=_is_boolean, result_text="true or false"),
        "read": OperationShape(result_fits=_is_collection, result_text="a vector, list or set", returns_elements=True),
    },
}

ANY: Final = OperationShape()
"""For the operations of any other model: the model itself validates the values."""

_MONOTONIC: Final = OperationShape(
    result_fits=_is_counter_reading,
    result_text="a map of counter to whole number, or the number of the one counter; for rows of :val and :sts there "
    "is --workload=monotonic-rows",
)
_BANK: Final = {
    "read": OperationShape(
        result_fits=_are_balances, result_text="a map of account to balance, or a vector of balances"
    ),
    "transfer": OperationShape(
        argument_fits=_is_transfer, argument_text="a map with :from, :to and an :amount", allows=allow_echo
    ),
}

_MICROS: Final = OperationShape(
    argument_fits=_are_micro_operations,
    result_fits=_are_micro_operations,
    argument_text=_MICROS_TEXT,
    result_text=_MICROS_TEXT,
    allows=allow_micros,
    nil_means_argument=_reads_nothing,
)
_KAFKA: Final = OperationShape(
    argument_fits=_are_sends_and_polls,
    result_fits=_are_sends_and_polls,
    argument_text="a vector of [:send key value] and [:poll]",
    result_text="a vector of [:send key [offset value]] and [:poll {key [[offset value] ...]}]",
    allows=allow_micros,
    nil_means_argument=_reads_nothing,
    keeps_results=True,
)
_ON_LISTS: Final = replace(
    _MICROS,
    argument_fits=_have_verbs_and_no_nil("append", "r"),
    argument_text="a vector of [:append key value] and [:r key nil]; for [:w key value], there is "
    "--workload=rw-register",
)
_ON_REGISTERS: Final = replace(
    _MICROS,
    argument_fits=_have_verbs_and_no_nil("w", "r"),
    argument_text="a vector of [:w key value] and [:r key nil]; for [:append key value], there is "
    "--workload=list-append",
)


def _make_transactions(shape: OperationShape) -> Mapping[str, OperationShape]:
    return dict.fromkeys(("txn", "read", "write"), shape)


_ELEMENTS: Final = OperationShape(
    result_fits=_is_collection, result_text="a vector, list or set", returns_elements=True
)
_SET: Final = {"add": OperationShape(allows=allow_echo), "read": _ELEMENTS}
_COUNTER: Final = {
    "add": OperationShape(argument_fits=_is_number, argument_text="a whole number", allows=allow_echo),
    "read": OperationShape(result_fits=_is_number, result_text="a whole number"),
}
_QUEUE: Final = {
    **_ENQUEUE_DEQUEUE,
    "drain": OperationShape(result_fits=_is_collection_or_nil, result_text="a vector, list or set"),
}
_ADYA_INSERTS: Final = {
    "insert": OperationShape(argument_fits=_is_pair, argument_text="[key [a-id b-id]]", allows=allow_echo)
}
_WRITES: Final = {"write": OperationShape(allows=allow_echo), "read": _ELEMENTS}
_CAUSAL_READ: Final = OperationShape(result_fits=_is_number_or_nil, result_text="a whole number or nil")

WORKLOADS: Final[Mapping[str, Mapping[str, OperationShape]]] = {
    "set": _SET,
    "set-full": _SET,
    "g-set": _SET,
    "broadcast": {"broadcast": OperationShape(allows=allow_echo), "read": _ELEMENTS},
    "lost-updates": _SET,
    "counter": _COUNTER,
    "g-counter": _COUNTER,
    "pn-counter": _COUNTER,
    "queue": _QUEUE,
    "total-queue": _QUEUE,
    "kafka": {
        "send": _KAFKA,
        "poll": _KAFKA,
        "txn": _KAFKA,
        "assign": OperationShape(argument_fits=_is_collection, argument_text="a vector of keys"),
        "subscribe": OperationShape(argument_fits=_is_collection, argument_text="a vector of keys"),
        "crash": OperationShape(ignores_values=True),
        "debug-topic-partitions": OperationShape(ignores_values=True),
    },
    "list-append": _make_transactions(_ON_LISTS),
    "append": _make_transactions(_ON_LISTS),
    "rw-register": _make_transactions(_ON_REGISTERS),
    "long-fork": _make_transactions(_ON_REGISTERS),
    "register": MODELS["cas-register"],
    "cas-register": MODELS["cas-register"],
    "lin-kv": MODELS["cas-register"],
    "multi-register": _make_transactions(replace(_MICROS, argument_fits=_have_verbs("w", "r", "write", "read"))),
    "mutex": MODELS["mutex"],
    "locks": MODELS["owner-mutex"],
    "bank": _BANK,
    "unique-ids": {"generate": OperationShape(result_fits=_is_not_nil, result_text="the new id")},
    "monotonic": {"read": _MONOTONIC, "inc": _MONOTONIC, "add": _MONOTONIC},
    "monotonic-rows": {
        "add": OperationShape(result_fits=_is_row, result_text="a row such as {:val 1, :sts 2}"),
        "read": OperationShape(result_fits=_are_rows, result_text="a vector of rows such as {:val 1, :sts 2}"),
    },
    "causal": {
        "read-init": _CAUSAL_READ,
        "read": _CAUSAL_READ,
        "write": OperationShape(argument_fits=_is_number, argument_text="a whole number", allows=allow_echo),
    },
    "causal-reverse": _WRITES,
    "comments": _WRITES,
    "sequential": {
        "write": OperationShape(allows=allow_echo),
        "read": OperationShape(result_fits=_is_series_reading, result_text="[series [last ... first]]"),
    },
    "adya-g2": _ADYA_INSERTS,
    "g2": _ADYA_INSERTS,
    "dirty-reads": {
        "write": OperationShape(allows=allow_echo),
        "read": OperationShape(),
        "strong-read": _ELEMENTS,
        "refresh": OperationShape(),
    },
}
"""Workloads, with the operations that ``harness.stored`` judges."""

ONLY_OPERATIONS: Final[Mapping[str, str]] = {
    "adya-g2": "insert",
    "append": "txn",
    "g2": "insert",
    "list-append": "txn",
    "long-fork": "txn",
    "multi-register": "txn",
    "rw-register": "txn",
    "unique-ids": "generate",
}
"""Workloads whose operations may be without ``:f``, because all of them are this one."""
