"""CreateTopics (key 19) and DeleteTopics (key 20), KIP-4; on private keys, what 0.10.2 has no requests for.

Those that change topics have the fields of KIP-195, KIP-339 and KIP-133. Elections of preferred leaders and
reassignments do what Kafka's tools do by writing to ZooKeeper, which works here as well, and say what became of it;
later Kafkas have such requests, too (KIP-455, KIP-460). All go to the controller.
"""

import re

from assay.system_under_test.protocol.control import PartitionName
from assay.system_under_test.protocol.schema import Int16, Int32, Request, message, request, wire

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """It becomes the name of a folder."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


@message
class ReplicaAssignment:
    partition: Int32
    replicas: list[Int32]


@message
class ConfigEntry:
    name: str
    value: str | None


@message
class CreatableTopic:
    """Either numbers, or an assignment with both numbers -1."""

    topic: str
    num_partitions: Int32 = -1
    replication_factor: Int16 = -1
    replica_assignment: list[ReplicaAssignment] = wire(default=[])
    configs: list[ConfigEntry] = wire(default=[])


@message
class CreateTopicResult:
    topic: str
    error_code: Int16
    error_message: str | None = wire(since=1, default=None)


@message
class CreateTopicsResponse:
    topics: list[CreateTopicResult]


@request(key=19, versions=(0, 1))
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    topics: list[CreatableTopic]
    timeout_ms: Int32
    """How long the controller waits for the creation to be complete; 0 or less: not at all."""
    validate_only: bool = wire(since=1, default=False)


@message
class DeleteTopicResult:
    topic: str
    error_code: Int16


@message
class DeleteTopicsResponse:
    topics: list[DeleteTopicResult]


@request(key=20, versions=(0, 0))
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    topics: list[str]
    timeout_ms: Int32


@message
class TopicChangeResult:
    topic: str
    error_code: Int16
    error_message: str | None


@message
class TopicChangeResponse:
    topics: list[TopicChangeResult]


@message
class NewReplicas:
    """Of one new partition, the preferred leader first."""

    replicas: list[Int32]


@message
class GrowingTopic:
    """``count`` is how many partitions there shall be. Without assignments the new ones are spread over all brokers."""

    topic: str
    count: Int32
    assignments: list[NewReplicas]


@request(key=1020, versions=(0, 0))
class CreatePartitionsRequest(Request[TopicChangeResponse]):
    topics: list[GrowingTopic]
    timeout_ms: Int32
    validate_only: bool


@message
class AlteredTopic:
    """Settings that change; null goes back to the brokers' default."""

    topic: str
    configs: list[ConfigEntry]


@request(key=1021, versions=(0, 0))
class AlterConfigsRequest(Request[TopicChangeResponse]):
    topics: list[AlteredTopic]
    timeout_ms: Int32
    validate_only: bool


@message
class DescribedTopic:
    """The settings that the topic has of its own, as they are in ZooKeeper."""

    topic: str
    error_code: Int16
    error_message: str | None
    configs: list[ConfigEntry]


@message
class DescribeConfigsResponse:
    topics: list[DescribedTopic]


@request(key=1022, versions=(0, 0))
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    topics: list[str]
    timeout_ms: Int32


@message
class PartitionChangeResult:
    topic: str
    partition: Int32
    error_code: Int16
    error_message: str | None


@message
class PartitionChangeResponse:
    partitions: list[PartitionChangeResult]


@request(key=1023, versions=(0, 0))
class ElectPreferredRequest(Request[PartitionChangeResponse]):
    partitions: list[PartitionName]
    timeout_ms: Int32


@message
class NewAssignment:
    """The replicas that a partition shall have, the preferred leader first."""

    topic: str
    partition: Int32
    replicas: list[Int32]


@request(key=1024, versions=(0, 0))
class ReassignRequest(Request[PartitionChangeResponse]):
    """Answered when it is written down; it goes on from there."""

    partitions: list[NewAssignment]
    timeout_ms: Int32


@message
class MovingPartition:
    """``replicas`` are assigned now, ``target`` shall be, and the files of ``removing`` are not known to be gone."""

    topic: str
    partition: Int32
    replicas: list[Int32]
    target: list[Int32]
    removing: list[Int32]


@message
class DescribeReassignmentsResponse:
    error_code: Int16
    error_message: str | None
    moving: list[MovingPartition]
    settled: list[NewAssignment]
    """The others of those that were named, as far as there are such partitions."""


@request(key=1025, versions=(0, 0))
class DescribeReassignmentsRequest(Request[DescribeReassignmentsResponse]):
    """All that are under way, and where the named partitions are that do not move."""

    partitions: list[PartitionName]
    timeout_ms: Int32
