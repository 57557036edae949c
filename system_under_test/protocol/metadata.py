"""Metadata (key 3). Version 1 adds racks, the controller and internal topics; version 2 the cluster's id (KIP-78)."""

from __future__ import annotations

from assay.system_under_test.protocol.schema import (
    BOOLEAN,
    INT16,
    INT32,
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
class MetadataBroker:
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(NULLABLE_STRING, since=1, default=None)


@message
class MetadataPartition:
    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader: int = wire(INT32)
    """-1 when there is none; then the error code is LEADER_NOT_AVAILABLE."""
    replicas: list[int] = wire(array(INT32))
    isr: list[int] = wire(array(INT32))


@message
class MetadataTopic:
    error_code: int = wire(INT16)
    topic: str = wire(STRING)
    is_internal: bool = wire(BOOLEAN, since=1, default=False)
    partitions: list[MetadataPartition] = wire(array(MetadataPartition))


@message
class MetadataResponse:
    brokers: list[MetadataBroker] = wire(array(MetadataBroker))
    cluster_id: str | None = wire(NULLABLE_STRING, since=2, default=None)
    controller_id: int = wire(INT32, since=1, default=-1)
    topics: list[MetadataTopic] = wire(array(MetadataTopic))


@request(key=3, versions=(0, 2))
class MetadataRequest(Request[MetadataResponse]):
    topics: list[str] | None = wire(nullable_array(STRING))
    """Which topics: see :func:`topics_wanted`."""


def topics_wanted(request: MetadataRequest, version: int) -> list[str] | None:
    """The topics asked for, each once; None means all. In version 0 an empty list means all, later null does."""
    if request.topics is None or (version == 0 and not request.topics):
        return None
    return list(dict.fromkeys(request.topics))
