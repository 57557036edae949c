"""Requests of a tester to one broker, each over a new connection."""

import asyncio
from collections import Counter
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from assay.system_under_test.network.connection import CallError, ask
from assay.system_under_test.protocol import control, topics
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.groups import GroupCoordinatorRequest
from assay.system_under_test.protocol.metadata import MetadataRequest, MetadataResponse
from assay.system_under_test.protocol.offsets import LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from assay.system_under_test.protocol.schema import Request

R = TypeVar("R")

ASK_TIMEOUT = 1.0
"""Seconds to wait for a broker's answer."""
VOTE_SECONDS = 0.5
"""Seconds to wait when several brokers get the same request; a live broker answers within milliseconds."""
CONTROLLER_TIMEOUT = 2.0
"""Seconds to wait for a controller's answer."""
VERSION = 0
METADATA_VERSION = 1
LIST_OFFSETS_VERSION = 1


async def try_ask(host: str, port: int, request: Request[R], version: int, timeout: float) -> R | None:
    """Sends a request and returns the answer, as :func:`ask`, but returns None if there is no answer."""
    try:
        return await ask(host, port, request, version, timeout)
    except CallError:
        return None


async def ask_replicas(host: str, port: int, topic: str, index: int) -> list[int] | None:
    """Returns the ids of a partition's brokers; None during a reassignment, or if this controller does not answer."""
    names = [control.PartitionName(topic=topic, partition=index)]
    request = topics.DescribeReassignmentsRequest(partitions=names, timeout_ms=int(CONTROLLER_TIMEOUT * 1000))
    answer = await try_ask(host, port, request, VERSION, CONTROLLER_TIMEOUT)
    settled = () if answer is None else answer.settled
    return next((entry.replicas for entry in settled if (entry.topic, entry.partition) == (topic, index)), None)


async def request_reassignment(host: str, port: int, topic: str, index: int, brokers: Sequence[int]) -> str | None:
    """Requests a reassignment; returns the problem, or None once the request is stored."""
    assignments = [topics.NewAssignment(topic=topic, partition=index, replicas=list(brokers))]
    request = topics.ReassignRequest(partitions=assignments, timeout_ms=int(CONTROLLER_TIMEOUT * 1000))
    try:
        answer = await ask(host, port, request, VERSION, CONTROLLER_TIMEOUT)
    except CallError as error:
        return str(error)
    (result,) = answer.partitions
    if result.error_code == ErrorCode.NONE:
        return None
    return result.error_message or ErrorCode.of(result.error_code).name


@dataclass(frozen=True)
class ReplicaPlacement:
    """The registered brokers, the brokers of each partition, and the brokers involved in each reassignment."""

    members: Collection[int]
    replicas: Mapping[str, Sequence[int]]
    moving: Mapping[str, Collection[int]]


async def ask_placement(host: str, port: int) -> ReplicaPlacement | None:
    """Returns the placement of all replicas; None if this controller does not answer, or no controller is live."""
    metadata = await ask_metadata(host, port)
    if metadata is None or metadata.controller_id not in {broker.node_id for broker in metadata.brokers}:
        return None
    names = [
        control.PartitionName(topic=topic.topic, partition=partition.partition)
        for topic in metadata.topics
        for partition in topic.partitions
    ]
    request = topics.DescribeReassignmentsRequest(partitions=names, timeout_ms=int(CONTROLLER_TIMEOUT * 1000))
    answer = await try_ask(host, port, request, VERSION, CONTROLLER_TIMEOUT)
    if answer is None or answer.error_code != ErrorCode.NONE:
        return None
    return ReplicaPlacement(
        {broker.node_id for broker in metadata.brokers},
        {f"{one.topic}-{one.partition}": one.replicas for one in answer.settled},
        {f"{one.topic}-{one.partition}": {*one.replicas, *one.target, *one.removing} for one in answer.moving},
    )


async def ask_metadata(host: str, port: int) -> MetadataResponse | None:
    """Returns this broker's metadata of the cluster; None if it does not answer."""
    return await try_ask(host, port, MetadataRequest(topics=None), METADATA_VERSION, ASK_TIMEOUT)


async def ask_controller(host: str, port: int) -> int:
    """Returns the controller known to this broker; -1 if it does not answer."""
    answer = await ask_metadata(host, port)
    return -1 if answer is None else answer.controller_id


async def ask_leader(host: str, port: int, key: str) -> int:
    """Returns the leader of the partition ``key`` known to this broker; -1 if there is none or no answer."""
    answer = await ask_metadata(host, port)
    if answer is None:
        return -1
    topic, _, index = key.rpartition("-")
    for found in answer.topics:
        for partition in found.partitions:
            if found.topic == topic and partition.partition == int(index):
                return partition.leader
    return -1


async def ask_coordinator(host: str, port: int, group: str) -> int:
    """Returns the group's coordinator known to this broker; -1 if it does not answer."""
    answer = await try_ask(host, port, GroupCoordinatorRequest(group_id=group), VERSION, ASK_TIMEOUT)
    return -1 if answer is None else answer.coordinator_id


async def find_majority(queries: Sequence[Coroutine[Any, Any, int]]) -> int | None:
    """Returns the most common answer, ignoring -1; None if there is none or a tie.

    Waits until more than half agree, and for ``VOTE_SECONDS`` at most, because a paused broker never answers.
    """
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(query) for query in queries}
    deadline, waiting, votes = loop.time() + VOTE_SECONDS, set(tasks), Counter[int]()
    try:
        while waiting and max(votes.values(), default=0) * 2 <= len(tasks) and loop.time() < deadline:
            done, waiting = await asyncio.wait(
                waiting, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED
            )
            votes.update(answer for task in done if (answer := task.result()) != -1)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    ranked = votes.most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0]


async def ask_high_watermarks(
    host: str, port: int, partitions: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Returns the high watermark of each partition, or -1 if this broker does not know it.

    The result is empty if the broker does not answer.
    """
    if not partitions:
        return {}
    queries = [
        ListOffsetsTopic(topic=topic, partitions=[ListOffsetsPartition(partition=index, timestamp=LATEST)])
        for topic, index in partitions
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=queries)
    answer = await try_ask(host, port, request, LIST_OFFSETS_VERSION, ASK_TIMEOUT)
    answered = () if answer is None else answer.topics
    return {(topic.topic, one.partition): one.offset for topic in answered for one in topic.partitions}
