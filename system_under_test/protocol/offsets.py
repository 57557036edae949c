"""ListOffsets (key 2). Version 0 lists base offsets of segments; version 1 finds one offset by timestamp (KIP-79)."""

from assay.system_under_test.protocol.schema import Int16, Int32, Int64, Request, message, request, wire

LATEST = -1
EARLIEST = -2


@message
class ListOffsetsPartition:
    partition: Int32
    timestamp: Int64
    """Milliseconds since the epoch, ``LATEST`` or ``EARLIEST``."""
    max_num_offsets: Int32 = wire(until=0, default=1)


@message
class ListOffsetsTopic:
    topic: str
    partitions: list[ListOffsetsPartition]


@message
class ListOffsetsPartitionResponse:
    partition: Int32
    error_code: Int16
    offsets: list[Int64] = wire(until=0, default=[])
    """In version 0: at most ``max_num_offsets`` offsets, newest first."""
    timestamp: Int64 = wire(since=1, default=-1)
    offset: Int64 = wire(since=1, default=-1)
    """In version 1: -1 if no message has this time or a later one."""


@message
class ListOffsetsTopicResponse:
    topic: str
    partitions: list[ListOffsetsPartitionResponse]


@message
class ListOffsetsResponse:
    topics: list[ListOffsetsTopicResponse]


@request(key=2, versions=(0, 1))
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    replica_id: Int32
    topics: list[ListOffsetsTopic]
