"""CreateTopics (key 19) and DeleteTopics (key 20), KIP-4. Both go to the controller."""

from __future__ import annotations

import re

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
