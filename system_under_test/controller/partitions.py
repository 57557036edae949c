"""Writes the states of partitions to ZooKeeper, as the live brokers require. All writes are fenced and conditional."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Delete, SetData

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller import leaders
from assay.system_under_test.controller.broadcast import Broadcast
from assay.system_under_test.controller.cluster_state import ClusterState, DamagedMember, PartitionId
from assay.system_under_test.controller.leaders import AskLogEnds, ElectionPolicy
from assay.system_under_test.controller.state_machines import StateMachines
from assay.system_under_test.controller.term import ControllerTerm, FencedWriter
from assay.system_under_test.events import EventLog
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import PartitionState, Versioned

_log = logging.getLogger("assay.controller")

Decide = Callable[
    [PartitionState, Sequence[int], leaders.Brokers, ElectionPolicy, int], "PartitionState | AskLogEnds | None"
]
"""Decides the next state, given the live brokers: ``leaders.decide_next_state`` in a correct build."""


@dataclass
class PartitionStates:
    """Keeps the partitions' states up to date. ``ClusterState.undecided`` has the elections that wait for a broker."""

    zookeeper: ZooKeeper
    term: ControllerTerm
    writer: FencedWriter
    cluster: ClusterState
    machines: StateMachines
    config: BrokerConfig
    events: EventLog
    broadcast: Broadcast
    decide: Decide

    async def update(self, partitions: Iterable[PartitionId]) -> None:
        """Brings the states of these partitions up to date. Changed states are sent with the next broadcast."""
        for partition in partitions:
            await self._update_one(partition)

    async def _read_state(self, partition: PartitionId) -> Versioned[PartitionState] | None:
        """Reads the state; returns None if there is none yet. Raises ``ZnodeError``."""
        path = paths.partition_state(*partition)
        try:
            state = znodes.decode_versioned(PartitionState, path, await self.zookeeper.get(path))
        except NoNodeError:
            self.machines.record_new(partition)
            return None
        if self.cluster.states.get(partition) != state:
            self.events.emit(
                "partition-state-read",
                key=f"{partition[0]}-{partition[1]}",
                epoch=state.value.leader_epoch,
                topic_zxid=self.cluster.topics[partition[0]].czxid,
                value=state.value.leader,
                isr=state.value.isr,
                elr=state.value.elr,
                osr=self._list_out_of_sync(partition, state.value),
                version=state.version,
            )
        self._record_state(partition, state)
        return state

    def _record_state(self, partition: PartitionId, state: Versioned[PartitionState], *, written: bool = False) -> None:
        known = self.cluster.states.get(partition)
        if known != state:
            self.cluster.states[partition] = state
            self.broadcast.mark_changed(partition)
        elected = written and known is not None and known.value.leader != state.value.leader
        self.machines.record_state(partition, state.value, elected=elected)

    async def _update_one(self, partition: PartitionId) -> None:
        """Reads and writes the state until it is right, or must wait for a broker. Starts over after a lost race."""
        while True:
            self.cluster.undecided.pop(partition, None)
            assignment = self.cluster.topics[partition[0]].assignment[partition[1]]
            try:
                found = await self._read_state(partition)
            except znodes.ZnodeError as error:
                # The current leader stays until someone repairs or deletes the znode by hand.
                _log.error("%s; the partition's state is left as it is", error)
                return
            if partition[0] in self.cluster.begun_deletions:
                return  # an in-sync member may have deleted its log already
            wanted: PartitionState | None
            if found is None:
                wanted = leaders.make_first_state(assignment, self.cluster.brokers, self.term.epoch)
            else:
                wanted = await self._decide(partition, found.value, assignment)
            if wanted is None:
                return
            try:
                version = await self._write(partition, wanted, found)
            except (BadVersionError, NodeExistsError):
                continue
            if found is None and not await self._exists_unchanged(partition[0]):
                with contextlib.suppress(NoNodeError):
                    await self.writer.write([Delete(paths.partition_state(*partition), version)])
                return
            self._record_state(partition, Versioned(wanted, version), written=True)

    async def _exists_unchanged(self, topic: str) -> bool:
        """Returns whether the topic still has the same czxid. Called after its first state was written.

        A transaction cannot check a czxid. Someone may have deleted the topic by hand, or created it again.
        """
        stat = await self.zookeeper.exists(paths.topic(topic))
        return stat is not None and stat.czxid == self.cluster.topics[topic].czxid

    async def move_away(self, partition: PartitionId, broker_id: int) -> bool:
        """Removes a broker from the in-sync set, and moves its leadership to a remaining member, if there is one.

        Returns whether the broker was removed.
        """
        topic, index = partition
        assignment = self.cluster.topics[topic].assignment[index]
        policy = ElectionPolicy(self._make_policy(topic).min_insync, unclean_election=False)

        def remove(state: PartitionState) -> PartitionState | None:
            if broker_id not in state.isr:
                return None
            wanted = leaders.decide_next_state(
                state, assignment, self.cluster.find_electable(partition), policy, self.term.epoch
            )
            return wanted if isinstance(wanted, PartitionState) and wanted.leader in state.isr else None

        return await self.rewrite(partition, remove)

    async def remove_damaged(self, partition: PartitionId, broker_id: int, leader_epoch: int) -> None:
        """Removes a replica whose log was damaged in this leader epoch; another member takes over.

        Does nothing in a later epoch, because the replica may be complete again. If not, the broker reports the damage
        again.
        """

        def remove(state: PartitionState) -> PartitionState | None:
            if state.leader_epoch != leader_epoch:
                return None
            return leaders.remove_damaged(state, broker_id, self.term.epoch)

        if await self.rewrite(partition, remove):
            state = self.cluster.states[partition].value
            if broker_id in state.isr:
                czxid = self.cluster.brokers[broker_id].czxid
                self.cluster.damaged[partition] = DamagedMember(broker_id, czxid, state.leader_epoch)
                _log.error(
                    "%s-%d has no leader: the log of broker %d is damaged, and no other has every acknowledged record; "
                    "restore its files and remove the file `damaged` next to them, or allow unclean election",
                    *partition,
                    broker_id,
                )
            await self.update([partition])

    async def rewrite(
        self,
        partition: PartitionId,
        change: Callable[[PartitionState], PartitionState | None],
        other_writes: Sequence[Any] = (),
    ) -> bool:
        """Writes the state that ``change`` returns, in one multi() with ``other_writes``.

        Returns False, and writes nothing, if ``change`` returns None. After a lost race for the state's version, starts
        over, or with ``other_writes`` raises ``BadVersionError``.
        """
        while True:
            try:
                found = await self._read_state(partition)
            except znodes.ZnodeError as error:
                _log.error("%s; it stays as it is", error)
                return False
            wanted = None if found is None else change(found.value)
            if wanted is None:
                return False
            try:
                version = await self._write(partition, wanted, found, other_writes)
            except BadVersionError:
                if other_writes:
                    raise
                continue
            self._record_state(partition, Versioned(wanted, version), written=True)
            return True

    def _list_out_of_sync(self, partition: PartitionId, state: PartitionState) -> list[int]:
        return [r for r in self.cluster.topics[partition[0]].assignment[partition[1]] if r not in state.isr]

    def _make_policy(self, topic: str) -> ElectionPolicy:
        config = self.config.topic.override(self.cluster.topics[topic].settings.values)
        return ElectionPolicy(config.min_insync_replicas, config.unclean_leader_election_enable)

    async def _decide(
        self, partition: PartitionId, state: PartitionState, assignment: list[int]
    ) -> PartitionState | None:
        brokers, policy, epoch = (
            self.cluster.brokers_with_intact_replica(partition),
            self._make_policy(partition[0]),
            self.term.epoch,
        )
        wanted = self.decide(state, assignment, brokers, policy, epoch)
        if not isinstance(wanted, AskLogEnds):
            return wanted
        if state.leader != znodes.NO_LEADER:
            # First end the current epoch on all brokers, so that the log ends no longer change.
            return leaders.replace_leader(state, znodes.NO_LEADER, epoch)
        ends: dict[int, tuple[int, int]] = {}
        for member in wanted.members:
            end = await self.broadcast.ask_log_end(member, partition)
            if end is None:
                self.cluster.undecided[partition] = None
                return None
            ends[member] = end
        if max(ends.values()) == (-1, -1):  # all are damaged
            self.cluster.undecided[partition] = None
            return None
        return leaders.elect_longest(ends, assignment, brokers, state, policy, epoch)

    async def _write(
        self,
        partition: PartitionId,
        state: PartitionState,
        found: Versioned[PartitionState] | None,
        other_writes: Sequence[Any] = (),
    ) -> int:
        """Writes a state, and returns the znode's new version."""
        topic, index = partition
        path, data = paths.partition_state(topic, index), znodes.encode(state)
        if found is not None:
            results = await self.writer.write([SetData(path, data, found.version), *other_writes])
            policy = self._make_policy(topic)
            self.events.emit(
                "partition-state-written",
                key=f"{topic}-{index}",
                epoch=state.leader_epoch,
                controller_epoch=state.controller_epoch,
                zxid=results[0].mzxid,
                topic_zxid=self.cluster.topics[topic].czxid,
                value=state.leader,
                isr=state.isr,
                elr=state.elr,
                osr=self._list_out_of_sync(partition, state),
                version=results[0].version,
                min_insync=policy.min_insync,
                unclean=policy.unclean_election,
            )
            return int(results[0].version)
        operations = [znodes.make_create(path, data)]
        for parent in (paths.partition(topic, index), paths.partitions(topic)):
            if await self.zookeeper.exists(parent) is None:
                operations.insert(0, znodes.make_create(parent))
        await self.writer.write(operations)
        return 0
