"""LeaderAndIsr (key 4), StopReplica (5), UpdateMetadata (6) and ControlledShutdown (7) of Kafka 0.10.2.

What a controller sends to brokers, and a broker that wants to leave to the controller. Our own controller uses the
requests of :mod:`assay.system_under_test.protocol.internal`, which share these answers.
"""

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
    request,
    wire,
)

LEADER_DURING_DELETE = -2
"""The leader of a partition whose topic is being deleted, as UpdateMetadata has it."""
PLAINTEXT = 0
"""Of ``security_protocol_type``; no other is spoken here."""


@message
class PartitionState:
    """The state as the controller wrote it; ``zk_version`` is the state znode's version after that write."""

    topic: str = wire(STRING)
    partition: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    leader: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    isr: list[int] = wire(array(INT32))
    zk_version: int = wire(INT32)
    replicas: list[int] = wire(array(INT32))


@message
class PartitionResult:
    topic: str = wire(STRING)
    partition: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class LiveLeader:
    id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)


@message
class LeaderAndIsrResponse:
    error_code: int = wire(INT16)
    partitions: list[PartitionResult] = wire(array(PartitionResult))


@request(key=4, versions=(0, 0))
class LeaderAndIsrRequest(Request[LeaderAndIsrResponse]):
    controller_id: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    partition_states: list[PartitionState] = wire(array(PartitionState))
    live_leaders: list[LiveLeader] = wire(array(LiveLeader))


@message
class PartitionName:
    topic: str = wire(STRING)
    partition: int = wire(INT32)


@message
class StopReplicaResponse:
    error_code: int = wire(INT16)
    partitions: list[PartitionResult] = wire(array(PartitionResult))


@request(key=5, versions=(0, 0))
class StopReplicaRequest(Request[StopReplicaResponse]):
    controller_id: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    delete_partitions: bool = wire(BOOLEAN)
    partitions: list[PartitionName] = wire(array(PartitionName))


@message
class EndPoint:
    port: int = wire(INT32)
    host: str = wire(STRING)
    listener_name: str = wire(STRING, since=3, default="")
    security_protocol_type: int = wire(INT16)


@message
class UpdateMetadataBroker:
    """Version 0 has one host and port, later ones have end points."""

    id: int = wire(INT32)
    host: str = wire(STRING, until=0, default="")
    port: int = wire(INT32, until=0, default=-1)
    end_points: list[EndPoint] = wire(array(EndPoint), since=1, default=[])
    rack: str | None = wire(NULLABLE_STRING, since=2, default=None)


@message
class UpdateMetadataResponse:
    error_code: int = wire(INT16)


@request(key=6, versions=(0, 3))
class UpdateMetadataRequest(Request[UpdateMetadataResponse]):
    controller_id: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    partition_states: list[PartitionState] = wire(array(PartitionState))
    live_brokers: list[UpdateMetadataBroker] = wire(array(UpdateMetadataBroker))


@message
class ControlledShutdownResponse:
    """``partitions_remaining`` are those that the broker still leads though they have other replicas."""

    error_code: int = wire(INT16)
    partitions_remaining: list[PartitionName] = wire(array(PartitionName))


@request(key=7, versions=(1, 1))
class ControlledShutdownRequest(Request[ControlledShutdownResponse]):
    """Version 0, whose header has no client id, is not spoken."""

    broker_id: int = wire(INT32)
