"""View of a group: its members and partitions as read from ZooKeeper. Every member computes the assignment from it."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.pool import Address
from assay.system_under_test.client.zookeeper_groups.subscription import StreamSubscription, to_subscription
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.zookeeper import paths
from assay.system_under_test.zookeeper.znodes import (
    BrokerRegistration,
    ConsumerRegistration,
    TopicAssignment,
    ZnodeError,
    read,
)


def to_thread_id(consumer_id: str, index: int) -> str:
    """Returns the id of a thread, which is the content of the znode of its claims."""
    return f"{consumer_id}-{index}"


def assign_partitions(
    partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Iterable[str]]
) -> dict[Partition, str]:
    """Assigns each topic's partitions to its threads, and returns the thread id of each partition.

    This is Kafka's ``RangeAssignor`` of 0.8 to 0.10:

    1. Each topic is assigned separately, in the given order of its partitions.
    2. Threads are sorted as strings, ``c-10`` before ``c-2``.
    3. With n = partitions div threads, each thread gets n adjacent partitions.
    4. The first (partitions mod threads) threads get one more. Some threads may get none.
    """
    owners: dict[Partition, str] = {}
    for topic, indexes in partitions.items():
        ordered = sorted(threads.get(topic, ()))
        if not ordered:
            continue
        unassigned = iter(indexes)
        share, remainder = divmod(len(indexes), len(ordered))
        for rank, thread in enumerate(ordered):
            for _ in range(share + (rank < remainder)):
                owners[topic, next(unassigned)] = thread
    return owners


_log = logging.getLogger("assay.client")

T = TypeVar("T")
R = TypeVar("R")


class PartitionShare(NamedTuple):
    """The member and thread that a partition is assigned to."""

    member: str
    thread: str


@dataclass(frozen=True)
class GroupView:
    """A group as read from ZooKeeper.

    - ``members``: subscription by consumer id
    - ``partitions``: partitions of every topic that a member may want, in the order of assignment
    - ``zxid``: the zxid of the latest change of members. If it is newer than ``members``, the watch has fired.
    """

    members: Mapping[str, StreamSubscription]
    partitions: Mapping[str, tuple[int, ...]]
    zxid: int = 0

    @cached_property
    def shares(self) -> Mapping[Partition, PartitionShare]:
        """The member and the thread of each assigned partition."""
        members: dict[tuple[str, str], str] = {}
        threads: dict[str, list[str]] = {}
        for member, wanted in self.members.items():
            for topic, count in wanted.count_streams(self.partitions).items():
                names = [to_thread_id(member, index) for index in range(count)]
                threads.setdefault(topic, []).extend(names)
                members |= {(topic, name): member for name in names}
        return {
            one: PartitionShare(members[one[0], name], name)
            for one, name in assign_partitions(self.partitions, threads).items()
        }

    def find_share(self, consumer_id: str) -> dict[Partition, str]:
        """Returns the thread id of each partition that is assigned to this member."""
        return {one: share.thread for one, share in self.shares.items() if share.member == consumer_id}


async def read_view(
    zookeeper: ZooKeeper, group: str, subscription: StreamSubscription, watch: Watch, *, by_broker: bool = False
) -> GroupView:
    """Reads the view of a member with this subscription.

    ``watch`` is called at the first change of members, brokers, topics or partitions. ``by_broker`` orders partitions
    by their preferred leaders instead of their numbers. All members ignore a member whose registration is invalid.
    Raises kazoo's errors.
    """
    await zookeeper.get_children(paths.BROKER_IDS, watch)
    topics = subscription.count_streams(await zookeeper.get_children(paths.TOPICS, watch))
    partitions: dict[str, tuple[int, ...]] = {}

    def sort_partitions(path: str, assignment: TopicAssignment) -> tuple[int, ...]:
        replicas = {int(index): brokers for index, brokers in assignment.partitions.items()}
        return tuple(sorted(replicas, key=lambda index: (replicas[index][:1] if by_broker else [], index)))

    for topic in topics:
        path = paths.topic(topic)
        indexes = await _read(zookeeper, TopicAssignment, path, sort_partitions, f"group {group}: ", watch)
        if indexes is not None:
            partitions[topic] = indexes
    members: dict[str, StreamSubscription] = {}
    ids = paths.consumer_ids(group)
    names = await zookeeper.get_children(ids, watch)
    stat = await zookeeper.exists(ids)
    for member in names:
        path = paths.consumer(group, member)
        wanted = await _read(zookeeper, ConsumerRegistration, path, to_subscription, f"group {group}: ")
        if wanted is not None:
            members[member] = wanted
    return GroupView(members, partitions, 0 if stat is None else stat.pzxid)


async def read_broker_addresses(zookeeper: ZooKeeper) -> list[Address]:
    """Returns the addresses of the registered brokers. Raises kazoo's errors."""
    found = [
        await _read(
            zookeeper,
            BrokerRegistration,
            f"{paths.BROKER_IDS}/{name}",
            lambda _, broker: Address(broker.host, broker.port),
        )
        for name in await zookeeper.get_children(paths.BROKER_IDS)
    ]
    return [address for address in found if address is not None]


async def _read(
    zookeeper: ZooKeeper,
    kind: type[T],
    path: str,
    convert: Callable[[str, T], R],
    log_prefix: str = "",
    watch: Watch | None = None,
) -> R | None:
    """Reads and converts a znode. Returns None if it is invalid, or was deleted, in which case another watch fires."""
    try:
        found = await read(zookeeper, kind, path, watch)
        return None if found is None else convert(path, found[0])
    except (ValueError, ZnodeError) as error:
        _log.warning("%s%s", log_prefix, error)
        return None
