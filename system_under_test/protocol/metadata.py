"""Metadata (key 3). Version 1 adds racks, the controller and internal topics; version 2 the cluster id (KIP-78)."""

from assay.system_under_test.protocol.schema import Int16, Int32, Request, message, request, wire


@message
class MetadataBroker:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = wire(since=1, default=None)


@message
class MetadataPartition:
    error_code: Int16
    partition: Int32
    leader: Int32
    """-1 if there is no leader. Then the error code is LEADER_NOT_AVAILABLE."""
    replicas: list[Int32]
    isr: list[Int32]


@message
class MetadataTopic:
    error_code: Int16
    topic: str
    is_internal: bool = wire(since=1, default=False)
    partitions: list[MetadataPartition]


@message
class MetadataResponse:
    brokers: list[MetadataBroker]
    cluster_id: str | None = wire(since=2, default=None)
    controller_id: Int32 = wire(since=1, default=-1)
    topics: list[MetadataTopic]


@request(key=3, versions=(0, 2))
class MetadataRequest(Request[MetadataResponse]):
    topics: list[str] | None
    """The requested topics; see :func:`find_requested_topics`."""


def find_requested_topics(request: MetadataRequest, version: int) -> list[str] | None:
    """Returns the distinct requested topics; None means all topics.

    A request for all topics has an empty list in version 0, and null in later versions.
    """
    if request.topics is None or (version == 0 and not request.topics):
        return None
    return list(dict.fromkeys(request.topics))
