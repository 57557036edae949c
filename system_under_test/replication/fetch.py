"""Fetch requests: consumers read up to the high watermark, followers up to the log end; both wait for new records.

A consumer gets OFFSET_OUT_OF_RANGE only after a proof that no newer leader exists. The proof begins after the request
arrived. Without the proof, a deposed leader that was stopped or cut off could send this error, because it lacks the
records of its successors. Its consumers would start over, and commit lower offsets than before. In Kafka, KIP-320
solves this.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from assay.system_under_test.log.errors import CorruptLog, OffsetOutOfRange
from assay.system_under_test.network.handler import RequestContext
from assay.system_under_test.protocol import fetch as messages
from assay.system_under_test.protocol import internal
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import measure_records, read_records
from assay.system_under_test.records import message_set
from assay.system_under_test.records.wrapper import MAX_EXPANDED
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.offsets import prove_end
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.replication.purgatory import WaitingReaders, to_wait_seconds, wake
from assay.system_under_test.replication.replica import PartitionError
from assay.system_under_test.replication.throttle import lists_replica
from assay.system_under_test.runtime import Slice, ZooKeeper

_log = logging.getLogger("assay.replication")

FIRST_VERSION_WITH_MAGIC_1 = 2
FIRST_VERSION_WITH_WHOLE_MESSAGES = 3
MAX_RESPONSE_BYTES = 8 * 1024 * 1024
"""Maximum bytes of records in one answer to a consumer. An answer stays in memory until the consumer has read it."""
MAX_CONVERTED_BYTES = 1024 * 1024
"""Maximum bytes if messages must be converted to another format. Uncompressed messages are converted in one step."""
MAX_CONVERTED_EXPANDED = 4 * MAX_EXPANDED
"""Maximum decompressed bytes of compressed messages that are converted for one request."""


class _CopiedSlice:
    """A range of a log that is copied before it is sent.

    Records above the high watermark may be truncated, but bytes that are sent without a copy must never change.
    """

    def __init__(self, stored: Slice) -> None:
        self._stored = stored

    @property
    def size(self) -> int:
        return self._stored.size

    def read(self) -> bytes:
        return self._stored.read()

    async def send(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self._stored.read())
        await writer.drain()


async def _wait_for_change(readers: Sequence[WaitingReaders], deadline: float) -> None:
    """Returns at the next change of any of the partitions, or at the deadline."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    timer = loop.call_at(deadline, wake, future)
    for waiting in readers:
        waiting.add(future)
    try:
        await future
    finally:
        timer.cancel()
        for waiting in readers:
            waiting.discard(future)


# -- consumers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OutOfRangeAnswer:
    """An answer with ``OFFSET_OUT_OF_RANGE``, and the epoch of the leader that gave it."""

    topic: str
    answer: messages.FetchPartitionResponse
    epoch: int


async def fetch(
    manager: ReplicaManager, zookeeper: ZooKeeper, request: messages.FetchRequest, context: RequestContext
) -> messages.FetchResponse:
    """Answers a consumer's fetch. It never updates a follower's position: followers use ``replica_fetch``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + to_wait_seconds(request.max_wait_ms)
    topics = _remove_duplicates(request.topics)
    while True:
        out_of_range: list[_OutOfRangeAnswer] = []
        response, size, failed, readers = _read(manager, request, topics, context.api_version, out_of_range)
        if out_of_range:
            await asyncio.gather(*(_confirm_out_of_range(manager, zookeeper, one) for one in out_of_range))
        if failed or not readers or size >= request.min_bytes or loop.time() >= deadline:
            if context.api_version < FIRST_VERSION_WITH_MAGIC_1:
                await _convert(manager, topics, response)
            return response
        await _wait_for_change(readers, deadline)


async def _confirm_out_of_range(manager: ReplicaManager, zookeeper: ZooKeeper, out_of_range: _OutOfRangeAnswer) -> None:
    """Replaces the answer's error code if this leader cannot be proved to be the current one."""
    answer = out_of_range.answer
    try:
        epoch, _ = await prove_end(manager, zookeeper, out_of_range.topic, answer.partition)
    except PartitionError as error:
        answer.error_code = error.code
    else:
        if epoch != out_of_range.epoch:  # leadership has changed since the range was checked
            answer.error_code = ErrorCode.NOT_LEADER_FOR_PARTITION


def _remove_duplicates(wanted: Sequence[messages.FetchTopic]) -> Sequence[messages.FetchTopic]:
    """Returns each partition once, like Kafka: a small request must not read a partition thousands of times."""
    seen: set[tuple[str, int]] = set()
    topics = []
    for topic in wanted:
        parts = []
        for partition in topic.partitions:
            if (topic.topic, partition.partition) not in seen:
                seen.add((topic.topic, partition.partition))
                parts.append(partition)
        topics.append(messages.FetchTopic(topic=topic.topic, partitions=parts))
    return topics


def _read(
    manager: ReplicaManager,
    request: messages.FetchRequest,
    wanted_topics: Sequence[messages.FetchTopic],
    version: int,
    out_of_range: list[_OutOfRangeAnswer],
) -> tuple[messages.FetchResponse, int, bool, list[WaitingReaders]]:
    """Returns the response, its bytes of records, and whether a partition failed.

    Also returns the waiting readers of each partition, among which the request can wait for more records.
    """
    bytes_left = MAX_RESPONSE_BYTES if version >= FIRST_VERSION_WITH_MAGIC_1 else MAX_CONVERTED_BYTES
    if version >= FIRST_VERSION_WITH_WHOLE_MESSAGES:
        bytes_left = min(bytes_left, request.max_bytes)
    size, failed = 0, False
    readers: list[WaitingReaders] = []
    topics = []
    for topic in wanted_topics:
        parts = []
        for wanted in topic.partitions:
            try:
                partition = manager.get(topic.topic, wanted.partition)
                epoch = partition.require_leader().epoch
                answer = _read_partition(partition, wanted, request.replica_id, version, bytes_left, size == 0)
            except PartitionError as error:
                failed = True
                answer = messages.FetchPartitionResponse(partition=wanted.partition, error_code=error.code)
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(_OutOfRangeAnswer(topic.topic, answer, epoch))
            else:
                consumer = request.replica_id == messages.CONSUMER_REPLICA_ID
                # The waiting readers of the next commit, or of the next append.
                readers.append(partition.commit_readers if consumer else partition.append_readers)
                read = measure_records(answer.records)
                if version < FIRST_VERSION_WITH_MAGIC_1:
                    read = min(read, max(wanted.max_bytes, 0))  # ``_convert`` truncates the records
                size += read
                bytes_left = max(0, bytes_left - read)
            parts.append(answer)
        topics.append(messages.FetchTopicResponse(topic=topic.topic, partitions=parts))
    return messages.FetchResponse(topics=topics), size, failed, readers


def _read_partition(
    partition: Partition, wanted: messages.FetchPartition, replica_id: int, version: int, bytes_left: int, first: bool
) -> messages.FetchPartitionResponse:
    """Reads one partition. ``first``: whether the response has no records yet.

    The first message is then returned even if it exceeds the limits. Raises ``PartitionError``.
    """
    log = partition.log
    if not log.start_offset <= wanted.offset <= log.end_offset:
        raise PartitionError(ErrorCode.OFFSET_OUT_OF_RANGE)
    is_consumer = replica_id == messages.CONSUMER_REPLICA_ID
    # Consumers read up to the high watermark, unless a defect changes that (``readable_end``).
    limit = partition.traits.readable_end(partition.bounds) if is_consumer else log.end_offset
    answer = messages.FetchPartitionResponse(
        partition=wanted.partition, error_code=ErrorCode.NONE, high_watermark=partition.high_watermark
    )
    if wanted.offset >= limit:
        return answer  # between the high watermark and the log end: no records yet, which is no error
    whole = version >= FIRST_VERSION_WITH_WHOLE_MESSAGES
    size = min(wanted.max_bytes, bytes_left)
    found = _read_log(partition, wanted.offset, size, limit, at_least_one=first or not whole)
    if version >= FIRST_VERSION_WITH_MAGIC_1 and found.size <= max(size, 0):
        answer.records = found if is_consumer else _CopiedSlice(found)
        return answer
    records = found.read()
    if version < FIRST_VERSION_WITH_MAGIC_1:
        answer.records = records  # ``_convert`` converts and truncates them
        return answer
    # before version 3, a message above the limit is truncated, and the client asks again with a larger limit
    answer.records = records if whole else _truncate(records, wanted)
    return answer


def _truncate(records: bytes, wanted: messages.FetchPartition) -> bytes:
    return records[: max(wanted.max_bytes, 0)]


async def _convert(
    manager: ReplicaManager, wanted: Sequence[messages.FetchTopic], response: messages.FetchResponse
) -> None:
    """Converts the records of all answers to message format 0, in steps.

    Once the content of compressed sets has reached the limit, the remaining partitions get no records. Their consumer
    asks again.
    """
    expanded_left = MAX_CONVERTED_EXPANDED
    for topic, answered in zip(wanted, response.topics, strict=True):
        for partition, answer in zip(topic.partitions, answered.partitions, strict=True):
            records = read_records(answer.records)
            if records and expanded_left > 0:
                steps = message_set.convert_in_steps(records, 0, min(expanded_left, MAX_EXPANDED))
                records, expanded = await manager.turns.run(steps)
                expanded_left -= expanded
                answer.records = _truncate(records, partition)
            else:
                answer.records = b""


def _read_log(partition: Partition, offset: int, size: int, limit: int | None, *, at_least_one: bool) -> Slice:
    """Reads a range of the log. Raises ``PartitionError``: OFFSET_OUT_OF_RANGE, or CORRUPT_MESSAGE for damage."""
    try:
        return partition.log.read(offset, size, limit=limit, at_least_one=at_least_one)
    except OffsetOutOfRange as error:
        raise PartitionError(ErrorCode.OFFSET_OUT_OF_RANGE) from error
    except CorruptLog as damage:
        _log.error("%s: %s", partition.key, damage)
        raise PartitionError(ErrorCode.CORRUPT_MESSAGE) from damage


# -- followers -----------------------------------------------------------------------------------------------------


async def replica_fetch(
    manager: ReplicaManager, request: internal.ReplicaFetchRequest, context: RequestContext
) -> internal.ReplicaFetchResponse:
    """Answers a follower's fetch, and records its fetch offset as the follower's position.

    Rejects a request that names another registration of this broker.
    """
    if not manager.is_current_registration(request.broker_epoch):
        return internal.ReplicaFetchResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, partitions=[])
    loop = asyncio.get_running_loop()
    now = loop.time()
    deadline = now + to_wait_seconds(request.max_wait_ms)
    rejected: dict[tuple[str, int], ErrorCode] = {}
    for wanted in request.partitions:
        try:
            partition = manager.get(wanted.topic, wanted.partition)
            term = partition.require_leader_at(wanted.leader_epoch, wanted.topic_czxid)
            term.record_fetch(request.replica_id, request.replica_epoch, wanted.fetch_offset, now)
        except PartitionError as error:
            rejected[wanted.topic, wanted.partition] = error.code
    while True:
        response, size, readers = _read_for_follower(manager, request, rejected)
        if rejected or size >= request.min_bytes or loop.time() >= deadline:
            _count_throttled_bytes(manager, response)
            return response
        await _wait_for_change(readers, deadline)


def _read_for_follower(
    manager: ReplicaManager, request: internal.ReplicaFetchRequest, rejected: dict[tuple[str, int], ErrorCode]
) -> tuple[internal.ReplicaFetchResponse, int, list[WaitingReaders]]:
    """Returns the response, its bytes of records, and the waiting readers of each partition. Adds to ``rejected``."""
    size = 0
    readers: list[WaitingReaders] = []
    parts = []
    for wanted in request.partitions:
        error = rejected.get((wanted.topic, wanted.partition))
        if error is None:
            try:
                partition = manager.get(wanted.topic, wanted.partition)
                answer = _read_replica(partition, wanted, with_records=size < internal.MAX_REPLICA_RESPONSE_BYTES)
                if measure_records(answer.records) and _is_held_back(manager, partition, request.replica_id):
                    answer.records = b""
                readers.append(partition.append_readers)
                size += measure_records(answer.records)
                parts.append(answer)
                continue
            except PartitionError as failure:
                error = rejected[wanted.topic, wanted.partition] = failure.code
        parts.append(
            internal.ReplicaFetchedPartition(
                topic=wanted.topic,
                partition=wanted.partition,
                error_code=error,
                log_start=_find_log_start(manager, wanted),
            )
        )
    return internal.ReplicaFetchResponse(error_code=ErrorCode.NONE, partitions=parts), size, readers


def _is_throttled(manager: ReplicaManager, partition: Partition) -> bool:
    return lists_replica(
        partition.config.leader_replication_throttled_replicas, partition.index, manager.config.broker_id
    )


def _is_held_back(manager: ReplicaManager, partition: Partition, follower: int) -> bool:
    """Returns whether the throttle delays this follower now. A follower in sync is never delayed."""
    if not _is_throttled(manager, partition) or follower in partition.require_leader().in_sync.maximal:
        return False
    return manager.throttles.leader.exceeded


def _count_throttled_bytes(manager: ReplicaManager, response: internal.ReplicaFetchResponse) -> None:
    """Counts the bytes sent to throttled replicas."""
    for answer in response.partitions:
        partition = manager.replicas.find(answer.topic, answer.partition)
        if partition is not None and _is_throttled(manager, partition):
            manager.throttles.leader.record(measure_records(answer.records))


def _read_replica(
    partition: Partition, wanted: internal.ReplicaFetchPartition, *, with_records: bool
) -> internal.ReplicaFetchedPartition:
    partition.require_leader_at(wanted.leader_epoch, wanted.topic_czxid)
    answer = internal.ReplicaFetchedPartition(
        topic=wanted.topic,
        partition=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=partition.high_watermark,
        log_start=partition.log.start_offset,
    )
    if with_records:
        max_bytes = min(wanted.max_bytes, internal.MAX_REPLICA_RESPONSE_BYTES)
        found = _read_log(partition, wanted.fetch_offset, max_bytes, None, at_least_one=True)
        answer.records = _CopiedSlice(found) if found.size else b""
    return answer


def _find_log_start(manager: ReplicaManager, wanted: internal.ReplicaFetchPartition) -> int:
    try:
        return manager.get(wanted.topic, wanted.partition).log.start_offset
    except PartitionError:
        return -1
