"""Produce (key 0). Version 1 adds the throttle time, version 2 message format 1 and the append time."""

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


@message
class ProducePartition:
    partition: int = wire(INT32)
    records: Records = wire(RECORDS)


@message
class ProduceTopic:
    topic: str = wire(STRING)
    partitions: list[ProducePartition] = wire(array(ProducePartition))


@message
class ProducePartitionResponse:
    partition: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)
    """Offset of the first message appended; -1 after an error."""
    log_append_time: int = wire(INT64, since=2, default=-1)
    """Milliseconds since the epoch when the topic stamps messages itself, else -1."""


@message
class ProduceTopicResponse:
    topic: str = wire(STRING)
    partitions: list[ProducePartitionResponse] = wire(array(ProducePartitionResponse))


@message
class ProduceResponse:
    topics: list[ProduceTopicResponse] = wire(array(ProduceTopicResponse))
    throttle_time_ms: int = wire(INT32, since=1, default=0)


@request(key=0, versions=(0, 2))
class ProduceRequest(Request[ProduceResponse]):
    acks: int = wire(INT16)
    """0: no response at all; 1: the leader appended; -1: all in-sync replicas have it."""
    timeout_ms: int = wire(INT32)
    topics: list[ProduceTopic] = wire(array(ProduceTopic))
