"""Fetch (key 1). Version 1 adds the throttle time, 2 message format 1, and 3 a limit on the whole response."""

from assay.system_under_test.protocol.schema import Int16, Int32, Int64, Records, Request, message, request, wire

CONSUMER_REPLICA_ID = -1
DEBUG_REPLICA_ID = -2
"""A reader for debugging, which also gets records above the high watermark."""


@message
class FetchPartition:
    partition: Int32
    offset: Int64
    max_bytes: Int32


@message
class FetchTopic:
    topic: str
    partitions: list[FetchPartition]


@message
class FetchPartitionResponse:
    partition: Int32
    error_code: Int16
    high_watermark: Int64 = -1
    """-1 after an error."""
    records: Records = b""


@message
class FetchTopicResponse:
    topic: str
    partitions: list[FetchPartitionResponse]


@message
class FetchResponse:
    throttle_time_ms: Int32 = wire(since=1, default=0)
    topics: list[FetchTopicResponse]


@request(key=1, versions=(0, 3))
class FetchRequest(Request[FetchResponse]):
    replica_id: Int32
    """A follower's broker id (from 0), ``CONSUMER_REPLICA_ID`` or ``DEBUG_REPLICA_ID``."""
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = wire(since=3, default=2**31 - 1)
    """Limit on the whole response, which is filled in the order of the request (KIP-74)."""
    topics: list[FetchTopic]
