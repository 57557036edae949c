"""ListOffsets (key 2). Version 0 lists segments' offsets before a time; version 1 finds one offset by time (KIP-79)."""

from __future__ import annotations

from assay.system_under_test.protocol.schema import INT16, INT32, INT64, STRING, Request, array, message, request, wire

LATEST = -1
EARLIEST = -2


@message
class ListOffsetsPartition:
    partition: int = wire(INT32)
    timestamp: int = wire(INT64)
    """Milliseconds since the epoch, ``LATEST`` or ``EARLIEST``."""
    max_num_offsets: int = wire(INT32, until=0, default=1)


@message
class ListOffsetsTopic:
    topic: str = wire(STRING)
    partitions: list[ListOffsetsPartition] = wire(array(ListOffsetsPartition))


@message
class ListOffsetsPartitionResponse:
    partition: int = wire(INT32)
    error_code: int = wire(INT16)
    offsets: list[int] = wire(array(INT64), until=0, default=[])
    """Version 0: at most ``max_num_offsets``, newest first."""
    timestamp: int = wire(INT64, since=1, default=-1)
    offset: int = wire(INT64, since=1, default=-1)
    """Version 1: -1 when no message is that young."""


@message
class ListOffsetsTopicResponse:
    topic: str = wire(STRING)
    partitions: list[ListOffsetsPartitionResponse] = wire(array(ListOffsetsPartitionResponse))


@message
class ListOffsetsResponse:
    topics: list[ListOffsetsTopicResponse] = wire(array(ListOffsetsTopicResponse))


@request(key=2, versions=(0, 1))
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    replica_id: int = wire(INT32)
    topics: list[ListOffsetsTopic] = wire(array(ListOffsetsTopic))
