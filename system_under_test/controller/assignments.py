"""Assignments of topics: adds partitions, and checks changes of the assignments in ZooKeeper.

A request or a user adds partitions by writing a longer assignment. Partitions are never removed, and only a
reassignment changes their replicas. If a reassignment's write had an unknown outcome, its result becomes visible here.
Any other change of a topic's znode is rejected, and the former content is restored. Otherwise the next controller would
adopt the change.
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


async def check_assignment(zookeeper: ZooKeeper, active: ActiveTerm, name: str, watch: Watch) -> None:
    """Reads a known topic's znode, sets a new watch, and adopts added partitions. Restores an invalid assignment."""
    known, path = active.cluster.topics[name], paths.topic(name)
    try:
        data, stat = await zookeeper.get(path, watch)
    except NoNodeError:
        data, stat = b"", None
    if stat is None or stat.czxid != known.czxid:
        # The topic was deleted by hand. If it was created again, the list of topics looks unchanged.
        active.forget(name)
        return
    try:
        found = parse_assignment(path, data)
        _require_extension(known.assignment, found, _find_targets(active, name))
        if name in INTERNAL_TOPICS and len(found) > len(known.assignment):
            raise znodes.ZnodeError("groups are assigned by its number of partitions")
        if name in active.cluster.begun_deletions and found != known.assignment:
            raise znodes.ZnodeError("its topic is being deleted")
    except znodes.ZnodeError as error:
        _log.error("assignment of topic %s is rejected and the former one restored: %s", name, error)
        await _write(active, name, known.assignment, stat.version)
        return
    if found != known.assignment:
        for index in known.assignment:
            if found[index] != known.assignment[index]:
                await _announce_again(active, (name, index), found[index])
        active.cluster.topics[name] = replace(known, assignment=found)


async def _announce_again(active: ActiveTerm, partition: PartitionId, replicas: Sequence[int]) -> None:
    """Writes the state with these replicas under the next leader epoch, so that it is sent again.

    The controller may have sent the state with the old replicas before. Brokers ignore a state whose leader epoch they
    already know.
    """
    alive, epoch = active.cluster.brokers_not_leaving(), active.term.epoch
    await active.partitions.rewrite(partition, lambda state: leaders.renew_epoch(state, replicas, alive, epoch))


def merge_replicas(replicas: Sequence[int], target: Sequence[int]) -> list[int]:
    """Returns the assignment of a partition during its reassignment from ``replicas`` to ``target``."""
    return [*replicas, *(replica for replica in target if replica not in replicas)]


def _find_targets(active: ActiveTerm, name: str) -> dict[int, list[int]]:
    """Returns the targets of the topic's reassignments, by partition."""
    return {move.partition: move.replicas for move in active.cluster.moves.values() if move.topic == name}


def _require_extension(
    known: Mapping[int, Sequence[int]], found: Mapping[int, Sequence[int]], moves: Mapping[int, list[int]]
) -> None:
    """Raises ``ZnodeError`` if ``found`` differs from ``known`` in anything but added partitions.

    A partition in ``moves`` may have its replicas from before, during or after its reassignment.
    """
    for index, replicas in known.items():
        if index not in found:
            raise znodes.ZnodeError(f"partition {index} is missing")
        target = moves.get(index, list(replicas))
        if list(found[index]) not in (list(replicas), merge_replicas(replicas, target), target):
            raise znodes.ZnodeError(f"partition {index} has the replicas {replicas}, not {found[index]}")
    if len(found) > len(known) and sorted(found) != list(range(len(found))):
        raise znodes.ZnodeError(f"partitions {sorted(found)} are not numbered from 0 on")


def make_assignment_write(name: str, assignment: Mapping[int, Sequence[int]], version: int) -> Any:
    """Returns the write of a topic's assignment, on condition that its znode has this version."""
    data = znodes.encode(znodes.TopicAssignment({str(index): list(r) for index, r in sorted(assignment.items())}))
    return SetData(paths.topic(name), data, version)


async def _write(active: ActiveTerm, name: str, assignment: Mapping[int, Sequence[int]], version: int) -> None:
    await active.writer.write([make_assignment_write(name, assignment, version)])


async def add_partitions(
    zookeeper: ZooKeeper,
    active: ActiveTerm,
    name: str,
    count: int,
    assigned: Sequence[Sequence[int]],
    *,
    validate_only: bool,
) -> None:
    """Writes an assignment of ``count`` partitions. Raises ``TopicError``.

    ``assigned`` has the replicas of the new partitions; if it is empty, they are spread over all brokers.
    """
    if name in INTERNAL_TOPICS:  # groups are assigned by the number of partitions
        raise TopicError(ErrorCode.INVALID_TOPIC, f"topic {name!r} is internal; partitions cannot be added to it")
    if name not in active.cluster.topics or name in active.cluster.begun_deletions:
        raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    data, stat = await zookeeper.get(paths.topic(name))
    try:
        present = parse_assignment(paths.topic(name), data)
        _require_extension(active.cluster.topics[name].assignment, present, _find_targets(active, name))
    except znodes.ZnodeError as error:
        raise TopicError(ErrorCode.INVALID_REQUEST, f"{error}; try again when it has been restored") from error
    if not len(present) < count <= len(present) + topics.MAX_PARTITIONS:
        raise TopicError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r} has {len(present)} partitions; {count} must be more, by at most {topics.MAX_PARTITIONS}",
        )
    new = range(len(present), count)
    brokers = sorted(active.cluster.brokers)
    # The first partition shows the replication factor, and the broker at which the assignment began.
    first = _find_targets(active, name).get(min(present), present[min(present)])
    if assigned:
        wanted = dict(zip(new, assigned, strict=False))
        if len(assigned) != len(new) or not all(topics.is_placeable(r, len(first), brokers) for r in assigned):
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
        start = next((position for position, broker in enumerate(brokers) if broker >= first[0]), 0)
        wanted = dict(topics.spread_replicas(new, len(first), brokers, start, start))
    if not validate_only:
        try:
            await _write(active, name, {**present, **wanted}, stat.version)
        except BadVersionError as error:
            raise TopicError(ErrorCode.INVALID_REQUEST, f"topic {name!r} changed meanwhile; try again") from error
