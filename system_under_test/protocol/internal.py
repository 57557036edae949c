"""The private requests between brokers, on keys from 1000 up.

The public requests of Kafka 0.10 cannot distinguish one life of a broker from the next, nor one term of a leader from
another. These carry both: ``broker_epoch`` is the czxid of a broker's registration (KIP-380, KIP-903), ``leader_epoch``
the term (KIP-101, KIP-279, KIP-320). A broker epoch of -1 is never valid.
"""

from collections.abc import Mapping

from assay.system_under_test.protocol import control, draft_groups
from assay.system_under_test.protocol import topics as changes
from assay.system_under_test.protocol.api import Api, api_table
from assay.system_under_test.protocol.schema import Int16, Int32, Int64, Records, Request, message, request, wire


@message
class LiveBroker:
    broker_id: Int32
    host: str
    port: Int32
    broker_epoch: Int64


@message
class MemberEpoch:
    """The registration under which a broker is a member of an in-sync set."""

    broker_id: Int32
    broker_epoch: Int64


@message
class PartitionStateUpdate:
    """A partition's state as the controller wrote it; ``zk_version`` is the state znode's version after that write."""

    topic: str
    topic_czxid: Int64
    partition: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    member_epochs: list[MemberEpoch]
    elr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]


@message
class TopicSetting:
    name: str
    value: str


@message
class TopicSettingsUpdate:
    """``zxid``: as of which transaction of ZooKeeper."""

    topic: str
    zxid: Int64
    settings: list[TopicSetting]


@request(key=1000, versions=(0, 0))
class LeaderAndIsrRequest(Request[control.LeaderAndIsrResponse]):
    """``serial`` rises with each one, and each StopReplica and UpdateMetadata, of one controller's term; 0: none."""

    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Int64
    partitions: list[PartitionStateUpdate]
    topics: list[TopicSettingsUpdate]
    live_brokers: list[LiveBroker]
    serial: Int64 = 0


@message
class StopReplicaPartition:
    """``topic_czxid``: of the topic that is meant, of all that had this name."""

    topic: str
    partition: Int32
    leader_epoch: Int32
    topic_czxid: Int64


@request(key=1001, versions=(0, 0))
class StopReplicaRequest(Request[control.StopReplicaResponse]):
    """``serial`` as above."""

    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Int64
    delete: bool
    partitions: list[StopReplicaPartition]
    serial: Int64 = 0


@request(key=1002, versions=(0, 0))
class UpdateMetadataRequest(Request[control.UpdateMetadataResponse]):
    """``deleted`` names topics that are no more. A full update names every topic there is. ``serial`` as above."""

    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Int64
    full: bool
    partitions: list[PartitionStateUpdate]
    deleted: list[str]
    live_brokers: list[LiveBroker]
    serial: Int64 = 0


@message
class ReplicaFetchPartition:
    topic: str
    topic_czxid: Int64
    partition: Int32
    leader_epoch: Int32
    fetch_offset: Int64
    max_bytes: Int32


@message
class ReplicaFetchedPartition:
    topic: str
    partition: Int32
    error_code: Int16
    high_watermark: Int64 = -1
    log_start: Int64
    records: Records = b""


@message
class ReplicaFetchResponse:
    error_code: Int16
    partitions: list[ReplicaFetchedPartition]


@request(key=1003, versions=(0, 0))
class ReplicaFetchRequest(Request[ReplicaFetchResponse]):
    """A follower's fetch: its registration, the leader's as it knows it, and the term of each partition."""

    replica_id: Int32
    replica_epoch: Int64
    broker_epoch: Int64
    max_wait_ms: Int32
    min_bytes: Int32
    partitions: list[ReplicaFetchPartition]


@message
class EpochQuery:
    """``topic_czxid`` distinguishes a topic from another of the same name, before or after it."""

    topic: str
    topic_czxid: Int64
    partition: Int32
    leader_epoch: Int32
    epoch: Int32


@message
class EpochEntry:
    epoch: Int32
    start_offset: Int64


@message
class EpochAnswer:
    """Where ``epoch`` (the largest not above the one asked for; -1: none) ends on the leader, and its whole history."""

    topic: str
    partition: Int32
    error_code: Int16
    epoch: Int32 = -1
    end_offset: Int64 = -1
    log_start: Int64 = -1
    gaps: bool = False
    """May the leader's log have gaps?"""
    history: list[EpochEntry] = wire(default=[])


@message
class EpochEndResponse:
    error_code: Int16
    partitions: list[EpochAnswer]


@request(key=1004, versions=(0, 0))
class EpochEndRequest(Request[EpochEndResponse]):
    replica_id: Int32
    broker_epoch: Int64
    partitions: list[EpochQuery]


@message
class EndOffsetAnswer:
    topic: str
    partition: Int32
    error_code: Int16
    leader_epoch: Int32
    offset: Int64
    log_start: Int64
    incarnation: Int64


@message
class EndOffsetsResponse:
    partitions: list[EndOffsetAnswer]


@request(key=1005, versions=(0, 0))
class EndOffsetsRequest(Request[EndOffsetsResponse]):
    """ListOffsets -1 for testers: the answer also has the leader's epoch, its log's start, and its incarnation."""

    partitions: list[control.PartitionName]


@message
class LogEndAnswer:
    topic: str
    partition: Int32
    error_code: Int16
    last_epoch: Int32
    end_offset: Int64


@message
class LogEndResponse:
    error_code: Int16
    partitions: list[LogEndAnswer]


@message
class LogEndPartition:
    """``topic_czxid``: of the topic that is meant, of all that had this name."""

    topic: str
    partition: Int32
    topic_czxid: Int64


@request(key=1006, versions=(0, 0))
class LogEndRequest(Request[LogEndResponse]):
    """The controller asks a replica for its (last epoch, log end) when it must choose among unclean starters."""

    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Int64
    partitions: list[LogEndPartition]


@message
class ReplicaRole:
    """``leader_epoch``: the highest that this replica obeys; ``high_watermark``: -1 of a damaged log.

    ``settings``: the fingerprint of those in force. ``flushed``: everything below is on the disk; what comes after is
    put there within ``flush_ms``.
    """

    topic: str
    partition: Int32
    leader_epoch: Int32
    high_watermark: Int64
    log_end: Int64
    settings: Int64
    flushed: Int64
    flush_ms: Int64


@message
class RolesResponse:
    partitions: list[ReplicaRole]


@request(key=1007, versions=(0, 0))
class RolesRequest(Request[RolesResponse]):
    """For testers: all replicas that this broker has."""


@message
class DamagedReplica:
    """``leader_epoch``: the highest that this replica obeys."""

    topic: str
    topic_czxid: Int64
    partition: Int32
    leader_epoch: Int32


@message
class DamagedReplicasResponse:
    error_code: Int16


@request(key=1008, versions=(0, 0))
class DamagedReplicasRequest(Request[DamagedReplicasResponse]):
    """A broker reports to the controller that logs of its own have lost something that they had made durable."""

    broker_id: Int32
    broker_epoch: Int64
    partitions: list[DamagedReplica]


@request(key=1009, versions=(0, 0))
class ShutdownRequest(Request[control.ControlledShutdownResponse]):
    """ControlledShutdown of one life of a broker, as in its version 2 (KIP-380)."""

    broker_id: Int32
    broker_epoch: Int64


INTERNAL_APIS: Mapping[int, Api] = api_table(
    [
        LeaderAndIsrRequest,
        StopReplicaRequest,
        UpdateMetadataRequest,
        ReplicaFetchRequest,
        EpochEndRequest,
        EndOffsetsRequest,
        LogEndRequest,
        RolesRequest,
        DamagedReplicasRequest,
        ShutdownRequest,
        changes.CreatePartitionsRequest,
        changes.AlterConfigsRequest,
        changes.DescribeConfigsRequest,
        changes.ElectPreferredRequest,
        changes.ReassignRequest,
        changes.DescribeReassignmentsRequest,
        draft_groups.ConsumerMetadataRequest,
        draft_groups.DraftJoinGroupRequest,
        draft_groups.DraftHeartbeatRequest,
        draft_groups.DraftLeaveGroupRequest,
    ]
)
"""Never announced."""
