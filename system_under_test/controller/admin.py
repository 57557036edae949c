"""Requests to change topics and partitions. Only the active controller serves them; other brokers: NOT_CONTROLLER.

A change that no broker could carry out is rejected before it is written to ZooKeeper. Otherwise every later controller
would try it again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from assay.system_under_test.controller import preferred
from assay.system_under_test.controller.active_term import Action, ActiveTerm
from assay.system_under_test.controller.cluster_state import PartitionId
from assay.system_under_test.controller.controller import Controller
from assay.system_under_test.controller.topics import MAX_PARTITIONS, TopicError
from assay.system_under_test.network.handler import RequestContext
from assay.system_under_test.protocol import topics as messages
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.replication.purgatory import to_wait_seconds

Outcome = tuple[ErrorCode, str | None]
"""The error code and message of a change."""


def compute_deadline(timeout_ms: int) -> float:
    """Returns the deadline of a whole request, by the loop's clock."""
    return asyncio.get_running_loop().time() + to_wait_seconds(timeout_ms)


async def await_outcome(change: Coroutine[Any, Any, None], deadline: float) -> Outcome:
    """Runs a change until ``deadline``, and returns its outcome."""
    try:
        async with asyncio.timeout_at(deadline):
            await change
    except TopicError as error:
        return error.code, str(error)
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT, "the change continues in the background"
    return ErrorCode.NONE, None


async def create_topics(
    controller: Controller, request: messages.CreateTopicsRequest, context: RequestContext
) -> messages.CreateTopicsResponse:
    deadline = compute_deadline(request.timeout_ms)
    results = []
    for topic in request.topics:
        code, message = await await_outcome(_create(controller, topic, request.validate_only), deadline)
        results.append(messages.CreateTopicResult(topic=topic.topic, error_code=code, error_message=message))
    return messages.CreateTopicsResponse(topics=results)


async def _create(controller: Controller, topic: messages.CreatableTopic, validate_only: bool) -> None:
    count = max(topic.num_partitions, len(topic.replica_assignment))
    if count > MAX_PARTITIONS:
        raise TopicError(ErrorCode.INVALID_PARTITIONS, f"{count} partitions; at most {MAX_PARTITIONS} at once")
    await controller.topics.create(topic, validate_only=validate_only)


async def delete_topics(
    controller: Controller, request: messages.DeleteTopicsRequest, context: RequestContext
) -> messages.DeleteTopicsResponse:
    deadline = compute_deadline(request.timeout_ms)
    results = []
    for name in dict.fromkeys(request.topics):
        code, _ = await await_outcome(controller.topics.delete(name), deadline)
        results.append(messages.DeleteTopicResult(topic=name, error_code=code))
    return messages.DeleteTopicsResponse(topics=results)


async def create_partitions(
    controller: Controller, request: messages.CreatePartitionsRequest, context: RequestContext
) -> messages.TopicChangeResponse:
    def add(topic: messages.GrowingTopic) -> Coroutine[Any, Any, None]:
        assigned = [new.replicas for new in topic.assignments]
        return controller.topics.add_partitions(topic.topic, topic.count, assigned, validate_only=request.validate_only)

    return await _change_topics(request, add)


async def alter_configs(
    controller: Controller, request: messages.AlterConfigsRequest, context: RequestContext
) -> messages.TopicChangeResponse:
    def alter(topic: messages.AlteredTopic) -> Coroutine[Any, Any, None]:
        changes = {entry.name: entry.value for entry in topic.configs}
        return controller.topics.alter_settings(topic.topic, changes, validate_only=request.validate_only)

    return await _change_topics(request, alter)


async def _change_topics(
    request: Any, change: Callable[[Any], Coroutine[Any, Any, None]]
) -> messages.TopicChangeResponse:
    """Applies a change to each topic of the request in turn."""
    deadline, results = compute_deadline(request.timeout_ms), []
    for topic in request.topics:
        code, message = await await_outcome(change(topic), deadline)
        results.append(messages.TopicChangeResult(topic=topic.topic, error_code=code, error_message=message))
    return messages.TopicChangeResponse(topics=results)


async def describe_configs(
    controller: Controller, request: messages.DescribeConfigsRequest, context: RequestContext
) -> messages.DescribeConfigsResponse:
    deadline = compute_deadline(request.timeout_ms)
    results = []
    for name in dict.fromkeys(request.topics):
        found: list[messages.ConfigEntry] = []
        code, message = await await_outcome(_describe(controller, name, found), deadline)
        results.append(messages.DescribedTopic(topic=name, error_code=code, error_message=message, configs=found))
    return messages.DescribeConfigsResponse(topics=results)


async def _describe(controller: Controller, topic: str, found: list[messages.ConfigEntry]) -> None:
    settings = await controller.topics.read_settings(topic)
    found += [messages.ConfigEntry(name=name, value=value) for name, value in sorted(settings.items())]


async def elect_preferred(
    controller: Controller, request: messages.ElectPreferredRequest, context: RequestContext
) -> messages.PartitionChangeResponse:
    """Elects preferred leaders. Answers LEADER_NOT_AVAILABLE for a partition whose preferred leader is not in sync."""

    async def elect(partition: PartitionId, active: ActiveTerm) -> None:
        elected = await preferred.elect_preferred_leader(active, partition)
        if elected is None:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        active.broadcast.send()
        if not elected:
            raise TopicError(ErrorCode.LEADER_NOT_AVAILABLE, "the preferred leader is not in sync")

    partitions = dict.fromkeys((entry.topic, entry.partition) for entry in request.partitions)
    actions = [(partition, partial(elect, partition)) for partition in partitions]
    return await _perform_all(controller, request.timeout_ms, actions)


async def reassign(
    controller: Controller, request: messages.ReassignRequest, context: RequestContext
) -> messages.PartitionChangeResponse:
    moves = [((entry.topic, entry.partition), entry.replicas) for entry in request.partitions]
    start = controller.reassignments.start
    actions = [(partition, partial(start, partition=partition, replicas=replicas)) for partition, replicas in moves]
    return await _perform_all(controller, request.timeout_ms, actions)


async def _perform_all(
    controller: Controller, timeout_ms: int, actions: Iterable[tuple[PartitionId, Action[None]]]
) -> messages.PartitionChangeResponse:
    """Performs one action for each partition, in turn."""
    deadline, results = compute_deadline(timeout_ms), []
    for (topic, index), act in actions:
        code, message = await await_outcome(controller.perform(act), deadline)
        result = messages.PartitionChangeResult(topic=topic, partition=index, error_code=code, error_message=message)
        results.append(result)
    return messages.PartitionChangeResponse(partitions=results)


async def describe_reassignments(
    controller: Controller, request: messages.DescribeReassignmentsRequest, context: RequestContext
) -> messages.DescribeReassignmentsResponse:
    moving: list[messages.MovingPartition] = []
    settled: list[messages.NewAssignment] = []

    async def act(active: ActiveTerm) -> None:
        for move, replicas in await controller.reassignments.list_in_progress(active):
            moving.append(
                messages.MovingPartition(
                    topic=move.topic,
                    partition=move.partition,
                    replicas=replicas,
                    target=move.replicas,
                    removing=move.removing,
                )
            )
        for asked in request.partitions:
            topic = active.cluster.topics.get(asked.topic)
            if (asked.topic, asked.partition) in active.cluster.moves or topic is None:
                continue
            if asked.partition in topic.assignment:
                replicas = topic.assignment[asked.partition]
                settled.append(messages.NewAssignment(topic=asked.topic, partition=asked.partition, replicas=replicas))

    code, message = await await_outcome(controller.perform(act), compute_deadline(request.timeout_ms))
    return messages.DescribeReassignmentsResponse(
        error_code=code, error_message=message, moving=moving, settled=settled
    )
