"""Preferred leader election: by /admin/preferred_replica_election, by request, or periodically.

The preferred leader is the first replica of the assignment. Followers that took over keep leading when failed brokers
return, so after some failures one broker may lead everything. A preferred leader that is not in sync is skipped with a
log line.
"""

import logging
from collections import Counter

from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.protocol.serialization import Delete

from assay.system_under_test.controller import leaders
from assay.system_under_test.controller.active_term import ActiveTerm
from assay.system_under_test.controller.cluster_state import ClusterState, PartitionId
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import read_watched

_log = logging.getLogger("assay.controller")


async def handle_election_znode(zookeeper: ZooKeeper, active: ActiveTerm, watch: Watch) -> None:
    """Holds the requested elections, then removes the znode. Its removal tells the requesting tool that all are done.

    If the controller ends before that, the next one repeats the elections, which changes nothing.
    """
    path = paths.PREFERRED_ELECTION
    found = await read_watched(zookeeper, path, watch)
    if found is None:
        return
    data, stat = found
    try:
        wanted, problems = znodes.decode_entries(znodes.ChangedPartition, path, data)
    except znodes.ZnodeError as error:
        wanted, problems = [], [str(error)]
    for problem in problems:
        _log.error("%s; no leader is elected for it", problem)
    for entry in wanted:
        if await elect_preferred_leader(active, (entry.topic, entry.partition)) is None:
            _log.error("preferred leader of %s-%d: there is no such partition", entry.topic, entry.partition)
    active.broadcast.send()
    try:
        await active.writer.write([Delete(path, stat.version)])
    except (BadVersionError, NoNodeError):
        _log.info("%s was changed meanwhile; it is read again", path)


async def elect_preferred_leader(active: ActiveTerm, partition: PartitionId) -> bool | None:
    """Elects the preferred leader; returns whether it leads now, or None if there is no such partition.

    Nothing is sent to the brokers yet.
    """
    name, index = partition
    cluster = active.cluster
    if name not in cluster.topics or name in cluster.begun_deletions or index not in cluster.topics[name].assignment:
        return None
    await active.partitions.update([partition])
    assignment = cluster.topics[name].assignment[index]
    await active.partitions.rewrite(
        partition,
        lambda state: leaders.elect_first_replica(
            state, assignment, cluster.find_electable(partition), active.term.epoch
        ),
    )
    known = cluster.states.get(partition)
    if known is None or known.value.leader != assignment[0]:
        _log.warning(
            "preferred leader of %s-%d: broker %d cannot lead: it is not in sync, shutting down or damaged",
            name, index, assignment[0],
        )  # fmt: skip
        return False
    return True


def find_imbalanced(cluster: ClusterState, percentage: int) -> list[PartitionId]:
    """Returns the partitions whose leadership must go back to their preferred leaders.

    A live broker gets its partitions back if other brokers lead more than ``percentage`` per cent of them. As in Kafka,
    partitions being reassigned or deleted count, but are not returned.
    """
    preferred_counts: Counter[int] = Counter()
    led_by_others: dict[int, list[PartitionId]] = {}
    for partition, known in cluster.states.items():
        first = cluster.topics[partition[0]].assignment[partition[1]][0]
        preferred_counts[first] += 1
        if known.value.leader != first:
            led_by_others.setdefault(first, []).append(partition)
    staying = cluster.brokers_not_leaving()
    return [
        partition
        for first, partitions in led_by_others.items()
        if first in staying and 100 * len(partitions) > percentage * preferred_counts[first]
        for partition in partitions
        if partition not in cluster.moves and partition[0] not in cluster.begun_deletions
    ]
