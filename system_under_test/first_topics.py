"""The topics that a cluster gets at set-up."""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.system_under_test.network.connection import CallError, ask
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.metadata import MetadataResponse
from assay.system_under_test.protocol.topics import ConfigEntry, CreatableTopic, CreateTopicsRequest

CREATE_TIMEOUT = 6.0
CREATE_TOPICS_VERSION = 1
MADE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


@dataclass(frozen=True)
class FirstTopic:
    """A topic to create. ``configs`` are its own settings."""

    name: str
    partitions: int
    configs: tuple[tuple[str, str], ...] = ()

    @property
    def partition_keys(self) -> Sequence[str]:
        return [f"{self.name}-{index}" for index in range(self.partitions)]


def has_leaders(answer: MetadataResponse, topics: Sequence[FirstTopic]) -> bool:
    """Returns whether this broker knows a leader for each partition of the topics."""
    known = {topic.topic: [partition.error_code for partition in topic.partitions] for topic in answer.topics}
    return all(known.get(topic.name) == [ErrorCode.NONE] * topic.partitions for topic in topics)


async def create_first_topics(
    host: str, port: int, topics: Sequence[FirstTopic], replication: int, connect_timeout: float
) -> tuple[bool, str]:
    """Asks this broker, the controller, to create the topics; returns whether they exist, and its errors."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                topic=topic.name,
                num_partitions=topic.partitions,
                replication_factor=replication,
                configs=[ConfigEntry(name=name, value=value) for name, value in topic.configs],
            )
            for topic in topics
        ],
        timeout_ms=5_000,
    )
    try:
        response = await ask(
            host, port, request, CREATE_TOPICS_VERSION, CREATE_TIMEOUT, connect_timeout=connect_timeout
        )
    except CallError as error:
        return False, str(error)
    refused = [result for result in response.topics if result.error_code not in MADE]
    said = [f"{one.topic}: {one.error_message or ErrorCode(one.error_code).name}" for one in refused]
    return not refused, ", ".join(said)
