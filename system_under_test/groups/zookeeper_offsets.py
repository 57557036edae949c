"""Version 0 of OffsetCommit and OffsetFetch: offsets in ZooKeeper, as consumers of the old design keep them.

The committing client is not checked.
"""

from collections.abc import Callable, Mapping

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from assay.system_under_test.protocol import group_offsets
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths

Check = Callable[[str, int, str | None], ErrorCode]


async def commit(
    zookeeper: ZooKeeper, request: group_offsets.OffsetCommitRequest, check: Check
) -> Mapping[tuple[str, int], ErrorCode]:
    """Commits offsets and returns the error code of each partition; -1 also if the outcome is unknown."""
    codes = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            code = _check_group(request.group_id) or check(topic.topic, wanted.partition, wanted.metadata)
            if not code:
                path = paths.consumer_offset(request.group_id, topic.topic, wanted.partition)
                code = await _write(zookeeper, path, str(wanted.offset).encode())
            codes[topic.topic, wanted.partition] = code
    return codes


def _check_group(group_id: str) -> ErrorCode:
    """Checks that the group id can be the name of a znode."""
    fits = group_id.isprintable() and group_id not in ("", ".", "..") and "/" not in group_id
    return ErrorCode.NONE if fits else ErrorCode.INVALID_GROUP_ID


async def _write(zookeeper: ZooKeeper, path: str, data: bytes) -> ErrorCode:
    try:
        try:
            await zookeeper.set(path, data)
        except NoNodeError:
            try:
                await zookeeper.create(path, data, makepath=True)
            except NodeExistsError:
                await zookeeper.set(path, data)
    except KazooException:
        return ErrorCode.UNKNOWN
    return ErrorCode.NONE


async def fetch(
    zookeeper: ZooKeeper, request: group_offsets.OffsetFetchRequest, check: Check
) -> group_offsets.OffsetFetchResponse:
    """Fetches offsets. Error 3 means that nothing was committed, in this version only, as in 0.10.2."""
    topics = []
    for topic in request.topics or ():
        parts = [
            await _read(
                zookeeper,
                request.group_id,
                topic.topic,
                partition,
                _check_group(request.group_id) or check(topic.topic, partition, None),
            )
            for partition in topic.partitions
        ]
        topics.append(group_offsets.OffsetFetchTopicResponse(topic=topic.topic, partitions=parts))
    return group_offsets.OffsetFetchResponse(topics=topics)


async def _read(
    zookeeper: ZooKeeper, group_id: str, topic: str, partition: int, code: ErrorCode
) -> group_offsets.OffsetFetchPartitionResponse:
    offset = -1
    if not code:
        path = paths.consumer_offset(group_id, topic, partition)
        try:
            await zookeeper.sync(path)
            data, _ = await zookeeper.get(path)
            offset = int(data)
        except NoNodeError:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except (KazooException, ValueError):
            code = ErrorCode.UNKNOWN
    return group_offsets.OffsetFetchPartitionResponse(partition=partition, offset=offset, metadata="", error_code=code)
