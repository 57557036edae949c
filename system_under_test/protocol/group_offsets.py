"""OffsetCommit (key 8) and OffsetFetch (key 9). Version 0 of either means ZooKeeper, later ones the coordinator."""

from __future__ import annotations

from assay.system_under_test.protocol.schema import (
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    Request,
    array,
    message,
    nullable_array,
    request,
    wire,
)


@message
class OffsetCommitPartition:
    partition: int = wire(INT32)
    offset: int = wire(INT64)
    timestamp: int = wire(INT64, since=1, until=1, default=-1)
    metadata: str | None = wire(NULLABLE_STRING)


@message
class OffsetCommitTopic:
    topic: str = wire(STRING)
    partitions: list[OffsetCommitPartition] = wire(array(OffsetCommitPartition))


@message
class OffsetCommitPartitionResponse:
    partition: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class OffsetCommitTopicResponse:
    topic: str = wire(STRING)
    partitions: list[OffsetCommitPartitionResponse] = wire(array(OffsetCommitPartitionResponse))


@message
class OffsetCommitResponse:
    topics: list[OffsetCommitTopicResponse] = wire(array(OffsetCommitTopicResponse))


@request(key=8, versions=(0, 2))
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    group_id: str = wire(STRING)
    generation_id: int = wire(INT32, since=1, default=-1)
    member_id: str = wire(STRING, since=1, default="")
    retention_time_ms: int = wire(INT64, since=2, default=-1)
    topics: list[OffsetCommitTopic] = wire(array(OffsetCommitTopic))


@message
class OffsetFetchTopic:
    topic: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@message
class OffsetFetchPartitionResponse:
    partition: int = wire(INT32)
    offset: int = wire(INT64)
    """-1 when none was committed."""
    metadata: str | None = wire(NULLABLE_STRING)
    error_code: int = wire(INT16)


@message
class OffsetFetchTopicResponse:
    topic: str = wire(STRING)
    partitions: list[OffsetFetchPartitionResponse] = wire(array(OffsetFetchPartitionResponse))


@message
class OffsetFetchResponse:
    topics: list[OffsetFetchTopicResponse] = wire(array(OffsetFetchTopicResponse))
    error_code: int = wire(INT16, since=2, default=0)


@request(key=9, versions=(0, 2))
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    group_id: str = wire(STRING)
    topics: list[OffsetFetchTopic] | None = wire(nullable_array(OffsetFetchTopic))
    """Null, from version 2 on: all that were ever committed."""
