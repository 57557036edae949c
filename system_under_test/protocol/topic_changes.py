"""CreatePartitions, AlterConfigs and DescribeConfigs, for which 0.10.2 has no request: private keys, to the controller.

Their fields follow KIP-195, KIP-339 and KIP-133.
"""

from __future__ import annotations

from assay.system_under_test.protocol.schema import Int16, Int32, Request, message, request
from assay.system_under_test.protocol.topics import ConfigEntry


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
