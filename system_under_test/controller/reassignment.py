"""Partitions that get other replicas: /admin/reassign_partitions, in the form of Kafka's tools.

What an entry's next step is follows from ZooKeeper alone, and each step is one multi(), so that the next controller
goes on where one ended, and nobody ever sees half a step:

1. *grow*: once the new replicas live, the assignment becomes old and new, and the leader epoch rises, so that the
   leader hears of it; the new replicas copy.
2. *switch*: once all replicas that shall stay are in sync, assignment, in-sync set and leader are among them, and the
   entry names those that are to go (``removing``).
3. *clean*: those delete their files; each is struck off the entry when it has said so. The entry goes when there are
   none, and all that are assigned are in sync, which is all there is to wait for when nobody is to go.

A replica that is dead is waited for, at each step. A topic that is deleted takes its reassignment along.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create, Delete, SetData
from kazoo.security import OPEN_ACL_UNSAFE

from assay.system_under_test.controller import assignments, leaders, topics
from assay.system_under_test.controller.cluster_state import MAX_ID, PartitionId, parse_assignment
from assay.system_under_test.controller.rule import Action, Rule
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.events import EventLog
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.tasks import Background
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.reading import watched
from assay.system_under_test.zookeeper.znodes import Move, PartitionState

_log = logging.getLogger("assay.controller")

PATH = paths.REASSIGNMENTS
BACK_OFF = 0.2
"""Seconds before replicas that could not be deleted are tried again."""

Moves = dict[PartitionId, Move]


class Reassignments:
    """``perform`` does something between two events of the controller; ``look_again`` has ``look`` called; ``learn``
    reads which topics and partitions there are, and where.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        background: Background,
        events: EventLog,
        perform: Callable[[Action], Awaitable[None]],
        look_again: Callable[[], None],
        learn: Callable[[Rule], Awaitable[None]],
    ) -> None:
        self._zookeeper = zookeeper
        self._background = background
        self._events = events
        self._perform = perform
        self._look_again = look_again
        self._learn = learn

    # -- the znode ---------------------------------------------------------------------------------------------------

    async def _read(self, rule: Rule, watch: Watch | None = None) -> tuple[Moves, int | None, list[str]]:
        """What is to be moved, the znode's version (None: there is none), and which entries make no sense, and why."""
        cluster = rule.cluster
        found = await watched(self._zookeeper, PATH, watch)
        entries: list[Move] = []
        problems: list[str] = []
        if found is not None:
            try:
                entries, problems = znodes.decode_entries(Move, PATH, found[0])
            except znodes.ZnodeError as error:  # what is under way goes on, and is written again
                entries, problems = list(cluster.moves.values()), [str(error)]
        moves = {(m.topic, m.partition): _with_unfinished(m, cluster.moves) for m in entries}
        if moves != cluster.moves:
            await self._learn(rule)  # of new topics, and of steps whose outcome was unknown
        for partition, move in list(moves.items()):
            problem = _problem(rule, move)
            if problem is not None:
                del moves[partition]
                problems.append(f"reassignment of {move.topic}-{move.partition} to {move.replicas}: {problem}")
        for name, index in cluster.moves.keys() - moves.keys():
            _log.warning("reassignment of %s-%d is asked for no longer; it ends where it is", name, index)
        cluster.moves, cluster.moves_known = moves, True
        return moves, None if found is None else found[1].version, problems

    async def know(self, rule: Rule) -> None:
        """Reads what is under way, unless it was read: who has files of a topic is not known before."""
        if not rule.cluster.moves_known:
            await self._read(rule)

    async def _write(self, rule: Rule, moves: Moves, version: int | None) -> None:
        await rule.fence.write([_writing(moves, version)])
        rule.cluster.moves = moves

    async def endings(self, rule: Rule, name: str) -> list[Any]:
        """The write that takes the moves of a topic away, as it goes: they are none of the next one's of that name."""
        moves, version, _ = await self._read(rule)
        left = {partition: move for partition, move in moves.items() if partition[0] != name}
        return [] if left == moves else [_writing(left, version)]

    # -- by request --------------------------------------------------------------------------------------------------

    async def start(self, rule: Rule, partition: PartitionId, replicas: list[int]) -> None:
        """Has a partition move to these replicas, unless it does, or has them, already. Raises ``TopicError``."""
        name, index = partition
        moves, version, _ = await self._read(rule)
        if not _is_partition(rule, name, index) or name in rule.cluster.deleting:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        target = rule.cluster.topics[name].assignment[index]
        if partition in moves:
            target = moves[partition].replicas
            if target != replicas:
                raise TopicError(ErrorCode.INVALID_REQUEST, f"{name}-{index} is on its way to {target}; ask again then")
        if target == replicas:
            return  # also when somebody of them has died since
        if not replicas or not topics.placeable(replicas, len(replicas), rule.cluster.brokers):
            raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{replicas}: name distinct brokers that are alive")
        try:
            await self._write(rule, {**moves, partition: Move(name, index, replicas)}, version)
        except (BadVersionError, NodeExistsError, NoNodeError) as error:
            raise TopicError(ErrorCode.INVALID_REQUEST, f"{PATH} changed meanwhile; ask again") from error

    async def under_way(self, rule: Rule) -> list[tuple[Move, list[int]]]:
        """The moves, each with what its partition is assigned to at present."""
        moves, _, _ = await self._read(rule)
        return [(move, rule.cluster.topics[move.topic].assignment[move.partition]) for move in moves.values()]

    # -- step by step ------------------------------------------------------------------------------------------------

    async def look(self, rule: Rule, watch: Watch) -> None:
        """Does what can be done now. Whatever changes the znode has it looked at again, since it is watched."""
        moves, version, problems = await self._read(rule, watch)
        try:
            if problems:
                for problem in problems:
                    _log.error("%s; it is refused", problem)
                await self._write(rule, moves, version)
                return
            for move in moves.values():
                if await self._step(rule, moves, version, move):
                    break
        except (BadVersionError, NoNodeError) as error:
            _log.info("reassignment: %r, as somebody else was faster; again", error)
            self._look_again()
        rule.brokers.tell()

    async def _step(self, rule: Rule, moves: Moves, version: int | None, move: Move) -> bool:
        """Did it change the znode?"""
        cluster, epoch, alive = rule.cluster, rule.term.epoch, rule.cluster.staying()
        partition, target = (move.topic, move.partition), move.replicas
        assignment = cluster.topics[move.topic].assignment[move.partition]
        if move.topic in cluster.deleting:
            return False
        if assignment == target:
            return await self._clean(rule, moves, version, move)
        coming = set(target) - set(assignment)
        if coming:
            grown = assignments.grown(assignment, target)
            if coming <= alive.keys():
                await self._assign(
                    rule, partition, grown, lambda state: leaders.renewed(state, grown, alive, epoch), []
                )
            return False
        going = [replica for replica in assignment if replica not in target]
        left = {**moves, partition: msgspec.structs.replace(move, removing=[*move.removing, *going])}
        if not await self._assign(
            rule, partition, target, lambda state: leaders.moved(state, target, alive, epoch), [_writing(left, version)]
        ):
            return False
        cluster.moves = left
        for replica in going:  # it is told of the partition no more, and might lead, or follow, until it is deleted
            rule.brokers.stop(replica, [partition])
        return True

    async def _assign(
        self,
        rule: Rule,
        partition: PartitionId,
        replicas: list[int],
        change: Callable[[PartitionState], PartitionState | None],
        also: Sequence[Any],
    ) -> bool:
        """Writes the assignment and the changed state, and those, in one; false when the state cannot be so changed."""
        name, index = partition
        topic, path = rule.cluster.topics[name], paths.topic(name)
        data, stat = await self._zookeeper.get(path)
        if stat.czxid != topic.czxid or not _says(path, data, topic.assignment):
            self._look_again()  # once that has been looked into, as its watch will have it
            return False
        wanted = {**topic.assignment, index: replicas}
        written = await rule.partitions.rewrite(
            partition, change, [assignments.writing(name, wanted, stat.version), *also]
        )
        if written:
            rule.cluster.topics[name] = replace(topic, assignment=wanted)
            self._emit("assignment-written", rule, partition, replicas=replicas)
        return written

    async def _clean(self, rule: Rule, moves: Moves, version: int | None, move: Move) -> bool:
        """Has the old replicas deleted, those that live; removes the entry when there are none, and all are in sync."""
        partition = (move.topic, move.partition)
        if not move.removing:
            known, alive = rule.cluster.states.get(partition), rule.cluster.staying()
            if known is None or leaders.moved(known.value, move.replicas, alive, rule.term.epoch) is None:
                return False  # a replica that came without another's going may have copied nothing yet
            await self._write(rule, _without(moves, partition), version)
            self._emit("reassignment-ended", rule, partition, replicas=move.replicas)
            return True
        brokers = [broker for broker in move.removing if rule.brokers.reaches([broker])]
        if brokers and partition not in rule.cluster.cleaning and partition in rule.cluster.states:
            rule.cluster.cleaning[partition] = None
            self._background.spawn(self._delete(rule, partition, brokers), f"old replicas of {partition}")
        return False

    async def _delete(self, rule: Rule, partition: PartitionId, brokers: Sequence[int]) -> None:
        """One try; a broker that goes away meanwhile brings the next one when it is back."""
        epoch = rule.cluster.states[partition].value.leader_epoch
        deleted = await rule.brokers.delete_replica(partition, brokers)

        async def finish(current: Rule) -> None:
            rule.cluster.cleaning.pop(partition, None)
            known = rule.cluster.states.get(partition)
            if known is None or known.value.leader_epoch != epoch:
                deleted.clear()  # it may have been theirs again since
            if current is not rule or not deleted:
                return
            moves, version, _ = await self._read(rule)
            if partition in moves:
                move = moves[partition]
                rest = [broker for broker in move.removing if broker not in deleted]
                left = {**moves, partition: msgspec.structs.replace(move, removing=rest)}
                await self._write(rule, left, version)

        try:
            await self._perform(finish)
        except TopicError as error:
            _log.info("old replicas of %s-%d: %s; again", *partition, error)
        if len(deleted) < len(brokers):
            await asyncio.sleep(BACK_OFF)
            self._look_again()

    def _emit(self, event: str, rule: Rule, partition: PartitionId, replicas: list[int]) -> None:
        name, index = partition
        self._events.emit(event, key=f"{name}-{index}", controller_epoch=rule.term.epoch, replicas=replicas)


def _is_partition(rule: Rule, name: str, index: int) -> bool:
    return name in rule.cluster.topics and index in rule.cluster.topics[name].assignment


def _says(path: str, data: bytes, assignment: Mapping[int, Sequence[int]]) -> bool:
    """Is that this assignment, and not another, or none?"""
    try:
        return parse_assignment(path, data) == assignment
    except znodes.ZnodeError:
        return False


def _problem(rule: Rule, move: Move) -> str | None:
    """Why it cannot be done, whoever lives."""
    if not _is_partition(rule, move.topic, move.partition):
        return "there is no such partition"
    replicas = [*move.replicas, *move.removing]
    if not move.replicas or len(set(replicas)) < len(replicas) or not all(0 <= r <= MAX_ID for r in replicas):
        return "replicas must be distinct brokers' ids, at least one"
    return None


def _with_unfinished(move: Move, known: Moves) -> Move:
    """Also removing what was being removed already, in case that somebody overwrote the entry."""
    before = known.get((move.topic, move.partition), move).removing
    removing = dict.fromkeys(replica for replica in (*move.removing, *before) if replica not in move.replicas)
    return msgspec.structs.replace(move, removing=list(removing))


def _without(moves: Mapping[PartitionId, Move], partition: PartitionId) -> Moves:
    return {other: move for other, move in moves.items() if other != partition}


def _writing(moves: Moves, version: int | None) -> Any:
    """The write of these entries over that version of the znode, which goes with the last one."""
    if not moves:
        return Delete(PATH, version)
    data = znodes.encode(znodes.Moves(list(moves.values())))
    return Create(PATH, data, OPEN_ACL_UNSAFE, 0) if version is None else SetData(PATH, data, version)
