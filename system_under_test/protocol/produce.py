"""Produce (key 0). Version 1 adds the throttle time, version 2 message format 1 and the append time."""

from assay.system_under_test.protocol.schema import Int16, Int32, Int64, Records, Request, message, request, wire


@message
class ProducePartition:
    partition: Int32
    records: Records


@message
class ProduceTopic:
    topic: str
    partitions: list[ProducePartition]


@message
class ProducePartitionResponse:
    partition: Int32
    error_code: Int16
    base_offset: Int64 = -1
    """Offset of the first appended message; -1 after an error."""
    log_append_time: Int64 = wire(since=2, default=-1)
    """Milliseconds since the epoch if the topic uses the append time, else -1."""


@message
class ProduceTopicResponse:
    topic: str
    partitions: list[ProducePartitionResponse]


@message
class ProduceResponse:
    topics: list[ProduceTopicResponse]
    throttle_time_ms: Int32 = wire(since=1, default=0)


@request(key=0, versions=(0, 2))
class ProduceRequest(Request[ProduceResponse]):
    acks: Int16
    """0: no response; 1: the leader has appended; -1: all in-sync replicas have appended."""
    timeout_ms: Int32
    topics: list[ProduceTopic]
