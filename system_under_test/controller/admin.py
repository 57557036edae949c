"""CreateTopics and DeleteTopics, served by the active controller only (41 elsewhere)."""

from __future__ import annotations

import asyncio

from system_under_test.controller.controller import Controller
from system_under_test.controller.topics import TopicError
from system_under_test.network.handler import Context
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.topics import (
    CreateTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)


async def create_topics(controller: Controller, request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    results = []
    for topic in request.topics:
        code, message = ErrorCode.NONE, None
        try:
            async with asyncio.timeout(max(request.timeout_ms, 0) / 1000 or None):
                await controller.create_topic(topic, request.validate_only)
        except TopicError as error:
            code, message = error.code, str(error)
        except TimeoutError:
            code, message = ErrorCode.REQUEST_TIMED_OUT, "the creation goes on"
        results.append(CreateTopicResult(topic=topic.topic, error_code=code, error_message=message))
    return CreateTopicsResponse(topics=results)


async def delete_topics(controller: Controller, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    results = []
    for name in request.topics:
        code = ErrorCode.NONE
        try:
            async with asyncio.timeout(max(request.timeout_ms, 0) / 1000):
                await controller.delete_topic(name)
        except TopicError as error:
            code = error.code
        except TimeoutError:
            code = ErrorCode.REQUEST_TIMED_OUT
        results.append(DeleteTopicResult(topic=name, error_code=code))
    return DeleteTopicsResponse(topics=results)
