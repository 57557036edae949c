"""The operations on a log, their effects, and their generators.

Operations, by ``f``, with the results of ok operations:

========  =============================================  ==========================================================
f         argument                                       result
========  =============================================  ==========================================================
``send``  list of values, one message set, or more       ``{"offset"?: of the first, "timestamp"?, "epoch"?,
                                                         "node"?}``
``poll``  ``{"start", "seek"?, "until"?, "reader"?}``    ``{"begin", "records": [record, ...], "end",
                                                         "assignment", "sought"?, "start"?, "node"?}``
``glance`` ``{"thousandths", "steps"?}``                  as of a poll; with steps ``{"polls"}``, one of each
``end``   none                                           ``{"offset": log end, "start"?: log start, "epoch"?,
                                                         "node"?, "incarnation"?}``
``look-up`` ``{"age"}``                                  ``{"timestamp", "offset": null if there is none}``
========  =============================================  ==========================================================

A record is ``[offset, value, timestamp?, key?]``: its create time in milliseconds, and the message's key. A send of
unknown outcome has a ``timestamp``, too, unless it timed out. Other forms of a send's argument are in
``assay.workloads.broker.log_messages``.

A **poll** reads on from its client's position in the partition. Without a position, or with ``seek``, it begins at
``start`` (``earliest`` or ``latest``) and gets a new ``assignment``. The result then has ``sought``, and ``start`` is
the reported log start. ``until`` is the sentinel's offset, in the drain. ``reader`` names another reader of the same
client, with a position of its own.

A **glance** is a short poll in the middle of the log, like that of a consumer that resumes at an old offset. It begins
the given thousandths of the way from the log's start to its end, as far as the client knows the end. The client's own
position stays. Glances are needed because sequential readers request only the beginning of a segment or the latest
records, so the broker never has to look up a position. With ``steps`` a glance requests that many consecutive offsets,
any of which a broker may cache.

A poll or glance whose answer cannot be decoded fails with the result ``{"illegible": requested offset}``.

A **look-up** asks for the first message that is at most ``age`` milliseconds old, by its create time.

Values are integers, unique in the run. The generator counts them; they never depend on a clock or on the sender. The
values of sentinels, which end each partition after the last heal, are below zero.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from assay.harness.core.generator import Context, Generator, as_generator, mix, time_limit, unfold
from assay.harness.core.operation import Completed, Effect, Operation, Outcome, Phase
from assay.workloads.broker.log_messages import (
    Record,
    decode_key,
    find_places,
    get_packing,
    get_values,
    make_plain_records,
    make_records,
    measure_record,
)

SEND: Final = "send"
POLL: Final = "poll"
END: Final = "end"
GLANCE: Final = "glance"
LOOK_UP: Final = "look-up"

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

LONGEST_SET: Final = 3
TAIL_READERS: Final = 3
"""Out of four clients that start to read a partition, this many begin at its end; the others read all of it."""

THOUSAND: Final = 1000


def send(keys: Sequence[str], *, longest: int = LONGEST_SET) -> Generator:
    """Message sets of one to ``longest`` fresh values to random partitions, for ever."""

    def step(following: int, context: Context) -> tuple[Operation, int]:
        count = 1 + context.random_below(longest, salt=1)
        values = list(range(following, following + count))
        return Operation(SEND, context.choose(keys, salt=2), values), following + count

    return unfold(step, 0)


def poll(keys: Sequence[str]) -> Generator:
    """Reads on from the client's own position in random partitions, for ever."""

    def read(context: Context) -> Operation:
        start = EARLIEST if context.random_below(TAIL_READERS + 1, salt=3) == 0 else LATEST
        return Operation(POLL, context.choose(keys, salt=4), {"start": start})

    return as_generator(read)


def end(keys: Sequence[str]) -> Generator:
    """Asks for log ends, for ever."""
    return as_generator(lambda context: Operation(END, context.choose(keys, salt=5)))


def glance(keys: Sequence[str], *, last: int = THOUSAND) -> Generator:
    """Glances at random positions in the ``last`` thousandths of partitions, for ever."""

    def look(context: Context) -> Operation:
        place = THOUSAND - last + context.random_below(last, salt=7)
        return Operation(GLANCE, context.choose(keys, salt=6), {"thousandths": place})

    return as_generator(look)


def walk(keys: Sequence[str], *, steps: int, last: int = THOUSAND) -> Generator:
    """Glances at ``steps`` consecutive offsets, anywhere in the ``last`` thousandths of partitions, for ever."""

    def look(context: Context) -> Operation:
        argument = {"thousandths": THOUSAND - last + context.random_below(last, salt=7), "steps": steps}
        return Operation(GLANCE, context.choose(keys, salt=6), argument)

    return as_generator(look)


def glances(keys: Sequence[str], *, each: int, seconds: float) -> Generator:
    """Glances at ``each`` evenly spread positions per partition in the end; gives up after ``seconds``."""

    def step(number: int, context: Context) -> tuple[Operation | None, int]:
        place, key = divmod(number, len(keys))
        if place >= each:
            return None, number
        argument = {"thousandths": (2 * place + 1) * THOUSAND // (2 * each)}
        return Operation(GLANCE, keys[key], argument, Phase.DRAIN), number + 1

    return time_limit(seconds, unfold(step, 0))


def traffic(keys: Sequence[str]) -> Generator:
    """The usual mix: about as many polls as sends, and one end offset in twenty operations."""
    return mix(send(keys), poll(keys), end(keys), weights=(9, 10, 1))


def effects(
    completed: Completed, default: Callable[[Sequence[int]], Sequence[Record]] = make_plain_records
) -> Sequence[Effect]:
    """Returns the ``effects`` rows of one operation on a log, in order; ``assay.checkers.log.family`` defines them.

    ``default``: makes the messages for a plain list of values.
    """
    if completed.operation.f != SEND and (completed.operation.argument or {}).get("adrift"):
        return ()  # it is unknown which life the answer concerns
    match completed.operation.f:
        case "send":
            return list(_iterate_appends(completed, make_records(completed.operation.argument, default)))
        case "poll" | "glance":
            return list(_iterate_observations(completed))
        case "end" | "list":
            return list(_iterate_ends(completed))
        case "look-up":
            return list(_iterate_look_ups(completed))
        case other:
            raise ValueError(f"unknown operation on a log: {other!r}")


def _iterate_appends(completed: Completed, sent: Sequence[Record]) -> Iterator[Effect]:
    """A row per value, with every outcome: a value whose send failed must never be read."""
    result: Mapping[str, Any] = completed.completion.result or {}
    first = result.get("offset") if completed.completion.outcome is Outcome.OK else None
    argument = completed.operation.argument
    keys, outcome = find_places(argument, _get_key(completed), completed.completion.outcome)
    for key, (rank, (value, record)) in product(keys, enumerate(zip(get_values(argument), sent, strict=True))):
        yield Effect(
            kind="append",
            key=key,
            outcome=outcome,
            position=None if first is None or outcome is not Outcome.OK else first + rank,
            value=value,
            request=completed.index,
            leader_epoch=result.get("epoch"),
            node=result.get("node"),
            message_key=decode_key(record[0]),
            tombstone=record[1] is None,
            # a tombstone's timestamp is its number, even if the client did not live to report it
            timestamp=value if record[1] is None else result.get("timestamp"),
            size=measure_record(record, get_packing(argument)),
        )


def _iterate_observations(completed: Completed) -> Iterator[Effect]:
    result = completed.completion.result
    if result is not None and "refused" in result:
        yield make_out_of_range(_get_key(completed), result["refused"])
        return
    if result is not None and "illegible" in result:
        yield Effect("observe", _get_key(completed), position=result["illegible"])
        return
    until = completed.operation.argument.get("until") if completed.operation.phase is Phase.DRAIN else None
    for poll in () if result is None else result.get("polls", [result]):
        yield from iterate_observed(_get_key(completed), poll, until)


def make_out_of_range(key: str, position: int, group: str | None = None) -> Effect:
    """The answer itself is certain, whatever the outcome of the operation."""
    return Effect("out-of-range", key, position=position, group=group, outcome=Outcome.OK)


def iterate_observed(key: str, result: Mapping[str, Any], until: int | None = None) -> Iterator[Effect]:
    """Yields the rows of one poll; ``until``: the sentinel's offset."""
    node, assignment = result.get("node"), result["assignment"]

    def row(kind: str, position: int, **more: Any) -> Effect:
        return Effect(kind=kind, key=key, position=position, assignment=assignment, node=node, **more)

    if result.get("start") is not None:
        yield row("start", result["start"])
    if result.get("sought"):
        yield row("seek", result["begin"])
    yield row("observe-begin", result["begin"])
    for offset, value, *more in result["records"]:
        yield row("observe", offset, value=value, **to_columns(more))
    yield row("observe-end", result["end"])
    if until is not None and result["end"] > until:
        yield row("drained", until + 1)


def to_columns(more: Sequence[Any]) -> dict[str, Any]:
    """Returns a record's timestamp and key as columns."""
    return dict(zip(("timestamp", "message_key"), more, strict=False))


def _iterate_ends(completed: Completed) -> Iterator[Effect]:
    result = completed.completion.result
    if result is not None:
        for kind, position in (("end", result["offset"]), ("start", result.get("start"))):
            if position is not None:
                yield Effect(
                    kind=kind,
                    key=_get_key(completed),
                    position=position,
                    leader_epoch=result.get("epoch"),
                    node=result.get("node"),
                    incarnation=result.get("incarnation"),
                )


def _iterate_look_ups(completed: Completed) -> Iterator[Effect]:
    result = completed.completion.result
    if result is not None:
        yield Effect("look-up", _get_key(completed), timestamp=result["timestamp"], position=result["offset"])


def _get_key(completed: Completed) -> str:
    assert completed.operation.key is not None, f"operation {completed.index} on a log without a partition"
    return completed.operation.key
