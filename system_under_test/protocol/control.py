"""LeaderAndIsr (key 4), StopReplica (5), UpdateMetadata (6) and ControlledShutdown (7) of Kafka 0.10.2.

A controller sends the first three to brokers. A broker that wants to stop sends ControlledShutdown to the controller.
This project's controller uses the requests of :mod:`assay.system_under_test.protocol.internal` instead, which have the
same responses.
"""

from assay.system_under_test.protocol.schema import Int16, Int32, Request, message, request, wire

LEADER_DURING_DELETE = -2
"""The leader of a partition whose topic is being deleted, in UpdateMetadata."""
PLAINTEXT = 0
"""The only supported ``security_protocol_type``."""


@message
class LeaderAndIsrState:
    """Partition state as the controller wrote it. ``zk_version``: the version of the state's znode after that write."""

    topic: str
    partition: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]


@message
class PartitionResult:
    topic: str
    partition: Int32
    error_code: Int16


@message
class LiveLeader:
    id: Int32
    host: str
    port: Int32


@message
class LeaderAndIsrResponse:
    error_code: Int16
    partitions: list[PartitionResult]


@request(key=4, versions=(0, 0))
class LeaderAndIsrRequest(Request[LeaderAndIsrResponse]):
    controller_id: Int32
    controller_epoch: Int32
    partition_states: list[LeaderAndIsrState]
    live_leaders: list[LiveLeader]


@message
class PartitionName:
    topic: str
    partition: Int32


@message
class StopReplicaResponse:
    error_code: Int16
    partitions: list[PartitionResult]


@request(key=5, versions=(0, 0))
class StopReplicaRequest(Request[StopReplicaResponse]):
    controller_id: Int32
    controller_epoch: Int32
    delete_partitions: bool
    partitions: list[PartitionName]


@message
class EndPoint:
    port: Int32
    host: str
    listener_name: str = wire(since=3, default="")
    security_protocol_type: Int16


@message
class UpdateMetadataBroker:
    """Version 0 has one host and port; later versions have end points."""

    id: Int32
    host: str = wire(until=0, default="")
    port: Int32 = wire(until=0, default=-1)
    end_points: list[EndPoint] = wire(since=1, default=[])
    rack: str | None = wire(since=2, default=None)


@message
class UpdateMetadataResponse:
    error_code: Int16


@request(key=6, versions=(0, 3))
class UpdateMetadataRequest(Request[UpdateMetadataResponse]):
    controller_id: Int32
    controller_epoch: Int32
    partition_states: list[LeaderAndIsrState]
    live_brokers: list[UpdateMetadataBroker]


@message
class ControlledShutdownResponse:
    """``partitions_remaining`` are the partitions with other replicas that the broker still leads."""

    error_code: Int16
    partitions_remaining: list[PartitionName]


@request(key=7, versions=(1, 1))
class ControlledShutdownRequest(Request[ControlledShutdownResponse]):
    """Version 0 is not supported, because its header has no client id."""

    broker_id: Int32
