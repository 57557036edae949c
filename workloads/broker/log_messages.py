"""The messages of a send: how its argument describes them, and how they are packed.

The argument is a list of values, for which the client makes the messages, or ``{"values", ...}`` with any of

==============  =====================================================================================================
``keys``        a key for each message
``tombstones``  true: the messages have no value; a message's number is its create time
``age``         the messages' age in milliseconds according to their create time; below zero: in the future
``padding``     the number of bytes to which each value is padded
``codec``       compression of the set: 1 gzip, 2 snappy, 3 lz4
``format``      0: messages without timestamps
``acks``        1: acknowledged by the leader alone, which promises nothing: the outcome stays unknown
``client``      ``regular``: sent by a long-lived client; ``newcomer``: by a new one. Such a send, a *try*, must succeed
``lives``       the keys of this and later incarnations of the topic; a send of unknown outcome may reach any of them
``adrift``      true: sent while the topic was being deleted or recreated: the outcome is always unknown
==============  =====================================================================================================
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from assay.harness.core.operation import Completion, Effect, Operation, Outcome
from assay.system_under_test.client.multi_fetch import Message, get_create_time
from assay.system_under_test.client.producer import ENTRY_OVERHEAD

Record = tuple[bytes | None, bytes | None]
"""A message's key and value."""
Packing = tuple[int, int]
"""Codec and format."""
REGULAR: Final = "regular"
NEWCOMER: Final = "newcomer"
LARGE_REQUESTS: Final = "large-request"
"""``client`` of a large request (``mixed_traffic``)."""
CODECS: Final = (0, 1, 2, 3)
ALL_IN_SYNC: Final = -1
"""``acks``: all in-sync replicas must acknowledge a send."""


def make_plain_records(values: Sequence[int]) -> Sequence[Record]:
    """Returns messages without keys."""
    return [(None, str(value).encode()) for value in values]


def to_fields(argument: Any) -> Mapping[str, Any]:
    """Returns the argument in its long form."""
    return argument if isinstance(argument, Mapping) else {"values": argument}


def get_values(argument: Any) -> Sequence[int]:
    found: Sequence[int] = to_fields(argument)["values"]
    return found


def make_records(
    argument: Any, default: Callable[[Sequence[int]], Sequence[Record]] = make_plain_records
) -> Sequence[Record]:
    """Returns the messages. ``default`` makes the messages for a plain list of values."""
    if not isinstance(argument, Mapping):
        return default(argument)
    numbers = get_values(argument)
    keys = argument.get("keys") or [None] * len(numbers)
    padding = argument.get("padding", 0)
    return [
        (
            None if key is None else key.encode(),
            None if argument.get("tombstones") else str(number).rjust(padding).encode(),
        )
        for key, number in zip(keys, numbers, strict=True)
    ]


def get_acks(argument: Any) -> int:
    """Returns the required acknowledgements: 1 (the leader), or ``ALL_IN_SYNC``."""
    return int(to_fields(argument).get("acks", ALL_IN_SYNC))


def get_client(argument: Any) -> str | None:
    """Returns the client kind of a try (``regular``, ``newcomer``), or None for other sends."""
    return to_fields(argument).get("client")


def iterate_client_tries(operation: Operation, outcome: Outcome | None = None) -> Iterator[Effect]:
    """Yields a row for ``assay.checkers.liveness.client_progress`` if the operation was a try."""
    client = get_client(operation.argument)
    if client is not None and operation.key is not None:
        yield Effect("tried", operation.key, client=client, outcome=outcome)


def find_possible_keys_and_outcome(argument: Any, key: str, outcome: Outcome) -> tuple[Sequence[str], Outcome]:
    """Returns the keys under which a send's messages may be, and the outcome for each of them."""
    if outcome is Outcome.OK and get_acks(argument) != ALL_IN_SYNC:
        return [key], Outcome.INFO
    fields = to_fields(argument)
    certain = outcome is Outcome.FAIL or (outcome is Outcome.OK and not fields.get("adrift"))
    return ([key], outcome) if certain or "lives" not in fields else (fields["lives"], Outcome.INFO)


def get_packing(argument: Any) -> Packing:
    fields = to_fields(argument)
    return fields.get("codec", 0), fields.get("format", 1)


def choose_create_time(argument: Any, now: float) -> int | None:
    """Returns the create time in milliseconds, or None without timestamps. ``now``: wall clock in seconds."""
    if get_packing(argument)[1] == 0:
        return None
    fields = to_fields(argument)
    if fields.get("tombstones"):
        return int(fields["values"][0])
    return int(now * 1000) - int(fields.get("age", 0))


def measure_record(record: Record, packing: Packing) -> int:
    """Returns the maximum uncompressed size on disk in bytes, if the record is in a message set of its own."""
    key, value = record
    return ENTRY_OVERHEAD * (2 if packing[0] else 1) + len(key or b"") + len(value or b"")


def parse_number(value: bytes | None) -> int | None:
    """Returns a message's number. None: no client has written this value, and the checks report it."""
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def to_result(message: Message) -> list[Any]:
    """Returns a record in the form of a poll's result."""
    tombstone = message.value is None and message.key is not None
    value = message.timestamp if tombstone else parse_number(message.value)
    return [message.offset, value, get_create_time(message), decode_key(message.key)]


def decode_key(key: bytes | None) -> str | None:
    """Returns a message's key in the form of the history."""
    return None if key is None else key.decode(errors="replace")


SetOutcome = Mapping[str, Any]
"""Outcome, offset, node and error of one of several message sets, or messages, in an operation."""


def describe_set(
    outcome: Outcome, *, offset: int | None = None, node: str | None = None, error: str | None = None
) -> SetOutcome:
    return {"outcome": outcome, "offset": offset, "node": node, "error": error}


def combine_outcomes(name: str, sets: Sequence[SetOutcome], **more: Any) -> Completion:
    """Returns the completion of an operation with several message sets.

    It is ``ok`` if any set was appended, and ``fail`` if certainly none was.
    """
    outcomes = {one["outcome"] for one in sets}
    outcome = next(one for one in (Outcome.OK, Outcome.INFO, Outcome.FAIL) if one in outcomes)
    error = next((one["error"] for one in sets if one["error"]), None)
    return Completion(outcome, {name: sets, **more}, error=None if outcome is Outcome.OK else error)
