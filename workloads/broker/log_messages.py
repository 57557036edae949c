"""What a send's argument means: the messages that go out, and how they are packed.

The argument is a list of values, whose messages are the client's own business, or ``{"values", ...}`` with any of

==============  ===============================================================================================
``keys``        a key for each message
``tombstones``  true: the messages have no value of their own; each one's number is its create time
``age``         how many milliseconds ago they were created, by their own account; below zero: in the future
``padding``     to how many bytes each value is filled up
``codec``       by which the set is compressed: 1 gzip, 2 snappy, 3 lz4
``format``      0: messages without timestamps
``acks``        1: acknowledged by the leader alone, which promises nothing: its fate stays unknown
``client``      ``regular``: the one that goes on, ``newcomer``: another, for this alone; a try that is never refused
``lives``       the keys of this life of the topic, and of those that may follow: one of unknown fate may be in any
``adrift``      true: sent while the topic was being deleted, or created again: its fate is unknown in any case
==============  ===============================================================================================
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from assay.harness.core.operation import Outcome
from assay.system_under_test.client.fetch_result import Message, created
from assay.system_under_test.client.producer import ENTRY_OVERHEAD

Record = tuple[bytes | None, bytes | None]
"""A message's key and value."""
Packing = tuple[int, int]
"""Codec and format."""
REGULAR: Final = "regular"
NEWCOMER: Final = "newcomer"
LARGE_REQUESTS: Final = "large-request"
PLAIN: Final[Packing] = (0, 1)
ALL: Final = -1


def plain(values: Sequence[int]) -> Sequence[Record]:
    """Messages of these values without keys."""
    return [(None, str(value).encode()) for value in values]


def values(argument: Any) -> Sequence[int]:
    found: Sequence[int] = argument["values"] if isinstance(argument, Mapping) else argument
    return found


def records(argument: Any, default: Callable[[Sequence[int]], Sequence[Record]] = plain) -> Sequence[Record]:
    """The messages; ``default`` makes those of a list of values."""
    if not isinstance(argument, Mapping):
        return default(argument)
    numbers = values(argument)
    keys = argument.get("keys") or [None] * len(numbers)
    padding = argument.get("padding", 0)
    return [
        (
            None if key is None else key.encode(),
            None if argument.get("tombstones") else str(number).rjust(padding).encode(),
        )
        for key, number in zip(keys, numbers, strict=True)
    ]


def acks(argument: Any) -> int:
    """Whose acknowledgement is waited for: the leader's, or that of all that are in sync."""
    found: int = argument.get("acks", ALL) if isinstance(argument, Mapping) else ALL
    return found


def client_of(argument: Any) -> str | None:
    """Whose try it is, if it is one."""
    found: str | None = argument.get("client") if isinstance(argument, Mapping) else None
    return found


def places(argument: Any, key: str, outcome: Outcome) -> tuple[Sequence[str], Outcome]:
    """The keys under which the messages of a send to ``key`` may be, and what is known of each."""
    if outcome is Outcome.OK and acks(argument) != ALL:
        return [key], Outcome.INFO
    if not isinstance(argument, Mapping) or outcome is Outcome.FAIL or "lives" not in argument:
        return [key], outcome
    if outcome is Outcome.OK and not argument.get("adrift"):
        return [key], outcome
    return argument["lives"], Outcome.INFO


def packing(argument: Any) -> Packing:
    return (argument.get("codec", 0), argument.get("format", 1)) if isinstance(argument, Mapping) else PLAIN


def created_at(argument: Any, now: float) -> int | None:
    """Milliseconds; None for messages that have no time. ``now``: seconds of the wall clock."""
    if packing(argument)[1] == 0:
        return None
    if isinstance(argument, Mapping) and argument.get("tombstones"):
        (number,) = values(argument)
        return number
    return int(now * 1000) - (argument.get("age", 0) if isinstance(argument, Mapping) else 0)


def size(record: Record, packed: Packing) -> int:
    """At most so many bytes on the disk, uncompressed, with that of the set that it may be the only one in."""
    key, value = record
    return ENTRY_OVERHEAD * (2 if packed[0] else 1) + len(key or b"") + len(value or b"")


def number(value: bytes | None) -> int | None:
    """None for what none of our clients has written; the checks report it."""
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def seen(message: Message) -> list[Any]:
    """A record as the results of polls have it."""
    tombstone = message.value is None and message.key is not None
    value = message.timestamp if tombstone else number(message.value)
    return [message.offset, value, created(message), text(message.key)]


def text(key: bytes | None) -> str | None:
    """A message's key as the history has it."""
    return None if key is None else key.decode(errors="replace")
