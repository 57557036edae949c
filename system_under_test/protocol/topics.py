"""Requests about topics: CreateTopics (key 19) and DeleteTopics (key 20) of KIP-4, and private ones that 0.10.2 lacks.

- Requests that change topics have the fields of KIP-195, KIP-339 and KIP-133.
- In Kafka 0.10.2, tools write preferred elections and reassignments to ZooKeeper, which works here, too. The requests
  for them also return the outcome, as in later versions of Kafka (KIP-455, KIP-460).

All these requests go to the controller.
"""

import re

from assay.system_under_test.protocol.control import PartitionName
from assay.system_under_test.protocol.schema import Int16, Int32, Request, message, request, wire

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Returns whether a topic may have this name, which becomes part of a folder's name."""
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
    """A topic to create. Either both numbers are set, or both are -1 and there is an assignment."""

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
    """Milliseconds for which the controller waits until the topic is complete; 0 or less for no wait."""
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
    """Replicas of one new partition, the preferred leader first."""

    replicas: list[Int32]


@message
class GrowingTopic:
    """A topic that gets more partitions, ``count`` in total. Without assignments, they are spread over all brokers."""

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
    """Settings to change; null restores the brokers' default."""

    topic: str
    configs: list[ConfigEntry]


@request(key=1021, versions=(0, 0))
class AlterConfigsRequest(Request[TopicChangeResponse]):
    topics: list[AlteredTopic]
    timeout_ms: Int32
    validate_only: bool


@message
class DescribedTopic:
    """A topic's own settings, as stored in ZooKeeper."""

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
    """Replicas that a partition must have, the preferred leader first."""

    topic: str
    partition: Int32
    replicas: list[Int32]


@request(key=1024, versions=(0, 0))
class ReassignRequest(Request[PartitionChangeResponse]):
    """Starts reassignments. The response comes when they are recorded; the moves continue after it."""

    partitions: list[NewAssignment]
    timeout_ms: Int32


@message
class MovingPartition:
    """A partition that is being reassigned.

    - ``replicas``: the current replicas
    - ``target``: the replicas after the reassignment
    - ``removing``: old replicas whose brokers have not yet confirmed the deletion of their files
    """

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
    """The requested partitions that exist and are not being reassigned."""


@request(key=1025, versions=(0, 0))
class DescribeReassignmentsRequest(Request[DescribeReassignmentsResponse]):
    """Asks for all reassignments in progress, and for the replicas of ``partitions`` that are not being reassigned."""

    partitions: list[PartitionName]
    timeout_ms: Int32
