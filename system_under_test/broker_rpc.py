"""One request to one broker over a connection of its own, for a tester."""

import asyncio
from collections import Counter
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol import control, topics
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.groups import GroupCoordinatorRequest
from assay.system_under_test.protocol.metadata import MetadataRequest, MetadataResponse
from assay.system_under_test.protocol.offsets import LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from assay.system_under_test.protocol.schema import Request

R = TypeVar("R")

ASK_TIMEOUT = 1.0
"""Seconds; a node that does not answer so soon is left out."""
VOTE_SECONDS = 0.5
"""How long brokers are waited for when several are asked the same; one that lives answers within some milliseconds."""
PATIENCE = 2.0
"""Seconds for the answer of a controller that is to do something."""
VERSION = 0
METADATA_VERSION = 1
LIST_OFFSETS_VERSION = 1


async def ask(
    host: str, port: int, request: Request[R], version: int, timeout: float, *, connect_timeout: float | None = None
) -> R:
    """The answer. Times in seconds; without ``connect_timeout`` that is ``timeout``, too. Raises ``CallError``."""
    connection = await Connection.open(host, port, timeout if connect_timeout is None else connect_timeout)
    try:
        return await connection.call(request, version, timeout)
    finally:
        await connection.close()


async def answered(host: str, port: int, request: Request[R], version: int, timeout: float) -> R | None:
    """As :func:`ask`; None where there is no answer."""
    try:
        return await ask(host, port, request, version, timeout)
    except CallError:
        return None


async def replicas(host: str, port: int, topic: str, index: int) -> list[int] | None:
    """The brokers that it is assigned to; None while it moves, or when this controller does not say."""
    named = [control.PartitionName(topic=topic, partition=index)]
    request = topics.DescribeReassignmentsRequest(partitions=named, timeout_ms=int(PATIENCE * 1000))
    answer = await answered(host, port, request, VERSION, PATIENCE)
    settled = () if answer is None else answer.settled
    return next((entry.replicas for entry in settled if (entry.topic, entry.partition) == (topic, index)), None)


async def move(host: str, port: int, topic: str, index: int, brokers: Sequence[int]) -> str | None:
    """What is wrong; None when it has been written down."""
    wanted = [topics.NewAssignment(topic=topic, partition=index, replicas=list(brokers))]
    request = topics.ReassignRequest(partitions=wanted, timeout_ms=int(PATIENCE * 1000))
    try:
        answer = await ask(host, port, request, VERSION, PATIENCE)
    except CallError as error:
        return str(error)
    (result,) = answer.partitions
    if result.error_code == ErrorCode.NONE:
        return None
    return result.error_message or ErrorCode.of(result.error_code).name


@dataclass(frozen=True)
class Standing:
    """The brokers that are registered, and which of them have, or get, or give up, what."""

    members: Collection[int]
    replicas: Mapping[str, Sequence[int]]
    moving: Mapping[str, Collection[int]]


async def standing(host: str, port: int) -> Standing | None:
    """As this controller says; None when it does not."""
    known = await metadata(host, port)
    if known is None or known.controller_id not in {broker.node_id for broker in known.brokers}:
        return None
    named = [
        control.PartitionName(topic=t.topic, partition=one.partition) for t in known.topics for one in t.partitions
    ]
    request = topics.DescribeReassignmentsRequest(partitions=named, timeout_ms=int(PATIENCE * 1000))
    answer = await answered(host, port, request, VERSION, PATIENCE)
    if answer is None or answer.error_code != ErrorCode.NONE:
        return None
    return Standing(
        {broker.node_id for broker in known.brokers},
        {f"{one.topic}-{one.partition}": one.replicas for one in answer.settled},
        {f"{one.topic}-{one.partition}": {*one.replicas, *one.target, *one.removing} for one in answer.moving},
    )


async def metadata(host: str, port: int) -> MetadataResponse | None:
    """What this broker knows of the cluster; None when it does not answer."""
    return await answered(host, port, MetadataRequest(topics=None), METADATA_VERSION, ASK_TIMEOUT)


async def controller(host: str, port: int) -> int:
    """As this broker knows it; -1 when it does not say."""
    answer = await metadata(host, port)
    return -1 if answer is None else answer.controller_id


async def leader(host: str, port: int, key: str) -> int:
    """Of the partition ``key``, as this broker knows it; -1 when there is none, or it does not say."""
    answer = await metadata(host, port)
    if answer is None:
        return -1
    topic, _, index = key.rpartition("-")
    for found in answer.topics:
        for partition in found.partitions:
            if found.topic == topic and partition.partition == int(index):
                return partition.leader
    return -1


async def coordinator(host: str, port: int, group: str) -> int:
    """Who coordinates this group, as this broker knows it; -1 when it does not say."""
    answer = await answered(host, port, GroupCoordinatorRequest(group_id=group), VERSION, ASK_TIMEOUT)
    return -1 if answer is None else answer.coordinator_id


async def most(answers: Sequence[Coroutine[Any, Any, int]]) -> int | None:
    """What most of these say, of which -1 is nothing; None when they say nothing or disagree evenly.

    Once more than half say the same the others are not waited for, and no one for more than ``VOTE_SECONDS``: a broker
    that stands still answers no one, and who asks has other things to do.
    """
    loop = asyncio.get_running_loop()
    asked = {loop.create_task(answer) for answer in answers}
    deadline, waiting, votes = loop.time() + VOTE_SECONDS, set(asked), Counter[int]()
    try:
        while waiting and max(votes.values(), default=0) * 2 <= len(asked) and loop.time() < deadline:
            done, waiting = await asyncio.wait(
                waiting, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED
            )
            votes.update(said for task in done if (said := task.result()) != -1)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    ranked = votes.most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0]


async def high_watermarks(host: str, port: int, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """What consumers may read up to in each of these partitions; -1 where this broker does not say, nothing when it
    does not answer.
    """
    named = [
        ListOffsetsTopic(topic=topic, partitions=[ListOffsetsPartition(partition=index, timestamp=LATEST)])
        for topic, index in wanted
    ]
    if not named:
        return {}
    request = ListOffsetsRequest(replica_id=-1, topics=named)
    answer = await answered(host, port, request, LIST_OFFSETS_VERSION, ASK_TIMEOUT)
    said = () if answer is None else answer.topics
    return {(topic.topic, one.partition): one.offset for topic in said for one in topic.partitions}
