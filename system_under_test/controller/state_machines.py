"""The state machines of partitions and replicas for the active controller, and their valid transitions.

States and transitions are those of Kafka 0.10.2. Only this module changes a state, and it emits an event for each
change. The states only describe what the controller reads and does; no decision depends on them. An invalid transition
is a bug of the controller. It is logged, and emitted like any other, so that the event log shows it. A partition or
replica that existed before this term has no former state at first.
"""

import logging
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from assay.system_under_test.controller import leaders
from assay.system_under_test.controller.cluster_state import ClusterState, PartitionId
from assay.system_under_test.events import Columns, EventLog
from assay.system_under_test.zookeeper.znodes import PartitionState

_log = logging.getLogger("assay.controller")


class PartitionStateName(StrEnum):
    NON_EXISTENT = "NonExistent"
    NEW = "New"
    """The partition is assigned to replicas, but has not had a leader yet."""
    ONLINE = "Online"
    """The partition has a live leader."""
    OFFLINE = "Offline"


class ReplicaStateName(StrEnum):
    NON_EXISTENT = "NonExistent"
    NEW = "New"
    """The replica is assigned to a broker, which has not got a request about it yet."""
    ONLINE = "Online"
    """The replica's broker is alive."""
    OFFLINE = "Offline"
    """The replica's broker is dead or about to stop, or the replica will be deleted."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    """The replica's files are gone. When a topic is deleted, its replicas enter this state together."""
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """The attempt to delete the replica has failed."""


_P, _R = PartitionStateName, ReplicaStateName

PARTITION_TRANSITIONS: Final[Mapping[PartitionStateName, frozenset[PartitionStateName]]] = {
    _P.NON_EXISTENT: frozenset({_P.OFFLINE}),
    _P.NEW: frozenset({_P.NON_EXISTENT}),
    _P.ONLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.OFFLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
}
"""The states from which each state may be reached."""

REPLICA_TRANSITIONS: Final[Mapping[ReplicaStateName, frozenset[ReplicaStateName]]] = {
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED}),
    _R.DELETION_INELIGIBLE: frozenset({_R.DELETION_STARTED}),
}


_NOT_VALID: Final = "%s %s-%d goes from %s to %s, which is no valid transition: a bug of this broker, please report it"


class StateMachines:
    """The state machines of one term."""

    def __init__(self, events: EventLog, controller_epoch: int, cluster: ClusterState) -> None:
        self._events = events
        self._controller_epoch = controller_epoch
        self._cluster = cluster
        self._partitions: dict[PartitionId, PartitionStateName] = {}
        self._replicas: dict[PartitionId, dict[int, ReplicaStateName]] = {}

    # -- events of the controller ------------------------------------------------------------------------------------

    def record_new(self, partition: PartitionId) -> None:
        """Records a partition that has no state in ZooKeeper yet."""
        if partition not in self._partitions:
            self._partitions[partition] = _P.NON_EXISTENT
            self._move_partition(partition, _P.NEW)
            self._add_assigned(partition)

    def record_state(self, partition: PartitionId, state: PartitionState, *, elected: bool = False) -> None:
        """Records the state in ZooKeeper. ``elected``: whether this controller has just elected another leader."""
        known = self._partitions.get(partition)
        now = _P.ONLINE if leaders.has_live_leader(state, self._cluster.brokers) else _P.OFFLINE
        if known is not now or (elected and now is _P.ONLINE):
            self._move_partition(partition, now)
        if known is not None:
            self._add_assigned(partition)
        self.follow_brokers(partition)

    def follow_brokers(self, partition: PartitionId) -> None:
        """Sets replicas on live brokers online, and all others offline. Replicas being deleted keep their states."""
        assigned = self._cluster.topics[partition[0]].assignment[partition[1]]
        staying, known = self._cluster.brokers_not_leaving(), self._replicas.setdefault(partition, {})
        for replica in (*assigned, *(other for other in known if other not in assigned)):
            state = known.get(replica)
            if state in (_R.DELETION_STARTED, _R.NON_EXISTENT):
                continue
            if replica not in assigned or replica not in self._cluster.brokers:
                now = _R.OFFLINE
            else:  # a replica stopped for its broker's shutdown does not start again
                now = _R.OFFLINE if state is _R.OFFLINE and replica not in staying else _R.ONLINE
            if state is not now:
                self._move_replica(partition, replica, now)

    def record_assignment(self, partition: PartitionId) -> None:
        """Records a changed assignment."""
        self._add_assigned(partition)
        self.follow_brokers(partition)

    def record_stopped(self, broker: int, partitions: Iterable[PartitionId]) -> None:
        """Sets these partitions' replicas offline on a broker that shuts down."""
        for partition in partitions:
            if self._replicas.get(partition, {}).get(broker) is _R.ONLINE:
                self._move_replica(partition, broker, _R.OFFLINE)

    def record_deletion_start(self, partition: PartitionId, replicas: Iterable[int]) -> None:
        """Records that these replicas get a request to delete their files."""
        for replica in replicas:
            state = self._replicas.setdefault(partition, {}).get(replica)
            if state is not _R.DELETION_STARTED:
                if state is _R.NON_EXISTENT:
                    self._move_replica(partition, replica, _R.NEW)
                if state is not _R.OFFLINE:
                    self._move_replica(partition, replica, _R.OFFLINE)
                self._move_replica(partition, replica, _R.DELETION_STARTED)

    def record_topic_deletion_start(self, name: str) -> None:
        for index, assigned in self._cluster.topics[name].assignment.items():
            partition = name, index
            removing = self._cluster.moves[partition].removing if partition in self._cluster.moves else []
            if partition in self._partitions:
                self.record_deletion_start(partition, (*assigned, *removing))

    def record_deletion_failure(self, partition: PartitionId) -> None:
        """Records a failed deletion for all replicas whose deletion has started and is not recorded as complete."""
        for replica, state in self._replicas.get(partition, {}).items():
            if state is _R.DELETION_STARTED:
                self._move_replica(partition, replica, _R.DELETION_INELIGIBLE)
        if partition in self._partitions:
            self.follow_brokers(partition)

    def record_deleted(self, partition: PartitionId, replicas: Iterable[int]) -> None:
        """Records that these replicas are no longer assigned, and their files are gone."""
        for replica in replicas:
            if self._replicas.get(partition, {}).get(replica) is _R.DELETION_STARTED:
                self._move_replica(partition, replica, _R.DELETION_SUCCESSFUL)
                self._move_replica(partition, replica, _R.NON_EXISTENT)

    def forget(self, name: str, *, deleted: bool) -> None:
        """Removes a topic. ``deleted``: whether its replicas have deleted their files."""
        for partition in [known for known in self._replicas if known[0] == name]:
            replicas = self._replicas[partition]
            if deleted:
                self.record_deleted(partition, replicas)
            for replica, state in replicas.items():
                if state is _R.DELETION_STARTED:
                    self._move_replica(partition, replica, _R.DELETION_INELIGIBLE)
                if replicas[replica] not in (_R.OFFLINE, _R.NON_EXISTENT):
                    self._move_replica(partition, replica, _R.OFFLINE)
            if partition in self._partitions:
                if self._partitions[partition] is not _P.OFFLINE:
                    self._move_partition(partition, _P.OFFLINE)
                self._move_partition(partition, _P.NON_EXISTENT)
                del self._partitions[partition]
            del self._replicas[partition]

    # -- transitions -------------------------------------------------------------------------------------------------

    def _add_assigned(self, partition: PartitionId) -> None:
        known = self._replicas.setdefault(partition, {})
        for replica in self._cluster.topics[partition[0]].assignment[partition[1]]:
            if known.setdefault(replica, _R.NON_EXISTENT) is _R.NON_EXISTENT:
                self._move_replica(partition, replica, _R.NEW)

    def _move_partition(self, partition: PartitionId, now: PartitionStateName) -> None:
        former = self._partitions.get(partition)
        self._partitions[partition] = now
        if former is not None and former not in PARTITION_TRANSITIONS[now]:
            _log.error(_NOT_VALID, "partition", *partition, former, now)
        moved: Columns = {**self._make_columns(partition), "from_state": former, "to_state": now}
        self._events.emit("partition-transition", **moved)

    def _move_replica(self, partition: PartitionId, replica: int, now: ReplicaStateName) -> None:
        known = self._replicas[partition]
        former = known.get(replica)
        known[replica] = now
        if former is not None and former not in REPLICA_TRANSITIONS[now]:
            _log.error(_NOT_VALID, f"replica {replica} of", *partition, former, now)
        moved: Columns = {**self._make_columns(partition), "replica": replica, "from_state": former, "to_state": now}
        self._events.emit("replica-transition", **moved)

    def _make_columns(self, partition: PartitionId) -> Columns:
        name, index = partition
        zxid = self._cluster.topics[name].czxid
        return {"key": f"{name}-{index}", "controller_epoch": self._controller_epoch, "topic_zxid": zxid}
