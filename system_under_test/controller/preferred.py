"""Makes the first of the assignment the leader: by /admin/preferred_replica_election, by request, or periodically.

Followers that took over keep the lead when the others come back, so that after some failures one broker leads
everything. Only a replica that is in sync is elected; the others are passed over, with a line in the log.
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
from assay.system_under_test.zookeeper.znodes import watched

_log = logging.getLogger("assay.controller")


async def look(zookeeper: ZooKeeper, active: ActiveTerm, watch: Watch) -> None:
    """Holds the elections that are asked for, then removes the znode, which shows the asking tool that it is done.

    A controller that ends before leaves the znode to the next one: an election that was held is not held again.
    """
    path = paths.PREFERRED_ELECTION
    found = await watched(zookeeper, path, watch)
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
        if await elect(active, (entry.topic, entry.partition)) is None:
            _log.error("preferred leader of %s-%d: there is no such partition", entry.topic, entry.partition)
    active.brokers.send()
    try:
        await active.fence.write([Delete(path, stat.version)])
    except (BadVersionError, NoNodeError):
        _log.info("%s was changed in between; it is looked at again", path)


async def elect(active: ActiveTerm, partition: PartitionId) -> bool | None:
    """Does the first of the assignment lead now? None when there is no such partition. Nothing is sent to the brokers
    yet.
    """
    name, index = partition
    cluster = active.cluster
    if name not in cluster.topics or name in cluster.deleting or index not in cluster.topics[name].assignment:
        return None
    await active.partitions.update([partition])
    assignment = cluster.topics[name].assignment[index]
    await active.partitions.rewrite(
        partition, lambda state: leaders.preferred(state, assignment, cluster.electable(partition), active.term.epoch)
    )
    known = cluster.states.get(partition)
    if known is None or known.value.leader != assignment[0]:
        _log.warning("preferred leader of %s-%d: broker %d is not in sync", name, index, assignment[0])
        return False
    return True


def imbalanced(cluster: ClusterState, percentage: int) -> list[PartitionId]:
    """The partitions to be led by the first of their replicas, of the live brokers that lead too few of theirs.

    As in Kafka, those on the move, or about to be deleted, count but are left alone.
    """
    should: Counter[int] = Counter()
    elsewhere: dict[int, list[PartitionId]] = {}
    for partition, known in cluster.states.items():
        first = cluster.topics[partition[0]].assignment[partition[1]][0]
        should[first] += 1
        if known.value.leader != first:
            elsewhere.setdefault(first, []).append(partition)
    staying = cluster.staying()
    return [
        partition
        for first, led_by_others in elsewhere.items()
        if first in staying and 100 * len(led_by_others) > percentage * should[first]
        for partition in led_by_others
        if partition not in cluster.moves and partition[0] not in cluster.deleting
    ]
