"""Elections of preferred leaders and reassignments, for which 0.10.2 has no requests: private keys, to the controller.

They do what Kafka's tools do by writing to ZooKeeper, which works here as well, and say what became of it. Later Kafkas
have such requests, too (KIP-455, KIP-460).
"""

from __future__ import annotations

from assay.system_under_test.protocol.control import PartitionName
from assay.system_under_test.protocol.schema import (
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


@message
class PartitionChangeResult:
    topic: str = wire(STRING)
    partition: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(NULLABLE_STRING)


@message
class PartitionChangeResponse:
    partitions: list[PartitionChangeResult] = wire(array(PartitionChangeResult))


@request(key=1023, versions=(0, 0))
class ElectPreferredRequest(Request[PartitionChangeResponse]):
    partitions: list[PartitionName] = wire(array(PartitionName))
    timeout_ms: int = wire(INT32)


@message
class NewAssignment:
    """The replicas that a partition shall have, the preferred leader first."""

    topic: str = wire(STRING)
    partition: int = wire(INT32)
    replicas: list[int] = wire(array(INT32))


@request(key=1024, versions=(0, 0))
class ReassignRequest(Request[PartitionChangeResponse]):
    """Answered when it is written down; it goes on from there."""

    partitions: list[NewAssignment] = wire(array(NewAssignment))
    timeout_ms: int = wire(INT32)


@message
class MovingPartition:
    """``replicas`` are assigned now, ``target`` shall be, and the files of ``removing`` are not known to be gone."""

    topic: str = wire(STRING)
    partition: int = wire(INT32)
    replicas: list[int] = wire(array(INT32))
    target: list[int] = wire(array(INT32))
    removing: list[int] = wire(array(INT32))


@message
class DescribeReassignmentsResponse:
    error_code: int = wire(INT16)
    error_message: str | None = wire(NULLABLE_STRING)
    moving: list[MovingPartition] = wire(array(MovingPartition))
    settled: list[NewAssignment] = wire(array(NewAssignment))
    """The others of those that were named, as far as there are such partitions."""


@request(key=1025, versions=(0, 0))
class DescribeReassignmentsRequest(Request[DescribeReassignmentsResponse]):
    """All that are under way, and where the named partitions are that do not move."""

    partitions: list[PartitionName] = wire(array(PartitionName))
    timeout_ms: int = wire(INT32)
