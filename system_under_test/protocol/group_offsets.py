"""OffsetCommit (key 8) and OffsetFetch (key 9). Version 0 uses ZooKeeper, later versions the coordinator."""

from assay.system_under_test.protocol.schema import Int16, Int32, Int64, Request, message, request, wire


@message
class OffsetCommitPartition:
    partition: Int32
    offset: Int64
    timestamp: Int64 = wire(since=1, until=1, default=-1)
    metadata: str | None


@message
class OffsetCommitTopic:
    topic: str
    partitions: list[OffsetCommitPartition]


@message
class OffsetCommitPartitionResponse:
    partition: Int32
    error_code: Int16


@message
class OffsetCommitTopicResponse:
    topic: str
    partitions: list[OffsetCommitPartitionResponse]


@message
class OffsetCommitResponse:
    topics: list[OffsetCommitTopicResponse]


@request(key=8, versions=(0, 2))
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    group_id: str
    generation_id: Int32 = wire(since=1, default=-1)
    member_id: str = wire(since=1, default="")
    retention_time_ms: Int64 = wire(since=2, default=-1)
    topics: list[OffsetCommitTopic]


@message
class OffsetFetchTopic:
    topic: str
    partitions: list[Int32]


@message
class OffsetFetchPartitionResponse:
    partition: Int32
    offset: Int64
    """-1 if no offset was committed."""
    metadata: str | None
    error_code: Int16


@message
class OffsetFetchTopicResponse:
    topic: str
    partitions: list[OffsetFetchPartitionResponse]


@message
class OffsetFetchResponse:
    topics: list[OffsetFetchTopicResponse]
    error_code: Int16 = wire(since=2, default=0)


@request(key=9, versions=(0, 2))
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    group_id: str
    topics: list[OffsetFetchTopic] | None
    """Null, from version 2 on, requests all committed offsets of the group."""
