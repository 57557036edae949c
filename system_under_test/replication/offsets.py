"""Answers requests for offsets: the start and end of a log, the first offset after a time, the end of a leader epoch.

A log's end is returned only after a proof that no newer leader exists. For this proof, the leader calls ``sync()`` and
reads the partition's state in ZooKeeper, after the request arrived. The state must still name this leader and epoch. A
new leader returns the end only once its high watermark has reached the start of its epoch (KIP-207). Otherwise the end
could move backward (KAFKA-2334).
"""

import asyncio
import logging

from kazoo.exceptions import KazooException

from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.network.handler import RequestContext
from assay.system_under_test.protocol import internal, offsets
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.replication.replica import PartitionError
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.replication")


async def prove_end(manager: ReplicaManager, zookeeper: ZooKeeper, topic: str, index: int) -> tuple[int, int]:
    """Proves that this broker leads, and returns the leader epoch and the log's end for consumers: the high watermark.

    Raises ``PartitionError``:

    - UNKNOWN_TOPIC_OR_PARTITION: this broker has no replica
    - NOT_LEADER_FOR_PARTITION: this broker is not the leader
    - LEADER_NOT_AVAILABLE: this broker cannot prove that it leads, or has not reached the start of its epoch yet
    """
    partition = manager.get(topic, index)
    term = partition.require_leader()
    path = paths.partition_state(topic, index)
    try:
        async with asyncio.timeout(manager.config.request_timeout_ms / 1000):
            await zookeeper.sync(path)
            state = znodes.decode_versioned(znodes.PartitionState, path, await zookeeper.get(path)).value
    except (KazooException, TimeoutError, znodes.ZnodeError) as error:
        raise PartitionError(ErrorCode.LEADER_NOT_AVAILABLE) from error
    if state.leader != manager.config.broker_id or state.leader_epoch != term.epoch or partition.leader is not term:
        raise PartitionError(ErrorCode.NOT_LEADER_FOR_PARTITION)
    if not partition.traits.may_return_end(partition.high_watermark, term.start_offset):
        raise PartitionError(ErrorCode.LEADER_NOT_AVAILABLE)
    return term.epoch, partition.high_watermark


async def list_offsets(
    manager: ReplicaManager, zookeeper: ZooKeeper, request: offsets.ListOffsetsRequest, context: RequestContext
) -> offsets.ListOffsetsResponse:
    """Answers each partition once, like Kafka, because an answer may need a ZooKeeper round trip or a segment scan."""
    seen: set[tuple[str, int]] = set()
    topics = []
    for topic in request.topics:
        parts = []
        for wanted in topic.partitions:
            if (topic.topic, wanted.partition) not in seen:
                seen.add((topic.topic, wanted.partition))
                parts.append(await _list_partition(manager, zookeeper, topic.topic, wanted, context.api_version))
        topics.append(offsets.ListOffsetsTopicResponse(topic=topic.topic, partitions=parts))
    return offsets.ListOffsetsResponse(topics=topics)


async def _list_partition(
    manager: ReplicaManager, zookeeper: ZooKeeper, topic: str, wanted: offsets.ListOffsetsPartition, version: int
) -> offsets.ListOffsetsPartitionResponse:
    answer = offsets.ListOffsetsPartitionResponse(partition=wanted.partition, error_code=ErrorCode.NONE)
    try:
        partition = manager.get(topic, wanted.partition)
        partition.require_leader()
        if wanted.timestamp == offsets.LATEST:
            _, end = await prove_end(manager, zookeeper, topic, wanted.partition)
            answer.offset, answer.offsets = end, _list_segments(partition, wanted, end)
        elif wanted.timestamp == offsets.EARLIEST:
            start = partition.log.start_offset
            answer.offset, answer.offsets = start, [start]
        elif version == 0:
            answer.offsets = _list_segments(partition, wanted, partition.high_watermark)
        elif not partition.config.magic:
            answer.error_code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT  # messages of format 0 have no timestamps
        elif not _find_by_time(partition, wanted.timestamp, answer):
            # "No such message" is a statement about the log's end, which needs the proof.
            await prove_end(manager, zookeeper, topic, wanted.partition)
            _find_by_time(partition, wanted.timestamp, answer)
    except PartitionError as error:
        answer.error_code = error.code
    except CorruptLog as damage:
        _log.error("%s-%d: %s", topic, wanted.partition, damage)
        answer.error_code = ErrorCode.CORRUPT_MESSAGE
    if answer.error_code != ErrorCode.NONE:
        answer.offsets = []
    return answer


def _list_segments(partition: Partition, wanted: offsets.ListOffsetsPartition, end: int) -> list[int]:
    """Returns the offsets that version 0 lists. ``end`` replaces offsets that consumers cannot read yet."""
    count = max(0, wanted.max_num_offsets)
    found = partition.log.find_offsets_before(wanted.timestamp, count)
    below = [offset for offset in found if offset < end]
    return below if below == found else [end, *below][:count]


def _find_by_time(partition: Partition, timestamp: int, answer: offsets.ListOffsetsPartitionResponse) -> bool:
    """Fills in the first offset at or after the time; returns False if there is none below the high watermark."""
    found = partition.log.find_offset_for_time(timestamp)
    if found is None or found[1] >= partition.high_watermark:
        return False
    answer.timestamp, answer.offset = found
    return True


async def answer_end_offsets(
    manager: ReplicaManager, zookeeper: ZooKeeper, request: internal.EndOffsetsRequest, context: RequestContext
) -> internal.EndOffsetsResponse:
    answers = []
    for wanted in {(query.topic, query.partition): query for query in request.partitions}.values():
        epoch, offset, start, code = -1, -1, -1, ErrorCode.NONE
        try:
            epoch, offset = await prove_end(manager, zookeeper, wanted.topic, wanted.partition)
            start = manager.get(wanted.topic, wanted.partition).log.start_offset
        except PartitionError as error:
            code = error.code
        answers.append(
            internal.EndOffsetAnswer(
                topic=wanted.topic,
                partition=wanted.partition,
                error_code=code,
                leader_epoch=epoch,
                offset=offset,
                log_start=start,
                incarnation=manager.incarnation,
            )
        )
    return internal.EndOffsetsResponse(partitions=answers)


async def answer_epoch_end(
    manager: ReplicaManager, request: internal.EpochEndRequest, context: RequestContext
) -> internal.EpochEndResponse:
    """Returns the end of each requested epoch, if this broker leads at exactly the epoch that the follower follows."""
    if not manager.is_current_registration(request.broker_epoch):
        code = ErrorCode.STALE_CONTROLLER_EPOCH
        return internal.EpochEndResponse(
            error_code=code, partitions=[_reject(query, code) for query in request.partitions]
        )
    return internal.EpochEndResponse(
        error_code=ErrorCode.NONE, partitions=[_find_epoch_end(manager, q) for q in request.partitions]
    )


def _find_epoch_end(manager: ReplicaManager, query: internal.EpochQuery) -> internal.EpochAnswer:
    try:
        partition = manager.get(query.topic, query.partition)
        partition.require_leader_at(query.leader_epoch, query.topic_czxid)
    except PartitionError as error:
        return _reject(query, error.code)
    epoch, end = partition.epochs.end_offset_for(query.epoch, partition.log.end_offset)
    return internal.EpochAnswer(
        topic=query.topic,
        partition=query.partition,
        error_code=ErrorCode.NONE,
        epoch=epoch,
        end_offset=end,
        log_start=partition.log.start_offset,
        gaps=partition.log.config.compacted,
        history=[internal.EpochEntry(epoch=e, start_offset=start) for e, start in partition.epochs.entries()],
    )


def _reject(query: internal.EpochQuery, code: ErrorCode) -> internal.EpochAnswer:
    return internal.EpochAnswer(topic=query.topic, partition=query.partition, error_code=code)


async def answer_log_end(
    manager: ReplicaManager, request: internal.LogEndRequest, context: RequestContext
) -> internal.LogEndResponse:
    if not manager.accept_request("log-end", request.controller_id, request.controller_epoch, request.broker_epoch):
        return internal.LogEndResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, partitions=[])
    answers = []
    for wanted in request.partitions:
        code, epoch, end = ErrorCode.NONE, -1, -1
        try:
            partition = manager.get(wanted.topic, wanted.partition)
            same_topic = partition.incarnation == wanted.topic_czxid
            if partition.log.damage is None:  # otherwise the answer is (-1, -1): the replica must not lead
                # A log of another topic of that name will be set aside, so the answer is an empty log.
                epoch, end = (partition.epochs.latest(), partition.log.end_offset) if same_topic else (-1, 0)
            partition.events.emit(
                "log-end-answered",
                key=partition.key,
                epoch=partition.leader_epoch if same_topic else -1,
                controller_epoch=request.controller_epoch,
                topic_zxid=wanted.topic_czxid,
                position=end,
                value=epoch,
            )
        except PartitionError as error:
            code = error.code
        answers.append(
            internal.LogEndAnswer(
                topic=wanted.topic, partition=wanted.partition, error_code=code, last_epoch=epoch, end_offset=end
            )
        )
    return internal.LogEndResponse(error_code=ErrorCode.NONE, partitions=answers)
