"""Private requests between brokers, with API keys from 1000 up.

The public requests of Kafka 0.10 distinguish neither incarnations of a broker nor terms of a leader. The private
requests name both:

- ``broker_epoch``: the czxid of a broker's registration (KIP-380, KIP-903); -1 is never valid
- ``leader_epoch``: the leader's term (KIP-101, KIP-279, KIP-320)
"""

from collections.abc import Mapping

from assay.system_under_test.protocol import control, draft_groups
from assay.system_under_test.protocol import topics as changes
from assay.system_under_test.protocol.api import Api, build_api_table
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
    """Partition state as the controller wrote it.

    - ``zk_version``: the version of the state's znode after that write
    - ``elr``: the eligible leader replicas (KIP-966)
    """

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
    """A topic's settings as of the ZooKeeper transaction ``zxid``."""

    topic: str
    zxid: Int64
    settings: list[TopicSetting]


@request(key=1000, versions=(0, 0))
class LeaderAndIsrRequest(Request[control.LeaderAndIsrResponse]):
    """Announces partition states to a broker.

    ``serial`` numbers the LeaderAndIsr, StopReplica and UpdateMetadata requests of one controller epoch. 0 means that
    the request has no number.
    """

    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Int64
    partitions: list[PartitionStateUpdate]
    topics: list[TopicSettingsUpdate]
    live_brokers: list[LiveBroker]
    serial: Int64 = 0


@message
class StopReplicaPartition:
    """A replica to stop. ``topic_czxid`` identifies the topic among all topics that had this name."""

    topic: str
    partition: Int32
    leader_epoch: Int32
    topic_czxid: Int64


@request(key=1001, versions=(0, 0))
class StopReplicaRequest(Request[control.StopReplicaResponse]):
    """Stops replicas. ``serial`` is as in :class:`LeaderAndIsrRequest`."""

    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Int64
    delete: bool
    partitions: list[StopReplicaPartition]
    serial: Int64 = 0


@request(key=1002, versions=(0, 0))
class UpdateMetadataRequest(Request[control.UpdateMetadataResponse]):
    """Updates a broker's metadata. ``deleted`` names deleted topics. A full update names every existing topic.

    ``serial`` is as in :class:`LeaderAndIsrRequest`.
    """

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


MAX_REPLICA_RESPONSE_BYTES = 8 * 1024 * 1024
"""Bytes of records after which an answer to a follower has no records of further partitions.

Without a limit, the answer to a follower that is behind on hundreds of partitions is too large for a connection, or
does not arrive within the follower's time limit. The follower would then never catch up.
"""


@message
class ReplicaFetchResponse:
    """The partitions in the order of the request. The first ones get records, up to ``MAX_REPLICA_RESPONSE_BYTES``."""

    error_code: Int16
    partitions: list[ReplicaFetchedPartition]


@request(key=1003, versions=(0, 0))
class ReplicaFetchRequest(Request[ReplicaFetchResponse]):
    """A follower's fetch.

    ``replica_epoch`` is the follower's broker epoch, and ``broker_epoch`` is the leader's, as the follower knows it.
    """

    replica_id: Int32
    replica_epoch: Int64
    broker_epoch: Int64
    max_wait_ms: Int32
    min_bytes: Int32
    partitions: list[ReplicaFetchPartition]


@message
class EpochQuery:
    """Asks for the end of ``epoch``. ``topic_czxid`` identifies the topic among all topics that had this name."""

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
    """``epoch``: the leader's largest epoch up to the requested one, or -1. ``end_offset``: that epoch's end."""

    topic: str
    partition: Int32
    error_code: Int16
    epoch: Int32 = -1
    end_offset: Int64 = -1
    log_start: Int64 = -1
    gaps: bool = False
    """Whether the leader's log may have gaps."""
    history: list[EpochEntry] = wire(default=[])
    """The leader's epochs, each with the offset of its first record."""


@message
class EpochEndResponse:
    error_code: Int16
    partitions: list[EpochAnswer]


@request(key=1004, versions=(0, 0))
class EpochEndRequest(Request[EpochEndResponse]):
    """Asks a leader where the follower's latest epochs end (Kafka's OffsetForLeaderEpoch)."""

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
    """Asks for log ends, like ListOffsets with ``LATEST``, for testers.

    The response adds the leader's epoch, log start and incarnation (new with each start of its process).
    """

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
    """A partition. ``topic_czxid`` identifies the topic among all topics that had this name."""

    topic: str
    partition: Int32
    topic_czxid: Int64


@request(key=1006, versions=(0, 0))
class LogEndRequest(Request[LogEndResponse]):
    """Asks a replica for its (last epoch, log end), to choose a leader among replicas after unclean starts."""

    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Int64
    partitions: list[LogEndPartition]


@message
class ReplicaRole:
    """A replica's state.

    - ``leader_epoch``: the highest leader epoch that this replica has accepted
    - ``high_watermark``: -1 if the log is damaged
    - ``settings``: fingerprint of the effective settings
    - ``flushed``: everything below this offset is on disk
    - ``flush_ms``: maximum milliseconds until later records are flushed
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
    """Asks a broker for the state of all its replicas. For testers."""


@message
class DamagedReplica:
    """A replica with a damaged log. ``leader_epoch``: the highest leader epoch that it has accepted."""

    topic: str
    topic_czxid: Int64
    partition: Int32
    leader_epoch: Int32


@message
class DamagedReplicasResponse:
    error_code: Int16


@request(key=1008, versions=(0, 0))
class DamagedReplicasRequest(Request[DamagedReplicasResponse]):
    """Reports to the controller that logs of the broker have lost durable records."""

    broker_id: Int32
    broker_epoch: Int64
    partitions: list[DamagedReplica]


@request(key=1009, versions=(0, 0))
class ShutdownRequest(Request[control.ControlledShutdownResponse]):
    """ControlledShutdown of one incarnation of a broker, like Kafka's version 2 (KIP-380)."""

    broker_id: Int32
    broker_epoch: Int64


INTERNAL_APIS: Mapping[int, Api] = build_api_table(
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
"""The private APIs, which ApiVersions never lists."""
