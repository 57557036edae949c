"""Generators of operations that mixes add to a log's usual traffic.

Their values are far above those of the workload's own sends. Each generator has its own range of values, because no
value may be sent twice in a run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from assay.harness.core.generator import Context, Generator, as_generator, mix, reserve, stagger, unfold
from assay.harness.core.operation import Operation
from assay.workloads.broker.bursts import Burst
from assay.workloads.broker.log_messages import CODECS, LARGE_REQUESTS, NEWCOMER, REGULAR
from assay.workloads.broker.log_operations import EARLIEST, End, Glance, Poll, Send
from assay.workloads.broker.multi_fetch_operations import LongPoll
from assay.workloads.broker.multi_partition_requests import MultiPartitionSend

RANGE: Final = 100_000_000
"""Size of each generator's range of values.

Some values are also used as create times in milliseconds. Even the largest of these times is in January 1970.
"""


class ValueRange:
    """First value of each generator's range. The comment names the generator that uses it."""

    STAMPED: Final = 1 * RANGE  # Used by send_out_of_order_times.
    PACKED: Final = 2 * RANGE  # Used by send_all_codecs.
    KEYED: Final = 3 * RANGE  # Used by use_compacted_partitions (short-lived keys in the upper half).
    TOMBSTONES: Final = 4 * RANGE  # Used by use_compacted_partitions for tombstones.
    RECREATED: Final = 5 * RANGE  # Used by topic_recreation.
    FOREIGN: Final = 6 * RANGE  # Used by group_mixes.strangers for numbers of commits by clients that are no members.
    CROWDED: Final = 7 * RANGE  # Used by send_and_poll in the mix ``crowd``.
    GROWN: Final = 8 * RANGE  # Used by topic_growth.
    HASTY: Final = 9 * RANGE  # Used by send_leader_only (sets in the upper half).
    HABITUAL: Final = 10 * RANGE  # Used by send_by_profile.
    WIDELY: Final = 11 * RANGE  # Used by MultiPartitionSend, in the mix of producer profiles.
    REWOUND: Final = 12 * RANGE  # Used by group_mixes.rewinds for numbers of commits.
    TOGETHER: Final = 13 * RANGE  # Used by send_compressed_sets.
    AWAITED: Final = 14 * RANGE  # Used by wait_at_end for the sends that complete the waits.
    LOYAL: Final = 15 * RANGE  # Used by try_as_regular_and_newcomer for long-lived clients.
    ARRIVED: Final = 16 * RANGE  # Used by try_as_regular_and_newcomer for newcomers.
    STRICTLY: Final = 17 * RANGE  # Used by send_and_poll in the mix ``strict``.
    BULKY: Final = 18 * RANGE  # Used by send_large_sets.
    GUSTY: Final = 19 * RANGE  # Used by send_volleys.
    BROKEN: Final = 20 * RANGE  # Used by break_off_requests and try_large_requests.
    LOADED: Final = 21 * RANGE  # Used by send_backlog.


OLDEST: Final = 2_000
YOUNGEST: Final = -2_000
"""Range of the ages of sent messages in milliseconds. An age below zero is a time in the future."""
KEYS: Final = 6
"""Number of message keys in a compacted partition."""
BRIEF: Final = 6
"""Number of values after which a short-lived key is replaced. Its last value must then stay for ever."""
HASTY_CODECS: Final = (0, 0, 0, 1)
"""Codecs of sends that only the leader acknowledges; 0 is uncompressed."""
LARGE: Final = 30_000
"""Bytes of a value: three of them make a request larger than a broker's read buffer."""
LARGE_MESSAGES: Final = 3
LARGER_MESSAGES: Final = 6
"""Messages of a request that is broken off. Even half of such a request exceeds the read buffer."""
RESERVED: Final = 10
"""Number of values that are reserved for a large request. It uses only some of them."""
BROKEN_AT: Final = (300, 500, 800, 800, 950, 950, 1000)
"""Thousandths of a large request that are sent before the client breaks off."""
TRY_SECONDS: Final = 0.15
"""Average seconds between two tries with small requests."""
JAVA_HASHES: Final = {
    "a": 584102524, "ab": 316155434, "abc": 479470107, "abcd": 823834100, "order": 1818166172, "orders": 1117641372,
    "1234567": 1542273222, "customer": 1227902208, "customers": 1783848922,
}  # fmt: skip
"""Hashes of these keys by Java's producer; the hash modulo the number of partitions selects the partition."""
AWAITED_SECONDS: Final = 0.1
"""Average seconds between two sends of ``wait_at_end``, which complete most of its waits at random times."""
FORMATS: Final = (0, 1, 1)
"""Message formats to draw from."""
GUST: Final = 4
"""Number of consecutive volleys to one partition, before those to the next one."""
VOLLEY: Final = 3
"""Messages in a volley."""
BULK_MESSAGES: Final = 30
"""Maximum messages in a set."""
SLOW: Final = "slow"
"""Name of a client's reader that polls seldom."""


Choices = Mapping[str, tuple[Sequence[Any], int]]
"""Fields of an argument. For each field: the values, one of which is drawn, and the salt of the draw."""


def send_sets(
    keys: Sequence[str],
    first: int,
    choices: Choices | None = None,
    *,
    most_values: int = 3,
    message_keys: Callable[[int, Context, int], str] | None = None,
) -> Generator:
    """Yields sends of new values from ``first`` on, for ever.

    ``message_keys`` makes a message's key from the set's first value, the context, and the message's index in the set.
    """

    def step(following: int, context: Context) -> tuple[Operation, int]:
        count = 1 + context.random_below(most_values, salt=1)
        argument: dict[str, Any] = {"values": list(range(following, following + count))}
        argument |= {name: context.choose(values, salt) for name, (values, salt) in (choices or {}).items()}
        if message_keys is not None:
            argument["keys"] = [message_keys(following, context, rank) for rank in range(count)]
        return Operation(Send.f, context.choose(keys, salt=2), argument), following + count

    return unfold(step, first)


def send_out_of_order_times(keys: Sequence[str]) -> Generator:
    """Yields sends of messages with create times out of order."""
    return send_sets(keys, ValueRange.STAMPED, {"age": (range(YOUNGEST, OLDEST), 11)})


def send_as_regular_and_newcomer(keys: Sequence[str], *, closing: bool = False) -> Generator:
    """Yields sends by long-lived clients, each to its own partition, and a third of the sends by new clients."""

    def make_send(number: int, key: str, client: str) -> Operation:
        return Operation(Send.f, key, {"values": [number], "client": client})

    return try_as_regular_and_newcomer(keys, make_send, closing=closing)


def try_as_regular_and_newcomer(
    keys: Sequence[str], make_operation: Callable[[int, str, str], Operation], *, closing: bool = False
) -> Generator:
    """Yields the operations that ``make_operation(number, key, client)`` makes, for ever.

    ``closing``: takes numbers from another range. As a ``regular`` client, each worker uses its own key. Meanwhile
    ``newcomer`` operations on random keys show whether the operation is possible.
    """

    def regular(number: int, context: Context) -> tuple[Operation, int]:
        return make_operation(number, keys[context.pick() % len(keys)], REGULAR), number + 1

    def newcomer(number: int, context: Context) -> tuple[Operation, int]:
        return make_operation(number, context.choose(keys, salt=81), NEWCOMER), number + 1

    first = RANGE // 2 if closing else 0
    return mix(unfold(regular, ValueRange.LOYAL + first), unfold(newcomer, ValueRange.ARRIVED + first), weights=(2, 1))


def send_backlog(key: str, sets: int, size: int) -> Generator:
    """Yields sends of ``sets`` sets of ``size`` messages to one partition: a backlog that occupies readers."""

    def step(number: int, context: Context) -> tuple[Operation | None, int]:
        first = ValueRange.LOADED + number * size
        return Operation(Send.f, key, list(range(first, first + size))) if number < sets else None, number + 1

    return unfold(step, 0)


def poll_slowly(keys: Sequence[str]) -> Generator:
    """Yields polls of partitions from their start on, by one slow reader per client, for ever."""

    def read(context: Context) -> Operation:
        return Operation(Poll.f, keys[context.pick() % len(keys)], {"start": EARLIEST, "reader": SLOW})

    return as_generator(read)


def send_all_codecs(keys: Sequence[str], paddings: Sequence[int]) -> Generator:
    """Yields sends of messages with all codecs, both formats and these sizes."""
    return send_sets(
        keys, ValueRange.PACKED, {"codec": (CODECS, 14), "format": (FORMATS, 15), "padding": (paddings, 16)}
    )


def send_leader_only(keys: Sequence[str], paddings: Sequence[int]) -> Generator:
    """Yields sends that only the leader must acknowledge, with messages of these sizes. An isolated leader accepts all.

    Most sets have one message, so that a leader appends one at a time. After a truncation, a follower appends many at
    once.
    """
    choices: Choices = {"acks": ((1,), 0), "codec": (HASTY_CODECS, 17), "padding": (paddings, 18)}
    single = send_sets(keys, ValueRange.HASTY, choices, most_values=1)
    return mix(single, send_sets(keys, ValueRange.HASTY + RANGE // 2, choices), weights=(3, 1))


def send_volleys(keys: Sequence[str], creation: Operation) -> Generator:
    """Yields volleys (messages that are sent at once) to the partitions in turn, several in a row to each.

    Each message of a volley arrives while the broker processes the one before. ``creation`` creates the topic; it is
    repeated, because an answer may be lost.
    """

    def step(number: int, context: Context) -> tuple[Operation, int]:
        place, turn = divmod(number, GUST + 1)
        first = ValueRange.GUSTY + number * VOLLEY
        volley = {"values": list(range(first, first + VOLLEY)), "each": 1}
        return Operation(Burst.f, keys[place % len(keys)], volley) if turn else creation, number + 1

    return unfold(step, 0)


def send_large_sets(keys: Sequence[str], paddings: Sequence[int]) -> Generator:
    """Yields sends of sets of many messages of these sizes."""
    return send_sets(keys, ValueRange.BULKY, {"padding": (paddings, 18)}, most_values=BULK_MESSAGES)


def send_compressed_sets(keys: Sequence[str]) -> Generator:
    """Yields sends of compressed sets of some messages each."""
    return send_sets(keys, ValueRange.TOGETHER, {"codec": (CODECS[1:], 17)}, most_values=8)


def send_by_profile(keys: Sequence[str], profiles: Sequence[str], *, partition_count_is_fixed: bool) -> Generator:
    """Yields bursts by producers with these profiles. ``partition_count_is_fixed``: no partitions are added."""

    def step(following: int, context: Context) -> tuple[Operation, int]:
        count = 3 + context.random_below(8, salt=61)
        argument: dict[str, Any] = {
            "values": list(range(following, following + count)),
            "habit": context.choose(profiles, salt=62),
            "padding": context.choose((0, 0, 0, 20, 300, LARGE), salt=63),
        }
        key, way = context.choose(keys, salt=65), context.random_below(4, salt=66)
        if way == 0:
            argument["each"] = 1 + context.random_below(3, salt=67)
        else:
            argument["then"] = context.choose(("wait", "wait", "wait", "flush", "close"), salt=64)
        if way == 1 and partition_count_is_fixed:
            argument["message_key"] = context.choose(tuple(JAVA_HASHES), salt=68)
            key = keys[JAVA_HASHES[argument["message_key"]] % len(keys)]
        return Operation(Burst.f, key, argument), following + count

    return unfold(step, ValueRange.HABITUAL)


def break_off_requests(keys: Sequence[str], first: int) -> Generator:
    """Yields large requests of new values, from ``first`` on, that are broken off, for ever.

    The partitions take turns. Some requests are sent completely.
    """

    def step(following: int, context: Context) -> tuple[Operation, int]:
        count = LARGER_MESSAGES + context.random_below(LARGE_MESSAGES, salt=91)
        how = {"broken_off": context.choose(BROKEN_AT, salt=92), "silent": not context.random_below(3, salt=93)}
        key = keys[following // RESERVED % len(keys)]
        return _make_large_request(key, list(range(following, following + count)), **how), following + RESERVED

    return unfold(step, first)


def try_large_requests(keys: Sequence[str], first: int) -> Generator:
    """Yields large requests to each partition, by one worker per partition, and small sends by new clients, for ever.

    With more workers, each would have too few tries for a verdict.
    """

    def bulky(number: int, context: Context) -> tuple[Operation, int]:
        fresh = list(range(number, number + LARGE_MESSAGES))
        return _make_large_request(keys[context.pick() % len(keys)], fresh, client=LARGE_REQUESTS), number + RESERVED

    def newcomer(number: int, context: Context) -> tuple[Operation, int]:
        return Operation(Send.f, context.choose(keys, salt=94), {"values": [number], "client": NEWCOMER}), number + 1

    large, small = stagger(2 * TRY_SECONDS, unfold(bulky, first)), unfold(newcomer, first + RANGE // 4)
    return reserve((len(keys), large), default=stagger(TRY_SECONDS, small))


def _make_large_request(key: str, fresh: Sequence[int], **more: Any) -> Operation:
    """Returns a large request for one partition, without the invalid parts of other multi-partition requests."""
    parts = [{"key": key, "values": fresh, "padding": LARGE}]
    argument = {"parts": parts, "acks": -1, "codec": 0, "version": 2, "strange": False, "astray": False}
    return Operation(MultiPartitionSend.f, key, argument | more)


def wait_at_end(keys: Sequence[str]) -> Generator:
    """Yields fetches that wait for a record at the ends of partitions, and sends of these records, for ever."""
    waits = stagger(2 * AWAITED_SECONDS, LongPoll.draw(keys))
    return mix(waits, stagger(AWAITED_SECONDS, send_sets(keys, ValueRange.AWAITED)), weights=(1, 1))


def use_compacted_partitions(keys: Sequence[str]) -> Generator:
    """Yields sends to compacted partitions, with recurring keys, short-lived keys and tombstones, and reads of them."""

    def choose_recurring(first: int, context: Context, rank: int) -> str:
        return f"k{context.random_below(KEYS, salt=30 + rank)}"

    def choose_short_lived(first: int, context: Context, rank: int) -> str:
        return f"b{first // BRIEF - context.random_below(3, salt=30 + rank)}"

    packed: Choices = {"codec": (CODECS, 19), "format": (FORMATS, 20)}
    return mix(
        send_sets(keys, ValueRange.KEYED, packed, message_keys=choose_recurring),
        send_sets(keys, ValueRange.KEYED + RANGE // 2, packed, message_keys=choose_short_lived),
        send_sets(
            keys, ValueRange.TOMBSTONES, {"tombstones": ((True,), 0)}, most_values=1, message_keys=choose_recurring
        ),
        Poll.draw(keys),
        Glance.draw(keys),
        End.draw(keys),
        weights=(6, 6, 2, 8, 2, 1),
    )


def send_and_poll(keys: Sequence[str], first: int) -> Generator:
    """Yields the usual sends and polls on other topics, with values from ``first`` on."""
    return mix(send_sets(keys, first), Poll.draw(keys), End.draw(keys), weights=(9, 10, 1))
