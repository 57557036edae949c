"""One request to one broker over a connection of its own, for a tester: also to see and move partitions' replicas."""

from collections.abc import Sequence
from typing import TypeVar

from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol import control, topics
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import Request

R = TypeVar("R")


async def ask(
    host: str, port: int, request: Request[R], version: int, timeout: float, *, connect_timeout: float | None = None
) -> R:
    """The answer. Times in seconds; without ``connect_timeout`` that is ``timeout``, too. Raises ``CallError``."""
    connection = await Connection.open(host, port, timeout if connect_timeout is None else connect_timeout)
    try:
        return await connection.call(request, version, timeout)
    finally:
        await connection.close()


PATIENCE = 2.0
"""Seconds for an answer."""
VERSION = 0


async def replicas(host: str, port: int, topic: str, index: int) -> list[int] | None:
    """The brokers that it is assigned to; None while it moves, or when this controller does not say."""
    named = [control.PartitionName(topic=topic, partition=index)]
    request = topics.DescribeReassignmentsRequest(partitions=named, timeout_ms=int(PATIENCE * 1000))
    try:
        answer = await ask(host, port, request, VERSION, PATIENCE)
    except CallError:
        return None
    return next((entry.replicas for entry in answer.settled if (entry.topic, entry.partition) == (topic, index)), None)


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
