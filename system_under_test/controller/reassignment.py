"""Reassignment: moves partitions to other replicas by /admin/reassign_partitions, in the format of Kafka's tools.

Each entry of that znode is the reassignment of one partition, in these steps:

1. *grow*: when the brokers of the new replicas are alive, the assignment becomes the old and the new replicas. The
   leader epoch rises, so that the leader learns of the new assignment. The new replicas copy the log.
2. *switch*: when all target replicas are in sync, the assignment and the in-sync set become the target replicas, and
   one of them leads. The entry names the old replicas that must be deleted (``removing``).
3. *clean*: the old replicas delete their files. Each is removed from the entry after it has confirmed the deletion. The
   entry is removed when no old replica is left and all assigned replicas are in sync.

The next step depends only on the content of ZooKeeper, and each step is one multi(). So a new controller continues
where the former one ended, and half a step is never visible. Each step waits for dead replicas. Deleting a topic ends
its reassignments.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import msgspec
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Delete, SetData

from assay.system_under_test.controller import assignments, leaders, topics
from assay.system_under_test.controller.active_term import Action, ActiveTerm
from assay.system_under_test.controller.cluster_state import PartitionId, parse_assignment
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.events import Columns, EventLog
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.tasks import BACK_OFF, BackgroundTasks
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import PartitionState, ReassignmentEntry, read_watched

_log = logging.getLogger("assay.controller")

PATH = paths.REASSIGNMENTS

ReassignmentsByPartition = dict[PartitionId, ReassignmentEntry]


@dataclass
class Reassignments:
    """The reassignments of one controller.

    - ``perform``: runs an action when no call of ``perform_steps`` is running
    - ``trigger``: causes a call of ``perform_steps``
    - ``read_topics``: reads topics, partitions and assignments
    """

    zookeeper: ZooKeeper
    background: BackgroundTasks
    events: EventLog
    perform: Callable[[Action[None]], Awaitable[None]]
    trigger: Callable[[], None]
    read_topics: Callable[[ActiveTerm], Awaitable[None]]

    # -- the znode ---------------------------------------------------------------------------------------------------

    async def _read(
        self, active: ActiveTerm, watch: Watch | None = None
    ) -> tuple[ReassignmentsByPartition, int | None, list[str]]:
        """Returns the reassignments, the znode's version (None if missing), and the problems of invalid entries."""
        cluster = active.cluster
        found = await read_watched(self.zookeeper, PATH, watch)
        entries: list[ReassignmentEntry] = []
        problems: list[str] = []
        if found is not None:
            try:
                entries, problems = znodes.decode_entries(ReassignmentEntry, PATH, found[0])
            except znodes.ZnodeError as error:  # reassignments in progress continue, and their entries are restored
                entries, problems = list(cluster.moves.values()), [str(error)]
        moves = {(m.topic, m.partition): _add_unfinished(m, cluster.moves) for m in entries}
        if moves != cluster.moves:
            await self.read_topics(active)  # reads new topics, and the results of steps with unknown outcomes
        for partition, move in list(moves.items()):
            problem = _find_problem(active, move)
            if problem is not None:
                del moves[partition]
                problems.append(f"reassignment of {move.topic}-{move.partition} to {move.replicas}: {problem}")
        for name, index in cluster.moves.keys() - moves.keys():
            _log.warning("reassignment of %s-%d is no longer requested; it ends in its present state", name, index)
        cluster.moves, cluster.moves_known = moves, True
        return moves, None if found is None else found[1].version, problems

    async def ensure_read(self, active: ActiveTerm) -> None:
        """Reads the reassignments unless they are known. They name old replicas that may still have files."""
        if not active.cluster.moves_known:
            await self._read(active)

    async def _write(self, active: ActiveTerm, moves: ReassignmentsByPartition, version: int | None) -> None:
        await active.writer.write([_make_write(moves, version)])
        active.cluster.moves = moves

    async def plan_endings(self, active: ActiveTerm, name: str) -> list[Any]:
        """Returns the write that removes a deleted topic's reassignments, so that no later topic gets them."""
        moves, version, _ = await self._read(active)
        remaining = {partition: move for partition, move in moves.items() if partition[0] != name}
        return [] if remaining == moves else [_make_write(remaining, version)]

    # -- by request --------------------------------------------------------------------------------------------------

    async def start(self, active: ActiveTerm, partition: PartitionId, replicas: list[int]) -> None:
        """Starts a reassignment, unless it is in progress or done already. Raises ``TopicError``."""
        name, index = partition
        moves, version, _ = await self._read(active)
        if not _is_partition(active, name, index) or name in active.cluster.begun_deletions:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        target = active.cluster.topics[name].assignment[index]
        if partition in moves:
            target = moves[partition].replicas
            if target != replicas:
                raise TopicError(ErrorCode.INVALID_REQUEST, f"{name}-{index} is moving to {target}; try again later")
        if target == replicas:
            return  # even if a target replica has failed since
        if not replicas or not topics.is_placeable(replicas, len(replicas), active.cluster.brokers):
            raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{replicas}: name distinct brokers that are alive")
        try:
            await self._write(active, {**moves, partition: ReassignmentEntry(name, index, replicas)}, version)
        except (BadVersionError, NodeExistsError, NoNodeError) as error:
            raise TopicError(ErrorCode.INVALID_REQUEST, f"{PATH} changed meanwhile; try again") from error

    async def list_in_progress(self, active: ActiveTerm) -> list[tuple[ReassignmentEntry, list[int]]]:
        """Returns the reassignments, each with its partition's current assignment."""
        moves, _, _ = await self._read(active)
        return [(move, active.cluster.topics[move.topic].assignment[move.partition]) for move in moves.values()]

    # -- step by step ------------------------------------------------------------------------------------------------

    async def perform_steps(self, active: ActiveTerm, watch: Watch) -> None:
        """Performs all steps that are possible now. Called again after each change of the znode, by the watch."""
        moves, version, problems = await self._read(active, watch)
        try:
            if problems:
                for problem in problems:
                    _log.error("%s; it is rejected", problem)
                await self._write(active, moves, version)
                return
            for move in moves.values():
                if await self._step(active, moves, version, move):
                    break
        except (BadVersionError, NoNodeError) as error:
            _log.info("reassignment: another writer was faster (%r); it is tried again", error)
            self.trigger()
        active.broadcast.send()

    async def _step(
        self, active: ActiveTerm, moves: ReassignmentsByPartition, version: int | None, move: ReassignmentEntry
    ) -> bool:
        """Performs an entry's next step if possible; returns whether it changed the znode."""
        cluster, epoch, alive = active.cluster, active.term.epoch, active.cluster.brokers_not_leaving()
        partition, target = (move.topic, move.partition), move.replicas
        assignment = cluster.topics[move.topic].assignment[move.partition]
        if move.topic in cluster.begun_deletions:
            return False
        if assignment == target:
            return await self._clean(active, moves, version, move)
        new_replicas = set(target) - set(assignment)
        if new_replicas:
            both = assignments.merge_replicas(assignment, target)
            if new_replicas <= alive.keys():
                await self._assign(
                    active, partition, both, lambda state: leaders.renew_epoch(state, both, alive, epoch), []
                )
            return False
        old_replicas = [replica for replica in assignment if replica not in target]
        updated = {**moves, partition: msgspec.structs.replace(move, removing=[*move.removing, *old_replicas])}
        if not await self._assign(
            active,
            partition,
            target,
            lambda state: leaders.restrict_to_target(state, target, alive, epoch),
            [_make_write(updated, version)],
        ):
            return False
        cluster.moves = updated
        for replica in old_replicas:
            # No later request tells the old replica that its role is over. Without this one, it would keep the role
            # until its deletion.
            active.broadcast.stop_replicas(replica, [partition])
        return True

    async def _assign(
        self,
        active: ActiveTerm,
        partition: PartitionId,
        replicas: list[int],
        change: Callable[[PartitionState], PartitionState | None],
        other_writes: Sequence[Any],
    ) -> bool:
        """Writes the assignment, the changed state and ``other_writes`` in one multi().

        Returns False, and writes nothing, if ``change`` returns None or the assignment in ZooKeeper has changed.
        """
        name, index = partition
        topic, path = active.cluster.topics[name], paths.topic(name)
        data, stat = await self.zookeeper.get(path)
        if stat.czxid != topic.czxid or not _encodes_assignment(path, data, topic.assignment):
            self.trigger()  # the watch of the assignment triggers a new read first
            return False
        wanted = {**topic.assignment, index: replicas}
        written = await active.partitions.rewrite(
            partition, change, [assignments.make_assignment_write(name, wanted, stat.version), *other_writes]
        )
        if written:
            active.cluster.topics[name] = replace(topic, assignment=wanted)
            active.machines.record_assignment(partition)
            gone = [replica for replica in topic.assignment[index] if replica not in replicas]
            self._emit(
                "assignment-written", active, partition, active.cluster.states[partition], replicas=replicas, gone=gone
            )
        return written

    async def _clean(
        self, active: ActiveTerm, moves: ReassignmentsByPartition, version: int | None, move: ReassignmentEntry
    ) -> bool:
        """Deletes old replicas on live brokers. Removes the entry if none is left and all targets are in sync."""
        partition = (move.topic, move.partition)
        if not move.removing:
            known, alive = active.cluster.states.get(partition), active.cluster.brokers_not_leaving()
            if (
                known is None
                or leaders.restrict_to_target(known.value, move.replicas, alive, active.term.epoch) is None
            ):
                return False  # a replica may not be in sync yet if the reassignment has only added replicas
            await self._write(active, {other: m for other, m in moves.items() if other != partition}, version)
            self._emit("reassignment-ended", active, partition, known, replicas=move.replicas)
            return True
        brokers = [broker for broker in move.removing if active.broadcast.has_channels([broker])]
        if brokers and partition not in active.cluster.running_removals and partition in active.cluster.states:
            active.cluster.running_removals[partition] = None
            active.machines.record_deletion_start(partition, brokers)
            self.background.spawn(self._delete(active, partition, brokers), f"old replicas of {partition}")
        return False

    async def _delete(self, active: ActiveTerm, partition: PartitionId, brokers: Sequence[int]) -> None:
        """Tries to delete the replicas once. The return of a failed broker triggers the next try."""
        epoch = active.cluster.states[partition].value.leader_epoch
        deleted = await active.broadcast.delete_replica(partition, brokers)

        async def finish(current: ActiveTerm) -> None:
            active.cluster.running_removals.pop(partition, None)
            known = active.cluster.states.get(partition)
            if known is None or known.value.leader_epoch != epoch:
                deleted.clear()  # the partition may have been assigned to these brokers again meanwhile
            if current is not active:
                return
            try:
                if deleted:
                    await self._record_deleted(active, partition, deleted)
            finally:
                if partition[0] not in active.cluster.begun_deletions:  # otherwise the topic's deletion takes over
                    active.machines.record_deletion_failure(partition)

        try:
            await self.perform(finish)
        except TopicError as error:
            _log.info("deleting old replicas of %s-%d: %s; it is tried again", *partition, error)
        if len(deleted) < len(brokers):
            await asyncio.sleep(BACK_OFF)
            self.trigger()

    async def _record_deleted(self, active: ActiveTerm, partition: PartitionId, deleted: Sequence[int]) -> None:
        moves, version, _ = await self._read(active)
        if partition in moves:
            move = moves[partition]
            rest = [broker for broker in move.removing if broker not in deleted]
            updated = {**moves, partition: msgspec.structs.replace(move, removing=rest)}
            await self._write(active, updated, version)
        active.machines.record_deleted(partition, deleted)

    def _emit(
        self,
        event: str,
        active: ActiveTerm,
        partition: PartitionId,
        state: znodes.Versioned[PartitionState],
        **more: Unpack[Columns],
    ) -> None:
        name, index = partition
        columns: Columns = {
            "key": f"{name}-{index}",
            "controller_epoch": active.term.epoch,
            "topic_zxid": active.cluster.topics[name].czxid if name in active.cluster.topics else None,
            "epoch": state.value.leader_epoch,
            "isr": state.value.isr,
            "elr": state.value.elr,
            "version": state.version,
            **more,
        }
        self.events.emit(event, **columns)


def _is_partition(active: ActiveTerm, name: str, index: int) -> bool:
    return name in active.cluster.topics and index in active.cluster.topics[name].assignment


def _encodes_assignment(path: str, data: bytes, assignment: Mapping[int, Sequence[int]]) -> bool:
    """Returns whether the data encode this assignment."""
    try:
        return parse_assignment(path, data) == assignment
    except znodes.ZnodeError:
        return False


def _find_problem(active: ActiveTerm, move: ReassignmentEntry) -> str | None:
    """Returns why the entry is invalid, or None. Replicas need not be alive."""
    if not _is_partition(active, move.topic, move.partition):
        return "there is no such partition"
    replicas = [*move.replicas, *move.removing]
    if not move.replicas or len(set(replicas)) < len(replicas) or not all(0 <= r <= znodes.MAX_ID for r in replicas):
        return "replicas must be distinct brokers' ids, at least one"
    return None


def _add_unfinished(move: ReassignmentEntry, known: ReassignmentsByPartition) -> ReassignmentEntry:
    """Adds the known entry's ``removing`` replicas, in case another writer has overwritten the entry."""
    before = known.get((move.topic, move.partition), move).removing
    removing = dict.fromkeys(replica for replica in (*move.removing, *before) if replica not in move.replicas)
    return msgspec.structs.replace(move, removing=list(removing))


def _make_write(moves: ReassignmentsByPartition, version: int | None) -> Any:
    """Returns the write of these entries on condition that the znode has this version; without entries, its removal."""
    if not moves:
        return Delete(PATH, version)
    data = znodes.encode(znodes.ReassignmentList(list(moves.values())))
    return znodes.make_create(PATH, data) if version is None else SetData(PATH, data, version)
