"""The operations on a log: sends, polls, glances (reads in the middle of the log), log ends, and look-ups by time.

A record in a result is ``[offset, value, timestamp?, key?]``: ``timestamp`` is its create time in milliseconds, ``key``
the message's key. Values are integers, unique in the run. The generator counts them, so they do not depend on a clock
or a sender. The values of sentinels, which end each partition after the last heal, are below zero.

A read whose answer cannot be decoded fails with the result ``{"illegible": requested offset}``. A read that is
``adrift`` was invoked while its topic was being deleted or recreated.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from assay.harness.core.generator import Context, Generator, as_generator, mix, time_limit, unfold
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome, Phase
from assay.system_under_test.client.config import DEFAULT_FETCH_BYTES, ProducerConfig
from assay.system_under_test.client.connection import CallError
from assay.system_under_test.client.consumer import EARLIEST as EARLIEST_TIME
from assay.system_under_test.client.consumer import LATEST as LATEST_TIME
from assay.system_under_test.client.consumer import FetchResult
from assay.system_under_test.client.errors import DamagedAnswer, ReadFailed, SendUnknown
from assay.system_under_test.protocol.control import PartitionName
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import EndOffsetsRequest
from assay.workloads.broker.log_messages import (
    NEWCOMER,
    Record,
    choose_create_time,
    decode_key,
    find_possible_keys_and_outcome,
    get_acks,
    get_client,
    get_packing,
    get_values,
    iterate_client_tries,
    make_plain_records,
    make_records,
    measure_record,
    to_result,
)
from assay.workloads.broker.log_names import describe_error, format_error, format_node, split_key, to_failure
from assay.workloads.broker.producer_profiles import SEND_SECONDS
from assay.workloads.broker.verbs import FETCH_BYTES, READ_SECONDS, Table, Verb, fail, find_verb, ok

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
LONGEST_SET: Final = 3
TAIL_READERS: Final = 3
"""How many clients in four begin to read a partition at its end. The others begin ``NEAR_END``."""
RECORDS_BEFORE_END: Final = 200
"""Number of records before the end at which they begin. If they read all, a run's cost would grow quadratically."""
NEAR_END: Final[Mapping[str, Any]] = {"start": EARLIEST, "within": RECORDS_BEFORE_END}
"""The argument of a poll that begins ``RECORDS_BEFORE_END`` records before the end."""
LONGEST_WAIT: Final = 0.1
"""Maximum seconds that a poll waits at the end of a partition. It is short, because the worker has other work."""
THOUSAND: Final = 1000
GLANCE_BYTES: Final = 512
"""Bytes that a glance requests: those of a few records."""
STEP_BYTES: Final = 100
"""Bytes that each step of a glance with several steps requests."""
LATEST_AGE: Final = -4_000
"""Lowest age in milliseconds that is looked up: a time in the future, which no message has."""
AGE_RANGE: Final = 16_000
"""Size of the range of ages that are looked up, in milliseconds."""
LARGEST: Final = 2**63 - 1
"""A damaged record may claim any offset, and positions are 64 bits wide."""


class Send(Verb):
    """Appends a message set. Argument: a list of values, or a map with options (``log_messages``).

    Result: ``{"offset"?: of the first message, "timestamp"?, "epoch"?, "node"?}``. A send of unknown outcome has a
    ``timestamp``, too, unless it timed out.
    """

    f = "send"

    @staticmethod
    def records(values: Sequence[int]) -> Sequence[Record]:
        """Returns the messages for a plain list of values. Readers only use a message's value."""
        return make_plain_records(values)

    @staticmethod
    def draw(keys: Sequence[str], *, most_values: int = LONGEST_SET) -> Generator:
        """Yields sends of one to ``most_values`` new values to random partitions, for ever."""

        def step(following: int, context: Context) -> tuple[Operation, int]:
            count = 1 + context.random_below(most_values, salt=1)
            values = list(range(following, following + count))
            return Operation(Send.f, context.choose(keys, salt=2), values), following + count

        return unfold(step, 0)

    async def invoke(self, operation: Operation) -> Completion:
        argument = operation.argument
        (codec, message_format), acks = get_packing(argument), get_acks(argument)
        config = ProducerConfig(acks=acks, timeout=SEND_SECONDS, codec=codec, message_format=message_format)
        newcomer = get_client(argument) == NEWCOMER  # sends with a new producer
        producer = (
            self.session.producer(config)
            if newcomer
            else self.session.get_or_make((Send, codec, message_format, acks), lambda: self.session.producer(config))
        )
        topic, partition = split_key(str(operation.key))
        stamp = {"timestamp": choose_create_time(argument, self.session.runtime.wall_clock())}
        try:
            result = await producer.send_set(topic, partition, make_records(argument, self.records), **stamp)
        except SendUnknown as error:
            return to_failure(error, stamp)
        finally:
            if newcomer:
                await producer.close()
        return ok(stamp | {"offset": result.base_offset, "node": format_node(result.node)})

    @classmethod
    def effects(cls, completed: Completed) -> Iterator[Effect]:
        """Yields a row per value, with every outcome: a value whose send failed must never be read."""
        result: Mapping[str, Any] = completed.completion.result or {}
        first = result.get("offset") if completed.completion.outcome is Outcome.OK else None
        argument = completed.operation.argument
        # If a topic was created again under its name, the messages may be in any of its incarnations (`lives`).
        keys, outcome = find_possible_keys_and_outcome(argument, get_key(completed), completed.completion.outcome)
        sent = zip(get_values(argument), make_records(argument, cls.records), strict=True)
        for key, (rank, (value, record)) in product(keys, enumerate(sent)):
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
                # A tombstone carries no value, so the number in the send's argument is sent as its timestamp, by which
                # readers recognise it. It is known even if the client died before it reported a timestamp.
                timestamp=value if record[1] is None else result.get("timestamp"),
                size=measure_record(record, get_packing(argument)),
            )
        yield from iterate_client_tries(completed.operation)


class Read(Verb):
    """A read of a partition. Without a result it has no effects."""

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        result = completed.completion.result
        if result is None or (completed.operation.argument or {}).get("adrift"):
            return ()  # it is unknown which incarnation of the topic answered
        return cls.iterate_effects(get_key(completed), result, completed.operation)

    @classmethod
    def iterate_effects(cls, key: str, result: Mapping[str, Any], operation: Operation) -> Iterator[Effect]:
        """Yields the rows of a result."""
        raise NotImplementedError


class Observation(Read):
    """A read of records."""

    async def fetch(self, key: str, offset: int, size: int, wait: float) -> FetchResult | Completion:
        """Reads records from ``offset`` on. Returns a completion if there is no valid answer."""
        try:
            fetched = await self.session.consumer().fetch(*split_key(key), offset, size, max_wait=wait)
        except DamagedAnswer as error:
            return fail(describe_error(error), {"illegible": offset})
        if fetched.error is ErrorCode.NONE:
            return fetched
        result = {"refused": offset} if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE else None
        return fail(f"{format_error(fetched.error)}: at offset {offset}", result)

    @classmethod
    def iterate_effects(cls, key: str, result: Mapping[str, Any], operation: Operation) -> Iterator[Effect]:
        if "refused" in result:
            yield make_out_of_range(key, result["refused"])
        elif "illegible" in result:
            yield Effect("observe", key, position=result["illegible"])
        else:
            until = operation.argument.get("until") if operation.phase is Phase.DRAIN else None
            for poll in result.get("polls", [result]):
                yield from iterate_observed(key, poll, until)


class Poll(Observation):
    """Reads records from the client's position in the partition on.

    Argument: ``{"start", "within"?, "seek"?, "until"?, "reader"?}``.

    - ``start``: ``earliest`` or ``latest``. Without a position, or with ``seek``, the poll begins there and gets a new
      ``assignment``.
    - ``within``: the poll then begins at most so many records before the end.
    - ``until``: the sentinel's offset, in the drain.
    - ``reader``: another reader of the client, with a position of its own.

    Result: ``{"begin", "records", "end", "assignment", "sought"?, "start"?: the reported log start, "node"?}``.
    """

    f = "poll"

    @staticmethod
    def draw(keys: Sequence[str]) -> Generator:
        """Yields polls of random partitions, for ever."""

        def read(context: Context) -> Operation:
            argument = NEAR_END if context.random_below(TAIL_READERS + 1, salt=3) == 0 else {"start": LATEST}
            return Operation(Poll.f, context.choose(keys, salt=4), argument)

        return as_generator(read)

    async def invoke(self, operation: Operation) -> Completion:
        session, key, argument = self.session, str(operation.key), operation.argument
        positions = session.positions
        reader = key if (name := argument.get("reader")) is None else f"{key} of {name}"
        more: dict[str, Any] = {}
        if argument.get("seek", False) or reader not in positions:
            positions.pop(reader, None)
            earliest = argument["start"] == EARLIEST
            time = EARLIEST_TIME if earliest else LATEST_TIME
            position = await session.consumer().offsets(*split_key(key), time)
            more = {"sought": True} | ({"start": position} if earliest else {})
            if "within" in argument:
                end = await session.consumer().offsets(*split_key(key), LATEST_TIME)
                position = max(position, end - argument["within"])
            session.assignments[reader] = next(session.assignment_numbers)
            positions[reader] = position
        begin = positions[reader]
        size = session.endpoint.options.get(FETCH_BYTES, DEFAULT_FETCH_BYTES)
        fetched = await self.fetch(key, begin, size, LONGEST_WAIT)
        if isinstance(fetched, Completion):
            if "illegible" not in (fetched.result or {}):
                # Usually the offset was out of range. The reader starts again, like a consumer with auto.offset.reset.
                del positions[reader]
            return fetched
        result = to_poll_result(begin, fetched, session.assignments[reader])
        positions[reader] = result["end"]
        return ok(result | more)


class Glance(Observation):
    """Reads a few records in the middle of the log, like a consumer that resumes at an old offset.

    Argument: ``{"thousandths", "steps"?}``. The read begins the given thousandths of the way from the log's start to
    its end, as far as the client knows the end. The client's own position does not change. With ``steps`` it requests
    that many consecutive offsets. A broker may cache the file position of a single offset, and only a request at this
    offset shows that the cached position is wrong.

    Sequential readers request only the beginning of a segment or the latest records. So only glances make the broker
    look up a position.

    Result: that of a poll; with steps ``{"polls"}``, a poll's result for each step.
    """

    f = "glance"

    @staticmethod
    def draw(keys: Sequence[str], *, last: int = THOUSAND, steps: int = 1) -> Generator:
        """Yields glances at random positions in the ``last`` thousandths of partitions, for ever."""

        def look(context: Context) -> Operation:
            argument = {"thousandths": THOUSAND - last + context.random_below(last, salt=7)}
            return Operation(Glance.f, context.choose(keys, salt=6), argument | ({"steps": steps} if steps > 1 else {}))

        return as_generator(look)

    @staticmethod
    def draw_evenly(keys: Sequence[str], *, each: int, seconds: float) -> Generator:
        """Yields glances at ``each`` evenly spread positions per partition, after the last heal, within ``seconds``."""

        def step(number: int, context: Context) -> tuple[Operation | None, int]:
            position, key = divmod(number, len(keys))
            if position >= each:
                return None, number
            argument = {"thousandths": (2 * position + 1) * THOUSAND // (2 * each)}
            return Operation(Glance.f, keys[key], argument, Phase.DRAIN), number + 1

        return time_limit(seconds, unfold(step, 0))

    async def invoke(self, operation: Operation) -> Completion:
        key, steps = str(operation.key), operation.argument.get("steps", 1)
        consumer = self.session.consumer()
        first = await consumer.offsets(*split_key(key), EARLIEST_TIME)
        known = self.session.positions.get(key)
        last = known if known is not None else await consumer.offsets(*split_key(key), LATEST_TIME)
        begin = first + max(0, last - first) * operation.argument["thousandths"] // THOUSAND
        size, wait = (GLANCE_BYTES, LONGEST_WAIT) if steps == 1 else (STEP_BYTES, 0.0)
        polls: list[dict[str, Any]] = []
        for offset in range(begin, begin + 1 if steps == 1 else min(begin + steps, last)):
            fetched = await self.fetch(key, offset, size, wait)
            if isinstance(fetched, Completion):
                return fetched
            polls.append(to_poll_result(offset, fetched, next(self.session.assignment_numbers)) | {"sought": True})
        for poll in polls[:1]:
            poll["start"] = first
        return ok(polls[0] if steps == 1 else {"polls": polls})


class End(Read):
    """Requests the log's end and start from the leader, together with the leader epoch and incarnation.

    The public ListOffsets request does not return the epoch. Without it, no check can decide whether an end that went
    back is a violation. So this operation uses a private request (``EndOffsetsRequest``), which the broker answers by
    the same rules. A failed request is not repeated.

    Result: ``{"offset": log end, "start"?: log start, "epoch"?, "node"?, "incarnation"?}``.
    """

    f = "end"

    @staticmethod
    def draw(keys: Sequence[str]) -> Generator:
        """Yields requests for the ends of random partitions, for ever."""
        return as_generator(lambda context: Operation(End.f, context.choose(keys, salt=5)))

    async def invoke(self, operation: Operation) -> Completion:
        topic, partition = split_key(str(operation.key))
        loop = asyncio.get_running_loop()
        leaders, deadline = self.session.leaders("assay-ends"), loop.time() + READ_SECONDS
        leader = await leaders.metadata.leader(topic, partition, deadline)
        query = EndOffsetsRequest(partitions=[PartitionName(topic=topic, partition=partition)])
        try:
            connection = await leaders.pool.get(leader.address, deadline - loop.time())
            response = await connection.call(query, 0, deadline - loop.time())
        except CallError as error:
            leaders.metadata.forget(topic, partition)
            raise ReadFailed(f"{topic}-{partition} at broker {leader.id}: {error}", node=leader.id) from error
        answer = next((one for one in response.partitions if (one.topic, one.partition) == (topic, partition)), None)
        code = ErrorCode.UNKNOWN if answer is None else ErrorCode.of(answer.error_code)
        if answer is None or code is not ErrorCode.NONE:
            leaders.metadata.forget(topic, partition)
            raise ReadFailed(
                f"{topic}-{partition}: broker {leader.id} answered {code.name}", error=code, node=leader.id
            )
        return ok(
            {
                "offset": answer.offset,
                "start": answer.log_start,
                "epoch": answer.leader_epoch,
                "node": format_node(leader.id),
                "incarnation": answer.incarnation,
            }
        )

    @classmethod
    def iterate_effects(cls, key: str, result: Mapping[str, Any], operation: Operation) -> Iterator[Effect]:
        for kind, position in (("end", result["offset"]), ("start", result.get("start"))):
            if position is not None:
                yield Effect(
                    kind,
                    key,
                    position=position,
                    leader_epoch=result.get("epoch"),
                    node=result.get("node"),
                    incarnation=result.get("incarnation"),
                )


class LookUp(Read):
    """Looks up the offset of the first message that is at most ``age`` milliseconds old, by its create time.

    Argument: ``{"age"}``. Result: ``{"timestamp", "offset": null if there is none}``.
    """

    f = "look-up"

    @staticmethod
    def draw(keys: Sequence[str]) -> Generator:
        """Yields look-ups in random partitions, for ever, sometimes of a time in the future."""

        def look_up(context: Context) -> Operation:
            age = LATEST_AGE + context.random_below(AGE_RANGE, salt=12)
            return Operation(LookUp.f, context.choose(keys, salt=13), {"age": age})

        return as_generator(look_up)

    async def invoke(self, operation: Operation) -> Completion:
        time = int(self.session.runtime.wall_clock() * 1000) - operation.argument["age"]
        offset = await self.session.consumer().offsets(*split_key(str(operation.key)), time)
        return ok({"timestamp": time, "offset": None if offset < 0 else offset})

    @classmethod
    def iterate_effects(cls, key: str, result: Mapping[str, Any], operation: Operation) -> Iterator[Effect]:
        yield Effect("look-up", key, timestamp=result["timestamp"], position=result["offset"])


TABLE: Final[Table] = {(verb.f, True): verb for verb in (Send, Poll, Glance, End, LookUp)}  # True: with a key


def effects(completed: Completed) -> Sequence[Effect]:
    """Returns the effects of these operations, for clients of other logs; see ``assay.checkers.log.family``."""
    return list(find_verb(TABLE, completed.operation).effects(completed))


def traffic(keys: Sequence[str], *, most_values: int = LONGEST_SET) -> Generator:
    """Yields sends and polls, about equally often, and a request for the log end once in twenty operations."""
    return mix(Send.draw(keys, most_values=most_values), Poll.draw(keys), End.draw(keys), weights=(9, 10, 1))


def to_poll_result(begin: int, fetched: FetchResult, assignment: int) -> dict[str, Any]:
    """Returns the result of a poll from ``begin``."""
    return {
        "begin": begin,
        "records": [to_result(message) for message in fetched.messages],
        "end": min(fetched.messages[-1].offset + 1, LARGEST) if fetched.messages else begin,
        "assignment": assignment,
        "node": format_node(fetched.node),
    }


def make_out_of_range(key: str, position: int, group: str | None = None) -> Effect:
    """Returns the row for an offset that was out of range. It is certain, whatever the operation's outcome."""
    return Effect("out-of-range", key, position=position, group=group, outcome=Outcome.OK)


def iterate_observed(key: str, result: Mapping[str, Any], until: int | None = None) -> Iterator[Effect]:
    """Yields the rows of one poll. ``until``: the sentinel's offset, in the drain."""
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


def get_key(completed: Completed) -> str:
    assert completed.operation.key is not None, f"operation {completed.index} on a log without a partition"
    return completed.operation.key
