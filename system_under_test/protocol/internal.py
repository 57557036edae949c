"""The private requests between brokers, on keys from 1000 up.

The public requests of Kafka 0.10 cannot distinguish one life of a broker from the next, nor one term of a leader from
another. These carry both: ``broker_epoch`` is the czxid of a broker's registration (KIP-380, KIP-903), ``leader_epoch``
the term (KIP-101, KIP-279, KIP-320). A broker epoch of -1 is never valid.
"""

from __future__ import annotations

from collections.abc import Mapping

from assay.system_under_test.protocol.api import Api, api_table
from assay.system_under_test.protocol.control import LeaderAndIsrResponse, StopReplicaResponse, UpdateMetadataResponse
from assay.system_under_test.protocol.draft_groups import (
    ConsumerMetadataRequest,
    DraftHeartbeatRequest,
    DraftJoinGroupRequest,
    DraftLeaveGroupRequest,
)
from assay.system_under_test.protocol.partition_changes import (
    DescribeReassignmentsRequest,
    ElectPreferredRequest,
    ReassignRequest,
)
from assay.system_under_test.protocol.schema import (
    BOOLEAN,
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
from assay.system_under_test.protocol.topic_changes import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    DescribeConfigsRequest,
)


@message
class LiveBroker:
    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    broker_epoch: int = wire(INT64)


@message
class MemberEpoch:
    """The registration under which a broker is a member of an in-sync set."""

    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64)


@message
class PartitionStateUpdate:
    """A partition's state as the controller wrote it; ``zk_version`` is the state znode's version after that write."""

    topic: str = wire(STRING)
    topic_czxid: int = wire(INT64)
    partition: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    leader: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    isr: list[int] = wire(array(INT32))
    member_epochs: list[MemberEpoch] = wire(array(MemberEpoch))
    elr: list[int] = wire(array(INT32))
    zk_version: int = wire(INT32)
    replicas: list[int] = wire(array(INT32))


@message
class TopicSetting:
    name: str = wire(STRING)
    value: str = wire(STRING)


@message
class TopicSettingsUpdate:
    """``zxid``: as of which transaction of ZooKeeper."""

    topic: str = wire(STRING)
    zxid: int = wire(INT64)
    settings: list[TopicSetting] = wire(array(TopicSetting))


@request(key=1000, versions=(0, 0))
class LeaderAndIsrRequest(Request[LeaderAndIsrResponse]):
    controller_id: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    broker_epoch: int = wire(INT64)
    partitions: list[PartitionStateUpdate] = wire(array(PartitionStateUpdate))
    topics: list[TopicSettingsUpdate] = wire(array(TopicSettingsUpdate))
    live_brokers: list[LiveBroker] = wire(array(LiveBroker))


@message
class StopReplicaPartition:
    topic: str = wire(STRING)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32)


@request(key=1001, versions=(0, 0))
class StopReplicaRequest(Request[StopReplicaResponse]):
    controller_id: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    broker_epoch: int = wire(INT64)
    delete: bool = wire(BOOLEAN)
    partitions: list[StopReplicaPartition] = wire(array(StopReplicaPartition))


@request(key=1002, versions=(0, 0))
class UpdateMetadataRequest(Request[UpdateMetadataResponse]):
    """``deleted`` names topics that are no more. A full update names every topic there is."""

    controller_id: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    broker_epoch: int = wire(INT64)
    full: bool = wire(BOOLEAN)
    partitions: list[PartitionStateUpdate] = wire(array(PartitionStateUpdate))
    deleted: list[str] = wire(array(STRING))
    live_brokers: list[LiveBroker] = wire(array(LiveBroker))


@message
class ReplicaFetchPartition:
    topic: str = wire(STRING)
    topic_czxid: int = wire(INT64)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    fetch_offset: int = wire(INT64)
    max_bytes: int = wire(INT32)


@message
class ReplicaFetchedPartition:
    topic: str = wire(STRING)
    partition: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    log_start: int = wire(INT64)
    records: Records = wire(RECORDS)


@message
class ReplicaFetchResponse:
    error_code: int = wire(INT16)
    partitions: list[ReplicaFetchedPartition] = wire(array(ReplicaFetchedPartition))


@request(key=1003, versions=(0, 0))
class ReplicaFetchRequest(Request[ReplicaFetchResponse]):
    """A follower's fetch: its registration, the leader's as it knows it, and the term of each partition."""

    replica_id: int = wire(INT32)
    replica_epoch: int = wire(INT64)
    broker_epoch: int = wire(INT64)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    partitions: list[ReplicaFetchPartition] = wire(array(ReplicaFetchPartition))


@message
class EpochQuery:
    """``topic_czxid`` distinguishes a topic from another of the same name, before or after it."""

    topic: str = wire(STRING)
    topic_czxid: int = wire(INT64)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    epoch: int = wire(INT32)


@message
class EpochEntry:
    epoch: int = wire(INT32)
    start_offset: int = wire(INT64)


@message
class EpochAnswer:
    """Where ``epoch`` (the largest not above the one asked for; -1: none) ends on the leader, and its whole history."""

    topic: str = wire(STRING)
    partition: int = wire(INT32)
    error_code: int = wire(INT16)
    epoch: int = wire(INT32)
    end_offset: int = wire(INT64)
    log_start: int = wire(INT64)
    gaps: bool = wire(BOOLEAN)
    """May the leader's log have gaps?"""
    history: list[EpochEntry] = wire(array(EpochEntry))


@message
class EpochEndResponse:
    error_code: int = wire(INT16)
    partitions: list[EpochAnswer] = wire(array(EpochAnswer))


@request(key=1004, versions=(0, 0))
class EpochEndRequest(Request[EpochEndResponse]):
    replica_id: int = wire(INT32)
    broker_epoch: int = wire(INT64)
    partitions: list[EpochQuery] = wire(array(EpochQuery))


@message
class EndOffsetQuery:
    topic: str = wire(STRING)
    partition: int = wire(INT32)


@message
class EndOffsetAnswer:
    topic: str = wire(STRING)
    partition: int = wire(INT32)
    error_code: int = wire(INT16)
    leader_epoch: int = wire(INT32)
    offset: int = wire(INT64)


@message
class EndOffsetsResponse:
    partitions: list[EndOffsetAnswer] = wire(array(EndOffsetAnswer))


@request(key=1005, versions=(0, 0))
class EndOffsetsRequest(Request[EndOffsetsResponse]):
    """ListOffsets -1 for testers: the answer has the leader's epoch, too."""

    partitions: list[EndOffsetQuery] = wire(array(EndOffsetQuery))


@message
class LogEndAnswer:
    topic: str = wire(STRING)
    partition: int = wire(INT32)
    error_code: int = wire(INT16)
    last_epoch: int = wire(INT32)
    end_offset: int = wire(INT64)


@message
class LogEndResponse:
    error_code: int = wire(INT16)
    partitions: list[LogEndAnswer] = wire(array(LogEndAnswer))


@request(key=1006, versions=(0, 0))
class LogEndRequest(Request[LogEndResponse]):
    """The controller asks a replica for its (last epoch, log end) when it must choose among unclean starters."""

    controller_id: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    broker_epoch: int = wire(INT64)
    partitions: list[EndOffsetQuery] = wire(array(EndOffsetQuery))


INTERNAL_APIS: Mapping[int, Api] = api_table(
    [
        LeaderAndIsrRequest,
        StopReplicaRequest,
        UpdateMetadataRequest,
        ReplicaFetchRequest,
        EpochEndRequest,
        EndOffsetsRequest,
        LogEndRequest,
        CreatePartitionsRequest,
        AlterConfigsRequest,
        DescribeConfigsRequest,
        ElectPreferredRequest,
        ReassignRequest,
        DescribeReassignmentsRequest,
        ConsumerMetadataRequest,
        DraftJoinGroupRequest,
        DraftHeartbeatRequest,
        DraftLeaveGroupRequest,
    ]
)
"""Never announced."""
