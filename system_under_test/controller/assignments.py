"""Partitions added to a topic that exists: by a longer assignment in ZooKeeper, or by request, which writes one.

Partitions are never taken away, and their replicas change by reassignment alone, whose writes may come to light here
when their outcome was unknown: anything else that is written to the znode of a topic is rejected, and what was there is
put back, or the next controller would believe it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.protocol.serialization import SetData

from assay.system_under_test.config import INTERNAL_TOPICS
from assay.system_under_test.controller import leaders, topics
from assay.system_under_test.controller.active_term import ActiveTerm
from assay.system_under_test.controller.cluster_state import PartitionId, parse_assignment
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.controller")


async def look_again(zookeeper: ZooKeeper, active: ActiveTerm, name: str, watch: Watch) -> None:
    """Compares a known topic's znode, watched again, with what is known; takes added partitions up."""
    known, path = active.cluster.topics[name], paths.topic(name)
    try:
        data, stat = await zookeeper.get(path, watch)
    except NoNodeError:
        data, stat = b"", None
    if stat is None or stat.czxid != known.czxid:
        # Deleted by hand, and perhaps made again: then the list of topics will look unchanged.
        active.forget(name)
        return
    try:
        found = parse_assignment(path, data)
        _check_grown(known.assignment, found, _moves(active, name))
        if name in INTERNAL_TOPICS and len(found) > len(known.assignment):
            raise znodes.ZnodeError("groups belong to its partitions by their number")
        if name in active.cluster.deleting and found != known.assignment:
            raise znodes.ZnodeError("its topic is being deleted")
    except znodes.ZnodeError as error:
        _log.error("assignment of topic %s is rejected, the former one put back: %s", name, error)
        await _write(active, name, known.assignment, stat.version)
        return
    if found != known.assignment:
        for index in known.assignment:
            if found[index] != known.assignment[index]:
                await _announce_again(active, (name, index), found[index])
        active.cluster.topics[name] = replace(known, assignment=found)


async def _announce_again(active: ActiveTerm, partition: PartitionId, replicas: Sequence[int]) -> None:
    """The state that was written with these replicas may have been read, and sent, before they were: brokers ignore
    its epoch by now, so it is sent under the next one.
    """
    alive, epoch = active.cluster.staying(), active.term.epoch
    await active.partitions.rewrite(partition, lambda state: leaders.renewed(state, replicas, alive, epoch))


def grown(replicas: Sequence[int], target: Sequence[int]) -> list[int]:
    """What a partition is assigned to on its way from the one to the other."""
    return [*replicas, *(replica for replica in target if replica not in replicas)]


def _moves(active: ActiveTerm, name: str) -> dict[int, list[int]]:
    """Where its partitions are to go."""
    return {move.partition: move.replicas for move in active.cluster.moves.values() if move.topic == name}


def _check_grown(
    known: Mapping[int, Sequence[int]], found: Mapping[int, Sequence[int]], moves: Mapping[int, list[int]]
) -> None:
    """Raises ``ZnodeError`` unless ``found`` has the partitions of ``known`` as they are, or on their way where
    ``moves`` has them go, and the next ones if any.
    """
    for index, replicas in known.items():
        if index not in found:
            raise znodes.ZnodeError(f"partition {index} is missing")
        target = moves.get(index, list(replicas))
        if list(found[index]) not in (list(replicas), grown(replicas, target), target):
            raise znodes.ZnodeError(f"partition {index} has the replicas {replicas}, not {found[index]}")
    if len(found) > len(known) and sorted(found) != list(range(len(found))):
        raise znodes.ZnodeError(f"partitions {sorted(found)} are not numbered from 0 on")


def writing(name: str, assignment: Mapping[int, Sequence[int]], version: int) -> Any:
    """The write of a topic's assignment over that version of it."""
    data = znodes.encode(znodes.TopicAssignment({str(index): list(r) for index, r in sorted(assignment.items())}))
    return SetData(paths.topic(name), data, version)


async def _write(active: ActiveTerm, name: str, assignment: Mapping[int, Sequence[int]], version: int) -> None:
    await active.fence.write([writing(name, assignment, version)])


async def add(
    zookeeper: ZooKeeper,
    active: ActiveTerm,
    name: str,
    count: int,
    assigned: Sequence[Sequence[int]],
    *,
    validate_only: bool,
) -> None:
    """Writes an assignment of ``count`` partitions, the new ones to ``assigned`` replicas (none: spread over all).

    Raises ``TopicError``.
    """
    if name in INTERNAL_TOPICS:  # groups belong to a partition by their number
        raise TopicError(ErrorCode.INVALID_TOPIC, f"topic {name!r} is the brokers' own; its partitions are never more")
    if name not in active.cluster.topics or name in active.cluster.deleting:
        raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    data, stat = await zookeeper.get(paths.topic(name))
    try:
        present = parse_assignment(paths.topic(name), data)
        _check_grown(active.cluster.topics[name].assignment, present, _moves(active, name))
    except znodes.ZnodeError as error:
        raise TopicError(ErrorCode.INVALID_REQUEST, f"{error}; ask again when it has been put right") from error
    if not len(present) < count <= len(present) + topics.MAX_PARTITIONS:
        raise TopicError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r} has {len(present)} partitions; {count} must be more, by at most {topics.MAX_PARTITIONS}",
        )
    new = range(len(present), count)
    brokers = sorted(active.cluster.brokers)
    first = _moves(active, name).get(min(present), present[min(present)])
    if assigned:
        wanted = dict(zip(new, assigned, strict=False))
        if len(assigned) != len(new) or not all(topics.placeable(r, len(first), brokers) for r in assigned):
            raise TopicError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"give each of the {len(new)} new partitions {len(first)} distinct live brokers",
            )
    else:
        if len(first) > len(brokers):
            raise TopicError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {len(first)} with {len(brokers)} live brokers",
            )
        start = next((place for place, broker in enumerate(brokers) if broker >= first[0]), 0)
        wanted = dict(topics.spread(new, len(first), brokers, start, start))
    if not validate_only:
        try:
            await _write(active, name, {**present, **wanted}, stat.version)
        except BadVersionError as error:
            raise TopicError(ErrorCode.INVALID_REQUEST, f"topic {name!r} changed meanwhile; ask again") from error
