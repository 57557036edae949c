"""Produce requests: validates records, appends them as the leader, and answers when ``acks`` is fulfilled.

Compressed sets are validated and converted in steps, because a short one may hold millions of bytes. Other requests
are answered meanwhile, and sets that hold little need no turn (``records.steps``). The append itself is one step. The
leader's term is looked up after the last wait.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial

from assay.system_under_test.config import INTERNAL_TOPICS, TopicConfig
from assay.system_under_test.network.handler import CloseConnection, RequestContext
from assay.system_under_test.protocol import produce as messages
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import read_records
from assay.system_under_test.records.message import CorruptMessage, InvalidTimestamp, MessageTooLarge, SetTooLarge
from assay.system_under_test.records.produced import (
    ValidatedSet,
    assign_offsets,
    rebuild_in_steps,
    validate_in_steps,
    validate_small,
)
from assay.system_under_test.records.steps import Steps, Turns, run, run_at_once, run_beside
from assay.system_under_test.records.wrapper import MAX_EXPANDED, MAX_INNER_MESSAGES, Allowance
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.replication.purgatory import expire, to_wait_seconds
from assay.system_under_test.replication.replica import PartitionError

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
MAX_SET_BYTES = 4 * 1024 * 1024
"""Maximum bytes of one partition's set as it was sent, or ``max.message.bytes`` if that is more.

Other requests wait while uncompressed messages are validated, which takes about a microsecond per 26 bytes at worst.
``wrapper.MAX_EXPANDED`` and ``wrapper.MAX_INNER_MESSAGES`` limit the content of a compressed set. (0.10.2 uses the
segment size as the limit, later versions the message size.)
"""
MAX_EXPANDED_SETS = 4
"""The compressed sets of one request may hold as much as so many sets of the greatest content."""
MAX_CONVERTED_BYTES = 1024 * 1024
"""Maximum bytes of a set whose messages must be converted to another format or codec."""
LONG_SET_BYTES = 64 * 1024
"""After a set of more bytes, other tasks run."""

Answer = tuple[messages.ProducePartitionResponse, asyncio.Future[ErrorCode] | None]
"""The answer for one partition, and with acks=all the future that it waits for."""


async def produce(
    manager: ReplicaManager, request: messages.ProduceRequest, context: RequestContext
) -> messages.ProduceResponse | None:
    """Answers a produce request.

    With acks 0 there is no answer, so an error closes the connection to inform the producer. The appended records are
    removed from ``request``, so that they take no memory while the request waits for followers.
    """
    answers: list[Answer] = []
    topics = await _append_all(manager, request, answers)
    request.topics.clear()
    context.release()
    if request.acks == ACKS_NONE:
        failed = [answer for answer, _ in answers if answer.error_code != ErrorCode.NONE]
        if failed:
            raise CloseConnection(f"produce with acks=0 failed: {ErrorCode(failed[0].error_code).name}")
        return None
    await _wait_for_commits(answers, to_wait_seconds(request.timeout_ms))
    return messages.ProduceResponse(topics=topics)


async def _append_all(
    manager: ReplicaManager, request: messages.ProduceRequest, answers: list[Answer]
) -> list[messages.ProduceTopicResponse]:
    """Returns the answers by topic, and adds them to ``answers``.

    This is a separate function so that no local variable keeps the records in memory.
    """
    topics = []
    allowance = Allowance(MAX_EXPANDED_SETS * MAX_EXPANDED, MAX_EXPANDED_SETS * MAX_INNER_MESSAGES)
    for topic in request.topics:
        parts = []
        for partition in topic.partitions:
            answer, waiting = await _append(manager, topic.topic, partition, request.acks, allowance)
            answers.append((answer, waiting))
            parts.append(answer)
            if len(read_records(partition.records)) > LONG_SET_BYTES:
                await asyncio.sleep(0)
        topics.append(messages.ProduceTopicResponse(topic=topic.topic, partitions=parts))
    return topics


async def _wait_for_commits(answers: list[Answer], timeout: float) -> None:
    waiting = [(answer, future) for answer, future in answers if future is not None]
    pending = [future for _, future in waiting if not future.done()]
    loop = asyncio.get_running_loop()
    timers = [loop.call_later(timeout, expire, future) for future in pending]
    try:
        for answer, future in waiting:
            error = await future
            if error != ErrorCode.NONE:
                answer.error_code = error
                answer.base_offset = -1
    finally:
        for timer in timers:
            timer.cancel()


async def _append(
    manager: ReplicaManager, topic: str, produced: messages.ProducePartition, acks: int, allowance: Allowance
) -> Answer:
    try:
        if topic in INTERNAL_TOPICS:
            raise PartitionError(ErrorCode.INVALID_TOPIC)
        if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise PartitionError(ErrorCode.INVALID_REQUIRED_ACKS)
        partition = manager.get(topic, produced.partition)
        partition.require_leader()
        records, config = read_records(produced.records), None
        while config is None:
            config = partition.config
            converted = await _to_stored_format(manager.turns, records, config, partition.log.now_ms(), allowance)
            async with _numbering(manager.turns, partition, converted) as converted:
                if partition.config == config:
                    term = partition.require_leader()
                    first, last, time = term.append(converted, wait_for_all=acks == ACKS_ALL)
                else:
                    config = None  # the topic's settings changed meanwhile
    except PartitionError as error:
        return messages.ProducePartitionResponse(
            partition=produced.partition, error_code=error.code, base_offset=-1
        ), None
    answer = messages.ProducePartitionResponse(
        partition=produced.partition, error_code=ErrorCode.NONE, base_offset=first, log_append_time=time
    )
    return answer, partition.wait_for_commit(last) if acks == ACKS_ALL else None


@asynccontextmanager
async def _numbering(turns: Turns, partition: Partition, converted: ValidatedSet) -> AsyncIterator[ValidatedSet]:
    """Yields the set with its offsets, if it must have them before the append. The block must append it.

    Nothing else is appended meanwhile. A large set takes its turn before the partition's lock. So other producers of
    the partition wait for the set in work at most, and never for the sets before it.
    """
    needs_turn = converted.holds_offsets and not converted.is_small
    async with turns.take() if needs_turn else nullcontext(), partition.append_lock:
        if needs_turn:
            yield await run_beside(assign_offsets(converted, partition.log.end_offset))
        elif converted.holds_offsets:
            yield await run_at_once(lambda: run(assign_offsets(converted, partition.log.end_offset)))
        else:
            yield converted


async def _to_stored_format(
    turns: Turns, records: bytes, config: TopicConfig, now_ms: int, allowance: Allowance
) -> ValidatedSet:
    """Returns the set in the stored format. Raises ``PartitionError`` if it is invalid."""
    if len(records) > max(MAX_SET_BYTES, config.max_message_bytes):
        raise PartitionError(ErrorCode.RECORD_LIST_TOO_LARGE)
    limit, left = config.max_message_bytes, allowance.make_for_set()
    validated = await _validate(
        turns, validate_in_steps(records, limit, left), partial(validate_small, records, limit, left)
    )
    if validated.count == 0 or validated.size != len(records):
        raise PartitionError(ErrorCode.CORRUPT_MESSAGE)
    if config.compacts and not validated.keyed:
        raise PartitionError(ErrorCode.CORRUPT_MESSAGE)
    if config.magic and not config.append_time and validated.minimum_timestamp is not None:
        difference = max(now_ms - validated.minimum_timestamp, validated.maximum_timestamp - now_ms)
        if difference > config.message_timestamp_difference_max_ms:
            raise PartitionError(ErrorCode.INVALID_TIMESTAMP)
    fits = validated.magics == {config.magic} and (config.codec is None or validated.codecs == {config.codec})
    if fits and validated.regular:
        return validated
    if len(records) > max(MAX_CONVERTED_BYTES, config.max_message_bytes):
        raise PartitionError(ErrorCode.RECORD_LIST_TOO_LARGE)
    rebuild_small = partial(run, _rebuild(records, config)) if validated.is_small else None
    return await _validate(turns, _rebuild(records, config), rebuild_small)


def _rebuild(records: bytes, config: TopicConfig) -> Steps[ValidatedSet]:
    """Rebuilds and validates a set in one turn, because no other work may begin while the result is in memory."""
    rebuilt = yield from rebuild_in_steps(records, config.magic, config.codec)
    return (yield from validate_in_steps(rebuilt, config.max_message_bytes, Allowance()))


async def _validate(
    turns: Turns, steps: Steps[ValidatedSet], attempt: Callable[[], ValidatedSet | None] | None
) -> ValidatedSet:
    """Does the work as ``Turns.run``, and raises ``PartitionError`` for an invalid set."""
    try:
        return await turns.run(steps, attempt)
    except SetTooLarge as error:
        raise PartitionError(ErrorCode.RECORD_LIST_TOO_LARGE) from error
    except MessageTooLarge as error:
        raise PartitionError(ErrorCode.MESSAGE_TOO_LARGE) from error
    except InvalidTimestamp as error:
        raise PartitionError(ErrorCode.INVALID_TIMESTAMP) from error
    except CorruptMessage as error:
        raise PartitionError(ErrorCode.CORRUPT_MESSAGE) from error
