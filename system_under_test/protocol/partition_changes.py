"""Elections of preferred leaders and reassignments, for which 0.10.2 has no requests: private keys, to the controller.

They do what Kafka's tools do by writing to ZooKeeper, which works here as well, and say what became of it. Later Kafkas
have such requests, too (KIP-455, KIP-460).
"""

from __future__ import annotations

from assay.system_under_test.protocol.control import PartitionName
from assay.system_under_test.protocol.schema import Int16, Int32, Request, message, request


@message
class PartitionChangeResult:
    topic: str
    partition: Int32
    error_code: Int16
    error_message: str | None


@message
class PartitionChangeResponse:
    partitions: list[PartitionChangeResult]


@request(key=1023, versions=(0, 0))
class ElectPreferredRequest(Request[PartitionChangeResponse]):
    partitions: list[PartitionName]
    timeout_ms: Int32


@message
class NewAssignment:
    """The replicas that a partition shall have, the preferred leader first."""

    topic: str
    partition: Int32
    replicas: list[Int32]


@request(key=1024, versions=(0, 0))
class ReassignRequest(Request[PartitionChangeResponse]):
    """Answered when it is written down; it goes on from there."""

    partitions: list[NewAssignment]
    timeout_ms: Int32


@message
class MovingPartition:
    """``replicas`` are assigned now, ``target`` shall be, and the files of ``removing`` are not known to be gone."""

    topic: str
    partition: Int32
    replicas: list[Int32]
    target: list[Int32]
    removing: list[Int32]


@message
class DescribeReassignmentsResponse:
    error_code: Int16
    error_message: str | None
    moving: list[MovingPartition]
    settled: list[NewAssignment]
    """The others of those that were named, as far as there are such partitions."""


@request(key=1025, versions=(0, 0))
class DescribeReassignmentsRequest(Request[DescribeReassignmentsResponse]):
    """All that are under way, and where the named partitions are that do not move."""

    partitions: list[PartitionName]
    timeout_ms: Int32
