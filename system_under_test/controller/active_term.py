"""The state that exists only while this broker is the active controller."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from assay.system_under_test.controller.broadcast import Broadcast
from assay.system_under_test.controller.cluster_state import ClusterState
from assay.system_under_test.controller.partitions import PartitionStates
from assay.system_under_test.controller.state_machines import StateMachines
from assay.system_under_test.controller.term import ControllerTerm, FencedWriter

T = TypeVar("T")


@dataclass
class ActiveTerm:
    """A controller's term: its fenced writer, the state that it has read, and its channels to the brokers."""

    term: ControllerTerm
    writer: FencedWriter
    cluster: ClusterState
    machines: StateMachines
    partitions: PartitionStates
    broadcast: Broadcast

    def forget(self, topic: str, *, deleted: bool = False) -> None:
        """Forgets a topic that is gone from ZooKeeper.

        ``deleted``: whether this term deleted the topic, after all replicas had deleted their files, and after all
        brokers had learned it. If not, the files stay, but the brokers stop serving them.
        """
        if not deleted:
            self.broadcast.stop_topic(topic)
            self.broadcast.mark_deleted(topic)
        self.machines.forget(topic, deleted=deleted)
        self.cluster.forget(topic)


Action = Callable[[ActiveTerm], Awaitable[T]]
"""The work for one request. The controller runs it when no other work on the term is running."""
