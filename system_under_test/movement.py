"""Where a partition's replicas are, and moving them, for a tester, who asks the controller."""

from collections.abc import Sequence

from assay.system_under_test.network.connection import CallError
from assay.system_under_test.protocol import control, topics
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.questions import ask

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
