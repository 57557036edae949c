"""Fetch (key 1). Version 1 adds the throttle time, 2 message format 1, 3 a limit of the whole response."""

from __future__ import annotations

from assay.system_under_test.protocol.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    Records,
    Request,
    array,
    message,
    request,
    wire,
)

CONSUMER_REPLICA_ID = -1
DEBUG_REPLICA_ID = -2


@message
class FetchPartition:
    partition: int = wire(INT32)
    offset: int = wire(INT64)
    max_bytes: int = wire(INT32)


@message
class FetchTopic:
    topic: str = wire(STRING)
    partitions: list[FetchPartition] = wire(array(FetchPartition))


@message
class FetchPartitionResponse:
    partition: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    """-1 after an error."""
    records: Records = wire(RECORDS)


@message
class FetchTopicResponse:
    topic: str = wire(STRING)
    partitions: list[FetchPartitionResponse] = wire(array(FetchPartitionResponse))


@message
class FetchResponse:
    throttle_time_ms: int = wire(INT32, since=1, default=0)
    topics: list[FetchTopicResponse] = wire(array(FetchTopicResponse))


@request(key=1, versions=(0, 3))
class FetchRequest(Request[FetchResponse]):
    replica_id: int = wire(INT32)
    """A follower's broker id (from 0), ``CONSUMER_REPLICA_ID`` or ``DEBUG_REPLICA_ID``."""
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, since=3, default=2**31 - 1)
    """Of the whole response; the order of topics and partitions says who is served first (KIP-74)."""
    topics: list[FetchTopic] = wire(array(FetchTopic))
