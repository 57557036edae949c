"""CreateTopics and DeleteTopics, served by the active controller only (41 elsewhere).

What no broker could carry out is refused here, before it is in ZooKeeper, from where every controller to come would
try it again.
"""

from __future__ import annotations

import asyncio

from system_under_test.config import ConfigError, TopicConfig
from system_under_test.controller.controller import Controller
from system_under_test.controller.topics import TopicError
from system_under_test.network.handler import Context
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.topics import (
    CreatableTopic,
    CreateTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from system_under_test.replication.purgatory import time_limit

MAX_PARTITIONS = 1_000
"""Of one new topic: its replicas are three open files each, and its states one write to ZooKeeper (1 MB at most)."""
MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES = 14, 2**31 - 1
"""Kafka's."""


def check(topic: CreatableTopic) -> None:
    """Raises ``TopicError`` for sizes that are no sizes; what a topic must be else is the controller's to know."""
    count = max(topic.num_partitions, len(topic.replica_assignment))
    if count > MAX_PARTITIONS:
        raise TopicError(ErrorCode.INVALID_PARTITIONS, f"{count} partitions; at most {MAX_PARTITIONS} at once")
    try:
        config = TopicConfig().override({entry.name: entry.value or "" for entry in topic.configs})
    except ConfigError as error:
        raise TopicError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if not MIN_SEGMENT_BYTES <= config.segment_bytes <= MAX_SEGMENT_BYTES:
        allowed = f"{MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES}"
        raise TopicError(ErrorCode.INVALID_CONFIG, f"segment.bytes is {config.segment_bytes}; it may be {allowed}")
    if config.max_message_bytes < 1:
        raise TopicError(ErrorCode.INVALID_CONFIG, "max.message.bytes starts at 1")


async def create_topics(controller: Controller, request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    """The time limit is that of the whole request."""
    results = []
    deadline = asyncio.get_running_loop().time() + time_limit(request.timeout_ms)
    for topic in request.topics:
        code, message = ErrorCode.NONE, None
        try:
            check(topic)
            async with asyncio.timeout_at(deadline):
                await controller.create_topic(topic, request.validate_only)
        except TopicError as error:
            code, message = error.code, str(error)
        except TimeoutError:
            code, message = ErrorCode.REQUEST_TIMED_OUT, "the creation goes on"
        results.append(CreateTopicResult(topic=topic.topic, error_code=code, error_message=message))
    return CreateTopicsResponse(topics=results)


async def delete_topics(controller: Controller, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    """The time limit is that of the whole request."""
    results = []
    deadline = asyncio.get_running_loop().time() + time_limit(request.timeout_ms)
    for name in dict.fromkeys(request.topics):
        code = ErrorCode.NONE
        try:
            async with asyncio.timeout_at(deadline):
                await controller.delete_topic(name)
        except TopicError as error:
            code = error.code
        except TimeoutError:
            code = ErrorCode.REQUEST_TIMED_OUT
        results.append(DeleteTopicResult(topic=name, error_code=code))
    return DeleteTopicsResponse(topics=results)
