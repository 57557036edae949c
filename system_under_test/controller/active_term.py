"""What exists only while this broker is the active controller."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from assay.system_under_test.controller.broadcast import Broadcast
from assay.system_under_test.controller.cluster_state import ClusterState
from assay.system_under_test.controller.partitions import PartitionMachine
from assay.system_under_test.controller.term import Fence, Term

T = TypeVar("T")


@dataclass
class ActiveTerm:
    """One term: its right to write, what it knows, and its lines to the brokers."""

    term: Term
    fence: Fence
    cluster: ClusterState
    partitions: PartitionMachine
    brokers: Broadcast


Action = Callable[[ActiveTerm], Awaitable[T]]
"""Something that a request asks of the controller; it is done between two triggers."""
