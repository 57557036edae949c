"""Partitions that get other replicas: /admin/reassign_partitions, in the form of Kafka's tools.

What an entry's next step is follows from ZooKeeper alone, and each step is one multi(), so that the next controller
goes on where one ended, and half a step is never visible:

1. *grow*: once the new replicas live, the assignment becomes old and new, and the leader epoch rises, so that the
   leader learns of it; the new replicas copy.
2. *switch*: once all replicas that shall stay are in sync, assignment, in-sync set and leader are among them, and the
   entry names those that are to go (``removing``).
3. *clean*: those delete their files; each is removed from the entry when it has confirmed that. The entry goes when
   there are none, and all that are assigned are in sync. Without replicas to remove only the latter is waited for.

A replica that is dead is waited for, at each step. Deleting a topic ends its reassignment.
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
from assay.system_under_test.tasks import BACK_OFF, Background
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import Move, PartitionState, watched

_log = logging.getLogger("assay.controller")

PATH = paths.REASSIGNMENTS

Moves = dict[PartitionId, Move]


@dataclass
class Reassignments:
    """``perform`` runs an action between two triggers of the controller; ``look_again`` has ``look`` called; ``learn``
    reads which topics and partitions there are, and where.
    """

    zookeeper: ZooKeeper
    background: Background
    events: EventLog
    perform: Callable[[Action[None]], Awaitable[None]]
    look_again: Callable[[], None]
    learn: Callable[[ActiveTerm], Awaitable[None]]

    # -- the znode ---------------------------------------------------------------------------------------------------

    async def _read(self, active: ActiveTerm, watch: Watch | None = None) -> tuple[Moves, int | None, list[str]]:
        """What is to be moved, the znode's version (None: there is none), and which entries make no sense, and why."""
        cluster = active.cluster
        found = await watched(self.zookeeper, PATH, watch)
        entries: list[Move] = []
        problems: list[str] = []
        if found is not None:
            try:
                entries, problems = znodes.decode_entries(Move, PATH, found[0])
            except znodes.ZnodeError as error:  # what is under way goes on, and is written again
                entries, problems = list(cluster.moves.values()), [str(error)]
        moves = {(m.topic, m.partition): _with_unfinished(m, cluster.moves) for m in entries}
        if moves != cluster.moves:
            await self.learn(active)  # of new topics, and of steps whose outcome was unknown
        for partition, move in list(moves.items()):
            problem = _problem(active, move)
            if problem is not None:
                del moves[partition]
                problems.append(f"reassignment of {move.topic}-{move.partition} to {move.replicas}: {problem}")
        for name, index in cluster.moves.keys() - moves.keys():
            _log.warning("reassignment of %s-%d is asked for no longer; it ends where it is", name, index)
        cluster.moves, cluster.moves_known = moves, True
        return moves, None if found is None else found[1].version, problems

    async def know(self, active: ActiveTerm) -> None:
        """Reads what is under way, unless it was read: who has files of a topic is not known before."""
        if not active.cluster.moves_known:
            await self._read(active)

    async def _write(self, active: ActiveTerm, moves: Moves, version: int | None) -> None:
        await active.fence.write([_writing(moves, version)])
        active.cluster.moves = moves

    async def endings(self, active: ActiveTerm, name: str) -> list[Any]:
        """The write that takes the moves of a topic away, as it is deleted: they must not apply to a later topic of
        that name.
        """
        moves, version, _ = await self._read(active)
        left = {partition: move for partition, move in moves.items() if partition[0] != name}
        return [] if left == moves else [_writing(left, version)]

    # -- by request --------------------------------------------------------------------------------------------------

    async def start(self, active: ActiveTerm, partition: PartitionId, replicas: list[int]) -> None:
        """Has a partition move to these replicas, unless it is on its way there, or has them, already. Raises
        ``TopicError``.
        """
        name, index = partition
        moves, version, _ = await self._read(active)
        if not _is_partition(active, name, index) or name in active.cluster.deleting:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        target = active.cluster.topics[name].assignment[index]
        if partition in moves:
            target = moves[partition].replicas
            if target != replicas:
                raise TopicError(ErrorCode.INVALID_REQUEST, f"{name}-{index} is on its way to {target}; ask again then")
        if target == replicas:
            return  # also when one of them has died since
        if not replicas or not topics.placeable(replicas, len(replicas), active.cluster.brokers):
            raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{replicas}: name distinct brokers that are alive")
        try:
            await self._write(active, {**moves, partition: Move(name, index, replicas)}, version)
        except (BadVersionError, NodeExistsError, NoNodeError) as error:
            raise TopicError(ErrorCode.INVALID_REQUEST, f"{PATH} changed meanwhile; ask again") from error

    async def under_way(self, active: ActiveTerm) -> list[tuple[Move, list[int]]]:
        """The moves, each with what its partition is assigned to at present."""
        moves, _, _ = await self._read(active)
        return [(move, active.cluster.topics[move.topic].assignment[move.partition]) for move in moves.values()]

    # -- step by step ------------------------------------------------------------------------------------------------

    async def look(self, active: ActiveTerm, watch: Watch) -> None:
        """Does what can be done now. Each change of the znode has it looked at again, since it is watched."""
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
            _log.info("reassignment: %r, as another writer was faster; again", error)
            self.look_again()
        active.brokers.send()

    async def _step(self, active: ActiveTerm, moves: Moves, version: int | None, move: Move) -> bool:
        """Did it change the znode?"""
        cluster, epoch, alive = active.cluster, active.term.epoch, active.cluster.staying()
        partition, target = (move.topic, move.partition), move.replicas
        assignment = cluster.topics[move.topic].assignment[move.partition]
        if move.topic in cluster.deleting:
            return False
        if assignment == target:
            return await self._clean(active, moves, version, move)
        coming = set(target) - set(assignment)
        if coming:
            grown = assignments.grown(assignment, target)
            if coming <= alive.keys():
                await self._assign(
                    active, partition, grown, lambda state: leaders.renewed(state, grown, alive, epoch), []
                )
            return False
        going = [replica for replica in assignment if replica not in target]
        left = {**moves, partition: msgspec.structs.replace(move, removing=[*move.removing, *going])}
        if not await self._assign(
            active,
            partition,
            target,
            lambda state: leaders.moved(state, target, alive, epoch),
            [_writing(left, version)],
        ):
            return False
        cluster.moves = left
        for (
            replica
        ) in going:  # it gets no more requests about the partition, and might lead, or follow, until it is deleted
            active.brokers.stop(replica, [partition])
        return True

    async def _assign(
        self,
        active: ActiveTerm,
        partition: PartitionId,
        replicas: list[int],
        change: Callable[[PartitionState], PartitionState | None],
        also: Sequence[Any],
    ) -> bool:
        """Writes the assignment and the changed state, and those, in one; false when the state cannot be so changed."""
        name, index = partition
        topic, path = active.cluster.topics[name], paths.topic(name)
        data, stat = await self.zookeeper.get(path)
        if stat.czxid != topic.czxid or not _says(path, data, topic.assignment):
            self.look_again()  # after a new look, which the watch brings
            return False
        wanted = {**topic.assignment, index: replicas}
        written = await active.partitions.rewrite(
            partition, change, [assignments.writing(name, wanted, stat.version), *also]
        )
        if written:
            active.cluster.topics[name] = replace(topic, assignment=wanted)
            active.machines.reassigned(partition)
            gone = [replica for replica in topic.assignment[index] if replica not in replicas]
            self._emit(
                "assignment-written", active, partition, active.cluster.states[partition], replicas=replicas, gone=gone
            )
        return written

    async def _clean(self, active: ActiveTerm, moves: Moves, version: int | None, move: Move) -> bool:
        """Has the old replicas deleted, those that live; removes the entry when there are none, and all are in sync."""
        partition = (move.topic, move.partition)
        if not move.removing:
            known, alive = active.cluster.states.get(partition), active.cluster.staying()
            if known is None or leaders.moved(known.value, move.replicas, alive, active.term.epoch) is None:
                return False  # a replica that came without another's going may have copied nothing yet
            await self._write(active, {other: m for other, m in moves.items() if other != partition}, version)
            self._emit("reassignment-ended", active, partition, known, replicas=move.replicas)
            return True
        brokers = [broker for broker in move.removing if active.brokers.reaches([broker])]
        if brokers and partition not in active.cluster.cleaning and partition in active.cluster.states:
            active.cluster.cleaning[partition] = None
            active.machines.deletion_begins(partition, brokers)
            self.background.spawn(self._delete(active, partition, brokers), f"old replicas of {partition}")
        return False

    async def _delete(self, active: ActiveTerm, partition: PartitionId, brokers: Sequence[int]) -> None:
        """One try; a broker that goes away during it brings the next one when it is back."""
        epoch = active.cluster.states[partition].value.leader_epoch
        deleted = await active.brokers.delete_replica(partition, brokers)

        async def finish(current: ActiveTerm) -> None:
            active.cluster.cleaning.pop(partition, None)
            known = active.cluster.states.get(partition)
            if known is None or known.value.leader_epoch != epoch:
                deleted.clear()  # it may have been theirs again since
            if current is not active:
                return
            try:
                if deleted:
                    await self._deleted(active, partition, deleted)
            finally:
                if partition[0] not in active.cluster.deleting:  # else its deletion asks them again
                    active.machines.deletion_failed(partition)

        try:
            await self.perform(finish)
        except TopicError as error:
            _log.info("old replicas of %s-%d: %s; again", *partition, error)
        if len(deleted) < len(brokers):
            await asyncio.sleep(BACK_OFF)
            self.look_again()

    async def _deleted(self, active: ActiveTerm, partition: PartitionId, deleted: Sequence[int]) -> None:
        moves, version, _ = await self._read(active)
        if partition in moves:
            move = moves[partition]
            rest = [broker for broker in move.removing if broker not in deleted]
            left = {**moves, partition: msgspec.structs.replace(move, removing=rest)}
            await self._write(active, left, version)
        active.machines.deleted(partition, deleted)

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


def _says(path: str, data: bytes, assignment: Mapping[int, Sequence[int]]) -> bool:
    """Is that this assignment, and not another, or none?"""
    try:
        return parse_assignment(path, data) == assignment
    except znodes.ZnodeError:
        return False


def _problem(active: ActiveTerm, move: Move) -> str | None:
    """Why it cannot be done, whichever brokers live."""
    if not _is_partition(active, move.topic, move.partition):
        return "there is no such partition"
    replicas = [*move.replicas, *move.removing]
    if not move.replicas or len(set(replicas)) < len(replicas) or not all(0 <= r <= znodes.MAX_ID for r in replicas):
        return "replicas must be distinct brokers' ids, at least one"
    return None


def _with_unfinished(move: Move, known: Moves) -> Move:
    """Also removing what was being removed already, in case that the entry was overwritten."""
    before = known.get((move.topic, move.partition), move).removing
    removing = dict.fromkeys(replica for replica in (*move.removing, *before) if replica not in move.replicas)
    return msgspec.structs.replace(move, removing=list(removing))


def _writing(moves: Moves, version: int | None) -> Any:
    """The write of these entries over that version of the znode, which goes with the last one."""
    if not moves:
        return Delete(PATH, version)
    data = znodes.encode(znodes.Moves(list(moves.values())))
    return znodes.create(PATH, data) if version is None else SetData(PATH, data, version)
