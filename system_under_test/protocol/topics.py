"""CreateTopics (key 19) and DeleteTopics (key 20), KIP-4. Both go to the controller."""

from __future__ import annotations

import re

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

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """It becomes the name of a folder."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


@message
class ReplicaAssignment:
    partition: int = wire(INT32)
    replicas: list[int] = wire(array(INT32))


@message
class ConfigEntry:
    name: str = wire(STRING)
    value: str | None = wire(NULLABLE_STRING)


@message
class CreatableTopic:
    """Either numbers, or an assignment with both numbers -1."""

    topic: str = wire(STRING)
    num_partitions: int = wire(INT32, default=-1)
    replication_factor: int = wire(INT16, default=-1)
    replica_assignment: list[ReplicaAssignment] = wire(array(ReplicaAssignment), default=[])
    configs: list[ConfigEntry] = wire(array(ConfigEntry), default=[])


@message
class CreateTopicResult:
    topic: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(NULLABLE_STRING, since=1, default=None)


@message
class CreateTopicsResponse:
    topics: list[CreateTopicResult] = wire(array(CreateTopicResult))


@request(key=19, versions=(0, 1))
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    topics: list[CreatableTopic] = wire(array(CreatableTopic))
    timeout_ms: int = wire(INT32)
    """How long the controller waits for the creation to be complete; 0 or less: not at all."""
    validate_only: bool = wire(BOOLEAN, since=1, default=False)


@message
class DeleteTopicResult:
    topic: str = wire(STRING)
    error_code: int = wire(INT16)


@message
class DeleteTopicsResponse:
    topics: list[DeleteTopicResult] = wire(array(DeleteTopicResult))


@request(key=20, versions=(0, 0))
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    topics: list[str] = wire(array(STRING))
    timeout_ms: int = wire(INT32)
