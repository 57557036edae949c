"""What exists only while this broker is the active controller."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from assay.system_under_test.controller.broadcast import Broadcast
from assay.system_under_test.controller.cluster_state import ClusterState
from assay.system_under_test.controller.partitions import PartitionStates
from assay.system_under_test.controller.state_machines import StateMachines
from assay.system_under_test.controller.term import Fence, Term

T = TypeVar("T")


@dataclass
class ActiveTerm:
    """One term: its right to write, what it knows, and its lines to the brokers."""

    term: Term
    fence: Fence
    cluster: ClusterState
    machines: StateMachines
    partitions: PartitionStates
    brokers: Broadcast

    def forget(self, topic: str, *, deleted: bool = False) -> None:
        """It is gone from ZooKeeper. ``deleted``: by this term, after all replicas had deleted their files. Else these
        stay, but nothing is served from them any more.
        """
        if not deleted:
            self.brokers.stop_topic(topic)
        self.machines.forget(topic, deleted=deleted)
        self.cluster.forget(topic)
        self.brokers.deleted(topic)


Action = Callable[[ActiveTerm], Awaitable[T]]
"""Something that a request asks of the controller; it is done between two triggers."""
