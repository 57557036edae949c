"""CreatePartitions, AlterConfigs and DescribeConfigs, for which 0.10.2 has no request: private keys, to the controller.

Their fields follow KIP-195, KIP-339 and KIP-133.
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
from assay.system_under_test.protocol.topics import ConfigEntry


@message
class TopicChangeResult:
    topic: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(NULLABLE_STRING)


@message
class TopicChangeResponse:
    topics: list[TopicChangeResult] = wire(array(TopicChangeResult))


@message
class NewReplicas:
    """Of one new partition, the preferred leader first."""

    replicas: list[int] = wire(array(INT32))


@message
class GrowingTopic:
    """``count`` is how many partitions there shall be. Without assignments the new ones are spread over all brokers."""

    topic: str = wire(STRING)
    count: int = wire(INT32)
    assignments: list[NewReplicas] = wire(array(NewReplicas))


@request(key=1020, versions=(0, 0))
class CreatePartitionsRequest(Request[TopicChangeResponse]):
    topics: list[GrowingTopic] = wire(array(GrowingTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOLEAN)


@message
class AlteredTopic:
    """Settings that change; null goes back to the brokers' default."""

    topic: str = wire(STRING)
    configs: list[ConfigEntry] = wire(array(ConfigEntry))


@request(key=1021, versions=(0, 0))
class AlterConfigsRequest(Request[TopicChangeResponse]):
    topics: list[AlteredTopic] = wire(array(AlteredTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOLEAN)


@message
class DescribedTopic:
    """The settings that the topic has of its own, as they are in ZooKeeper."""

    topic: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(NULLABLE_STRING)
    configs: list[ConfigEntry] = wire(array(ConfigEntry))


@message
class DescribeConfigsResponse:
    topics: list[DescribedTopic] = wire(array(DescribedTopic))


@request(key=1022, versions=(0, 0))
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    topics: list[str] = wire(array(STRING))
    timeout_ms: int = wire(INT32)
