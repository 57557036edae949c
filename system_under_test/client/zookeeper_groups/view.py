"""What ZooKeeper has of a group, from which every member computes who gets which partitions."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from kazoo.exceptions import NoNodeError

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.pool import Address
from assay.system_under_test.client.zookeeper_groups.subscription import StreamSubscription, subscription_of
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.zookeeper import paths
from assay.system_under_test.zookeeper.znodes import (
    BrokerRegistration,
    ConsumerRegistration,
    TopicAssignment,
    ZnodeError,
    decode,
)


def thread_id(consumer_id: str, index: int) -> str:
    """What an owner's znode holds."""
    return f"{consumer_id}-{index}"


def allot(partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Iterable[str]]) -> dict[Partition, str]:
    """From each topic's partitions and each topic's thread ids to the thread that owns each partition.

    As ``RangeAssignor`` of Kafka 0.8 - 0.10: of each topic, in the order given, a range to each consumer thread.
    Threads sort as strings, ``c-10`` before ``c-2``. With n = partitions div threads each gets n in a row, and the
    first (partitions mod threads) of them one more; threads that are left over get none.
    """
    owners: dict[Partition, str] = {}
    for topic, indexes in partitions.items():
        takers = sorted(threads.get(topic, ()))
        if not takers:
            continue
        waiting = iter(indexes)
        each, more = divmod(len(indexes), len(takers))
        for rank, taker in enumerate(takers):
            for _ in range(each + (rank < more)):
                owners[topic, next(waiting)] = taker
    return owners


_log = logging.getLogger("assay.client")


class Share(NamedTuple):
    """Whom a partition is for."""

    member: str
    thread: str


@dataclass(frozen=True)
class GroupView:
    """``members``: consumer id to what it wants; ``partitions``: of every topic that one of them may want, in the order
    in which they are shared out.

    ``version``: the zxid of the latest change of members at the time, a later one than is in ``members`` only if the
    watch has fired.
    """

    members: Mapping[str, StreamSubscription]
    partitions: Mapping[str, tuple[int, ...]]
    version: int = 0

    @cached_property
    def shares(self) -> Mapping[Partition, Share]:
        """Of all partitions that are for someone."""
        members: dict[tuple[str, str], str] = {}
        threads: dict[str, list[str]] = {}
        for member, wanted in self.members.items():
            for topic, count in wanted.threads(self.partitions).items():
                names = [thread_id(member, index) for index in range(count)]
                threads.setdefault(topic, []).extend(names)
                members |= {(topic, name): member for name in names}
        return {one: Share(members[one[0], name], name) for one, name in allot(self.partitions, threads).items()}

    def allotted_to(self, consumer_id: str) -> dict[Partition, str]:
        """Partition to thread id, of those that are for this member."""
        return {one: share.thread for one, share in self.shares.items() if share.member == consumer_id}


async def read_view(
    zookeeper: ZooKeeper, group: str, mine: StreamSubscription, watch: Watch, *, by_broker: bool = False
) -> GroupView:
    """Reads it all, and has ``watch`` called at the first change of members, brokers, topics or partitions.

    ``by_broker``: partitions are in the order of the brokers that are first among their replicas, else of their
    numbers.
    A member whose registration makes no sense is left out, by all members alike. Raises kazoo's errors.
    """
    await zookeeper.get_children(paths.BROKER_IDS, watch)
    topics = mine.threads(await zookeeper.get_children(paths.TOPICS, watch))
    partitions: dict[str, tuple[int, ...]] = {}
    for topic in topics:
        path = paths.topic(topic)
        try:
            data, _ = await zookeeper.get(path, watch)
            replicas = {int(index): some for index, some in decode(TopicAssignment, path, data).partitions.items()}
            partitions[topic] = tuple(sorted(replicas, key=lambda one: (replicas[one][:1] if by_broker else [], one)))
        except NoNodeError:
            continue  # it was deleted; the watch on all topics fires
        except (ValueError, ZnodeError) as error:
            _log.warning("group %s: %s", group, error)
    members: dict[str, StreamSubscription] = {}
    ids = paths.consumer_ids(group)
    names = await zookeeper.get_children(ids, watch)
    stat = await zookeeper.exists(ids)
    for member in names:
        path = paths.consumer(group, member)
        try:
            data, _ = await zookeeper.get(path)
            members[member] = subscription_of(path, decode(ConsumerRegistration, path, data))
        except NoNodeError:
            continue  # it left; the watch on all members fires
        except ZnodeError as error:
            _log.warning("group %s: %s", group, error)
    return GroupView(members, partitions, 0 if stat is None else stat.pzxid)


async def registered_brokers(zookeeper: ZooKeeper) -> list[Address]:
    """Where the brokers that are registered now are reached. Raises kazoo's errors."""
    found = []
    for name in await zookeeper.get_children(paths.BROKER_IDS):
        path = f"{paths.BROKER_IDS}/{name}"
        try:
            data, _ = await zookeeper.get(path)
            registration = decode(BrokerRegistration, path, data)
            found.append(Address(registration.host, registration.port))
        except NoNodeError:
            continue  # it has gone; the watch on all brokers fires
        except ZnodeError as error:
            _log.warning("%s", error)
    return found
