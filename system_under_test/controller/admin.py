"""Requests to change topics and partitions, served by the active controller only (NOT_CONTROLLER elsewhere).

A change that no broker could carry out is rejected here, before it is written to ZooKeeper. Otherwise every later
controller would try it again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from assay.system_under_test.controller import preferred
from assay.system_under_test.controller.active_term import Action, ActiveTerm
from assay.system_under_test.controller.cluster_state import PartitionId
from assay.system_under_test.controller.controller import Controller
from assay.system_under_test.controller.topics import MAX_PARTITIONS, TopicError
from assay.system_under_test.network.handler import Context
from assay.system_under_test.protocol import topics as messages
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.replication.purgatory import time_limit

Outcome = tuple[ErrorCode, str | None]
"""The error code and message of a change."""
Item = TypeVar("Item")


def compute_deadline(timeout_ms: int) -> float:
    """Returns the deadline by the loop's clock; the time limit is that of a whole request."""
    return asyncio.get_running_loop().time() + time_limit(timeout_ms)


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


async def _change_each(
    items: Iterable[Item], timeout_ms: int, change: Callable[[Item], Coroutine[Any, Any, None]]
) -> list[tuple[Item, ErrorCode, str | None]]:
    """Changes the items of a request in turn. Returns each with its outcome."""
    deadline = compute_deadline(timeout_ms)
    return [(item, *await await_outcome(change(item), deadline)) for item in items]


async def create_topics(
    controller: Controller, request: messages.CreateTopicsRequest, context: Context
) -> messages.CreateTopicsResponse:
    changed = await _change_each(
        request.topics, request.timeout_ms, lambda topic: _create(controller, topic, request.validate_only)
    )
    return messages.CreateTopicsResponse(
        topics=[
            messages.CreateTopicResult(topic=topic.topic, error_code=code, error_message=text)
            for topic, code, text in changed
        ]
    )


async def _create(controller: Controller, topic: messages.CreatableTopic, validate_only: bool) -> None:
    count = max(topic.num_partitions, len(topic.replica_assignment))
    if count > MAX_PARTITIONS:
        raise TopicError(ErrorCode.INVALID_PARTITIONS, f"{count} partitions; at most {MAX_PARTITIONS} at once")
    await controller.topics.create(topic, validate_only=validate_only)


async def delete_topics(
    controller: Controller, request: messages.DeleteTopicsRequest, context: Context
) -> messages.DeleteTopicsResponse:
    changed = await _change_each(dict.fromkeys(request.topics), request.timeout_ms, controller.topics.delete)
    return messages.DeleteTopicsResponse(
        topics=[messages.DeleteTopicResult(topic=name, error_code=code) for name, code, _ in changed]
    )


async def create_partitions(
    controller: Controller, request: messages.CreatePartitionsRequest, context: Context
) -> messages.TopicChangeResponse:
    def add(topic: messages.GrowingTopic) -> Coroutine[Any, Any, None]:
        assigned = [new.replicas for new in topic.assignments]
        return controller.topics.add_partitions(topic.topic, topic.count, assigned, validate_only=request.validate_only)

    return _to_response(await _change_each(request.topics, request.timeout_ms, add))


async def alter_configs(
    controller: Controller, request: messages.AlterConfigsRequest, context: Context
) -> messages.TopicChangeResponse:
    def alter(topic: messages.AlteredTopic) -> Coroutine[Any, Any, None]:
        changes = {entry.name: entry.value for entry in topic.configs}
        return controller.topics.alter_settings(topic.topic, changes, validate_only=request.validate_only)

    return _to_response(await _change_each(request.topics, request.timeout_ms, alter))


def _to_response(changed: Iterable[tuple[Any, ErrorCode, str | None]]) -> messages.TopicChangeResponse:
    return messages.TopicChangeResponse(
        topics=[
            messages.TopicChangeResult(topic=topic.topic, error_code=code, error_message=text)
            for topic, code, text in changed
        ]
    )


async def describe_configs(
    controller: Controller, request: messages.DescribeConfigsRequest, context: Context
) -> messages.DescribeConfigsResponse:
    found: dict[str, Mapping[str, str]] = {}

    async def describe(name: str) -> None:
        found[name] = await controller.topics.settings(name)

    described = await _change_each(dict.fromkeys(request.topics), request.timeout_ms, describe)
    return messages.DescribeConfigsResponse(
        topics=[
            messages.DescribedTopic(
                topic=topic,
                error_code=code,
                error_message=text,
                configs=[messages.ConfigEntry(name=n, value=v) for n, v in sorted(found.get(topic, {}).items())],
            )
            for topic, code, text in described
        ]
    )


async def elect_preferred(
    controller: Controller, request: messages.ElectPreferredRequest, context: Context
) -> messages.PartitionChangeResponse:
    """Elects preferred leaders. If one is not in sync, the leader stays; the answer is LEADER_NOT_AVAILABLE."""

    async def elect(partition: PartitionId, active: ActiveTerm) -> None:
        elected = await preferred.elect_preferred_leader(active, partition)
        if elected is None:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        active.brokers.send()
        if not elected:
            raise TopicError(ErrorCode.LEADER_NOT_AVAILABLE, "the preferred leader is not in sync")

    partitions = dict.fromkeys((entry.topic, entry.partition) for entry in request.partitions)
    return await _perform_all(
        controller, request.timeout_ms, [(partition, partial(elect, partition)) for partition in partitions]
    )


async def reassign(
    controller: Controller, request: messages.ReassignRequest, context: Context
) -> messages.PartitionChangeResponse:
    moves = [((entry.topic, entry.partition), entry.replicas) for entry in request.partitions]
    start = controller.reassignments.start
    return await _perform_all(
        controller,
        request.timeout_ms,
        [(partition, partial(start, partition=partition, replicas=replicas)) for partition, replicas in moves],
    )


async def _perform_all(
    controller: Controller, timeout_ms: int, actions: Iterable[tuple[PartitionId, Action[None]]]
) -> messages.PartitionChangeResponse:
    """Performs the actions in turn, each for a partition."""
    changed = await _change_each(actions, timeout_ms, lambda item: controller.perform(item[1]))
    return messages.PartitionChangeResponse(
        partitions=[
            messages.PartitionChangeResult(topic=topic, partition=index, error_code=code, error_message=text)
            for ((topic, index), _), code, text in changed
        ]
    )


async def describe_reassignments(
    controller: Controller, request: messages.DescribeReassignmentsRequest, context: Context
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
